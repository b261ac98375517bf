# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions that are lost, changes that the user made by hand, and kills between two jobs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial

import pytest
from support.changes import states, states_of
from support.person import Person

from ollmsandbox.database.tables import Run
from ollmsandbox.paths import make_folder
from ollmsandbox.project.change import State
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.reasons import Note, Reason
from ollmsandbox.project.recover import finish_leftovers
from ollmsandbox.project.review import Review
from ollmsandbox.project.state import read_current
from ollmsandbox.project.swap import Item, Swapper
from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.ordinary


class Killed(BaseException):
    pass


def write(person: Person, review: Review, mode: Mode, **texts: str) -> Run:
    """Write each file in a run of its own; return the last run."""
    ids = [person.write(name, text, mode) for name, text in texts.items()]
    return review.manager.run(ids[-1])


def lose_result(person: Person, run: Run) -> None:
    """Delete what the command left, as a broken disk would."""
    for kept in (person.paths.runs / run.id / "result").iterdir():
        kept.unlink()
    for layer in person.paths.project_data(str(person.project)).glob("layer-*/overlay1"):
        shutil.rmtree(layer.parent)


def test_a_lost_version_does_not_count_as_applied(person: Person, review: Review) -> None:
    (person.project / "file").write_text("old")
    run = write(person, review, Mode.REVIEW, file="new")
    lose_result(person, run)
    for reports in ([review.apply(run)], review.apply_all(run.project)):
        [item] = [item for report in reports for item in report.changes]
        assert (item.state, item.note) == (State.FAILED, Note(Reason.LOST))
        assert states_of(review, run) == [State.FAILED]
    assert (person.project / "file").read_text() == "old"
    assert states(review.discard(run)) == {"file": State.DISCARDED}
    assert review.waiting(run.project) == []


def test_a_lost_version_can_be_discarded(person: Person, review: Review) -> None:
    run = write(person, review, Mode.REVIEW, file="new")
    lose_result(person, run)
    for words in (("apply", "--all"), ("apply", run.id), ("apply", run.id, "file")):
        done = person.cli(*words)
        assert done.returncode == 1
        assert f"`ollmsandbox discard {run.id} PATH`" in done.stdout
        assert "try again" not in done.stdout
    assert "try again" not in person.cli("changes", "--all").stdout
    assert person.cli("discard", run.id, "file").returncode == 0
    assert person.cli("apply", "--all").returncode == 0


@pytest.mark.parametrize("verb", ["apply", "discard"])
def test_decisions_in_a_read_only_project(person: Person, review: Review, verb: str) -> None:
    (person.project / "folder").mkdir()
    person.project.chmod(0o555)
    run = write(person, review, Mode.REVIEW, **{"folder/file": "new"})
    report = review.apply(run) if verb == "apply" else review.discard(run)
    assert states(report)["folder/file"] in (State.APPLIED, State.DISCARDED)
    assert review.waiting(run.project) == []
    assert not list(person.paths.project_data(str(person.project)).glob("layer-*"))
    person.project.chmod(0o755)


def test_discarding_a_change_whose_versions_are_lost_removes_nothing_in_the_current_folder(
    person: Person, review: Review, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write(person, review, Mode.REVIEW, file="new")
    lose_result(person, run)
    notes = person.project / ".left-over/notes"
    notes.parent.mkdir()
    notes.write_text("mine")
    monkeypatch.chdir(person.project)
    assert states(review.discard(run)) == {"file": State.DISCARDED}
    assert notes.read_text() == "mine"


def test_a_change_made_by_hand_counts_as_applied(person: Person, review: Review) -> None:
    (person.project / "file").write_text("old")
    run = write(person, review, Mode.REVIEW, file="new")
    (person.project / "file").write_text("new")
    [item] = read_current(review.manager, run)
    assert item.state is State.APPLIED
    assert states(review.undo(run)) == {"file": State.UNDONE}
    assert (person.project / "file").read_text() == "old"
    added = write(person, review, Mode.REVIEW, added="new")
    (person.project / "added").write_text("new")
    assert states(review.apply(added)) == {"added": State.APPLIED}
    assert review.waiting(run.project) == []


@pytest.mark.parametrize("what", ["file", "link"])
def test_another_file_does_not_count_as_applied(person: Person, review: Review, what: str) -> None:
    person.record({"file": "echo new >it", "link": "ln -s new it"}[what], Mode.REVIEW)
    [run] = review.manager.runs()
    lose_result(person, run)
    if what == "file":
        (person.project / "it").write_text("theirs")
    else:
        (person.project / "it").symlink_to("theirs")
    for _ in range(2):
        [item] = review.apply(run).changes or read_changes(review.manager, run)
        assert item.state is State.CONFLICT
    assert (person.project / "it").is_symlink() is (what == "link")


def test_a_folder_behind_a_link_does_not_count_as_undone(person: Person, review: Review) -> None:
    person.run("mkdir -p around/made/inner")
    run = review.manager.runs()[0]
    elsewhere = person.home / "elsewhere"
    (person.project / "around").rename(elsewhere)
    (person.project / "around").symlink_to(elsewhere)
    report = review.undo(run)
    found = states(report)
    assert found["around/made"] is State.CONFLICT
    assert found["around/made/inner"] is State.CONFLICT
    assert (elsewhere / "made/inner").is_dir()
    [made] = [item for item in report.changes if item.change.path == "around/made"]
    assert made.is_because(Reason.PARENT_REPLACED)


def test_a_kill_between_what_comes_back_and_what_is_taken_finishes_both(person: Person) -> None:
    """One `apply` redoes undone changes and applies pending ones."""
    command = "mkdir folder; echo 1 > folder/one; echo 2 > folder/two; echo 3 > three"
    steps = 0
    while True:
        steps += 1
        folder = person.home / f"project{steps}"
        folder.mkdir()
        one = Person(person.home, folder, person.environ)
        one.record(command, Mode.REVIEW)
        review = Review(person.paths)
        project = review.manager.add_project(folder)
        run = review.manager.last_run(project)
        assert run is not None
        review.apply(run, [f"{folder}/folder"])
        review.undo(run)
        assert set(states_of(review, run)) == {State.UNDONE, State.PENDING}
        was_killed = _killed_after(steps, partial(review.apply, run))
        review.close()
        if was_killed:
            assert [report.errors for report in finish_leftovers(person.paths)] in ([], [()])
        made = sorted(path.name for path in folder.rglob("*"))
        assert made == ["folder", "one", "three", "two"], steps
        if not was_killed:
            break
    assert steps > 3


def _killed_after(steps: int, work: Callable[[], object]) -> bool:
    """Do something until a number of items are done in the project; return False if there are not
    so many."""
    real, left = Swapper.do, steps

    def do(self: Swapper, item: Item) -> object:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed
        return real(self, item)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Swapper, "do", do)
        try:
            work()
        except Killed:
            return True
    return False


def test_changes_of_an_unknown_project_are_reported_once_and_kept(person: Person) -> None:
    """The map of what a run left behind cannot be read."""
    left = make_folder(person.paths.cache / "overlay-left1" / "upper" / "0")
    (left / "file").write_text("work of hours\n")
    (left.parents[1] / "map.json").write_text("{half")
    [report] = finish_leftovers(person.paths)
    assert "it is unknown which project they belong to" in report.errors[0]
    assert finish_leftovers(person.paths) == []
    assert (left / "file").read_text() == "work of hours\n"
