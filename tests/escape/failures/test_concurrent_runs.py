# SPDX-License-Identifier: GPL-3.0-or-later
"""Two runs at once in one project, one of them in review mode: neither overwrites the other's
changes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.cli_inline import cli_here
from support.escape.copy_back import FIRST_STEP
from support.escape.kill import EVERY, Seen, Snapshot, check_finished, finish, killed_after, look_at
from support.escape.paused import run_while, states
from support.person import Person
from support.timing import PATIENCE, wait_for

from ollmsandbox.project.change import Kind, State
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.project.review import Review
from ollmsandbox.project.versions import Versions
from ollmsandbox.sandbox.spec import Mode, RunSpec

REVIEW = ("--apply", "review")


def review(person: Person, command: str) -> dict[str, Any]:
    return person.cli_run(command, *REVIEW)


def both(
    person: Person, first: str, second: str, *options: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`second` is at work before the first begins, and ends after it."""
    firsts: list[dict[str, Any]] = []
    document = run_while(
        person, second, lambda: firsts.append(review(person, first)), *(options or REVIEW)
    )
    assert not document["errors"], document
    return firsts[0], document


def seen_by_next(person: Person, command: str) -> str:
    return person.cli("run", "--apply", "never", "--quiet", "-c", command).stdout


def changes_of(person: Person, run_id: str) -> dict[str, str]:
    """Return the states of a run's changes, by path."""
    return states(json.loads(cli_here(person, "changes", run_id, "--json").stdout))


def text(person: Person, name: str) -> str:
    return (person.project / name).read_text()


def fill(folder: Path) -> None:
    (folder / "folder").mkdir(parents=True)
    for name in ("file", "folder/leaf", "folder/other"):
        (folder / name).write_text("old\n")


@pytest.fixture
def crossed(person: Person) -> tuple[Person, str, str]:
    fill(person.project)
    first, second = both(person, "echo first >file", "echo second >file; echo new >new")
    assert states(first) == {"file": "pending"}
    assert states(second) == {"file": "pending", "new": "pending"}
    return person, first["run_id"], second["run_id"]


@pytest.mark.anybody
def test_two_runs_that_change_a_file_are_both_listed_and_can_be_discarded(
    crossed: tuple[Person, str, str],
) -> None:
    person, first, second = crossed
    assert "+first" in cli_here(person, "changes", first, "--diff").stdout
    assert "+second" in cli_here(person, "changes", second, "--diff").stdout
    assert seen_by_next(person, "cat file new") == "second\nnew\n"
    assert text(person, "file") == "old\n"
    assert cli_here(person, "discard", second).returncode == 0
    assert seen_by_next(person, "cat file") == "first\n"
    assert cli_here(person, "discard", first).returncode == 0
    assert seen_by_next(person, "cat file") == "old\n"


@pytest.mark.anybody
@pytest.mark.parametrize("made", [False, True], ids=["changed", "made anew"])
def test_a_change_written_earlier_but_settled_later_is_kept(person: Person, made: bool) -> None:
    """The first wrote it before the second began, which still did not see it."""
    fill(person.project)
    review(person, "echo waits >waiting")
    make = "rm -r folder; mkdir folder; " if made else ""
    flags = {name: f'"$HOME/playground/{name}"' for name in ("wrote", "end")}
    slow = (
        "echo first >folder/leaf; echo first >folder/only; "
        f"touch {flags['wrote']}; while [ ! -e {flags['end']} ]; do sleep 0.01; done"
    )
    person.share_playground()
    first = person.start("run", "--json", *REVIEW, "-c", slow)
    try:
        wait_for((person.playground / "wrote").exists)

        def end_first() -> None:
            (person.playground / "end").touch()
            first.wait(PATIENCE)

        second = run_while(person, f"{make}echo second >folder/leaf", end_first, *REVIEW)
    finally:
        first.end()
    assert states(second)["folder/leaf"] == "pending"
    assert seen_by_next(person, "cat folder/leaf folder/only") == "second\nfirst\n"
    assert cli_here(person, "apply", "--all").returncode == 1
    assert (text(person, "folder/leaf"), text(person, "folder/only")) == ("first\n", "first\n")
    assert changes_of(person, second["run_id"])["folder/leaf"] == "conflict"
    assert "+second" in cli_here(person, "changes", second["run_id"], "--diff").stdout


@pytest.mark.anybody
def test_the_first_of_two_runs_that_change_a_file_can_be_chosen(
    crossed: tuple[Person, str, str],
) -> None:
    person, first, second = crossed
    done = cli_here(person, "apply", "--all")
    # The conflict is reported.
    assert done.returncode == 1
    assert second in done.stdout
    assert (text(person, "file"), text(person, "new")) == ("first\n", "new\n")
    assert cli_here(person, "discard", second, "file").returncode == 0
    assert text(person, "file") == "first\n"
    assert cli_here(person, "changes", "--all", "--json").stdout == "[]\n"
    # Even now.
    told = cli_here(person, "apply", second, "file")
    assert (told.returncode, f"ollmsandbox apply {second} PATH" in told.stdout) == (1, True)
    assert cli_here(person, "apply", second, "file").returncode == 0
    assert text(person, "file") == "second\n"
    assert cli_here(person, "undo", second, "file").returncode == 0
    assert cli_here(person, "undo", first, "file").returncode == 0
    assert text(person, "file") == "old\n"


@pytest.mark.anybody
def test_the_second_of_two_runs_that_change_a_file_can_be_chosen(
    crossed: tuple[Person, str, str],
) -> None:
    person, first, second = crossed
    assert cli_here(person, "apply", second, "file").returncode == 0
    assert text(person, "file") == "second\n"
    done = cli_here(person, "apply", "--all")
    assert (done.returncode, first in done.stdout) == (1, True)
    assert (text(person, "file"), text(person, "new")) == ("second\n", "new\n")
    # The first is kept all the same.
    assert changes_of(person, first) == {"file": "conflict"}
    assert cli_here(person, "apply", first, "file").returncode == 0
    assert text(person, "file") == "first\n"


@pytest.mark.anybody
def test_a_run_in_auto_mode_leaves_pending_changes(person: Person) -> None:
    fill(person.project)
    first, second = both(
        person, "echo first >file", "echo second >file; echo new >new", "--apply", "auto"
    )
    assert states(second) == {"file": "applied", "new": "applied"}
    assert (text(person, "file"), text(person, "new")) == ("second\n", "new\n")
    assert cli_here(person, "apply", first["run_id"]).returncode == 1
    assert text(person, "file") == "second\n"
    assert cli_here(person, "apply", first["run_id"], "file").returncode == 0
    assert text(person, "file") == "first\n"
    assert cli_here(person, "undo", first["run_id"]).returncode == 0
    assert text(person, "file") == "second\n"


@dataclass(frozen=True)
class Crossing:
    """Two concurrent commands, the paths for which the second is in conflict, and the content of
    the project if one of them is chosen; None stands for no file."""

    first: str
    second: str
    conflicts: frozenset[str]
    with_first: dict[str, str | None]
    with_second: dict[str, str | None]


def crossing(
    first: str,
    second: str,
    conflicts: set[str],
    with_first: dict[str, str | None],
    with_second: dict[str, str | None] | None = None,
) -> Crossing:
    return Crossing(first, second, frozenset(conflicts), with_first, with_second or with_first)


CROSSINGS = {
    "both make the same": crossing("echo same >made", "echo same >made", set(), {"made": "same"}),
    "both delete": crossing("rm folder/leaf", "rm -r folder", set(), {"folder": None}),
    "a file that the other deletes": crossing(
        "echo first >file", "rm file", {"file"}, {"file": "first"}, {"file": None}
    ),
    "a deletion of what the other changes": crossing(
        "rm file", "echo second >file", {"file"}, {"file": None}, {"file": "second"}
    ),
    "a new file in a folder that the other deletes": crossing(
        "echo first >folder/new",
        "rm -r folder",
        {"folder"},
        {"folder/new": "first", "folder/leaf": None},
        {"folder": None},
    ),
    "a new file in a folder that the other makes anew": crossing(
        "echo first >folder/new",
        "rm -r folder; mkdir folder; echo second >folder/leaf",
        set(),
        {"folder/new": "first", "folder/leaf": "second", "folder/other": None},
    ),
    "a file changed in a folder that the other makes anew": crossing(
        "echo first >folder/leaf",
        "rm -r folder; mkdir folder; echo second >folder/leaf",
        {"folder/leaf"},
        {"folder/leaf": "first", "folder/other": None},
        {"folder/leaf": "second", "folder/other": None},
    ),
    "a file deleted in a folder that the other makes anew": crossing(
        "rm folder/leaf",
        "rm -r folder; mkdir folder; echo second >folder/leaf",
        {"folder/leaf"},
        {"folder/leaf": None, "folder/other": None},
        {"folder/leaf": "second", "folder/other": None},
    ),
    "a new file in a folder that the other makes a file of": crossing(
        "echo first >folder/new",
        "rm -r folder; echo second >folder",
        {"folder"},
        {"folder/new": "first", "folder/leaf": None},
        {"folder": "second"},
    ),
    "a file of a folder that the other writes in": crossing(
        "rm -r folder; echo first >folder",
        "echo second >folder/leaf; echo second >folder/deep; mkfifo folder/pipe",
        {"folder/leaf", "folder/deep"},
        {"folder": "first"},
        {"folder/leaf": "second", "folder/deep": "second"},
    ),
    "a file where the other makes a folder": crossing(
        "echo first >made",
        "mkdir -p made/deep; echo second >made/deep/leaf; ln -s deep/leaf made/link",
        {"made", "made/deep", "made/deep/leaf", "made/link"},
        {"made": "first"},
        {"made/deep/leaf": "second", "made/link": "second"},
    ),
    "a link where the other makes a file": crossing(
        "ln -s file made", "echo second >made", {"made"}, {"made": "old"}, {"made": "second"}
    ),
    "a folder that both make": crossing(
        "mkdir made; echo first >made/first; echo first >made/both",
        "mkdir made; echo second >made/second; echo second >made/both",
        {"made/both"},
        {"made/first": "first", "made/second": "second", "made/both": "first"},
        {"made/second": "second", "made/both": "second"},
    ),
    "a folder that both close": crossing(
        "mkdir made; echo first >made/both; chmod 500 made",
        "mkdir made; echo second >made/both; chmod 500 made",
        {"made/both"},
        {"made/both": "first"},
        {"made/both": "second"},
    ),
    "only touched": crossing(
        "echo first >file; rm folder/leaf",
        "touch file folder/leaf; chmod 700 folder",
        set(),
        {"file": "first", "folder/leaf": None},
    ),
}


def everywhere(commands: Iterable[str]) -> str:
    """Run each crossing in a folder of its own."""
    return "\n".join(f"(cd {number}; {command})" for number, command in enumerate(commands))


def look_for(person: Person, expected: Iterable[dict[str, str | None]]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for number, files in enumerate(expected):
        for name in files:
            place = person.project / str(number) / name
            found[f"{number}/{name}"] = place.read_text().strip() if place.exists() else None
    return found


def in_each(expected: Iterable[dict[str, str | None]]) -> dict[str, str | None]:
    return {
        f"{number}/{name}": words
        for number, files in enumerate(expected)
        for name, words in files.items()
    }


@pytest.mark.parametrize("taken", ["the first", "the second"])
@pytest.mark.parametrize("waits", ["nothing waits", "something waits"])
def test_nothing_of_either_is_lost(person: Person, waits: str, taken: str) -> None:
    cases = list(CROSSINGS.values())
    for number in range(len(cases)):
        fill(person.project / str(number))
    if waits == "something waits":
        review(person, everywhere("echo waits >waiting" for _ in cases))
    one, other = both(
        person,
        everywhere(case.first for case in cases),
        everywhere(case.second for case in cases),
    )
    assert {*states(one).values(), *states(other).values()} == {"pending"}
    shown = cli_here(person, "changes", other["run_id"], "--diff").stdout
    assert shown.count("+second") == "\n".join(case.second for case in cases).count("second >")
    if taken == "the first":
        assert cli_here(person, "apply", "--all").returncode == 1
        files = [case.with_first for case in cases]
        found = changes_of(person, other["run_id"])
        conflicts = {path for path, state in found.items() if state != "applied"}
        expected = {f"{n}/{path}" for n, case in enumerate(cases) for path in case.conflicts}
        assert conflicts == expected
    else:
        chosen = cli_here(person, "apply", other["run_id"])
        assert chosen.returncode == 0, chosen.stdout
        assert cli_here(person, "apply", "--all").returncode == 1
        files = [case.with_second for case in cases]
        assert set(changes_of(person, one["run_id"]).values()) == {"applied", "conflict", "failed"}
        shown = cli_here(person, "changes", one["run_id"], "--diff").stdout
        assert shown.count("+first") == "\n".join(case.first for case in cases).count("first >")
    assert look_for(person, files) == in_each(files)


def cut_off(person: Person, second: str, first: str) -> tuple[Snapshot, str]:
    """A run that is not settled yet, and its id; the first began after it and waits."""
    fill(person.project)
    snapshot = Snapshot(person)
    snapshot.leave(second)
    [left] = person.paths.cache.glob("overlay-*")
    person.run(first, keeper=Recorder(RunSpec(str(person.project), mode=Mode.REVIEW), person.paths))
    snapshot.save()
    return snapshot, left.name.removeprefix("overlay-")


def pending_layer(person: Person) -> Seen:
    """Return what the next command sees instead of the project's files."""
    [root] = Recorder(RunSpec(str(person.project)), person.paths).roots()
    return look_at(Path(root.layer))


def test_a_kill_at_any_step(person: Person) -> None:
    snapshot, run_id = cut_off(
        person,
        "rm -r folder; mkdir folder; echo second >folder/leaf; echo second >file",
        "echo first >folder/leaf; echo first >folder/new; echo first >file",
    )

    def look() -> tuple[object, ...]:
        with closing(Review(person.paths)) as work:
            run = work.manager.run(run_id)
            versions = Versions(work.manager)
            rows = sorted(
                (item.change.path, item.state, versions.after(run, item).read())
                for item in read_changes(work.manager, run)
            )
        return rows, look_at(person.project), pending_layer(person)

    def settle() -> None:
        snapshot.settle(Mode.REVIEW)

    settle()
    expected = look()
    assert expected[0] == [
        ("file", State.PENDING, b"second\n"),
        ("folder/leaf", State.PENDING, b"second\n"),
        ("folder/other", State.PENDING, b""),
    ]
    number = 1 + 6 * FIRST_STEP
    while True:
        snapshot.restore()
        if not killed_after(number, settle):
            break
        finish(snapshot)
        assert look() == expected, number
        check_finished(person)
        number += EVERY or 12


@pytest.mark.anybody
def test_a_deletion_outlives_a_kill(person: Person) -> None:
    """In a folder that was made anew, only the folder itself shows that its content was deleted."""
    snapshot, run_id = cut_off(
        person,
        "rm -r folder; mkdir folder; echo second >folder/other; touch file",
        "echo first >folder/leaf; echo first >folder/new; rm file",
    )

    def look() -> tuple[object, ...]:
        with closing(Review(person.paths)) as work:
            changes = read_changes(work.manager, work.manager.run(run_id))
        rows = sorted((item.change.path, item.change.kind, item.state) for item in changes)
        return rows, pending_layer(person)

    snapshot.restore()
    snapshot.settle(Mode.REVIEW)
    expected = look()
    assert expected[0] == [
        ("folder/leaf", Kind.DELETED, State.PENDING),
        ("folder/other", Kind.MODIFIED, State.PENDING),
    ]
    number = 1 + (0 if EVERY else 2 * FIRST_STEP)
    snapshot.restore()
    while killed_after(number, lambda: snapshot.settle(Mode.REVIEW)):
        # Who finishes it is killed, too.
        finish(snapshot, 1 + number * 7 % 13, 1 + number * 5 % 31)
        check_finished(person)
        assert look() == expected, number
        snapshot.restore()
        number += EVERY or 4


FIRST_MODES = "chmod 700 folder; chmod 700 anew; chmod 500 closed; chmod 750 ."
SECOND_MODES = (
    "echo second >folder/new; rm -r anew; mkdir anew; echo second >anew/new; "
    "echo second >closed/new; chmod 711 both"
)


def test_modes_of_folders_that_the_other_writes_in(person: Person) -> None:
    for name in ("folder", "anew", "closed", "both"):
        (person.project / name).mkdir(mode=0o755)
    person.project.chmod(0o755)
    snapshot = Snapshot(person)
    snapshot.leave(SECOND_MODES)
    first = Recorder(RunSpec(str(person.project), mode=Mode.REVIEW), person.paths)
    person.run(f"{FIRST_MODES}; chmod 700 both", keeper=first)
    snapshot.save()

    def modes() -> dict[str, int]:
        places = {name: person.project / name for name in ("", "folder", "anew", "closed", "both")}
        return {name: place.stat().st_mode & 0o777 for name, place in places.items()}

    number = 1 + 2 * FIRST_STEP
    is_killed = True
    while is_killed:
        snapshot.restore()
        is_killed = killed_after(number, lambda: snapshot.settle(Mode.REVIEW))
        finish(snapshot)
        with closing(Review(person.paths)) as work:
            project = work.manager.find_project(person.project)
            assert project is not None
            for report in work.apply_all(project):
                assert not report.errors
        expected = {"": 0o750, "folder": 0o700, "anew": 0o700, "closed": 0o500, "both": 0o700}
        assert modes() == expected, number
        number += EVERY or 8
