# SPDX-License-Identifier: GPL-3.0-or-later
"""Applying, undoing, redoing and discarding single hunks of a text file."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support.changes import parts, row, seen
from support.person import Person

from ollmsandbox.database.tables import Run
from ollmsandbox.errors import OllmSandboxError, ProjectError
from ollmsandbox.project import state
from ollmsandbox.project.change import MANY, Report, State
from ollmsandbox.project.hunks import apply_hunks, discard_hunks, redo_hunks, undo_hunks
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.reasons import Reason
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.spec import Mode
from ollmsandbox.text.diff import HunkState

pytestmark = pytest.mark.ordinary

OLD = "".join(f"line {number}\n" for number in range(30))
# Three hunks: a changed line, a removed one, and one that becomes two.
NEW = OLD.replace("line 3\n", "changed 3\n").replace("line 15\n", "").replace("line 28\n", "a\nb\n")
FIRST = OLD.replace("line 3\n", "changed 3\n")
WITHOUT_FIRST = NEW.replace("changed 3\n", "line 3\n")
WITHOUT_SECOND = NEW.replace("line 14\n", "line 14\nline 15\n")
MINE = "my own line\n"


@pytest.fixture
def file(person: Person) -> Path:
    file = person.project / "file"
    file.write_text(OLD)
    return file


def change(person: Person, review: Review, new: str = NEW, mode: Mode = Mode.REVIEW) -> Run:
    return review.manager.run(person.write("file", new, mode))


def decide(verb: Callable[..., Report], review: Review, run: Run, *numbers: int) -> Report:
    """Do something with the hunks of these numbers."""
    found = parts(review, run)
    return verb(review.manager, run, row(review, run), [found[number] for number in numbers])


def hunk_states(review: Review, run: Run) -> list[HunkState]:
    return list(state.current_hunk_states(review.manager, run, row(review, run)).values())


def states(report: Report) -> list[State]:
    return [item.state for item in report.changes]


def assert_nothing_waits(review: Review, run: Run) -> None:
    assert review.waiting(review.manager.run(run.id).project) == []


def test_any_bytes_come_back_as_they_were(person: Person, review: Review, file: Path) -> None:
    data = bytes(range(1, 256)) + b"\n\xff\r\n"
    assert state.encode_lines(state.decode_lines(data) or []) == data
    file.write_bytes(b"\0")
    run = change(person, review, "text", Mode.AUTO)
    assert state.text_versions(review.manager, run, row(review, run)) is None


def test_a_hunk_is_undone_and_redone(person: Person, review: Review, file: Path) -> None:
    run = change(person, review, mode=Mode.AUTO)
    assert hunk_states(review, run) == []
    assert decide(undo_hunks, review, run, 1).run_id == run.id
    assert file.read_text() == WITHOUT_SECOND
    # It is not a run of its own.
    assert [one.id for one in review.manager.runs(run.project)] == [run.id]
    change(person, review, by_hand := WITHOUT_SECOND.replace("changed 3\n", "mine\n"), Mode.AUTO)
    assert hunk_states(review, run) == [HunkState.CHANGED, HunkState.UNDONE, HunkState.PRESENT]
    with pytest.raises(OllmSandboxError, match="in the meantime"):
        decide(redo_hunks, review, run, 0)
    decide(redo_hunks, review, run, 1)
    assert file.read_text() == by_hand.replace("line 15\n", "")
    assert hunk_states(review, run)[1] is HunkState.PRESENT


def test_a_hunk_and_then_the_file_are_undone(person: Person, review: Review, file: Path) -> None:
    run = change(person, review, mode=Mode.AUTO)
    decide(undo_hunks, review, run, 0)
    assert file.read_text() == WITHOUT_FIRST
    review.undo(run)
    assert (file.read_text(), row(review, run).state) == (OLD, State.UNDONE)
    review.apply(run)
    assert file.read_text() == NEW
    review.undo(run)
    decide(redo_hunks, review, run, 0, 1, 2)
    assert (file.read_text(), row(review, run).state) == (NEW, State.APPLIED)


def test_hunks_are_applied_one_by_one(person: Person, review: Review, file: Path) -> None:
    run = change(person, review)
    decide(apply_hunks, review, run, 1)
    assert file.read_text() == OLD.replace("line 15\n", "")
    assert row(review, run).state is State.PENDING
    assert hunk_states(review, run) == [HunkState.UNDONE, HunkState.PRESENT, HunkState.UNDONE]
    decide(undo_hunks, review, run, 1)
    assert file.read_text() == OLD
    assert row(review, run).state is State.PENDING
    for number in range(3):
        decide(apply_hunks, review, run, number)
    assert (file.read_text(), row(review, run).state) == (NEW, State.APPLIED)
    assert_nothing_waits(review, run)


def test_a_hunk_and_then_the_file_are_applied(person: Person, review: Review, file: Path) -> None:
    run = change(person, review)
    file.write_text(OLD + MINE)
    # The diff is what the command did.
    assert [part.new for part in parts(review, run)] == [("changed 3\n",), (), ("a\n", "b\n")]
    decide(apply_hunks, review, run, 0)
    assert file.read_text() == FIRST + MINE
    review.apply(run)
    assert (file.read_text(), row(review, run).state) == (NEW + MINE, State.APPLIED)
    review.undo(run)
    assert file.read_text() == OLD + MINE
    assert_nothing_waits(review, run)


# --- discarded hunks -----------------------------------------------------------------------------


def test_hunks_are_discarded_one_by_one(person: Person, review: Review, file: Path) -> None:
    run = change(person, review)
    decide(discard_hunks, review, run, 1)
    assert file.read_text() == OLD
    # For the same run as before, and for no other.
    assert [one.id for one in review.waiting(run.project)] == [run.id]
    assert hunk_states(review, run) == [HunkState.UNDONE, HunkState.DISCARDED, HunkState.UNDONE]
    # The next command does not see it.
    assert person.run("cat file").stdout.text == WITHOUT_SECOND
    for number in (0, 2):
        decide(discard_hunks, review, run, number)
    assert (file.read_text(), row(review, run).state) == (OLD, State.DISCARDED)
    assert_nothing_waits(review, run)


def test_a_discarded_hunk_can_be_redone(person: Person, review: Review, file: Path) -> None:
    run = change(person, review)
    all_of_them = parts(review, run)
    decide(discard_hunks, review, run, 0)
    assert states(review.apply(run)) == [State.APPLIED]
    assert file.read_text() == WITHOUT_FIRST
    review.undo(run)
    assert file.read_text() == OLD
    # The diff still is what the command did.
    assert parts(review, run) == all_of_them
    review.apply(run)
    assert file.read_text() == WITHOUT_FIRST
    decide(redo_hunks, review, run, 0)
    for _ in range(2):
        assert file.read_text() == NEW
        review.undo(run)
        assert file.read_text() == OLD
        review.apply(run)


def test_a_discarded_hunk_can_still_be_applied(person: Person, review: Review, file: Path) -> None:
    file.chmod(0o640)
    run = change(person, review)
    decide(discard_hunks, review, run, 1)
    assert seen(person) == WITHOUT_SECOND
    decide(apply_hunks, review, run, 1)
    assert seen(person) == NEW
    assert states(review.apply(run)) == [State.APPLIED]
    assert (file.read_text(), file.stat().st_mode & 0o777) == (NEW, 0o640)


def test_a_hunk_is_discarded_if_the_data_are_on_another_disk(person: Person, file: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        person.environ["XDG_CACHE_HOME"] = elsewhere
        review = Review(person.paths)
        decide(discard_hunks, review, change(person, review), 0)
        review.close()
        assert seen(person) == WITHOUT_FIRST


def test_a_mode_stays_pending_without_the_text(person: Person, review: Review, file: Path) -> None:
    report = person.record(f"printf %s {shlex.quote(NEW)} >file; chmod 755 file", Mode.REVIEW)
    run = review.manager.run(report.run_id)
    decide(discard_hunks, review, run, 0, 1, 2)
    assert [one.id for one in review.waiting(run.project)] == [run.id]
    review.apply(run)
    assert (file.read_text(), file.stat().st_mode & 0o777) == (OLD, 0o755)


def test_with_no_hunk_left_nothing_is_pending(person: Person, review: Review, file: Path) -> None:
    run = change(person, review)
    decide(apply_hunks, review, run, 0)
    assert seen(person) == NEW
    decide(discard_hunks, review, run, 1)
    assert seen(person) == WITHOUT_SECOND
    decide(discard_hunks, review, run, 2)
    assert (file.read_text(), row(review, run).state) == (FIRST, State.APPLIED)
    assert_nothing_waits(review, run)


def test_the_rest_of_a_change_is_discarded(person: Person, review: Review, file: Path) -> None:
    run = change(person, review)
    decide(apply_hunks, review, run, 0)
    done = person.cli("discard", run.id)
    assert (done.returncode, "applied before stay" in done.stdout) == (0, True)
    assert file.read_text() == FIRST
    assert_nothing_waits(review, run)
    [item] = state.read_current(review.manager, run)
    assert (item.state, item.is_because(Reason.PARTLY)) == (State.APPLIED, True)
    assert '"state": "partly"' in person.cli("changes", run.id, "--json").stdout
    decide(undo_hunks, review, run, 0)
    assert (file.read_text(), row(review, run).state) == (OLD, State.UNDONE)
    decide(redo_hunks, review, run, 1)
    file.write_text(OLD.replace("line 15\n", "") + MINE)
    assert row(review, run).state is State.APPLIED
    assert states(review.undo(run)) == [State.UNDONE]
    assert file.read_text() == OLD + MINE


def test_a_change_with_an_undone_hunk_is_discarded(
    person: Person, review: Review, file: Path
) -> None:
    run = change(person, review)
    decide(apply_hunks, review, run, 0)
    decide(undo_hunks, review, run, 0)
    assert states(review.discard(run)) == [State.DISCARDED]
    assert file.read_text() == OLD


def test_undo_takes_out_the_hunk_that_was_applied(
    person: Person, review: Review, file: Path
) -> None:
    # Beside the second hunk, which is therefore neither in the project nor undone.
    earlier = change(person, review, between := OLD.replace("line 16\n", "next\n"))
    run = change(person, review, between.replace("line 3\n", "x\n").replace("line 15\n", ""))
    decide(apply_hunks, review, run, 0)
    review.discard(run)
    assert file.read_text() == OLD.replace("line 3\n", "x\n")
    assert review.waiting(run.project) == [earlier]
    assert states(review.undo(run)) == [State.UNDONE]
    assert file.read_text() == OLD


# --- other runs, and edits of the user -----------------------------------------------------------


def test_a_hunk_below_a_pending_change_is_undone(
    person: Person, review: Review, file: Path
) -> None:
    run = change(person, review, mode=Mode.AUTO)
    later = change(person, review, NEW + "more\n")
    decide(undo_hunks, review, run, 0)
    assert file.read_text() == WITHOUT_FIRST
    review.apply(later)
    assert file.read_text() == WITHOUT_FIRST + "more\n"


def test_a_discarded_hunk_is_not_seen(person: Person, review: Review, file: Path) -> None:
    run = change(person, review)
    later = change(person, review, NEW.replace("line 20\n", "later\n"))
    decide(discard_hunks, review, run, 1)
    wanted = WITHOUT_SECOND.replace("line 20\n", "later\n")
    assert seen(person) == wanted
    assert hunk_states(review, later) == [HunkState.UNDONE]
    # Its own line is applied, and nothing of the earlier change.
    assert review.also_applied(later) == []
    review.apply(later)
    assert file.read_text() == OLD.replace("line 20\n", "later\n")
    review.apply(run)
    assert file.read_text() == wanted
    decide(redo_hunks, review, run, 1)
    assert file.read_text() == wanted.replace("line 15\n", "")
    review.undo(later)
    assert file.read_text() == NEW


def test_a_discarded_hunk_stays_out_with_a_run(person: Person, review: Review, file: Path) -> None:
    run = change(person, review)
    decide(discard_hunks, review, run, 0)
    later = review.manager.run(person.record("echo more >>file", Mode.REVIEW).run_id)
    assert seen(person) == WITHOUT_FIRST + "more\n"
    review.discard(later)
    assert seen(person) == WITHOUT_FIRST


def test_discarded_hunks_leave_later_changes(person: Person, review: Review, file: Path) -> None:
    run = change(person, review)
    later = change(person, review, NEW.replace("line 20\n", "later\n"))
    decide(discard_hunks, review, run, 0, 1, 2)
    assert row(review, run).state is State.DISCARDED
    assert row(review, later).state is State.PENDING
    assert seen(person) == OLD.replace("line 20\n", "later\n")


def test_a_change_of_a_discarded_hunk_conflicts(person: Person, review: Review, file: Path) -> None:
    run = change(person, review)
    later = change(person, review, changed := NEW.replace("changed 3\n", "changed again\n"))
    decide(discard_hunks, review, run, 0)
    # It is still visible to the next command, since nobody has decided about it.
    assert seen(person) == changed
    assert hunk_states(review, run)[0] is HunkState.DISCARDED
    assert states(review.apply(later)) == [State.CONFLICT]
    # Nothing of the earlier change is applied for nothing.
    assert (file.read_text(), row(review, run).state) == (OLD, State.PENDING)


def test_a_later_change_is_applied_with_the_rest(
    person: Person, review: Review, file: Path
) -> None:
    run = change(person, review)
    # It changes the first hunk, so it is not applied without that.
    later = change(person, review, NEW.replace("changed 3\n", "again\n"))
    decide(discard_hunks, review, run, 1)
    assert [one.run_id for one in review.also_applied(later)] == [run.id]
    assert states(review.apply(later)) == [State.APPLIED]
    assert file.read_text() == WITHOUT_SECOND.replace("changed 3\n", "again\n")
    review.undo(later)
    assert file.read_text() == WITHOUT_SECOND
    review.undo(run)
    assert file.read_text() == OLD


def test_a_hunk_in_conflict_replaces_nothing(person: Person, review: Review, file: Path) -> None:
    run = change(person, review, mode=Mode.AUTO)
    file.write_text(mine := NEW.replace("changed 3\n", "mine\n") + MINE)
    with pytest.raises(OllmSandboxError):
        decide(undo_hunks, review, run, 0)
    assert states(review.undo(run, [str(file)])) == [State.CONFLICT]
    assert file.read_text() == mine


def test_hunks_after_a_conflict_are_applied(person: Person, review: Review, file: Path) -> None:
    run = change(person, review)
    file.write_text(OLD.replace("line 3\n", "mine\n") + MINE)
    assert states(review.apply(run)) == [State.CONFLICT]
    file.write_text(FIRST + MINE)
    decide(apply_hunks, review, run, 1, 2)
    assert (file.read_text(), row(review, run).state) == (NEW + MINE, State.APPLIED)


def test_the_diff_of_a_large_run_has_no_edits(person: Person, review: Review, file: Path) -> None:
    edit = "sed -i -e 's/^line 3$/changed 3/' -e 's/^line 20$/twentieth/' file"
    run = review.manager.run(person.record(f"{edit}; seq {MANY} | xargs touch", Mode.REVIEW).run_id)
    item = next(one for one in read_changes(review.manager, run) if one.change.path == "file")
    found = state.text_versions(review.manager, run, item)
    assert found is not None
    apply_hunks(review.manager, run, item, found.hunks[:1])
    assert file.read_text() == FIRST
    file.write_text(FIRST + MINE)
    assert state.text_versions(review.manager, run, item) == found
    apply_hunks(review.manager, run, item, found.hunks[1:])
    assert file.read_text() == FIRST.replace("line 20\n", "twentieth\n") + MINE


# --- what is refused -----------------------------------------------------------------------------


def test_no_hunk_is_applied_to_what_is_missing(person: Person, review: Review, file: Path) -> None:
    run = change(person, review)
    person.project.rename(person.home / "elsewhere")
    with pytest.raises(ProjectError, match="was removed"):
        decide(apply_hunks, review, run, 0)


def test_a_hunk_that_is_not_there_is_not_undone(person: Person, review: Review, file: Path) -> None:
    change(person, review, OLD.replace("line 3\n", "line 3\nmore\n"))
    run = change(person, review, OLD.replace("line 3\n", "more\n"))
    for _pending_and_discarded in range(2):
        with pytest.raises(OllmSandboxError):
            decide(undo_hunks, review, run, 0)
        assert file.read_text() == OLD
        review.discard(run)


def test_a_hunk_beside_other_lines_is_refused(person: Person, review: Review, file: Path) -> None:
    change(person, review, "earlier\n" + OLD)
    run = change(person, review, "more\nearlier\n" + OLD)
    with pytest.raises(OllmSandboxError):
        decide(apply_hunks, review, run, 0)
    assert file.read_text() == OLD
