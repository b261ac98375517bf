# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes between a kill and the next start: recovery takes neither a later run's files nor the
user's edits for its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from support.escape.copy_back import FIRST_STEP, review, settle
from support.escape.kill import EVERY, Snapshot, check_finished, finish, killed_after
from support.person import Person

from ollmsandbox.files.overlayfs import find_in_layers, read_seen
from ollmsandbox.project import write_file
from ollmsandbox.project.change import State
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.project.review import Review
from ollmsandbox.project.versions import Versions
from ollmsandbox.sandbox.spec import Mode, RunSpec

pytestmark = pytest.mark.anybody

BOTH = {"a": b"first\n", "f": b"first\n"}


@pytest.fixture
def snapshot(person: Person) -> Snapshot:
    for name in BOTH:
        (person.project / name).write_text("old\n")
    return Snapshot(person)


def rows(person: Person, run_id: str) -> dict[str, tuple[State, bytes]]:
    """Return the state of each file, and the run's version of it."""
    with closing(Review(person.paths)) as found:
        run = found.manager.run(run_id)
        versions = Versions(found.manager)
        return {
            item.change.path: (item.state, versions.after(run, item).read())
            for item in read_changes(found.manager, run)
        }


def write(person: Person, name: str, text: bytes) -> str:
    """Write as a command does that has been running all the time."""
    file = f"{person.project}/{name}"
    report = write_file.write_file(
        person.paths, RunSpec(str(person.project), mode=Mode.REVIEW), file, text
    )
    return report.run_id


def on_disk(person: Person, name: str) -> bytes:
    return (person.project / name).read_bytes()


def kills() -> Iterator[int]:
    """After which steps; not all of them each time."""
    number = 1 + (1 if EVERY else 4) * FIRST_STEP
    while True:
        yield number
        number += EVERY or 8


def test_a_later_pending_run_survives_an_interrupted_apply(snapshot: Snapshot) -> None:
    person = snapshot.person
    first = settle(person, "echo first >a; echo first >f", Mode.REVIEW).run_id
    snapshot.save()
    for number in kills():
        snapshot.restore()
        if not killed_after(number, lambda: review(person, "apply", first)):
            break
        second = write(person, "f", b"first\nsecond\n")
        finish(snapshot)
        check_finished(person)
        found = rows(person, second)
        assert found == {"f": (State.PENDING, b"first\nsecond\n")}, number
        # Nobody said yes to the second.
        state, _ = rows(person, first)["f"]
        assert on_disk(person, "f") == (b"first\n" if state is State.APPLIED else b"old\n")
        assert rows(person, first)["a"][0] in (State.APPLIED, State.PENDING)


def slow_clock(patch: pytest.MonkeyPatch) -> None:
    """Simulate a machine a thousand times as fast: all times are almost equal."""
    real, begin = time.time, time.time()
    patch.setattr(time, "time", lambda: begin + 1 + (real() - begin) / 1000)


@pytest.mark.parametrize("is_fast", [False, True], ids=["as it is", "fast"])
def test_a_later_pending_run_survives_an_interrupted_settle(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, is_fast: bool
) -> None:
    person = snapshot.person
    settle(person, "echo waits >waiting", Mode.REVIEW)
    snapshot.leave("echo first >a; echo first >f")
    if is_fast:
        slow_clock(monkeypatch)
    [left] = person.paths.cache.glob("overlay-*")
    first = left.name.removeprefix("overlay-")
    snapshot.save()

    for number in kills():
        snapshot.restore()
        if not killed_after(number, lambda: snapshot.settle(Mode.AUTO)):
            break
        [root] = Recorder(RunSpec(str(person.project)), person.paths).roots()
        seen = find_in_layers(root.lowers, "f")
        was_seen = seen is not None and read_seen(seen) == b"first\n"
        second = write(person, "f", b"second\n")
        finish(snapshot)
        check_finished(person)
        made = rows(person, second)["f"]
        assert made == (State.PENDING, b"second\n"), number
        state, version = rows(person, first)["f"]
        assert on_disk(person, "f") == (b"first\n" if state is State.APPLIED else b"old\n"), number
        # Who wrote the second had the first to begin with, or it is kept.
        assert was_seen or version == b"first\n", number


@pytest.mark.parametrize("action", ["apply", "undo", "redo"])
def test_edits_since_the_kill_stay(snapshot: Snapshot, action: str) -> None:
    person = snapshot.person
    run = settle(person, "echo first >a; echo first >f", Mode.REVIEW).run_id
    verbs = {"apply": ["apply"], "undo": ["apply", "undo"], "redo": ["apply", "undo", "apply"]}
    *before, last = verbs[action]
    snapshot.save()
    for number in kills():
        snapshot.restore()
        for verb in before:
            review(person, verb, run)
        if not killed_after(number, lambda: review(person, last, run)):
            break
        with open(person.project / "f", "ab") as file:
            file.write(b"mine\n")
        finish(snapshot)
        # Whatever is done with the change, the line of the user stays.
        versions = (b"old\nmine\n", b"first\nmine\n")
        assert on_disk(person, "f") in versions, number
        for verb in ("undo", "apply", "undo"):
            review(person, verb, run)
            assert on_disk(person, "f") in versions, (number, verb)
