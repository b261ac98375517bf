# SPDX-License-Identifier: GPL-3.0-or-later
"""Edits that the program makes itself are recorded, backed up and undone like a command's."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from support.changes import seen
from support.person import Person

from ollmsandbox.database.tables import FileRecord
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.project import write_file
from ollmsandbox.project.change import Report, State
from ollmsandbox.project.recover import finish_leftovers
from ollmsandbox.project.review import Review
from ollmsandbox.project.swap import Swapper
from ollmsandbox.project.versions import earlier_versions
from ollmsandbox.sandbox.spec import Mode, RunSpec

pytestmark = pytest.mark.ordinary


def write(
    person: Person, name: str, text: str, about: RunSpec | None = None, **options: Any
) -> Report:
    path = f"{person.project}/{name}"
    spec = (about or RunSpec(""))._replace(project=str(person.project))
    return write_file.write_file(person.paths, spec, path, text.encode(), **options)


def states(report: Report) -> list[tuple[str, str, str]]:
    return [(i.change.path, i.change.kind.value, i.state.value) for i in report.changes]


def test_an_edit_is_a_run_that_can_be_undone_and_redone(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text("first")
    file.chmod(0o640)
    report = write(person, "file", "second", RunSpec("", "Edit", session_id="s", call_id="c"))
    assert states(report) == [("file", "modified", "applied")]
    assert file.read_text() == "second"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    run = review.manager.run(report.run_id)
    assert (run.command, run.session_id, run.call_id, run.exit_code) == ("Edit", "s", "c", 0)
    record = FileRecord.get(FileRecord.path == str(file))
    assert Path(str(record.last_approved_copy_path)).read_text() == "first"
    assert states(review.undo(run)) == [("file", "modified", "undone")]
    assert file.read_text() == "first"
    assert states(review.apply(run)) == [("file", "modified", "applied")]
    assert file.read_text() == "second"
    assert not list(person.paths.cache.glob("overlay-*"))


def test_a_new_file_gets_its_folders_and_they_go_with_it(person: Person, review: Review) -> None:
    (person.project / "there").mkdir(mode=0o750)
    report = write(person, "there/new/deep/file", "text")
    assert states(report) == [
        ("there/new", "added", "applied"),
        ("there/new/deep", "added", "applied"),
        ("there/new/deep/file", "added", "applied"),
    ]
    assert stat.S_IMODE((person.project / "there").stat().st_mode) == 0o750
    review.undo(review.manager.run(report.run_id))
    assert os.listdir(person.project / "there") == []


def test_a_pending_change_is_the_current_version(person: Person, review: Review) -> None:
    (person.project / "file").write_text("on disk")
    first = write(person, "file", "waits", RunSpec("", mode=Mode.REVIEW))
    assert states(first) == [("file", "modified", "pending")]
    assert seen(person, "file") == "waits"
    with pytest.raises(OllmSandboxError, match="changed in the meantime"):
        write(person, "file", "other", based_on=b"on disk")
    write(person, "file", "waits more", RunSpec("", mode=Mode.REVIEW), based_on=b"waits")
    assert seen(person, "file") == "waits more"
    assert (person.project / "file").read_text() == "on disk"
    for report in review.apply_all(review.manager.add_project(person.project)):
        assert {item.state for item in report.changes} == {State.APPLIED}
    assert (person.project / "file").read_text() == "waits more"


def test_a_git_hook_that_the_user_approved_is_applied(person: Person) -> None:
    (person.project / ".git/hooks").mkdir(parents=True)
    (person.project / ".git/HEAD").touch()
    report = write(person, ".git/hooks/pre-push", "echo")
    assert states(report) == [(".git/hooks/pre-push", "added", "applied")]


@pytest.mark.parametrize("name", ["link", "linked/file", "folder", "../outside", "."])
def test_only_files_of_the_project_can_be_written(person: Person, name: str) -> None:
    outside = person.home / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    (person.project / "folder").mkdir()
    (person.project / "link").symlink_to(outside / "file")
    (person.project / "linked").symlink_to(outside)
    with pytest.raises(OllmSandboxError):
        write(person, name, "evil")
    assert (outside / "file").read_text() == "mine"
    assert not list(person.paths.cache.glob("overlay-*"))


def test_an_interrupted_run_is_settled_at_the_next_start(person: Person) -> None:
    (person.project / "file").write_text("first")

    class Killed(BaseException):
        pass

    def kill(*_: object) -> object:
        raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Swapper, "do", kill)
        write(person, "file", "second")
    assert (person.project / "file").read_text() == "first"
    [report] = finish_leftovers(person.paths)
    assert states(report) == [("file", "modified", "applied")]
    assert (person.project / "file").read_text() == "second"


def test_every_kept_version_can_be_restored(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text("0")
    file.chmod(0o600)
    for number in range(1, 4):
        write(person, "file", str(number))
        file.chmod(0o644)
    project = review.manager.add_project(person.project)
    earlier = earlier_versions(review.manager, project, str(file))
    assert [each.version.read() for each in earlier] == [b"2", b"1", b"0"]
    assert all(each.run_id for each in earlier)
    oldest = earlier[-1].version
    report = write_file.restore(person.paths, project.path, str(file), oldest)
    assert states(report) == [("file", "modified", "applied")]
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("0", 0o600)
    # To write to it now must not change what is kept.
    file.write_text("by hand")
    again = earlier_versions(review.manager, project, str(file))
    assert [each.version.read() for each in again] == [b"3", b"2", b"1", b"0"]


def test_a_deleted_file_comes_back_from_its_backup(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text("precious")
    report = person.record("rm file")
    project = review.manager.add_project(person.project)
    for kept in (person.paths.runs / report.run_id / "base").iterdir():
        kept.unlink()
    [backup] = earlier_versions(review.manager, project, str(file))
    assert backup.run_id == ""
    write_file.restore(person.paths, project.path, str(file), backup.version)
    assert file.read_text() == "precious"
