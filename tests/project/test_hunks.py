# SPDX-License-Identifier: GPL-3.0-or-later
"""Applying, undoing and discarding single hunks of a text file."""

from __future__ import annotations

import shlex

import pytest
from support.person import Person

from ollmsandbox.database.tables import Run
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.files.overlayfs import find_in_layers, read_seen
from ollmsandbox.project import hunks, state, write_file
from ollmsandbox.project.change import Recorded, State
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.spec import Mode, RunSpec
from ollmsandbox.text.diff import Hunk, HunkState

pytestmark = pytest.mark.anybody

OLD = "".join(f"line {number}\n" for number in range(30))
NEW = OLD.replace("line 3\n", "changed 3\n").replace("line 15\n", "").replace("line 28\n", "a\nb\n")


def change(person: Person, review: Review, new: str, mode: Mode) -> tuple[Run, Recorded]:
    file = f"{person.project}/file"
    report = write_file.write_file(
        person.paths, RunSpec(str(person.project), mode=mode), file, new.encode()
    )
    return latest(review, report.run_id)


def latest(review: Review, run_id: str) -> tuple[Run, Recorded]:
    run = review.manager.run(run_id)
    [item] = read_changes(review.manager, run)
    return run, item


def parts(review: Review, run: Run, item: Recorded) -> tuple[Hunk, ...]:
    found = state.text_versions(review.manager, run, item)
    assert found is not None
    return found.hunks


def test_any_bytes_come_back_as_they_were() -> None:
    data = bytes(range(1, 256)) + b"\n\xff\r\n"
    assert state.encode_lines(state.decode_lines(data) or []) == data
    assert state.decode_lines(b"a\0b") is None


def test_one_hunk_is_undone_and_redone(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text(OLD)
    run, item = change(person, review, NEW, Mode.AUTO)
    second = parts(review, run, item)[1]
    file.write_text(by_hand := NEW.replace("line 20\n", "by hand\n"))
    assert parts(review, run, item)[1] == second
    report = hunks.undo_hunks(review.manager, run, item, [second])
    assert report.run_id == run.id
    assert file.read_text() == by_hand.replace("line 14\n", "line 14\nline 15\n")
    run, item = latest(review, run.id)
    hunks.redo_hunks(review.manager, run, item, [second])
    assert file.read_text() == by_hand


def test_an_undone_hunk_is_known_as_such_and_redone(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text(OLD)
    run, item = change(person, review, NEW, Mode.AUTO)
    assert state.current_hunk_states(review.manager, run, item) == {}
    first, second, third = parts(review, run, item)
    hunks.undo_hunks(review.manager, run, item, [second])
    undone = NEW.replace("line 14\n", "line 14\nline 15\n")
    assert file.read_text() == undone
    change(person, review, by_hand := undone.replace("changed 3\n", "by hand\n"), Mode.AUTO)
    assert state.current_hunk_states(review.manager, run, item) == {
        first: HunkState.CHANGED,
        second: HunkState.UNDONE,
        third: HunkState.PRESENT,
    }
    with pytest.raises(OllmSandboxError, match="in the meantime"):
        hunks.redo_hunks(review.manager, run, item, [first])
    hunks.redo_hunks(review.manager, run, item, [second])
    assert file.read_text() == by_hand.replace("line 15\n", "")
    assert state.current_hunk_states(review.manager, run, item)[second] is HunkState.PRESENT


def test_a_hunk_is_applied_and_the_rest_stays_pending(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text(OLD)
    run, item = change(person, review, NEW, Mode.REVIEW)
    first, second, third = parts(review, run, item)
    hunks.apply_hunks(review.manager, run, item, [second])
    assert file.read_text() == OLD.replace("line 15\n", "")
    run, item = latest(review, run.id)
    assert item.state is State.PENDING
    assert state.current_hunk_states(review.manager, run, item) == {
        first: HunkState.UNDONE,
        second: HunkState.PRESENT,
        third: HunkState.UNDONE,
    }
    # The rest is no conflict with what we wrote ourselves.
    assert [each.state for each in review.apply(run).changes] == [State.APPLIED]
    assert file.read_text() == NEW
    assert review.waiting(review.manager.add_project(person.project)) == []


def test_applying_the_last_hunk_applies_the_change(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text(OLD)
    run, item = change(person, review, NEW, Mode.REVIEW)
    for part in parts(review, run, item):
        hunks.apply_hunks(review.manager, run, item, [part])
        run, item = latest(review, run.id)
    assert item.state is State.APPLIED
    assert file.read_text() == NEW
    assert review.waiting(review.manager.add_project(person.project)) == []


def test_an_applied_hunk_can_be_undone_while_the_rest_is_pending(
    person: Person, review: Review
) -> None:
    (person.project / "file").write_text(OLD)
    run, item = change(person, review, NEW, Mode.REVIEW)
    first = parts(review, run, item)[0]
    hunks.apply_hunks(review.manager, run, item, [first])
    hunks.undo_hunks(review.manager, run, item, [first])
    assert (person.project / "file").read_text() == OLD
    run, item = latest(review, run.id)
    assert item.state is State.PENDING and len(parts(review, run, item)) == 3


def test_a_hunk_is_discarded_and_the_rest_stays_pending(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text(OLD)
    run, item = change(person, review, NEW, Mode.REVIEW)
    project = run.project
    first, second, third = parts(review, run, item)
    hunks.discard_hunks(review.manager, run, item, [second])
    assert file.read_text() == OLD
    # For the same run as before, and for no other.
    assert [one.id for one in review.waiting(project)] == [run.id]
    run, item = latest(review, run.id)
    assert state.current_hunk_states(review.manager, run, item) == {
        first: HunkState.UNDONE,
        second: HunkState.DISCARDED,
        third: HunkState.UNDONE,
    }
    # The next command does not see it.
    assert person.run("cat file").stdout.text == NEW.replace("line 14\n", "line 14\nline 15\n")
    for part in (first, third):
        hunks.discard_hunks(review.manager, run, item, [part])
        run, item = latest(review, run.id)
    # Nothing of it is left, and nothing is pending.
    assert item.state is State.DISCARDED
    assert review.waiting(review.manager.add_project(person.project)) == []
    assert review.waiting(project) == []
    assert file.read_text() == OLD


def test_the_rest_of_what_was_discarded_is_applied_and_undone(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    file.write_text(OLD)
    run, item = change(person, review, NEW, Mode.REVIEW)
    hunks.discard_hunks(review.manager, run, item, [parts(review, run, item)[1]])
    rest = NEW.replace("line 14\n", "line 14\nline 15\n")
    assert [one.state for one in review.apply(run).changes] == [State.APPLIED]
    assert file.read_text() == rest
    assert [one.state for one in review.undo(run).changes] == [State.UNDONE]
    assert file.read_text() == OLD


def test_a_discarded_hunk_can_still_be_applied(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text(OLD)
    file.chmod(0o640)
    run, item = change(person, review, NEW, Mode.REVIEW)
    second = parts(review, run, item)[1]
    hunks.discard_hunks(review.manager, run, item, [second])
    run, item = latest(review, run.id)
    hunks.apply_hunks(review.manager, run, item, [second])
    assert [one.state for one in review.apply(run).changes] == [State.APPLIED]
    assert (file.read_text(), file.stat().st_mode & 0o777) == (NEW, 0o640)


def test_a_changed_mode_stays_pending_without_the_text(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text(OLD)
    person.record(f"printf %s {shlex.quote(NEW)} >file; chmod 755 file", Mode.REVIEW)
    run = review.waiting(review.manager.add_project(person.project))[0]
    run, item = latest(review, run.id)
    hunks.discard_hunks(review.manager, run, item, parts(review, run, item))
    assert [one.id for one in review.waiting(run.project)] == [run.id]
    review.apply(run)
    assert (file.read_text(), file.stat().st_mode & 0o777) == (OLD, 0o755)


def test_a_hunk_is_undone_while_a_later_change_is_pending(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text(OLD)
    run, item = change(person, review, NEW, Mode.AUTO)
    later, _ = change(person, review, NEW + "more\n", Mode.REVIEW)
    hunks.undo_hunks(review.manager, run, item, [parts(review, run, item)[0]])
    assert file.read_text() == (rest := NEW.replace("changed 3\n", "line 3\n"))
    review.apply(later)
    assert file.read_text() == rest + "more\n"


def test_a_binary_file_has_no_hunks(person: Person, review: Review) -> None:
    (person.project / "file").write_bytes(b"\0")
    run, item = change(person, review, "text", Mode.AUTO)
    assert state.text_versions(review.manager, run, item) is None


def test_later_commands_do_not_see_a_discarded_hunk(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text(OLD)
    run, item = change(person, review, NEW, Mode.REVIEW)
    second = parts(review, run, item)[1]
    later = change(person, review, NEW.replace("line 20\n", "later\n"), Mode.REVIEW)[0]
    hunks.discard_hunks(review.manager, run, item, [second])
    wanted = NEW.replace("line 14\n", "line 14\nline 15\n").replace("line 20\n", "later\n")
    assert pending(person) == wanted
    later, its = latest(review, later.id)
    [its_hunk] = parts(review, later, its)
    assert state.current_hunk_states(review.manager, later, its) == {its_hunk: HunkState.UNDONE}
    # Its own line is applied, and nothing of the earlier change.
    assert review.also_applied(later) == []
    review.apply(later)
    assert file.read_text() == OLD.replace("line 20\n", "later\n")
    review.apply(run)
    assert file.read_text() == wanted
    run, item = latest(review, run.id)
    hunks.redo_hunks(review.manager, run, item, [second])
    assert file.read_text() == wanted.replace("line 15\n", "")
    review.undo(review.manager.run(later.id))
    assert file.read_text() == NEW


def test_discarding_all_hunks_takes_them_out_of_later_changes(
    person: Person, review: Review
) -> None:
    (person.project / "file").write_text(OLD)
    run, item = change(person, review, NEW, Mode.REVIEW)
    later = change(person, review, NEW.replace("line 20\n", "later\n"), Mode.REVIEW)[0]
    hunks.discard_hunks(review.manager, run, item, parts(review, run, item))
    assert latest(review, run.id)[1].state is State.DISCARDED
    assert latest(review, later.id)[1].state is State.PENDING
    assert pending(person) == OLD.replace("line 20\n", "later\n")


def test_a_later_change_of_a_discarded_hunk_is_a_conflict(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text(OLD)
    run, item = change(person, review, NEW, Mode.REVIEW)
    first = parts(review, run, item)[0]
    changed = NEW.replace("changed 3\n", "changed again\n")
    later, _ = change(person, review, changed, Mode.REVIEW)
    hunks.discard_hunks(review.manager, run, item, [first])
    # It is still visible to the next command, since nobody has decided about it.
    assert pending(person) == changed
    assert state.current_hunk_states(review.manager, run, item)[first] is HunkState.DISCARDED
    [conflict] = review.apply(later).changes
    assert conflict.state is State.CONFLICT
    # Nothing of the earlier change is applied for nothing.
    assert file.read_text() == OLD
    assert latest(review, run.id)[1].state is State.PENDING


def test_a_discarded_hunk_stays_out_when_a_later_change_is_applied_with_the_rest(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    file.write_text(OLD)
    run, item = change(person, review, NEW, Mode.REVIEW)
    second = parts(review, run, item)[1]
    # It changes the first hunk, so it is not applied without that.
    later, _ = change(person, review, NEW.replace("changed 3\n", "again\n"), Mode.REVIEW)
    hunks.discard_hunks(review.manager, run, item, [second])
    assert [one.run_id for one in review.also_applied(later)] == [run.id]
    [done] = review.apply(later).changes
    assert done.state is State.APPLIED
    rest = NEW.replace("line 14\n", "line 14\nline 15\n")
    assert file.read_text() == rest.replace("changed 3\n", "again\n")
    review.undo(later)
    assert file.read_text() == rest
    review.undo(run)
    assert file.read_text() == OLD


def pending(person: Person) -> str:
    """Return what the next command sees of the file."""
    seen = find_in_layers(person.layers(), "file")
    return read_seen(seen).decode() if seen else ""
