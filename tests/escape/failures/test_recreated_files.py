# SPDX-License-Identifier: GPL-3.0-or-later
"""Of two concurrent runs, one deletes or replaces what the other creates again: the records match
the disk, and the next command sees what is pending."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
from support.escape.copy_back import apply_all, in_each, review, rows, settle
from support.escape.kill import Snapshot, check_finished, finish, look_at
from support.person import Person

from ollmsandbox.files.dirfd import folders_above
from ollmsandbox.files.overlayfs import find_in_layers, names_in_layers, read_seen
from ollmsandbox.project.change import PENDING_STATES, Kind, Recorded, State, Type
from ollmsandbox.project.held.git.view import View
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.project.review import Review
from ollmsandbox.project.scan import scan
from ollmsandbox.sandbox.overlay import Root, leftovers
from ollmsandbox.sandbox.spec import Mode, RunSpec

ANEW = "rm -r d; mkdir d; echo old >d/a"
# What the two do, in a folder of its own each.
PAIRS = (
    ("rm -r d", ANEW),
    ("rm -r d", f"{ANEW}; echo second >d/new"),
    ("rm -r d", f"{ANEW}; mkdir -p d/e/empty; mkfifo d/pipe; chmod 500 d/e"),
    ("rm -r d", "mv d q; mv q d"),
    ("rm -r d/e", "mv d q; mv q d"),
    ("rm -r d; echo first >d", ANEW),
    ("rm -r d; echo first >d", "mv d q; mv q d; echo second >d/e/new"),
    ("mv d d2", "mv d q; mv q d"),
    ("mv d d2", "touch d/a d/e/c; chmod 700 d"),
    ("echo first >d/a; rm d/b", ANEW),
    ("rm -r d; mkdir d; echo first >d/n", "rm -r d/e; mkdir d/e; echo old >d/e/c"),
    ("rm f", "rm f; echo old >f"),
    ("rm f", "touch f"),
    ("echo first >f", "rm f; echo old >f"),
    ("mv f g", "mv f g; mv g f"),
    ("rm l", "rm l; ln -s f l"),
    ("rm f; mkdir f; echo first >f/a", "rm f; echo old >f"),
)


def fill(folder: Path) -> None:
    (folder / "d/e").mkdir(parents=True)
    for name in ("d/a", "d/b", "d/e/c", "f"):
        (folder / name).write_text("old\n")
    (folder / "l").symlink_to("f")


def settle_left(person: Person, run_id: str, mode: Mode) -> None:
    for overlay in leftovers(person.paths.cache, print):
        try:
            if overlay.run_id == run_id:
                overlay.about = {**overlay.about, "mode": mode.value}
                recorder = Recorder(RunSpec(str(person.project), mode=mode), person.paths)
                recorder.settle(overlay)
                overlay.cleanup()
        finally:
            overlay.release()


def in_layers(layers: Iterable[str]) -> dict[str, str]:
    """Return the content of each file by its path, "/" for a folder."""
    seen, waiting, below = {}, [""], tuple(layers)
    while waiting:
        folder = waiting.pop()
        for name in names_in_layers(below, folder):
            path = f"{folder}/{name}" if folder else name
            found = find_in_layers(below, path)
            assert found is not None
            if found.is_folder:
                waiting.append(path)
            seen[path] = "/" if found.is_folder else "@"
            if found.is_file:
                seen[path] = read_seen(found).decode().strip()
    return seen


def next_root(person: Person) -> Root:
    [root] = Recorder(RunSpec(str(person.project)), person.paths).roots()
    return root


def by_next(person: Person) -> dict[str, str]:
    """Return all that the next command sees."""
    return in_layers(next_root(person).lowers)


def on_disk(person: Person) -> dict[str, str]:
    return in_layers([str(person.project)])


def left_by(person: Person, run_id: str) -> dict[str, str]:
    """Return all that the command saw at its end."""
    folder = person.paths.cache / f"overlay-{run_id}/upper/overlay1"
    return in_layers([str(folder), *next_root(person).lowers])


def records(person: Person) -> dict[str, dict[str, Recorded]]:
    """Return the changes by run, in the order of their ends, and by path."""
    with closing(Review(person.paths)) as work:
        project = work.manager.find_project(person.project)
        runs = work.manager.runs(project) if project else []
        ordered = sorted(runs, key=lambda run: run.ended_at or 0)
        return {
            run.id: {item.change.path: item for item in read_changes(work.manager, run)}
            for run in ordered
        }


def check_records(person: Person, told: object) -> None:
    """Assert that what was applied last is on disk, and that the next command sees nothing else
    instead of it than the pending changes."""
    disk, applied = on_disk(person), {}
    for items in records(person).values():
        for path, item in items.items():
            # A folder with another mode may be deleted later.
            is_mode = item.change.type is Type.FOLDER and item.change.kind is Kind.MODIFIED
            if item.state is State.APPLIED and not is_mode:
                applied[path] = item.change.kind is not Kind.DELETED
    assert applied == {path: path in disk for path in applied}, told
    root = next_root(person)
    if not root.layer:
        return
    changes = scan(root.path, View({root.path: (root.layer, root.path)})).changes
    # A folder may only lead to something.
    found = {change.path for change in changes if change.type is not Type.FOLDER}
    recorded = {
        path
        for items in records(person).values()
        for path, item in items.items()
        if item.state in PENDING_STATES
    }
    # Where a file is in conflict with a folder, it hides what is in there.
    hidden = {path for path in found if not recorded.isdisjoint(folders_above(path))}
    assert found - hidden <= recorded, told


@pytest.mark.parametrize(
    "waits", [pytest.param("nothing waits", marks=pytest.mark.ordinary), "something waits"]
)
def test_every_record_says_what_is_on_disk(person: Person, waits: str) -> None:
    for number in range(len(PAIRS)):
        fill(person.project / str(number))
    if waits == "something waits":
        settle(person, "echo waits >waiting", Mode.REVIEW)
    snapshot = Snapshot(person)
    runs = [snapshot.leave(in_each(pair[which] for pair in PAIRS)) for which in (0, 1)]
    made = {run: left_by(person, run) for run in runs}
    snapshot.save()
    modes = (Mode.AUTO, Mode.REVIEW)
    for told in itertools.product(modes, modes, (False, True)):
        one, other, is_turned = told
        snapshot.restore()
        both = [(runs[0], one), (runs[1], other)]
        for run, mode in reversed(both) if is_turned else both:
            settle_left(person, run, mode)
        check_records(person, told)
        known, seen = records(person), by_next(person)
        for run, files in made.items():
            # Nothing that is new goes without a word.
            for path in {p for p in files if files[p] not in ("/", "@", "old")}:
                is_known = path in known.get(run, {})
                assert is_known or seen.get(path) == files[path], (told, path)
        apply_all(person)
        check_records(person, (told, "applied"))


def test_a_folder_is_deleted_after_the_pending_changes_of_another_run_in_it(person: Person) -> None:
    fill(person.project)
    second = Snapshot(person).leave(f"{ANEW}; echo second >d/new; touch f")
    settle(person, "rm -r d; rm f", Mode.REVIEW)
    # It had begun before the first, and ends after it.
    settle_left(person, second, Mode.AUTO)
    review(person, "discard", second)
    reports = apply_all(person)
    assert {item.state for report in reports for item in report.changes} == {State.APPLIED}
    assert on_disk(person) == {"l": "@"}


@pytest.mark.ordinary
def test_a_kill_at_any_step(person: Person) -> None:
    fill(person.project)
    snapshot = Snapshot(person)
    second = snapshot.leave(f"{ANEW}; mkdir -p d/e/empty; echo second >d/new; echo second >new")
    settle(person, "rm -r d; rm f", Mode.REVIEW)
    snapshot.save()

    def look() -> tuple[object, ...]:
        return rows(person, second), look_at(person.project), by_next(person)

    settle_left(person, second, Mode.REVIEW)
    expected = look()
    check_records(person, "not killed")
    for number, _ in snapshot.kills(lambda: settle_left(person, second, Mode.REVIEW), every=5):
        finish(snapshot, 1 + number * 7 % 13)
        assert look() == expected, number
        check_finished(person)
