# SPDX-License-Identifier: GPL-3.0-or-later
"""Undo takes out exactly what a decision of the user put in, and redo puts that in again."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.changes import parts, row
from support.person import Person

from ollmsandbox.database.tables import Run
from ollmsandbox.project import hunks, state
from ollmsandbox.project.change import Report, State
from ollmsandbox.project.reasons import Reason
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.ordinary

TEXT = "".join(f"{number}\n" for number in range(1, 10))
MINE = TEXT.replace("5\n", "5 but mine\n")
THEIRS = TEXT.replace("5\n", "FIVE\n")
BOTH = TEXT.replace("5\n", "5 but mine\nFIVE\n")
EXTRA = "a line of the user\n"


@pytest.fixture
def file(person: Person) -> Path:
    file = person.project / "file"
    file.write_text(TEXT)
    return file


def write(person: Person, review: Review, text: str) -> Run:
    """Write the file in a run whose change is pending."""
    return review.manager.run(person.write("file", text, Mode.REVIEW))


def conflict(person: Person, review: Review, file: Path) -> Run:
    """Let the user and a command change the same line."""
    run = write(person, review, THEIRS)
    file.write_text(MINE)
    assert states(review.apply(run)) == [State.CONFLICT]
    return run


def states(report: Report) -> list[State]:
    return [item.state for item in report.changes]


def now(review: Review, run: Run) -> tuple[State, Reason | None]:
    [item] = state.read_current(review.manager, run)
    return item.state, item.note.reason if item.note else None


def assert_back_and_forth(review: Review, run: Run, file: Path) -> None:
    """Undo a decision to the user's version, and make it again, twice."""
    decided = file.read_text()
    for _ in range(2):
        assert now(review, run) == (State.APPLIED, None)
        assert states(review.undo(run)) == [State.UNDONE]
        assert file.read_text() == MINE
        assert now(review, run) == (State.UNDONE, None)
        assert states(review.apply(run)) == [State.APPLIED]
        assert file.read_text() == decided


def test_both_versions_are_undone_to_the_users_and_made_again(
    person: Person, review: Review, file: Path
) -> None:
    run = conflict(person, review, file)
    assert states(review.keep_both(run)) == [State.APPLIED]
    assert file.read_text() == BOTH
    assert_back_and_forth(review, run, file)


def test_both_versions_of_a_file_that_the_user_deleted_are_reported_as_a_conflict(
    person: Person, review: Review, file: Path
) -> None:
    run = conflict(person, review, file)
    file.unlink()
    assert states(review.keep_both(run)) == [State.CONFLICT]
    assert now(review, run) == (State.CONFLICT, Reason.REMOVED)
    assert not file.exists()


@pytest.mark.parametrize("way", ["told twice", "anyway"])
def test_the_commands_version_is_undone_to_the_users_and_made_again(
    person: Person, review: Review, file: Path, way: str
) -> None:
    run = conflict(person, review, file)
    assert states(review.apply(run, [str(file)], anyway=way == "anyway")) == [State.APPLIED]
    assert file.read_text() == THEIRS
    assert_back_and_forth(review, run, file)


@pytest.mark.parametrize("decision", ["both", "theirs"])
def test_an_edit_elsewhere_after_the_decision_stays(
    person: Person, review: Review, file: Path, decision: str
) -> None:
    run = conflict(person, review, file)
    if decision == "both":
        review.keep_both(run)
    else:
        review.apply(run, [str(file)])
    made = file.read_text()
    file.write_text(made + EXTRA)
    assert states(review.undo(run)) == [State.UNDONE]
    assert file.read_text() == MINE + EXTRA
    assert states(review.apply(run)) == [State.APPLIED]
    assert file.read_text() == made + EXTRA


def test_the_commands_version_of_a_file_that_the_user_deleted_is_undone_to_nothing(
    person: Person, review: Review, file: Path
) -> None:
    run = write(person, review, THEIRS)
    file.unlink()
    for state_then in (State.CONFLICT, State.APPLIED):
        assert states(review.apply(run, [str(file)])) == [state_then]
    assert file.read_text() == THEIRS
    assert states(review.undo(run)) == [State.UNDONE]
    assert not file.exists()


def test_a_deletion_of_what_the_user_edited_is_undone_to_the_users(
    person: Person, review: Review, file: Path
) -> None:
    run = review.manager.run(person.record("rm file", Mode.REVIEW).run_id)
    file.write_text(MINE)
    for state_then in (State.CONFLICT, State.APPLIED):
        assert states(review.apply(run, [str(file)])) == [state_then]
    assert not file.exists()
    assert states(review.undo(run)) == [State.UNDONE]
    assert file.read_text() == MINE
    assert states(review.apply(run)) == [State.APPLIED]
    assert not file.exists()


def test_a_forced_undo_keeps_what_it_replaces(person: Person, review: Review, file: Path) -> None:
    run = write(person, review, THEIRS)
    review.apply(run)
    file.write_text(MINE)
    for state_then in (State.CONFLICT, State.UNDONE):
        assert states(review.undo(run, [str(file)])) == [state_then]
    assert file.read_text() == TEXT
    kept = [path for path in (person.paths.runs / run.id).rglob("*") if path.is_file()]
    assert MINE in [path.read_text() for path in kept]


def test_a_hunk_of_both_versions_is_undone_and_then_the_rest(
    person: Person, review: Review, file: Path
) -> None:
    run = write(person, review, THEIRS.replace("1\n", "ONE\n"))
    file.write_text(MINE)
    assert states(review.apply(run)) == [State.CONFLICT]
    review.keep_both(run)
    assert file.read_text() == BOTH.replace("1\n", "ONE\n")
    hunks.undo_hunks(review.manager, run, row(review, run), parts(review, run)[:1])
    assert file.read_text() == BOTH
    assert states(review.undo(run)) == [State.UNDONE]
    assert file.read_text() == MINE


def test_a_hunk_of_a_forced_version_is_undone_and_then_the_rest(
    person: Person, review: Review, file: Path
) -> None:
    run = write(person, review, THEIRS.replace("1\n", "ONE\n"))
    file.write_text(MINE)
    review.apply(run)
    review.apply(run, [str(file)])
    assert file.read_text() == THEIRS.replace("1\n", "ONE\n")
    hunks.undo_hunks(review.manager, run, row(review, run), parts(review, run)[:1])
    assert file.read_text() == THEIRS
    hunks.redo_hunks(review.manager, run, row(review, run), parts(review, run)[:1])
    assert file.read_text() == THEIRS.replace("1\n", "ONE\n")
    assert states(review.undo(run)) == [State.UNDONE]
    assert file.read_text() == MINE


@pytest.mark.parametrize("decision", ["both", "theirs"])
def test_an_applied_hunk_is_undone_with_the_decision_that_followed(
    person: Person, review: Review, file: Path, decision: str
) -> None:
    run = write(person, review, THEIRS.replace("1\n", "ONE\n"))
    hunks.apply_hunks(review.manager, run, row(review, run), parts(review, run)[:1])
    file.write_text(MINE.replace("1\n", "ONE\n"))
    assert states(review.apply(run)) == [State.CONFLICT]
    if decision == "both":
        assert states(review.keep_both(run)) == [State.APPLIED]
        made = BOTH.replace("1\n", "ONE\n")
    else:
        assert states(review.apply(run, [str(file)])) == [State.APPLIED]
        made = THEIRS.replace("1\n", "ONE\n")
    assert file.read_text() == made
    assert states(review.undo(run)) == [State.UNDONE]
    assert file.read_text() == MINE
    assert states(review.apply(run)) == [State.APPLIED]
    assert file.read_text() == made


def test_a_forced_version_can_be_undone_after_the_user_has_taken_out_its_lines(
    person: Person, review: Review, file: Path
) -> None:
    """It replaced other lines of the user, too, which come back."""
    run = write(person, review, THEIRS)
    file.write_text(MINE + EXTRA)
    review.apply(run)
    review.apply(run, [str(file)])
    assert file.read_text() == THEIRS
    file.write_text(TEXT)
    assert now(review, run)[0] is State.APPLIED
    for state_then in (State.CONFLICT, State.UNDONE):
        assert states(review.undo(run, [str(file)])) == [state_then]
    assert file.read_text() == MINE + EXTRA


def test_discarding_the_rest_of_a_change_leaves_it_applied_in_part(
    person: Person, review: Review, file: Path
) -> None:
    run = write(person, review, THEIRS.replace("1\n", "ONE\n"))
    hunks.apply_hunks(review.manager, run, row(review, run), parts(review, run)[:1])
    assert states(review.discard(run)) == [State.APPLIED]
    assert now(review, run) == (State.APPLIED, Reason.PARTLY)
    assert review.waiting(run.project) == []
    assert file.read_text() == TEXT.replace("1\n", "ONE\n")
    file.write_text(TEXT.replace("1\n", "ONE\n") + EXTRA)
    assert states(review.undo(run)) == [State.UNDONE]
    assert file.read_text() == TEXT + EXTRA
    assert now(review, run) == (State.UNDONE, None)


def test_the_command_line_says_that_only_a_part_is_applied(
    person: Person, review: Review, file: Path
) -> None:
    run = write(person, review, THEIRS.replace("1\n", "ONE\n"))
    hunks.apply_hunks(review.manager, run, row(review, run), parts(review, run)[:1])
    assert person.cli("discard", run.id).returncode == 0
    assert '"state": "partly"' in person.cli("changes", run.id, "--json").stdout
    assert person.cli("undo", run.id).returncode == 0
    assert file.read_text() == TEXT


def test_discarding_a_change_whose_hunk_was_undone_again_discards_it(
    person: Person, review: Review, file: Path
) -> None:
    run = write(person, review, THEIRS.replace("1\n", "ONE\n"))
    first = parts(review, run)[:1]
    hunks.apply_hunks(review.manager, run, row(review, run), first)
    hunks.undo_hunks(review.manager, run, row(review, run), first)
    assert states(review.discard(run)) == [State.DISCARDED]
    assert now(review, run) == (State.DISCARDED, None)
    assert file.read_text() == TEXT


def test_keeping_mine_leaves_the_file_and_the_choice(
    person: Person, review: Review, file: Path
) -> None:
    run = conflict(person, review, file)
    assert states(review.discard(run)) == [State.DISCARDED]
    assert file.read_text() == MINE
    assert states(review.undo(run)) == []
    # A discarded change can still be taken, after the user was told about the conflict.
    assert states(review.apply(run, [str(file)])) == [State.CONFLICT]
    assert states(review.apply(run, [str(file)])) == [State.APPLIED]
    assert file.read_text() == THEIRS
    assert states(review.undo(run)) == [State.UNDONE]
    assert file.read_text() == MINE
