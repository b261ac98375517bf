# SPDX-License-Identifier: GPL-3.0-or-later
"""Two runs at once in one project, one of them in review mode: neither overwrites the other's
changes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support import changes
from support.cli_inline import cli_here
from support.escape.copy_back import apply_all, during, in_each, rows, settle
from support.escape.kill import Seen, Snapshot, check_finished, finish, look_at
from support.escape.paused import run_while, states
from support.person import Person
from support.timing import PATIENCE, wait_for

from ollmsandbox.project.change import Report, State
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.sandbox.spec import Mode, RunSpec

pytestmark = pytest.mark.ordinary

REVIEW = ("--apply", "review")


def both(person: Person, first: str, second: str, mode: Mode = Mode.REVIEW) -> tuple[str, Report]:
    """Run the first, which waits for a review, while the second is at work, which ends after it.
    Return the id of the first and the report of the second."""
    firsts: list[dict[str, Any]] = []
    report = during(person, second, lambda: firsts.append(person.cli_run(first, *REVIEW)), mode)
    assert not report.errors
    assert set(states(firsts[0]).values()) == {"pending"}
    return firsts[0]["run_id"], report


def seen_by_next(person: Person, command: str) -> str:
    return person.run(command).stdout.text


def changes_of(person: Person, run_id: str) -> dict[str, str]:
    """Return the states of a run's changes, by path."""
    return states(json.loads(cli_here(person, "changes", run_id, "--json").stdout))


def diff(person: Person, run_id: str) -> str:
    return cli_here(person, "changes", run_id, "--diff").stdout


def do(person: Person, *words: str) -> int:
    return cli_here(person, *words).returncode


def texts(person: Person, *names: str) -> str:
    return "".join((person.project / name).read_text() for name in names)


def fill(folder: Path) -> None:
    (folder / "folder").mkdir(parents=True)
    for name in ("file", "folder/leaf", "folder/other"):
        (folder / name).write_text("old\n")


@pytest.fixture
def crossed(person: Person) -> tuple[str, str]:
    fill(person.project)
    first, second = both(person, "echo first >file", "echo second >file; echo new >new")
    assert changes.states(second) == {"file": State.PENDING, "new": State.PENDING}
    return first, second.run_id


def test_two_runs_that_change_a_file_are_both_listed_and_can_be_discarded(
    person: Person, crossed: tuple[str, str]
) -> None:
    first, second = crossed
    assert "+first" in diff(person, first)
    assert "+second" in diff(person, second)
    assert seen_by_next(person, "cat file new") == "second\nnew\n"
    assert texts(person, "file") == "old\n"
    assert do(person, "discard", second) == 0
    assert seen_by_next(person, "cat file") == "first\n"
    assert do(person, "discard", first) == 0
    assert seen_by_next(person, "cat file") == "old\n"


@pytest.mark.parametrize("made", [False, True], ids=["changed", "made anew"])
def test_a_change_written_earlier_but_settled_later_is_kept(person: Person, made: bool) -> None:
    """The first wrote it before the second began, which still did not see it."""
    fill(person.project)
    settle(person, "echo waits >waiting", Mode.REVIEW)
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
    assert do(person, "apply", "--all") == 1
    assert texts(person, "folder/leaf", "folder/only") == "first\nfirst\n"
    assert changes_of(person, second["run_id"])["folder/leaf"] == "conflict"
    assert "+second" in diff(person, second["run_id"])


def test_the_first_of_two_runs_that_change_a_file_can_be_chosen(
    person: Person, crossed: tuple[str, str]
) -> None:
    first, second = crossed
    done = cli_here(person, "apply", "--all")
    # The conflict is reported.
    assert (done.returncode, second in done.stdout) == (1, True)
    assert texts(person, "file", "new") == "first\nnew\n"
    assert do(person, "discard", second, "file") == 0
    assert texts(person, "file") == "first\n"
    assert cli_here(person, "changes", "--all", "--json").stdout == "[]\n"
    # Even now.
    told = cli_here(person, "apply", second, "file")
    assert (told.returncode, f"ollmsandbox apply {second} PATH" in told.stdout) == (1, True)
    assert do(person, "apply", second, "file") == 0
    assert texts(person, "file") == "second\n"
    assert do(person, "undo", second, "file") == 0
    assert do(person, "undo", first, "file") == 0
    assert texts(person, "file") == "old\n"


def test_the_second_of_two_runs_that_change_a_file_can_be_chosen(
    person: Person, crossed: tuple[str, str]
) -> None:
    first, second = crossed
    assert do(person, "apply", second, "file") == 0
    assert texts(person, "file") == "second\n"
    done = cli_here(person, "apply", "--all")
    assert (done.returncode, first in done.stdout) == (1, True)
    assert texts(person, "file", "new") == "second\nnew\n"
    # The first is kept all the same.
    assert changes_of(person, first) == {"file": "conflict"}
    assert do(person, "apply", first, "file") == 0
    assert texts(person, "file") == "first\n"


def test_a_run_in_auto_mode_leaves_pending_changes(person: Person) -> None:
    fill(person.project)
    first, second = both(person, "echo first >file", "echo second >file; echo new >new", Mode.AUTO)
    assert changes.states(second) == {"file": State.APPLIED, "new": State.APPLIED}
    assert texts(person, "file", "new") == "second\nnew\n"
    assert do(person, "apply", first) == 1
    assert texts(person, "file") == "second\n"
    assert do(person, "apply", first, "file") == 0
    assert texts(person, "file") == "first\n"
    assert do(person, "undo", first) == 0
    assert texts(person, "file") == "second\n"


Files = dict[str, str | None]


class Crossing(NamedTuple):
    """Two concurrent commands, the paths for which the second is in conflict, and the content of
    the project if one of them is chosen; None stands for no file."""

    first: str
    second: str
    conflicts: set[str]
    with_first: Files
    other_with_second: Files | None = None

    @property
    def with_second(self) -> Files:
        return self.other_with_second or self.with_first


CROSSINGS = {
    "both make the same": Crossing("echo same >made", "echo same >made", set(), {"made": "same"}),
    "both delete": Crossing("rm folder/leaf", "rm -r folder", set(), {"folder": None}),
    "a file that the other deletes": Crossing(
        "echo first >file", "rm file", {"file"}, {"file": "first"}, {"file": None}
    ),
    "a deletion of what the other changes": Crossing(
        "rm file", "echo second >file", {"file"}, {"file": None}, {"file": "second"}
    ),
    "a new file in a folder that the other deletes": Crossing(
        "echo first >folder/new",
        "rm -r folder",
        {"folder"},
        {"folder/new": "first", "folder/leaf": None},
        {"folder": None},
    ),
    "a new file in a folder that the other makes anew": Crossing(
        "echo first >folder/new",
        "rm -r folder; mkdir folder; echo second >folder/leaf",
        set(),
        {"folder/new": "first", "folder/leaf": "second", "folder/other": None},
    ),
    "a file changed in a folder that the other makes anew": Crossing(
        "echo first >folder/leaf",
        "rm -r folder; mkdir folder; echo second >folder/leaf",
        {"folder/leaf"},
        {"folder/leaf": "first", "folder/other": None},
        {"folder/leaf": "second", "folder/other": None},
    ),
    "a file deleted in a folder that the other makes anew": Crossing(
        "rm folder/leaf",
        "rm -r folder; mkdir folder; echo second >folder/leaf",
        {"folder/leaf"},
        {"folder/leaf": None, "folder/other": None},
        {"folder/leaf": "second", "folder/other": None},
    ),
    "a new file in a folder that the other makes a file of": Crossing(
        "echo first >folder/new",
        "rm -r folder; echo second >folder",
        {"folder"},
        {"folder/new": "first", "folder/leaf": None},
        {"folder": "second"},
    ),
    "a file of a folder that the other writes in": Crossing(
        "rm -r folder; echo first >folder",
        "echo second >folder/leaf; echo second >folder/deep; mkfifo folder/pipe",
        {"folder/leaf", "folder/deep"},
        {"folder": "first"},
        {"folder/leaf": "second", "folder/deep": "second"},
    ),
    "a file where the other makes a folder": Crossing(
        "echo first >made",
        "mkdir -p made/deep; echo second >made/deep/leaf; ln -s deep/leaf made/link",
        {"made", "made/deep", "made/deep/leaf", "made/link"},
        {"made": "first"},
        {"made/deep/leaf": "second", "made/link": "second"},
    ),
    "a link where the other makes a file": Crossing(
        "ln -s file made", "echo second >made", {"made"}, {"made": "old"}, {"made": "second"}
    ),
    "a folder that both make": Crossing(
        "mkdir made; echo first >made/first; echo first >made/both",
        "mkdir made; echo second >made/second; echo second >made/both",
        {"made/both"},
        {"made/first": "first", "made/second": "second", "made/both": "first"},
        {"made/second": "second", "made/both": "second"},
    ),
    "a folder that both close": Crossing(
        "mkdir made; echo first >made/both; chmod 500 made",
        "mkdir made; echo second >made/both; chmod 500 made",
        {"made/both"},
        {"made/both": "first"},
        {"made/both": "second"},
    ),
    "only touched": Crossing(
        "echo first >file; rm folder/leaf",
        "touch file folder/leaf; chmod 700 folder",
        set(),
        {"file": "first", "folder/leaf": None},
    ),
}


def look_for(person: Person, expected: Iterable[Files]) -> list[Files]:
    places = [(person.project / str(number), files) for number, files in enumerate(expected)]
    return [
        {n: (folder / n).read_text().strip() if (folder / n).exists() else None for n in files}
        for folder, files in places
    ]


@pytest.mark.parametrize("taken", ["the first", "the second"])
@pytest.mark.parametrize("waits", ["nothing waits", "something waits"])
def test_nothing_of_either_is_lost(person: Person, waits: str, taken: str) -> None:
    cases = list(CROSSINGS.values())
    for number in range(len(cases)):
        fill(person.project / str(number))
    if waits == "something waits":
        settle(person, in_each("echo waits >waiting" for _ in cases), Mode.REVIEW)
    one, report = both(
        person,
        in_each(case.first for case in cases),
        in_each(case.second for case in cases),
    )
    other = report.run_id
    assert set(changes.states(report).values()) == {State.PENDING}
    all_of_it = "\n".join(case.second for case in cases)
    assert diff(person, other).count("+second") == all_of_it.count("second >")
    if taken == "the first":
        assert do(person, "apply", "--all") == 1
        files = [case.with_first for case in cases]
        found = changes_of(person, other)
        conflicts = {path for path, state in found.items() if state != "applied"}
        expected = {f"{n}/{path}" for n, case in enumerate(cases) for path in case.conflicts}
        assert conflicts == expected
    else:
        chosen = cli_here(person, "apply", other)
        assert chosen.returncode == 0, chosen.stdout
        assert do(person, "apply", "--all") == 1
        files = [case.with_second for case in cases]
        assert set(changes_of(person, one).values()) == {"applied", "conflict", "failed"}
        all_of_it = "\n".join(case.first for case in cases)
        assert diff(person, one).count("+first") == all_of_it.count("first >")
    assert look_for(person, files) == files


def cut_off(person: Person, second: str, first: str) -> tuple[Snapshot, str]:
    """A run that is not settled yet, and its id; the first began after it and waits."""
    snapshot = Snapshot(person)
    run_id = snapshot.leave(second)
    settle(person, first, Mode.REVIEW)
    snapshot.save()
    return snapshot, run_id


def pending_layer(person: Person) -> Seen:
    """Return what the next command sees instead of the project's files."""
    [root] = Recorder(RunSpec(str(person.project)), person.paths).roots()
    return look_at(Path(root.layer))


def test_a_kill_at_any_step(person: Person) -> None:
    """In a folder that was made anew, only the folder itself shows that its content was deleted."""
    fill(person.project)
    for name in ("touched", "folder/gone"):
        (person.project / name).write_text("old\n")
    snapshot, run_id = cut_off(
        person,
        "rm -r folder; mkdir folder; echo second >folder/leaf; echo second >file; touch touched",
        "for f in file folder/leaf folder/new folder/gone; do echo first >$f; done; rm touched",
    )

    def look() -> tuple[object, ...]:
        return rows(person, run_id), look_at(person.project), pending_layer(person)

    snapshot.settle(Mode.REVIEW)
    expected = look()
    assert expected[0] == {
        "file": (State.PENDING, b"second\n"),
        "folder/gone": (State.PENDING, b""),
        "folder/leaf": (State.PENDING, b"second\n"),
        "folder/other": (State.PENDING, b""),
    }
    for number, _ in snapshot.kills(lambda: snapshot.settle(Mode.REVIEW), every=6):
        # Who finishes it is killed, too.
        finish(snapshot, 1 + number * 7 % 13, 1 + number * 5 % 31)
        assert look() == expected, number
        check_finished(person)


FIRST_MODES = "chmod 700 folder; chmod 700 anew; chmod 500 closed; chmod 750 ."
SECOND_MODES = (
    "echo second >folder/new; rm -r anew; mkdir anew; echo second >anew/new; "
    "echo second >closed/new; chmod 711 both"
)


def test_modes_of_folders_that_the_other_writes_in(person: Person) -> None:
    for name in ("folder", "anew", "closed", "both"):
        (person.project / name).mkdir(mode=0o755)
    person.project.chmod(0o755)
    snapshot, _ = cut_off(person, SECOND_MODES, f"{FIRST_MODES}; chmod 700 both")
    expected = {"": 0o750, "folder": 0o700, "anew": 0o700, "closed": 0o500, "both": 0o700}
    for number, _ in snapshot.kills(lambda: snapshot.settle(Mode.REVIEW), every=8):
        finish(snapshot)
        assert not [error for report in apply_all(person) for error in report.errors]
        found = {name: (person.project / name).stat().st_mode & 0o777 for name in expected}
        assert found == expected, number
