# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands that run at once, and changes on pending ones: nothing is applied or discarded
unasked."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.changes import seen, states
from support.escape.copy_back import during
from support.person import Person

from ollmsandbox.project import hunks, state
from ollmsandbox.project.change import MANY, Report, State
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.reasons import Reason
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.ordinary

LINES = "".join(f"{number}\n" for number in range(1, 31))
MINE = "my own line\n"


@pytest.fixture
def file(person: Person) -> Path:
    file = person.project / "f"
    file.write_text(LINES)
    return file


@pytest.fixture
def hook(person: Person) -> Path:
    (person.project / ".git/hooks").mkdir(parents=True)
    (person.project / ".git/HEAD").touch()
    return person.project / ".git/hooks/pre-commit"


def run_beside(person: Person, command: str, apply: str = "review") -> str:
    """Run a command while another one runs; return the id of the run."""
    return str(person.cli_run(command, "--apply", apply)["run_id"])


def meanwhile(
    person: Person, outer: str, inner: str, mode: Mode, apply: str = "review"
) -> tuple[str, Report]:
    """Run two commands of two sessions: the inner one begins later and ends first."""
    ids: list[str] = []
    report = during(person, outer, lambda: ids.append(run_beside(person, inner, apply)), mode)
    return ids[0], report


def states_of(review: Review, run_id: str) -> dict[str, State]:
    rows = read_changes(review.manager, review.manager.run(run_id))
    return {row.change.path: row.state for row in rows}


def test_undo_applies_no_held_hook(person: Person, review: Review, hook: Path) -> None:
    first = person.record("echo evil >.git/hooks/pre-commit").run_id
    second = person.record("rm .git/hooks/pre-commit; echo junk >junk")
    assert states(second) == {".git/hooks/pre-commit": State.PENDING, "junk": State.APPLIED}
    review.undo(review.manager.run(second.run_id))
    assert not hook.exists()
    assert states_of(review, first) == {".git/hooks/pre-commit": State.PENDING}


def test_a_hunk_applies_no_held_change(person: Person, review: Review, hook: Path) -> None:
    hook.write_text(LINES)
    first = person.record("sed -i '2s/.*/evil/' .git/hooks/pre-commit").run_id
    second = person.record("sed -i '25s/.*/fine/' .git/hooks/pre-commit").run_id
    run = review.manager.run(second)
    [item] = read_changes(review.manager, run)
    found = state.text_versions(review.manager, run, item)
    assert found is not None
    hunks.apply_hunks(review.manager, run, item, found.hunks)
    assert hook.read_text() == LINES.replace("25\n", "fine\n")
    assert set(states_of(review, first).values()) == {State.PENDING}


@pytest.mark.parametrize(
    ("first", "second"),
    [("rm d/x", "rmdir d"), ("rm -r d", "echo second >d"), ("rm f", "echo second >f")],
)
def test_what_was_restored_meanwhile_is_not_deleted(
    person: Person, review: Review, first: str, second: str
) -> None:
    (person.project / "d").mkdir()
    for name in ("d/x", "f"):
        (person.project / name).write_text("precious\n")
    run = person.record(first, Mode.REVIEW).run_id
    done = during(person, second, lambda: review.discard(review.manager.run(run)), Mode.AUTO)
    assert set(states(done).values()) == {State.CONFLICT}
    assert [(person.project / name).read_text() for name in ("d/x", "f")] == ["precious\n"] * 2


def test_one_of_two_versions_is_chosen(person: Person, review: Review, file: Path) -> None:
    person.record("sed -i '1s/.*/ZERO/' f", Mode.REVIEW)
    first, second = meanwhile(person, "sed -i '5s/.*/B/' f", "sed -i '5s/.*/A/' f", Mode.REVIEW)
    assert states(second) == {"f": State.PENDING}
    third = person.record("sed -i '25s/.*/C/' f", Mode.REVIEW).run_id
    for run_id, expected in (
        (second.run_id, LINES.replace("5\n", "B\n", 1)),
        (third, LINES.replace("5\n", "B\n", 1).replace("25\n", "C\n")),
    ):
        assert states(review.apply(review.manager.run(run_id))) == {"f": State.APPLIED}
        assert file.read_text() == expected
    # The other one stays a conflict until the user decides.
    assert states(review.apply(review.manager.run(first))) == {"f": State.CONFLICT}
    assert states_of(review, first) == {"f": State.CONFLICT}
    assert file.read_text() == expected
    waiting = review.waiting(review.manager.add_project(person.project))
    assert len(waiting) == 2


def test_an_edit_is_reported_before_one_of_two_replaces_it(person: Person, review: Review) -> None:
    file = person.project / "f"
    file.write_text("old\n")
    _, second = meanwhile(person, "echo B >f", "echo A >f", Mode.REVIEW)
    file.write_text("mine\n")
    run = review.manager.run(second.run_id)
    assert states(review.apply(run, [str(file)])) == {"f": State.CONFLICT}
    assert file.read_text() == "mine\n"
    assert states(review.apply(run, [str(file)])) == {"f": State.APPLIED}
    assert file.read_text() == "B\n"
    assert states(review.undo(run)) == {"f": State.UNDONE}
    assert file.read_text() == "mine\n"


def test_a_command_is_applied_by_itself(person: Person, review: Review, file: Path) -> None:
    first, second = meanwhile(person, "sed -i '25s/.*/B/' f", "sed -i '5s/.*/A/' f", Mode.AUTO)
    assert states(second) == {"f": State.APPLIED}
    assert file.read_text() == LINES.replace("25\n", "B\n")
    assert states_of(review, first) == {"f": State.PENDING}
    assert states(review.apply(review.manager.run(first))) == {"f": State.APPLIED}
    assert file.read_text() == LINES.replace("25\n", "B\n").replace("5\n", "A\n", 1)


def test_lines_and_modes_of_two_runs_are_merged(person: Person, review: Review, file: Path) -> None:
    file.chmod(0o644)
    inner = "chmod 755 f; sed -i '25s/.*/late/' f"
    first, second = meanwhile(person, "sed -i '5s/.*/five/' f", inner, Mode.REVIEW)
    one = LINES.replace("5\n", "five\n", 1)
    both = one.replace("25\n", "late\n")
    assert seen(person, "f") == both
    run = review.manager.run(second.run_id)
    assert review.also_applied(run) == []
    assert states(review.apply(run)) == {"f": State.APPLIED}
    assert (file.read_text(), file.stat().st_mode & 0o777) == (one, 0o644)
    assert states(review.apply(review.manager.run(first))) == {"f": State.APPLIED}
    assert (file.read_text(), file.stat().st_mode & 0o777) == (both, 0o755)


def test_a_pending_mode_is_not_applied(person: Person, review: Review) -> None:
    (person.project / "s").write_text("s\n")
    run = review.manager.run(person.record("chmod 755 s; echo t >t", Mode.REVIEW).run_id)
    review.apply(run, [f"{person.project}/t"])
    assert states(review.undo(run)) == {"t": State.UNDONE}
    assert states_of(review, run.id)["s"] is State.PENDING


# --- in automatic mode, and edits of the user while a command runs -------------------------------


def test_two_sessions_change_different_lines(person: Person, review: Review, file: Path) -> None:
    first, second = meanwhile(
        person, "sed -i '5s/.*/A/' f", "sed -i '$a more' f", Mode.AUTO, "auto"
    )
    assert states(second) == states_of(review, first) == {"f": State.APPLIED}
    assert file.read_text() == LINES.replace("5\n", "A\n", 1) + "more\n"
    review.undo(review.manager.run(first))
    assert file.read_text() == LINES.replace("5\n", "A\n", 1)
    review.undo(review.manager.run(second.run_id))
    assert file.read_text() == LINES


def test_two_sessions_change_the_same_line(person: Person, review: Review, file: Path) -> None:
    edits = "sed -i '5s/.*/A/' f", "sed -i '5s/.*/other/' f"
    first, second = meanwhile(person, *edits, Mode.AUTO, "auto")
    assert states_of(review, first) == {"f": State.APPLIED}
    assert states(second) == {"f": State.CONFLICT}
    assert file.read_text() == LINES.replace("5\n", "other\n", 1)


def test_an_edit_while_a_command_runs_is_no_wrong_base(person: Person, file: Path) -> None:
    def edit() -> None:
        file.write_text(LINES + MINE)
        # A command that has seen this.
        assert person.cli("run", "-c", "sed -i '25s/.*/other/' f").returncode == 0

    assert states(during(person, "sed -i '5s/.*/A/' f", edit, Mode.AUTO)) == {"f": State.CONFLICT}
    assert file.read_text() == LINES.replace("25\n", "other\n") + MINE


@pytest.mark.parametrize("others", [0, MANY])
def test_an_edit_meanwhile_is_not_in_the_diff(
    person: Person, review: Review, file: Path, others: int
) -> None:
    command = f"sed -i '5s/.*/A/' f; seq {others} | xargs -r touch"
    report = during(person, command, lambda: file.write_text(LINES + MINE), Mode.REVIEW)
    run = review.manager.run(report.run_id)
    [item] = [one for one in read_changes(review.manager, run) if one.change.path == "f"]
    assert (item.state, item.is_because(Reason.CHANGED)) == (State.CONFLICT, True)
    # Nobody knows which lines the command saw.
    assert state.text_versions(review.manager, run, item) is None
    shown = person.cli("changes", "--diff").stdout
    assert f"-{MINE}" in shown and "+A\n" in shown
    # The user was told about the first edit only.
    file.write_text(LINES + MINE * 2)
    assert states(review.apply(run, [str(file)])) == {"f": State.CONFLICT}
    assert file.read_text() == LINES + MINE * 2
    review.keep_both(run, [str(file)])
    assert set(file.read_text().splitlines()) == {*(LINES + MINE + "A\n").splitlines()}


def test_an_edit_while_two_commands_run_stays(person: Person, review: Review, file: Path) -> None:
    ids: list[str] = []

    def edit_and_run() -> None:
        # The second command sees the user's line, the first does not.
        file.write_text(LINES + MINE)
        ids.append(run_beside(person, "sed -i '25s/.*/B/' f"))

    report = during(person, "sed -i '5s/.*/A/' f", edit_and_run, Mode.REVIEW)
    assert states_of(review, ids[0]) == {"f": State.PENDING}
    [conflict] = report.changes
    assert (conflict.state, conflict.is_because(Reason.CHANGED)) == (State.CONFLICT, True)
    review.apply(review.manager.run(ids[0]))
    assert file.read_text() == LINES.replace("25\n", "B\n") + MINE
