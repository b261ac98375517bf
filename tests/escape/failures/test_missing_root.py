# SPDX-License-Identifier: GPL-3.0-or-later
"""A run was interrupted and one of its roots is missing: this is reported once, its changes are
kept until the root is back, and can be discarded unless old files are among them."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.escape.copy_back import review, settle
from support.escape.kill import Snapshot, check_finished, has_job, killed_when
from support.person import Person
from support.timing import PATIENCE

from ollmsandbox.engine.move import check_move
from ollmsandbox.errors import ProjectError
from ollmsandbox.paths import make_folder
from ollmsandbox.project.change import Recorded
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.jobs import project_lock, unfinished
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.project.recorder import needs_recovery
from ollmsandbox.project.recover import finish_leftovers, recover
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.ordinary


@pytest.fixture
def snapshot(person: Person) -> Snapshot:
    (person.project / "f").write_text("old\n")
    return Snapshot(person)


@contextmanager
def missing(folder: Path) -> Iterator[Path]:
    """Move a folder away, and back."""
    away = folder.rename(folder.with_name("away"))
    yield away
    away.rename(folder)


def kill_when_begun(snapshot: Snapshot) -> None:
    """Kill the program right after it wrote down that a run's changes are to be applied."""
    assert killed_when(lambda: has_job(snapshot.person), lambda: snapshot.settle(Mode.AUTO))


def cut_off_apply(snapshot: Snapshot, run: str) -> None:
    """Kill the program right after it wrote down that the user applies a run."""
    person = snapshot.person
    assert killed_when(lambda: has_job(person), lambda: review(person, "apply", run))


def linked(snapshot: Snapshot) -> Path:
    """A second folder that its commands may write to."""
    person = snapshot.person
    folder = person.home / "linked"
    folder.mkdir()
    for name in ("old", "other"):
        (folder / name).write_text("old\n")
    agreed = person.paths.linked_roots(str(person.project))
    agreed.parent.mkdir(parents=True, exist_ok=True)
    agreed.write_text(json.dumps([str(folder)]))
    return folder


def another(person: Person) -> Person:
    """Return a user with the same settings and a project that exists."""
    other = Person(person.home, person.home / "another", person.environ)
    other.project.mkdir()
    return other


def states(items: Iterable[Recorded]) -> dict[str, str]:
    return {item.change.path: item.state.value for item in items}


def texts(folder: Path) -> list[str]:
    return [file.read_text() for file in folder.iterdir()]


def assert_nothing_is_reported(person: Person) -> None:
    recovered = recover(person.paths)
    assert not (*recovered.errors, *recovered.notices, *recovered.finished)


# --- the project ---------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [False, True])
def test_it_is_reported_once_and_finished_when_the_folder_is_back(
    snapshot: Snapshot, begun: bool
) -> None:
    person = snapshot.person
    folder = person.paths.cache / f"overlay-{snapshot.leave('echo new >f')}"
    if begun:
        kill_when_begun(snapshot)
    with missing(person.project):
        assert needs_recovery(person.paths)
        [said] = recover(person.paths).errors
        [kept] = unfinished(person.paths) if begun else [folder]
        assert str(kept) in said
        assert str(person.project) in said
        for _ in range(2):
            assert_nothing_is_reported(person)
        assert not needs_recovery(person.paths)
    assert needs_recovery(person.paths)
    [report] = recover(person.paths).finished
    assert [item.change.path for item in report.changes] == ["f"]
    assert not folder.exists()
    assert not (person.paths.cache / "missing-roots.json").exists()


def test_it_can_be_discarded(snapshot: Snapshot) -> None:
    person = snapshot.person
    run_id = snapshot.leave("echo new >f")
    folder = person.paths.cache / f"overlay-{run_id}"
    shutil.rmtree(person.project)
    other = another(person)
    # It is reported once, so --quiet does not hide it.
    done = other.cli("run", "--quiet", "-c", "true")
    assert f"ollmsandbox discard {run_id}" in done.stderr
    assert other.cli("run", "-c", "true").stderr == ""
    done = other.cli("discard", run_id, "nosuchfile")
    assert done.returncode != 0
    assert "as a whole" in done.stderr
    assert folder.exists()
    done = other.cli("discard", run_id)
    assert (done.returncode, done.stderr) == (0, "")
    assert not folder.exists()
    assert other.cli("discard", run_id).returncode != 0


def test_it_can_be_discarded_from_inside_the_missing_folder(snapshot: Snapshot) -> None:
    person = snapshot.person
    run_id = snapshot.leave("echo new >f")
    inside = ("sh", "-c", 'rm -r "$PWD"; exec "$@"', "sh")
    done = person.cli("discard", run_id, "--json", around=inside)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["changes"] == []
    assert not (person.paths.cache / f"overlay-{run_id}").exists()


def test_a_run_whose_root_exists_is_recorded_before_it_is_discarded(snapshot: Snapshot) -> None:
    run_id = snapshot.leave("echo new >f")
    done = snapshot.person.cli("discard", run_id, "--json")
    assert [change["state"] for change in json.loads(done.stdout)["changes"]] == ["discarded"]


def test_a_request_of_the_user_is_reported_once(snapshot: Snapshot) -> None:
    person = snapshot.person
    cut_off_apply(snapshot, settle(person, "echo new >f", Mode.REVIEW).run_id)
    with missing(person.project):
        [said] = recover(person.paths).errors
        [file] = unfinished(person.paths)
        assert str(file) in said
        assert not needs_recovery(person.paths)
        assert not recover(person.paths).errors
    assert not recover(person.paths).errors
    assert (person.project / "f").read_text() == "new\n"


def test_pending_changes_of_other_projects_survive_a_damaged_database(snapshot: Snapshot) -> None:
    person = snapshot.person
    snapshot.leave("echo new >f")
    shutil.rmtree(person.project)
    other = another(person)
    settle(other, "echo new >f", Mode.REVIEW)
    person.paths.database.write_bytes(b"no database" * 1000)
    other.cli("run", "-c", "true")
    found = json.loads(other.cli("changes", "--all", "--json").stdout)
    assert [change["path"] for run in found for change in run["changes"]] == ["f"]


def test_a_project_that_was_only_moved_keeps_its_old_files(snapshot: Snapshot) -> None:
    person = snapshot.person
    run_id = snapshot.leave("echo new >f")
    assert killed_when(
        lambda: (person.project / "f").read_text() == "new\n",
        lambda: snapshot.settle(Mode.AUTO),
    )
    [job] = unfinished(person.paths)
    person.project.rename(person.home / "away")
    other = another(person)
    done = other.cli("discard", run_id)
    assert done.returncode != 0
    assert str(job) in done.stderr
    # Also if what was being done cannot be read.
    job.write_text("{")
    recover(person.paths)
    other.cli("discard", run_id)
    kept = [file.read_text() for file in person.paths.runs.glob("*/*/*") if file.is_file()]
    assert "old\n" in kept


def test_a_job_that_another_program_is_finishing_is_not_reported(person: Person) -> None:
    """Whoever holds the lock is still at it."""
    gone = str(person.home / "gone")
    job = make_folder(person.paths.project_data(gone)) / "job.json"
    found: list[object] = []
    with project_lock(person.paths, gone):
        job.write_text(json.dumps({"project": gone}))
        thread = threading.Thread(target=lambda: found.append(finish_leftovers(person.paths)))
        thread.start()
        # As long as who does not wait would take.
        thread.join(0.5)
        job.unlink()
    thread.join(PATIENCE)
    assert found == [[]]


def test_it_is_reported_even_if_nothing_can_be_recorded(snapshot: Snapshot) -> None:
    person = snapshot.person
    snapshot.leave("echo new >f")
    shutil.rmtree(person.project)
    (person.paths.cache / "missing-roots.json").mkdir()
    for _ in range(2):
        [said] = recover(person.paths).errors
        assert str(person.project) in said


# --- one of two roots ----------------------------------------------------------------------------


def test_a_run_that_has_begun_to_replace_files_is_not_discarded(snapshot: Snapshot) -> None:
    person, names = snapshot.person, [f"f{number}" for number in range(4)]
    for name in names:
        (person.project / name).write_text("old\n")
    other = linked(snapshot)
    command = f"for n in {' '.join(names)}; do echo new >$n; done; echo new >{other}/other"
    run_id = snapshot.leave(command)
    assert killed_when(
        lambda: (person.project / names[2]).read_text() == "new\n",
        lambda: snapshot.settle(Mode.AUTO),
    )
    [job] = unfinished(person.paths)
    with missing(other):
        done = person.cli("discard", run_id)
        assert done.returncode != 0
        assert str(job) in done.stderr
        assert "ollmsandbox discard" not in done.stderr
    assert not recover(person.paths).errors
    assert (other / "other").read_text() == "new\n"
    assert person.cli("undo", run_id).returncode == 0
    assert {(person.project / name).read_text() for name in names} == {"old\n"}


def test_a_run_that_is_recorded_in_part_does_not_count_as_a_run(snapshot: Snapshot) -> None:
    person = snapshot.person
    recover(person.paths)
    other = linked(snapshot)
    snapshot.leave(f"echo new >f; echo new >{other}/other")
    assert killed_when(
        lambda: any(person.paths.runs.glob("*/result/0")),
        lambda: snapshot.settle(Mode.REVIEW),
    )
    with missing(other):
        recovered = recover(person.paths)
        assert [str(other) in error for error in recovered.errors] == [True]
        assert not (*recovered.notices, *recovered.finished)
        assert not needs_recovery(person.paths)
        assert_nothing_is_reported(person)
    [report] = recover(person.paths).finished
    assert {item.change.path for item in report.changes} == {"f", "other"}
    check_finished(person)
    with closing(Review(person.paths)) as work:
        project = work.manager.find_project(person.project)
        assert project
        [run] = work.manager.runs(project, limit=-1)
        assert states(read_changes(work.manager, run)) == {"f": "pending", "other": "pending"}


CHANGE = "echo new >f; chmod 700 .; echo new >{other}/other; rm {other}/old"


def test_all_of_a_run_waits_for_a_folder(snapshot: Snapshot) -> None:
    person = snapshot.person
    other = linked(snapshot)
    snapshot.leave(CHANGE.format(other=other))
    with missing(other):
        [said] = recover(person.paths).errors
        assert str(other) in said
        assert not recover(person.paths).errors
    [report] = recover(person.paths).finished
    assert states(report.changes) == dict.fromkeys(("f", ".", "old", "other"), "pending")
    for file in (person.project / "f", other / "other"):
        assert file.read_text() == "old\n"
    check_finished(person)


def test_what_has_begun_is_done_as_far_as_there_are_folders(snapshot: Snapshot) -> None:
    person = snapshot.person
    other = linked(snapshot)
    snapshot.leave(CHANGE.format(other=other))
    kill_when_begun(snapshot)
    with missing(other):
        recovered = recover(person.paths)
        [report] = recovered.finished
        assert not recovered.errors
        failed = dict.fromkeys(("old", "other"), "failed")
        assert states(report.changes) == {"f": "applied", ".": "applied", **failed}
        assert (person.project / "f").read_text() == "new\n"
        check_finished(person)
    assert texts(other) == ["old\n", "old\n"]
    assert person.cli("apply", "--all").returncode == 0
    assert texts(other) == ["new\n"]


def test_what_has_begun_waits_for_its_project(snapshot: Snapshot) -> None:
    person = snapshot.person
    settle(person, "echo new >first", Mode.REVIEW)
    other = linked(snapshot)
    snapshot.leave(f"mkdir new; echo new >new/second; echo new >{other}/old; echo >{other}/other")
    kill_when_begun(snapshot)
    with missing(person.project) as away:
        [said] = recover(person.paths).errors
        assert str(person.project) in said
        assert_nothing_is_reported(person)
        assert texts(other) == ["old\n", "old\n"]
        with closing(ProjectManager(person.paths)) as manager:
            project = manager.find_project(person.project)
            assert project
            with pytest.raises(ProjectError, match="was interrupted"):
                check_move(manager, project, away)
    assert not recover(person.paths).errors
    check_finished(person)
    assert (other / "old").read_text() == "new\n"
    # Each change has a number of its own.
    with snapshot.review() as (work, run):
        paths = [item.change.path for item in read_changes(work.manager, run)]
    assert sorted(paths) == ["new", "new/second", "old", "other"]


def test_a_run_that_waits_for_a_folder_can_be_discarded(snapshot: Snapshot) -> None:
    person = snapshot.person
    other = linked(snapshot)
    snapshot.leave(f"echo new >f; echo new >{other}/other")
    shutil.rmtree(other)
    said = person.cli("run", "-c", "true").stderr
    run_id = said.rpartition("ollmsandbox discard ")[2].partition("`")[0]
    assert person.cli("discard", run_id).returncode == 0
    check_finished(person)
    assert person.cli("changes", "--all", "--json").stdout == "[]\n"


def test_a_request_of_the_user_is_done_as_far_as_there_are_folders(snapshot: Snapshot) -> None:
    """A folder that is missing does not stop other runs either."""
    person = snapshot.person
    other = linked(snapshot)
    run = settle(person, f"echo new >f; echo new >{other}/other", Mode.REVIEW).run_id
    settle(person, "echo new >g", Mode.REVIEW)
    cut_off_apply(snapshot, run)
    with missing(other):
        assert not recover(person.paths).errors
        assert (person.project / "f").read_text() == "new\n"
        assert not needs_recovery(person.paths)
        done = person.cli("apply", "--all")
        assert (done.returncode, f"{other}/other" in done.stdout) == (1, True)
        assert (person.project / "g").read_text() == "new\n"
    assert (other / "other").read_text() == "old\n"
    assert person.cli("apply", run).returncode == 0
    assert (other / "other").read_text() == "new\n"
    assert person.cli("undo", run).returncode == 0
    assert (person.project / "f").read_text() == (other / "other").read_text() == "old\n"
    check_finished(person)


@pytest.mark.parametrize("is_large", [False, True])
def test_an_undo_that_was_half_done_in_a_missing_folder(snapshot: Snapshot, is_large: bool) -> None:
    """A large file is not compared, and only one version of it is kept."""
    person = snapshot.person
    other = linked(snapshot)
    old = "old\n" * (1_000_000 if is_large else 1)
    for file in other.iterdir():
        file.write_text(old)
    run = settle(person, f"echo new >f; echo new >{other}/old; echo new >{other}/other").run_id
    assert killed_when(lambda: old in texts(other), lambda: review(person, "undo", run))
    assert "new\n" in texts(other)
    with missing(other):
        assert not recover(person.paths).errors
        check_finished(person)
        assert (person.project / "f").read_text() == "old\n"
        # What else is done to the project meanwhile changes nothing of that.
        settle(person, "echo more >more")
        settle(person, "echo more >>more")
    review(person, "undo", run)
    assert texts(other) == [old, old]
    check_finished(person)


def test_pending_changes_of_other_folders_can_be_applied_and_undone(snapshot: Snapshot) -> None:
    person = snapshot.person
    other = linked(snapshot)
    command = f"echo new >f; echo new >{other}/other; rm {other}/old"
    run = settle(person, command, Mode.REVIEW).run_id
    with missing(other):
        done = person.cli("apply", "--all", "--json")
        assert done.returncode == 1
        found = {change["path"]: change["state"] for change in json.loads(done.stdout)["changes"]}
        assert found == {"f": "applied", f"{other}/other": "pending", f"{other}/old": "pending"}
        assert (person.project / "f").read_text() == "new\n"
    assert person.cli("apply", "--all").returncode == 0
    assert texts(other) == ["new\n"]
    with missing(other):
        assert person.cli("undo", run).returncode == 1
        assert (person.project / "f").read_text() == "old\n"
    assert person.cli("undo", run).returncode == 0
    assert texts(other) == ["old\n", "old\n"]


def test_pending_changes_of_a_missing_folder_can_be_discarded(snapshot: Snapshot) -> None:
    person = snapshot.person
    other = linked(snapshot)
    settle(person, f"chmod 700 {other}; echo new >{other}/other; rm {other}/old", Mode.REVIEW)
    with missing(other):
        assert person.cli("discard", "--all").returncode == 0
        assert person.cli("changes", "--all", "--json").stdout == "[]\n"
    assert person.cli("run", "-c", f"cat {other}/*").stdout == "old\nold\n"
