# SPDX-License-Identifier: GPL-3.0-or-later
"""Pending changes of several runs to one file: the user's edits are never overwritten, and each
version stays available."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.person import Person

from ollmsandbox.project.changes import view as present
from ollmsandbox.project.changes.change import Mode, Report, State
from ollmsandbox.project.changes.reasons import Note, Reason
from ollmsandbox.project.database.models import Run
from ollmsandbox.project.database.runs import read_changes, write_changes
from ollmsandbox.project.review import write_file
from ollmsandbox.project.review.review import Review
from ollmsandbox.project.review.versions import Versions
from ollmsandbox.sandbox.overlay import time_at


@pytest.fixture
def review(person: Person) -> Iterator[Review]:
    review = Review(person.paths)
    yield review
    review.close()


def write(person: Person, review: Review, mode: Mode, text: str, name: str = "file") -> Run:
    path = f"{person.project}/{name}"
    report = write_file.write_file(person.paths, str(person.project), path, text.encode(), how=mode)
    return review.manager.run(report.run_id)


def delete(person: Person, review: Review, mode: Mode, name: str = "file") -> Run:
    path = f"{person.project}/{name}"
    report = write_file.delete_file(person.paths, str(person.project), path, how=mode)
    return review.manager.run(report.run_id)


def edit(file: Path, text: str) -> None:
    """Save a file as the user does, at a later time of the file system's clock."""
    began = time_at(str(file.parent))
    file.write_text(text)
    while file.stat().st_ctime_ns <= began:
        file.write_text(text)


def states(report: Report) -> dict[str, State]:
    return {item.change.path: item.state for item in report.changes}


def states_of(review: Review, run: Run) -> list[State]:
    return [item.state for item in read_changes(review.manager, run)]


def seen(person: Person, name: str = "file") -> str | None:
    """Return what the next command sees."""
    project = str(person.project)
    found = present.find_in_layers(present.layers_of(person.paths, project, project), name)
    return None if found is None else present.read_seen(found).decode()


@pytest.mark.parametrize("first", [write, delete])
def test_an_edit_between_two_pending_runs_is_not_replaced(
    person: Person, review: Review, first: object
) -> None:
    file = person.project / "file"
    file.write_text("old")
    if first is write:
        write(person, review, Mode.REVIEW, "first")
    else:
        delete(person, review, Mode.REVIEW)
    edit(file, "the person's")
    second = write(person, review, Mode.REVIEW, "second")
    [report] = review.apply_all(second.project)
    assert states(report) == {"file": State.CONFLICT}
    assert file.read_text() == "the person's"
    # Whoever has looked at both can still take it.
    assert states(review.apply(second, [str(file)])) == {"file": State.APPLIED}
    assert file.read_text() == "second"


@pytest.mark.parametrize("first", [write, delete])
def test_an_edit_is_not_replaced_by_a_run_on_top_of_a_pending_one(
    person: Person, review: Review, first: object
) -> None:
    file = person.project / "file"
    file.write_text("old")
    if first is write:
        waiting = write(person, review, Mode.REVIEW, "first")
    else:
        waiting = delete(person, review, Mode.REVIEW)
    edit(file, "the person's")
    second = write(person, review, Mode.AUTO, "second")
    assert file.read_text() == "the person's"
    assert states_of(review, second) == [State.CONFLICT]
    assert states_of(review, waiting) == [State.PENDING]
    assert seen(person) == "second"


def test_a_conflict_is_not_decided_by_the_next_run(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text("old")
    first = write(person, review, Mode.REVIEW, "first")
    edit(file, "the person's")
    assert states(review.apply(first)) == {"file": State.CONFLICT}
    for text in ("second", "third"):
        later = write(person, review, Mode.AUTO, text)
        assert states_of(review, later) == [State.CONFLICT]
    assert file.read_text() == "the person's"


def test_a_run_in_auto_mode_on_top_of_a_pending_one_is_applied(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    edit(file, "old")
    write(person, review, Mode.REVIEW, "first")
    second = write(person, review, Mode.AUTO, "second")
    assert states_of(review, second) == [State.APPLIED]
    assert file.read_text() == "second"
    assert states(review.undo(second)) == {"file": State.UNDONE}
    assert file.read_text() == "old"
    assert os.listdir(person.project) == ["file"]


def test_without_the_later_version_the_earlier_one_is_pending_again(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    file.write_text("old")
    runs = [write(person, review, Mode.REVIEW, text) for text in ("first", "second", "third")]
    for run, is_left in zip(reversed(runs), ("second", "first", "old"), strict=True):
        assert states(review.discard(run)) == {"file": State.DISCARDED}
        assert seen(person) == is_left
        assert states_of(review, run) == [State.DISCARDED]
    assert review.waiting(runs[0].project) == []
    # And none is lost.
    for run, text in zip(runs, ("first", "second", "third"), strict=True):
        # For the others the report says that the file was changed since.
        told = State.APPLIED if run is runs[0] else State.CONFLICT
        assert states(review.apply(run, [str(file)])) == {"file": told}
        review.apply(run, [str(file)])
        assert file.read_text() == text


def test_an_earlier_version_that_is_pending_again_is_applied(
    person: Person, review: Review
) -> None:
    first = write(person, review, Mode.REVIEW, "first", "folder/file")
    second = write(person, review, Mode.REVIEW, "second", "folder/file")
    done = person.cli("discard", second.id)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"pending again: {first.id}" in done.stdout
    assert set(states(review.apply(first)).values()) == {State.APPLIED}
    assert (person.project / "folder/file").read_text() == "first"
    assert review.waiting(first.project) == []


def test_a_deletion_is_pending_again_without_its_replacement(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    file.write_text("old")
    first = delete(person, review, Mode.REVIEW)
    second = write(person, review, Mode.REVIEW, "second")
    assert seen(person) == "second"
    review.discard(second)
    assert seen(person) is None
    assert states_of(review, first) == [State.PENDING]
    assert states(review.apply(first)) == {"file": State.APPLIED}
    assert not file.exists()


def test_a_pending_file_is_back_without_its_deletion(person: Person, review: Review) -> None:
    (person.project / "file").write_text("old")
    first = write(person, review, Mode.REVIEW, "first")
    second = delete(person, review, Mode.REVIEW)
    assert seen(person) is None
    review.discard(second)
    assert seen(person) == "first"
    assert states_of(review, first) == [State.PENDING]


def test_everything_is_discarded_including_what_is_pending_again(
    person: Person, review: Review
) -> None:
    (person.project / "file").write_text("old")
    first = write(person, review, Mode.REVIEW, "first")
    write(person, review, Mode.REVIEW, "second")
    reports = review.discard_all(first.project)
    assert [states(report) for report in reports] == [{"file": State.DISCARDED}] * 2
    assert seen(person) == "old"
    assert review.waiting(first.project) == []


def test_a_change_replaced_by_a_later_run_does_not_count_as_applied(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    file.write_text("old")
    first = write(person, review, Mode.REVIEW, "first")
    second = write(person, review, Mode.REVIEW, "second")
    review.apply_all(first.project)
    [item] = read_changes(review.manager, first)
    assert (item.state, item.note) == (
        State.DISCARDED,
        Note(Reason.LATER_RUN, {"run": second.id}),
    )
    assert states(review.undo(second)) == {"file": State.UNDONE}
    assert file.read_text() == "old"
    # It can still be applied: the file is what it is based on.
    assert states(review.apply(first, [str(file)])) == {"file": State.APPLIED}
    assert file.read_text() == "first"


def test_a_hook_that_a_later_run_deleted_was_never_applied(person: Person, review: Review) -> None:
    (person.project / ".git/hooks").mkdir(parents=True)
    (person.project / ".git/HEAD").touch()
    hook = ".git/hooks/pre-commit"
    first = write(person, review, Mode.AUTO, "evil", hook)
    assert states_of(review, first) == [State.PENDING]
    delete(person, review, Mode.AUTO, hook)
    assert states_of(review, first) == [State.DISCARDED]
    assert seen(person, hook) is None
    assert review.waiting(first.project) == []


def test_a_change_that_a_later_run_reverted_was_never_applied(
    person: Person, review: Review
) -> None:
    (person.project / "file").write_text("old")
    first = write(person, review, Mode.REVIEW, "first")
    second = write(person, review, Mode.REVIEW, "old")
    assert states_of(review, first) == [State.DISCARDED]
    assert states_of(review, second) == [State.APPLIED]
    assert seen(person) == "old"


def test_the_cost_of_reading_one_run_does_not_grow_with_pending_runs(
    person: Person, review: Review
) -> None:
    run = write(person, review, Mode.REVIEW, "new")
    [item] = read_changes(review.manager, run)
    versions = Versions(review.manager)
    connection = review.manager.store.connection

    def steps() -> int:
        """Return the number of the database's steps."""
        done: list[int] = []
        connection.set_progress_handler(lambda: done.append(1), 1)
        assert versions.after(run, item).read() == b"new"
        connection.set_progress_handler(None, 1)
        return len(done)

    few = steps()
    many = [item._replace(number=n, change=item.change._replace(path=f"{n}")) for n in range(1, 99)]
    write_changes(review.manager, run.id, many)
    assert steps() < 2 * few


@pytest.mark.parametrize("verb", ["apply", "undo", "redo"])
def test_an_edit_is_reported_before_it_is_replaced_even_if_the_file_is_named(
    person: Person, review: Review, verb: str
) -> None:
    file = person.project / "file"
    file.write_text("old")
    mode = Mode.REVIEW if verb == "apply" else Mode.AUTO
    run = write(person, review, mode, "new")
    if verb == "redo":
        review.undo(run)
    edit(file, "mine")
    act, wanted = (review.undo, State.UNDONE) if verb == "undo" else (review.apply, State.APPLIED)
    assert states(act(run, [str(file)])) == {"file": State.CONFLICT}
    assert file.read_text() == "mine"
    assert states(act(run, [str(file)])) == {"file": wanted}
    assert file.read_text() == ("old" if verb == "undo" else "new")


def test_that_a_later_run_changed_it_too_is_no_leave_to_replace_an_edit(
    person: Person, review: Review
) -> None:
    file = person.project / "file"
    file.write_text("old")
    first, second = (write(person, review, Mode.REVIEW, text) for text in ("first", "second"))
    review.apply(second)
    edit(file, "mine")
    assert states(review.apply(first, [str(file)])) == {"file": State.CONFLICT}
    assert file.read_text() == "mine"
