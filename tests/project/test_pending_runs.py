# SPDX-License-Identifier: GPL-3.0-or-later
"""Decisions about pending changes of several runs, which may depend on each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.changes import seen, states, states_of
from support.person import Person

from ollmsandbox.database.tables import Run
from ollmsandbox.project.change import State
from ollmsandbox.project.reasons import Note, Reason
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.overlay import time_at
from ollmsandbox.sandbox.spec import Mode
from ollmsandbox.text.diff import LARGEST

pytestmark = pytest.mark.ordinary


def write(person: Person, review: Review, mode: Mode, text: str, name: str = "file") -> Run:
    return review.manager.run(person.write(name, text, mode))


def delete(person: Person, review: Review, mode: Mode, name: str = "file") -> Run:
    return review.manager.run(person.record(f"rm {name}", mode).run_id)


def edit(file: Path, text: str) -> None:
    """Save a file as the user does, at a later time of the file system's clock."""
    began = time_at(str(file.parent))
    file.write_text(text)
    while file.stat().st_ctime_ns <= began:
        file.write_text(text)


@pytest.mark.parametrize("first", [write, delete])
def test_an_edit_between_two_runs_stays(person: Person, review: Review, first: object) -> None:
    file = person.project / "file"
    file.write_text("old")
    if first is write:
        write(person, review, Mode.REVIEW, "first")
    else:
        delete(person, review, Mode.REVIEW)
    edit(file, "the person's")
    second = write(person, review, Mode.REVIEW, "second")
    for report in review.apply_all(second.project):
        assert states(report) == {"file": State.CONFLICT}
    assert file.read_text() == "the person's"
    # Whoever has looked at both can still take it.
    assert states(review.apply(second, [str(file)])) == {"file": State.APPLIED}
    assert file.read_text() == "second"


def test_a_run_does_not_approve_what_is_below_it(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text("old")
    waiting = write(person, review, Mode.REVIEW, "first")
    second = write(person, review, Mode.AUTO, "second")
    assert file.read_text() == "old"
    assert states_of(review, second) == states_of(review, waiting) == [State.PENDING]
    assert seen(person) == "second"


def test_earlier_changes_are_applied_along(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text("old")
    first, second, third = (
        write(person, review, Mode.REVIEW, text) for text in ("first", "second", "third")
    )
    write(person, review, Mode.REVIEW, "other", "other")
    [told] = review.also_applied(second)
    assert (told.run_id, [item.change.path for item in told.changes]) == (first.id, ["file"])
    report = review.apply(second)
    assert states(report) == {"file": State.APPLIED}
    assert [(one.run_id, states(one)) for one in report.along] == [
        (first.id, {"file": State.APPLIED})
    ]
    assert file.read_text() == "second"
    assert (states_of(review, third), seen(person)) == ([State.PENDING], "third")
    # Each is undone by itself.
    assert states(review.undo(second)) == {"file": State.UNDONE}
    assert file.read_text() == "first"
    assert states(review.undo(first)) == {"file": State.UNDONE}
    assert file.read_text() == "old"


def test_large_files_are_applied_one_after_the_other(person: Person, review: Review) -> None:
    """No copy of them is kept that could be merged."""
    file = person.project / "file"
    file.write_text("old")
    texts = [f"{number}" * (LARGEST + 1) for number in range(3)]
    runs = [write(person, review, Mode.REVIEW, text) for text in texts]
    assert states(review.apply(runs[-1])) == {"file": State.APPLIED}
    assert file.read_text() == texts[-1]
    for run, left in zip(reversed(runs), (texts[1], texts[0], "old"), strict=True):
        assert states(review.undo(run)) == {"file": State.UNDONE}
        assert file.read_text() == left


def test_an_earlier_version_is_visible_again(person: Person, review: Review) -> None:
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
        assert states(review.apply(run, [str(file)])) == {"file": State.APPLIED}
        assert file.read_text() == text


def test_a_hook_is_applied_as_it_was_seen(person: Person, review: Review) -> None:
    (person.project / ".git/hooks").mkdir(parents=True)
    (person.project / ".git/HEAD").touch()
    hook = ".git/hooks/pre-commit"
    first, second = (
        review.manager.run(person.record(f"printf {text} >{hook}").run_id)
        for text in ("good", "evil")
    )
    assert states_of(review, first) == states_of(review, second) == [State.PENDING]
    assert states(review.apply(first)) == {hook: State.APPLIED}
    assert (person.project / hook).read_text() == "good"
    assert states_of(review, second) == [State.PENDING]


def test_a_file_in_a_discarded_folder_names_what_is_missing(person: Person, review: Review) -> None:
    first = write(person, review, Mode.REVIEW, "text", "folder/file")
    second = write(person, review, Mode.REVIEW, "text", "folder/other")
    review.discard(first)
    assert states_of(review, second) == [State.DISCARDED]
    [item] = review.apply(second, [f"{person.project}/folder/other"]).changes
    assert (item.state, item.note) == (State.FAILED, Note(Reason.ROOT_MISSING))
    review.apply(first, [f"{person.project}/folder"])
    [item] = review.apply(second, [f"{person.project}/folder/other"]).changes
    assert item.state is State.APPLIED


def test_what_cannot_be_alone_is_discarded_along(person: Person, review: Review) -> None:
    first, second = (
        write(person, review, Mode.REVIEW, text, "folder/file") for text in ("first", "second")
    )
    inside = write(person, review, Mode.REVIEW, "inside", "folder/inside")
    other = write(person, review, Mode.REVIEW, "other", "other")
    told = review.also_discarded(first)
    assert [one.run_id for one in told] == [second.id, inside.id]
    assert states_of(review, second) == [State.PENDING]
    report = review.discard(first)
    assert states(report) == {"folder": State.DISCARDED, "folder/file": State.DISCARDED}
    assert [one.run_id for one in report.along] == [second.id, inside.id]
    assert states_of(review, second) == states_of(review, inside) == [State.DISCARDED]
    assert [run.id for run in review.waiting(first.project)] == [other.id]
    assert (seen(person, "folder/file"), seen(person, "other")) == (None, "other")


def test_what_cannot_be_merged_is_discarded_along(person: Person, review: Review) -> None:
    (person.project / "file").write_bytes(b"\0old")
    first, second = (write(person, review, Mode.REVIEW, f"\0{n}") for n in (1, 2))
    assert [one.run_id for one in review.also_discarded(first)] == [second.id]
    review.discard(first)
    assert states_of(review, second) == [State.DISCARDED]
    assert seen(person) == "\0old"


def test_a_later_change_of_other_lines_stays(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text("1\n2\n3\n4\n5\n")
    first = write(person, review, Mode.REVIEW, "ONE\n2\n3\n4\n5\n")
    second = write(person, review, Mode.REVIEW, "ONE\n2\n3\n4\nFIVE\n")
    assert review.also_discarded(first) == []
    report = review.discard(first)
    assert (states(report), report.along) == ({"file": State.DISCARDED}, ())
    assert states_of(review, second) == [State.PENDING]
    assert seen(person) == "1\n2\n3\n4\nFIVE\n"
    assert states(review.apply(second)) == {"file": State.APPLIED}
    assert file.read_text() == "1\n2\n3\n4\nFIVE\n"
    review.undo(second)
    assert file.read_text() == "1\n2\n3\n4\n5\n"


def test_a_conflict_names_the_discarded_run(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text("old\n")
    first = write(person, review, Mode.REVIEW, "first\n")
    second = write(person, review, Mode.REVIEW, "second\n")
    assert review.also_discarded(first) == []
    review.discard(first)
    assert seen(person) == "second\n"
    [item] = review.apply(second).changes
    assert item.state is State.CONFLICT
    assert item.note == Note(Reason.BASE_DISCARDED, {"run": first.id})
    assert file.read_text() == "old\n"
    # Whoever has been told may still take it, and undo it.
    assert states(review.apply(second, [str(file)])) == {"file": State.APPLIED}
    assert file.read_text() == "second\n"
    review.undo(second)
    assert file.read_text() == "old\n"


def test_only_the_lines_of_the_chosen_run_are_applied(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text("1\n2\n3\n4\n5\n")
    first = write(person, review, Mode.REVIEW, "ONE\n2\n3\n4\n5\n")
    second = write(person, review, Mode.REVIEW, "ONE\n2\n3\n4\nFIVE\n")
    assert review.also_applied(second) == []
    report = review.apply(second)
    assert (states(report), report.along) == ({"file": State.APPLIED}, ())
    assert file.read_text() == "1\n2\n3\n4\nFIVE\n"
    assert states_of(review, first) == [State.PENDING]
    assert seen(person) == "ONE\n2\n3\n4\nFIVE\n"
    review.apply(first)
    review.undo(second)
    assert file.read_text() == "ONE\n2\n3\n4\n5\n"
