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


def decide(review: Review, run: Run, file: Path, decision: str) -> str:
    """Keep both versions of a conflict, or take the command's; return that text."""
    if decision == "both":
        report = review.keep_both(run)
    else:
        report = review.apply(run, [str(file)], anyway="anyway" in decision)
    assert states(report) == [State.APPLIED]
    return BOTH if decision == "both" else THEIRS


def test_both_versions_of_a_deleted_file(person: Person, review: Review, file: Path) -> None:
    run = conflict(person, review, file)
    file.unlink()
    assert states(review.keep_both(run)) == [State.CONFLICT]
    assert now(review, run) == (State.CONFLICT, Reason.REMOVED)
    assert not file.exists()


@pytest.mark.parametrize("decision", ["both", "theirs", "theirs, anyway"])
def test_a_decision_is_undone(person: Person, review: Review, file: Path, decision: str) -> None:
    """Once more with an edit elsewhere, which stays."""
    run = conflict(person, review, file)
    decided = decide(review, run, file, decision)
    assert file.read_text() == decided
    for extra in ("", EXTRA):
        if extra:
            file.write_text(decided + extra)
        assert now(review, run) == (State.APPLIED, None)
        assert states(review.undo(run)) == [State.UNDONE]
        assert file.read_text() == MINE + extra
        assert now(review, run) == (State.UNDONE, None)
        assert states(review.apply(run)) == [State.APPLIED]
        assert file.read_text() == decided + extra


def test_a_deleted_file_is_forced_and_undone(person: Person, review: Review, file: Path) -> None:
    run = write(person, review, THEIRS)
    file.unlink()
    for state_then in (State.CONFLICT, State.APPLIED):
        assert states(review.apply(run, [str(file)])) == [state_then]
    assert file.read_text() == THEIRS
    assert states(review.undo(run)) == [State.UNDONE]
    assert not file.exists()


def test_a_forced_deletion_is_undone(person: Person, review: Review, file: Path) -> None:
    run = review.manager.run(person.record("rm file", Mode.REVIEW).run_id)
    file.write_text(MINE)
    for state_then in (State.CONFLICT, State.APPLIED):
        assert states(review.apply(run, [str(file)])) == [state_then]
    assert not file.exists()
    assert states(review.undo(run)) == [State.UNDONE]
    assert file.read_text() == MINE
    assert states(review.apply(run)) == [State.APPLIED]
    assert not file.exists()


def test_a_forced_undo_keeps_both_versions(person: Person, review: Review, file: Path) -> None:
    run = write(person, review, THEIRS)
    review.apply(run)
    file.write_text(MINE)
    for state_then in (State.CONFLICT, State.UNDONE):
        assert states(review.undo(run, [str(file)])) == [state_then]
    assert file.read_text() == TEXT
    kept = [path for path in (person.paths.runs / run.id).rglob("*") if path.is_file()]
    assert MINE in [path.read_text() for path in kept]
    review.apply(run, [str(file)])
    assert file.read_text() == THEIRS


@pytest.mark.parametrize("decision", ["both", "theirs"])
def test_a_hunk_of_a_decision(person: Person, review: Review, file: Path, decision: str) -> None:
    run = write(person, review, THEIRS.replace("1\n", "ONE\n"))
    file.write_text(MINE)
    assert states(review.apply(run)) == [State.CONFLICT]
    decided = decide(review, run, file, decision)
    assert file.read_text() == decided.replace("1\n", "ONE\n")
    hunks.undo_hunks(review.manager, run, row(review, run), parts(review, run)[:1])
    assert file.read_text() == decided
    hunks.redo_hunks(review.manager, run, row(review, run), parts(review, run)[:1])
    assert file.read_text() == decided.replace("1\n", "ONE\n")
    assert states(review.undo(run)) == [State.UNDONE]
    assert file.read_text() == MINE


@pytest.mark.parametrize("decision", ["both", "theirs"])
def test_a_hunk_before_a_decision(
    person: Person, review: Review, file: Path, decision: str
) -> None:
    run = write(person, review, THEIRS.replace("1\n", "ONE\n"))
    hunks.apply_hunks(review.manager, run, row(review, run), parts(review, run)[:1])
    file.write_text(MINE.replace("1\n", "ONE\n"))
    assert states(review.apply(run)) == [State.CONFLICT]
    made = decide(review, run, file, decision).replace("1\n", "ONE\n")
    assert file.read_text() == made
    assert states(review.undo(run)) == [State.UNDONE]
    assert file.read_text() == MINE
    assert states(review.apply(run)) == [State.APPLIED]
    assert file.read_text() == made


def test_a_forced_version_the_user_took_out(person: Person, review: Review, file: Path) -> None:
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


def test_keeping_mine_leaves_the_choice(person: Person, review: Review, file: Path) -> None:
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
