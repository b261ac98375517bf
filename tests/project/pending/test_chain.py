# SPDX-License-Identifier: GPL-3.0-or-later
"""Pending changes are a chain: each run has a layer, and runs on one path depend on each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.escape.processes import SOON, within
from support.person import Person

from ollmsandbox import loop
from ollmsandbox.project.apply.recorder import Recorder
from ollmsandbox.project.changes.change import Report, State
from ollmsandbox.project.changes.mode import Mode
from ollmsandbox.project.changes.overlayfs import find_in_layers, read_seen
from ollmsandbox.project.changes.reasons import Note, Reason
from ollmsandbox.project.database.models import Run
from ollmsandbox.project.database.runs import read_changes, write_changes
from ollmsandbox.project.pending.chain import Chain, layers_of
from ollmsandbox.project.review import write_file
from ollmsandbox.project.review.review import Review
from ollmsandbox.project.review.versions import Versions
from ollmsandbox.sandbox.overlay import time_at
from ollmsandbox.text.diff import LARGEST

pytestmark = pytest.mark.ordinary

# More runs than can be mounted one by one.
MANY = 40


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
    return review.manager.run(person.record(f"rm {name}", mode).run_id)


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
    found = find_in_layers(layers_of(person.paths, project, project), name)
    return None if found is None else read_seen(found).decode()


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
    for report in review.apply_all(second.project):
        assert states(report) == {"file": State.CONFLICT}
    assert file.read_text() == "the person's"
    # Whoever has looked at both can still take it.
    assert states(review.apply(second, [str(file)])) == {"file": State.APPLIED}
    assert file.read_text() == "second"


def test_a_run_in_auto_mode_does_not_approve_what_is_below_it(
    person: Person, review: Review
) -> None:
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


def test_later_changes_are_discarded_along(person: Person, review: Review) -> None:
    first, second, third = (
        write(person, review, Mode.REVIEW, text, "folder/file")
        for text in ("first", "second", "third")
    )
    other = write(person, review, Mode.REVIEW, "other", "other")
    told = review.also_discarded(second)
    assert [one.run_id for one in told] == [third.id]
    report = review.discard(second)
    assert states(report) == {"folder/file": State.DISCARDED}
    assert [one.run_id for one in report.along] == [third.id]
    assert (seen(person, "folder/file"), seen(person, "other")) == ("first", "other")
    report = review.discard(first)
    assert set(states(report).values()) == {State.DISCARDED}
    assert [run.id for run in review.waiting(first.project)] == [other.id]
    assert seen(person, "folder/file") is None


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


def test_without_the_later_version_the_earlier_one_is_visible_again(
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
        assert states(review.apply(run, [str(file)])) == {"file": State.APPLIED}
        assert file.read_text() == text


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


def test_a_hook_that_a_later_run_changed_is_applied_as_it_was_seen(
    person: Person, review: Review
) -> None:
    (person.project / ".git/hooks").mkdir(parents=True)
    (person.project / ".git/HEAD").touch()
    hook = ".git/hooks/pre-commit"
    first = write(person, review, Mode.AUTO, "good", hook)
    second = write(person, review, Mode.AUTO, "evil", hook)
    assert states_of(review, first) == states_of(review, second) == [State.PENDING]
    assert states(review.apply(first)) == {hook: State.APPLIED}
    assert (person.project / hook).read_text() == "good"
    assert states_of(review, second) == [State.PENDING]


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


def test_the_changes_of_many_runs_are_visible_and_decided_one_by_one(
    person: Person, review: Review
) -> None:
    project = str(person.project)

    def run(command: str) -> str:
        keeper = Recorder(project, person.paths, mode=Mode.REVIEW)
        return str(person.run(command, keeper=keeper).stdout.text)

    (person.project / "gone").mkdir()
    (person.project / "gone" / "old").write_text("old")
    (person.project / "deleted").write_text("old")
    (person.project / "file").write_text("old")
    run("rm -r gone; mkdir closed; echo secret > closed/file; chmod 000 closed; ln -s file link")
    run("mkdir gone; echo new > gone/new; rm deleted; chmod 640 file")
    made = [write(person, review, Mode.REVIEW, f"{n}", "file") for n in range(MANY)]
    more = [write(person, review, Mode.REVIEW, f"{n}", f"more/{n}") for n in range(10)]
    chain = Chain(person.paths, project)
    assert chain.squashed is not None
    assert len(chain.mounted(project)) < len(chain.runs) / 2
    last = MANY - 1
    look = "ls; ls gone more | wc -l; cat file link more/1; chmod 700 closed; cat closed/file"
    listed = "closed\nfile\ngone\nlink\nmore\n"
    assert run(look) == f"{listed}14\n{last}{last}1secret\n"
    review.discard(made[-1])
    review.discard(more[3])
    assert run(look) == f"{listed}13\n{last - 1}{last - 1}1secret\n"
    assert states(review.apply(made[10])) == {"file": State.APPLIED}
    assert (person.project / "file").read_text() == "10"
    assert run(look) == f"{listed}13\n{last - 1}{last - 1}1secret\n"
    review.discard_all(made[0].project)
    assert run(look) == "deleted\nfile\ngone\n2\n10"
    assert not list(Chain(person.paths, project).folder.glob("squashed-*"))


def test_a_running_command_keeps_the_squashed_layers_that_it_has_mounted(
    person: Person, review: Review
) -> None:
    person.share_playground()
    made = [write(person, review, Mode.REVIEW, f"{n}", f"{n}") for n in range(30)]
    bubble = person.bubble(keeper=Recorder(str(person.project), person.paths, mode=Mode.REVIEW))
    ready, go = person.playground / "ready", person.playground / "go"

    def discard_meanwhile() -> None:
        own = Review(person.paths)
        try:
            within(SOON, ready.exists)
            own.discard(own.manager.run(made[0].id))
        finally:
            go.touch()
            own.close()

    other = threading.Thread(target=discard_meanwhile)
    other.start()
    wait = "cd ~/playground; touch ready; until [ -e go ]; do sleep 0.1; done; cd -"
    assert loop.run(bubble.exec(f"{wait} >&2; cat 0 && rm 1 2")).stdout.text == "0"
    other.join()
    assert [seen(person, name) for name in ("0", "1", "2", "3")] == [None, None, None, "3"]


def test_a_later_mode_of_a_folder_is_visible_through_pending_changes(
    person: Person, review: Review
) -> None:
    project = str(person.project)
    (person.project / "folder").mkdir(mode=0o755)

    def visible_mode() -> int:
        found = find_in_layers(layers_of(person.paths, project, project), "folder")
        assert found is not None
        return found.found.st_mode & 0o777

    write(person, review, Mode.REVIEW, "text", "folder/file")
    person.run("chmod 750 folder", keeper=(keeper := Recorder(project, person.paths)))
    assert keeper.report is not None
    assert visible_mode() == (person.project / "folder").stat().st_mode & 0o777 == 0o750
    review.undo(review.manager.run(keeper.report.run_id))
    assert visible_mode() == (person.project / "folder").stat().st_mode & 0o777 == 0o755
    person.run("chmod 500 folder", keeper=(keeper := Recorder(project, person.paths)))
    assert visible_mode() == 0o500


def test_a_discarded_file_in_a_discarded_folder_of_another_run_says_what_is_missing(
    person: Person, review: Review
) -> None:
    first = write(person, review, Mode.REVIEW, "text", "folder/file")
    second = write(person, review, Mode.REVIEW, "text", "folder/other")
    review.discard(first)
    assert states_of(review, second) == [State.DISCARDED]
    [item] = review.apply(second, [f"{person.project}/folder/other"]).changes
    assert (item.state, item.note) == (State.FAILED, Note(Reason.ROOT_MISSING))
    review.apply(first, [f"{person.project}/folder"])
    [item] = review.apply(second, [f"{person.project}/folder/other"]).changes
    assert item.state is State.APPLIED
