# SPDX-License-Identifier: GPL-3.0-or-later
"""A run is a patch: it is merged in and out, and the lines of the user stay."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.person import Person

from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.project.apply.recorder import Recorder
from ollmsandbox.project.changes.change import Mode, Recorded, State
from ollmsandbox.project.changes.reasons import Reason
from ollmsandbox.project.database.models import Run
from ollmsandbox.project.database.runs import read_changes
from ollmsandbox.project.review import hunks
from ollmsandbox.project.review.review import Review
from ollmsandbox.text.diff import Hunk

OLD = "".join(f"line {number}\n" for number in range(1, 31))
NEW = OLD.replace("line 3\n", "third\n").replace("line 20\n", "twentieth\n")
MINE = "my own line\n"
FIRST = OLD.replace("line 3\n", "third\n")
SECOND = OLD.replace("line 20\n", "twentieth\n")
EDIT = "sed -i -e 's/^line 3$/third/' -e 's/^line 20$/twentieth/' file"


@pytest.fixture
def review(person: Person) -> Iterator[Review]:
    review = Review(person.paths)
    yield review
    review.close()


@pytest.fixture(autouse=True)
def file(person: Person) -> None:
    (person.project / "file").write_text(OLD)


def run(person: Person, review: Review, command: str = EDIT, mode: Mode = Mode.AUTO) -> Run:
    recorder = Recorder(str(person.project), person.paths, mode=mode, command=command)
    assert person.run(command, keeper=recorder).exit_code == 0
    assert recorder.report is not None
    return review.manager.run(recorder.report.run_id)


def row(review: Review, run: Run) -> Recorded:
    [item] = read_changes(review.manager, run)
    return item


def look_at(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode for file in folder.iterdir()}


def waiting(person: Person) -> str:
    """Return the file as the next command sees it."""
    return (person.paths.pending(str(person.project)) / "overlay1" / "file").read_text()


def parts(review: Review, run: Run) -> tuple[Hunk, ...]:
    found = hunks.text_versions(review.manager, run, row(review, run))
    assert found is not None
    return found.hunks


def test_the_users_line_stays_when_a_hunk_and_then_the_file_are_applied(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    made = run(person, review, mode=Mode.REVIEW)
    with file.open("a") as opened:
        opened.write(MINE)
    # The diff is what the command did.
    assert [part.new for part in parts(review, made)] == [("third\n",), ("twentieth\n",)]
    hunks.apply_hunks(review.manager, made, row(review, made), parts(review, made)[:1])
    assert file.read_text() == FIRST + MINE
    review.apply(made)
    assert file.read_text() == NEW + MINE
    assert row(review, made).state is State.APPLIED
    review.undo(made)
    assert file.read_text() == OLD + MINE
    assert not person.paths.pending(str(person.project)).exists()


def test_a_hunk_is_undone_then_the_file_and_both_come_back(person: Person, review: Review) -> None:
    file = person.project / "file"
    made = run(person, review)
    hunks.undo_hunks(review.manager, made, row(review, made), parts(review, made)[:1])
    assert file.read_text() == NEW.replace("third\n", "line 3\n")
    # It is not a run of its own.
    assert [one.id for one in review.manager.runs(made.project)] == [made.id]
    review.undo(made)
    assert file.read_text() == OLD
    assert row(review, made).state is State.UNDONE
    review.apply(made)
    assert file.read_text() == NEW


@pytest.mark.parametrize("by", ["the user", "a command"])
def test_a_later_edit_elsewhere_stays_when_the_file_is_undone_and_redone(
    person: Person, review: Review, by: str
) -> None:
    file = person.project / "file"
    made = run(person, review)
    if by == "the user":
        file.write_text(NEW + MINE)
    else:
        run(person, review, f"printf '{MINE}' >> file")
    [item] = review.undo(made).changes
    assert item.state is State.UNDONE
    assert file.read_text() == OLD + MINE
    [item] = review.apply(made).changes
    assert item.state is State.APPLIED
    assert file.read_text() == NEW + MINE


def test_an_edit_of_the_same_lines_is_a_conflict_that_writes_nothing(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    made = run(person, review)
    file.write_text(mine := NEW.replace("third\n", "mine\n"))
    [item] = review.undo(made).changes
    assert item.state is State.CONFLICT and item.is_because(Reason.SAME_LINES)
    assert file.read_text() == mine
    assert row(review, made).state is State.APPLIED


def test_a_mode_that_the_user_set_stays(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.chmod(0o644)
    made = run(person, review, f"{EDIT}; chmod 600 file")
    file.write_text(NEW + MINE)
    file.chmod(0o640)
    review.undo(made)
    assert (file.read_text(), file.stat().st_mode & 0o777) == (OLD + MINE, 0o640)


def test_a_change_whose_hunks_are_all_redone_is_applied(person: Person, review: Review) -> None:
    made = run(person, review)
    review.undo(made)
    hunks.redo_hunks(review.manager, made, row(review, made), parts(review, made))
    assert (person.project / "file").read_text() == NEW
    assert row(review, made).state is State.APPLIED


def test_the_conflict_of_a_hunk_does_not_allow_to_replace_the_file(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    made = run(person, review)
    file.write_text(mine := NEW.replace("third\n", "mine\n") + MINE)
    with pytest.raises(OllmSandboxError):
        hunks.undo_hunks(review.manager, made, row(review, made), parts(review, made)[:1])
    [item] = review.undo(made, [str(file)]).changes
    assert item.state is State.CONFLICT
    assert file.read_text() == mine


def test_a_conflict_that_the_user_has_resolved_is_none(person: Person, review: Review) -> None:
    file = person.project / "file"
    made = run(person, review)
    file.write_text(NEW.replace("third\n", "mine\n") + MINE)
    assert review.undo(made).changes[0].state is State.CONFLICT
    file.write_text(NEW + MINE)
    review.undo(made, [str(file)])
    assert file.read_text() == OLD + MINE


def test_the_last_hunk_is_applied_after_the_user_has_resolved_a_conflict(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    made = run(person, review, mode=Mode.REVIEW)
    file.write_text(OLD.replace("line 3\n", "mine\n") + MINE)
    assert review.apply(made).changes[0].state is State.CONFLICT
    file.write_text(FIRST + MINE)
    hunks.apply_hunks(review.manager, made, row(review, made), parts(review, made)[1:])
    assert file.read_text() == NEW + MINE
    assert row(review, made).state is State.APPLIED


def test_a_discarded_hunk_stays_out_and_can_be_redone(person: Person, review: Review) -> None:
    file = person.project / "file"
    made = run(person, review, mode=Mode.REVIEW)
    both = parts(review, made)
    hunks.discard_hunks(review.manager, made, row(review, made), both[:1])
    review.apply(made)
    review.undo(made)
    assert file.read_text() == OLD
    # The diff still is what the command did.
    assert parts(review, made) == both
    review.apply(made)
    assert file.read_text() == SECOND
    hunks.redo_hunks(review.manager, made, row(review, made), both[:1])
    assert file.read_text() == NEW
    review.undo(made)
    assert file.read_text() == OLD
    review.apply(made)
    assert file.read_text() == NEW


def test_a_discarded_hunk_that_is_applied_is_seen_by_the_next_command(
    person: Person, review: Review
) -> None:
    made = run(person, review, mode=Mode.REVIEW)
    hunks.discard_hunks(review.manager, made, row(review, made), parts(review, made)[:1])
    assert waiting(person) == SECOND
    hunks.apply_hunks(review.manager, made, row(review, made), parts(review, made)[:1])
    assert waiting(person) == NEW


def test_a_discarded_hunk_stays_out_when_a_later_run_is_discarded(
    person: Person, review: Review
) -> None:
    made = run(person, review, mode=Mode.REVIEW)
    hunks.discard_hunks(review.manager, made, row(review, made), parts(review, made)[:1])
    later = run(person, review, "echo more >>file", mode=Mode.REVIEW)
    assert waiting(person) == f"{SECOND}more\n"
    review.discard(later)
    assert waiting(person) == SECOND


def test_a_hunk_is_discarded_if_the_data_are_on_another_disk(person: Person) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        person.environ["XDG_CACHE_HOME"] = elsewhere
        review = Review(person.paths)
        made = run(person, review, mode=Mode.REVIEW)
        hunks.discard_hunks(review.manager, made, row(review, made), parts(review, made)[:1])
        review.close()
        assert waiting(person) == SECOND


def test_a_change_with_no_hunk_left_to_decide_is_not_pending(
    person: Person, review: Review
) -> None:
    made = run(person, review, mode=Mode.REVIEW)
    first, second = parts(review, made)
    hunks.apply_hunks(review.manager, made, row(review, made), [first])
    hunks.discard_hunks(review.manager, made, row(review, made), [second])
    assert (person.project / "file").read_text() == FIRST
    assert row(review, made).state is State.APPLIED
    assert not person.paths.pending(str(person.project)).exists()


def test_an_applied_hunk_of_a_discarded_change_can_be_undone(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    made = run(person, review, mode=Mode.REVIEW)
    first, second = parts(review, made)
    hunks.apply_hunks(review.manager, made, row(review, made), [first])
    review.discard(made)
    assert file.read_text() == FIRST
    hunks.undo_hunks(review.manager, made, row(review, made), [first])
    assert file.read_text() == OLD
    assert row(review, made).state is State.DISCARDED
    hunks.redo_hunks(review.manager, made, row(review, made), [second])
    assert file.read_text() == SECOND
    assert row(review, made).state is State.APPLIED


@pytest.mark.parametrize("command", ["chmod 000 file", "rm -f file", "cp file new; chmod 000 new"])
def test_a_file_that_even_its_owner_may_not_read_comes_and_goes(
    person: Person, review: Review, command: str
) -> None:
    file = person.project / "file"
    file.chmod(0o200 if command.startswith("rm") else 0o600)
    before = look_at(person.project)
    made = run(person, review, command)
    after = look_at(person.project)
    for _ in range(2):
        review.undo(made)
        assert look_at(person.project) == before
        review.apply(made)
        assert look_at(person.project) == after
