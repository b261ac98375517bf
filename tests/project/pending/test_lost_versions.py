# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions that are lost, changes that the user made by hand, and kills between two jobs."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator

import pytest
from support.escape.kill import EVERY
from support.person import Person

from ollmsandbox.project.apply.recorder import Recorder
from ollmsandbox.project.changes.change import Report, State
from ollmsandbox.project.changes.mode import Mode
from ollmsandbox.project.changes.overlayfs import find_in_layers, names_in_layers
from ollmsandbox.project.changes.reasons import Note, Reason
from ollmsandbox.project.database.models import Run
from ollmsandbox.project.database.runs import read_changes
from ollmsandbox.project.pending.chain import Chain, layers_of
from ollmsandbox.project.recovery.recover import finish_leftovers
from ollmsandbox.project.review import write_file
from ollmsandbox.project.review.review import Review
from ollmsandbox.project.review.state import read_current


class Killed(BaseException):
    pass


@pytest.fixture
def review(person: Person) -> Iterator[Review]:
    review = Review(person.paths)
    yield review
    review.close()


def write(person: Person, review: Review, mode: Mode, **texts: str) -> Run:
    """Write each file in a run of its own; return the last run."""
    for name, text in texts.items():
        path = f"{person.project}/{name}"
        report = write_file.write_file(
            person.paths, str(person.project), path, text.encode(), how=mode
        )
    return review.manager.run(report.run_id)


def states(report: Report) -> dict[str, State]:
    return {item.change.path: item.state for item in report.changes}


def states_of(review: Review, run: Run) -> list[State]:
    return [item.state for item in read_changes(review.manager, run)]


def test_a_lost_version_does_not_count_as_applied(person: Person, review: Review) -> None:
    (person.project / "file").write_text("old")
    run = write(person, review, Mode.REVIEW, file="new")
    [layer] = person.paths.data.glob("pending/*/*/overlay1")
    (layer / "file").unlink()
    for reports in ([review.apply(run)], review.apply_all(run.project)):
        [item] = [item for report in reports for item in report.changes]
        assert (item.state, item.note) == (State.FAILED, Note(Reason.LOST))
        assert states_of(review, run) == [State.FAILED]
    assert (person.project / "file").read_text() == "old"
    assert states(review.discard(run)) == {"file": State.DISCARDED}
    assert review.waiting(run.project) == []


def test_a_lost_version_is_reported_with_the_way_to_discard_it(
    person: Person, review: Review
) -> None:
    run = write(person, review, Mode.REVIEW, file="new")
    [layer] = person.paths.data.glob("pending/*/*/overlay1")
    (layer / "file").unlink()
    for words in (("apply", "--all"), ("apply", run.id), ("apply", run.id, "file")):
        done = person.cli(*words)
        assert done.returncode == 1
        assert f"`ollmsandbox discard {run.id} PATH`" in done.stdout
        assert "try again" not in done.stdout
    assert "try again" not in person.cli("changes", "--all").stdout
    assert person.cli("discard", run.id, "file").returncode == 0
    assert person.cli("apply", "--all").returncode == 0


@pytest.mark.ordinary
@pytest.mark.parametrize("verb", ["apply", "discard"])
def test_the_layer_of_a_project_that_is_read_only_is_removed(
    person: Person, review: Review, verb: str
) -> None:
    (person.project / "folder").mkdir()
    person.project.chmod(0o555)
    run = write(person, review, Mode.REVIEW, **{"folder/file": "new"})
    report = review.apply(run) if verb == "apply" else review.discard(run)
    assert states(report)["folder/file"] in (State.APPLIED, State.DISCARDED)
    assert not person.paths.pending(str(person.project)).exists()
    person.project.chmod(0o755)


def test_discarding_a_change_whose_layer_is_lost_removes_nothing_in_the_current_folder(
    person: Person, review: Review, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write(person, review, Mode.REVIEW, file="new")
    shutil.rmtree(person.paths.data / "pending")
    notes = person.project / ".left-over/notes"
    notes.parent.mkdir()
    notes.write_text("mine")
    monkeypatch.chdir(person.project)
    assert states(review.discard(run)) == {"file": State.DISCARDED}
    assert notes.read_text() == "mine"


def test_a_change_that_the_user_made_by_hand_counts_as_applied(
    person: Person, review: Review
) -> None:
    (person.project / "file").write_text("old")
    run = write(person, review, Mode.REVIEW, file="new")
    (person.project / "file").write_text("new")
    [item] = read_current(review.manager, run)
    assert item.state is State.APPLIED
    assert states(review.undo(run)) == {"file": State.UNDONE}
    assert (person.project / "file").read_text() == "old"
    assert review.waiting(run.project) == []


def test_a_change_that_is_already_on_disk_needs_no_other_run(
    person: Person, review: Review
) -> None:
    run = write(person, review, Mode.REVIEW, file="new")
    (person.project / "file").write_text("new")
    assert states(review.apply(run)) == {"file": State.APPLIED}
    assert review.waiting(run.project) == []


@pytest.mark.parametrize("what", ["file", "link", "folder"])
def test_another_file_at_that_path_does_not_count_as_applied(
    person: Person, review: Review, what: str
) -> None:
    keeper = Recorder(str(person.project), person.paths, mode=Mode.REVIEW)
    makes = {"file": "echo new >it", "link": "ln -s new it", "folder": "mkdir -m 700 it"}
    person.run(makes[what], keeper=keeper)
    [run] = review.manager.runs()
    [layer] = person.paths.data.glob("pending/*/*/overlay1")
    (layer / "it").rename(layer.parent / "away")
    if what == "file":
        (person.project / "it").write_text("theirs")
    elif what == "folder":
        (person.project / "it").mkdir()
        (person.project / "it").chmod(0o755)
    else:
        (person.project / "it").symlink_to("theirs")
    [item] = review.apply(run).changes
    assert (item.state, item.note) == (State.FAILED, Note(Reason.LOST))


def test_an_added_folder_behind_a_link_does_not_count_as_undone(
    person: Person, review: Review
) -> None:
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
        one.run(command)
        review = Review(person.paths)
        project = review.manager.add_project(folder)
        run = review.manager.last_run(project)
        assert run is not None
        review.undo(run)
        # One of them waits again, as after a failure.
        review.close()
        _let_wait(one, run, "three")
        left = steps

        def step() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed

        review = Review(person.paths, step)
        try:
            review.apply(review.manager.run(run.id))
            break
        except Killed:
            review.close()
            assert [report.errors for report in finish_leftovers(person.paths)] in ([], [()])
            made = sorted(path.name for path in folder.rglob("*"))
            assert made == ["folder", "one", "three", "two"], steps
    review.close()
    assert steps > 5


def _let_wait(person: Person, run: Run, name: str) -> None:
    """Into the layer, as overlayfs keeps it."""
    kept = person.paths.versions / run.id
    chain = Chain(person.paths, str(person.project))
    chain.add(run.id, {"overlay1": str(person.project)})
    layer = chain.folder / run.id / "overlay1"
    layer.mkdir(parents=True)
    layer.chmod(person.project.stat().st_mode)
    with Review(person.paths).manager.store.transaction() as connection:
        [(number,)] = connection.execute(
            "SELECT number FROM change WHERE run_id = ? AND path = ?", (run.id, name.encode())
        ).fetchall()
        connection.execute(
            "UPDATE change SET state = 'failed' WHERE run_id = ? AND number = ?", (run.id, number)
        )
    (kept / f"new-{number}").rename(layer / name)


def test_a_kill_while_one_deletion_is_discarded_keeps_the_others(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder was deleted, and one file in it shall not be: the others stay deleted."""
    names = ("a", "b", "deep/c", "deep/d")
    calls = ("mkdir", "mknod", "chmod", "unlink", "rename")
    number = 0 if os.getuid() == 0 else -1
    while True:
        number += EVERY or 2
        project = person.home / f"project{number}"
        (project / "folder/deep").mkdir(parents=True)
        (project / "folder/deep").chmod(0o750)
        for name in names:
            (project / "folder" / name).write_text(name)
        one = Person(person.home, project, person.environ)
        report = _deleted(one)
        chosen = [f"{project}/folder/deep/c"]
        left = number

        def counted(real: object) -> object:
            def call(*arguments: object, **options: object) -> object:
                nonlocal left
                left -= 1
                if left < 0:
                    raise Killed
                return real(*arguments, **options)  # type: ignore[operator]

            return call

        review = Review(person.paths)
        was_killed = False
        with monkeypatch.context() as patch:
            for name in calls:
                patch.setattr(os, name, counted(getattr(os, name)))
            try:
                review.discard(review.manager.run(report.run_id), chosen)
            except Killed:
                was_killed = True
        review.close()
        if was_killed:
            finish_leftovers(person.paths)
            review = Review(person.paths)
            review.discard(review.manager.run(report.run_id), chosen)
            review.close()
        layers = layers_of(person.paths, str(project), str(project))
        assert names_in_layers(layers, "folder") == ["deep"], number
        assert names_in_layers(layers, "folder/deep") == ["c"], number
        deep = find_in_layers(layers, "folder/deep")
        assert deep is not None
        assert stat.S_IMODE(deep.found.st_mode) == 0o750
        assert not list(person.paths.pending(str(project)).glob("*/.stand-in*")), number
        if not was_killed:
            break
    assert number > 10


def _deleted(person: Person) -> Report:
    from ollmsandbox import loop
    from ollmsandbox.project.apply.recorder import Recorder

    keeper = Recorder(str(person.project), person.paths, mode=Mode.REVIEW)
    loop.run(person.bubble(keeper=keeper).exec("rm -r folder"))
    assert keeper.report is not None
    return keeper.report
