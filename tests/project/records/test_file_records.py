# SPDX-License-Identifier: GPL-3.0-or-later
"""What a scan of a project's folder records."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.folder import project_of, recorded, records_for, scan, write
from support.person import Person

from ollmsandbox.database.tables import FileRecord, Project
from ollmsandbox.errors import ProjectError
from ollmsandbox.files import ignore
from ollmsandbox.project.records import file_records
from ollmsandbox.project.records.file_records import Scanner
from ollmsandbox.project.records.folder import Folder

pytestmark = pytest.mark.ordinary


def record(folder: Folder, name: str) -> FileRecord:
    return FileRecord.get(FileRecord.path == os.path.join(folder.path, name))


# --- records -----------------------------------------------------------------------------------


def test_a_scan_records_files_with_any_name(folder: Folder, person: Person) -> None:
    odd = os.fsdecode(b"caf\xe9\n 'x'")
    write(person.project, "a", "b/c", "b/d/e", odd)
    os.mkfifo(person.project / "pipe")
    scan(folder)
    assert recorded(folder) == {"a", "b/c", "b/d/e", odd}
    ids = {one.path: one.id for one in FileRecord.select()}
    scan(folder)
    assert {one.path: one.id for one in FileRecord.select()} == ids
    assert records_for(folder.manager, project_of(folder), list(ids)) == ids


def test_a_record_goes_with_its_file(folder: Folder, person: Person) -> None:
    write(person.project, "gone", "folder/gone", "now-a-folder", "behind/file", "kept")
    scan(folder)
    for name in ("gone", "folder/gone", "now-a-folder", "behind/file"):
        (person.project / name).unlink()
    (person.project / "folder").rmdir()
    (person.project / "now-a-folder").mkdir()
    (person.project / "behind").rmdir()
    write(person.home, "elsewhere/file")
    (person.project / "behind").symlink_to(person.home / "elsewhere")
    scan(folder)
    assert recorded(folder) == {"kept", "behind"}


def test_records_of_deleted_and_of_copied_files_stay(folder: Folder, person: Person) -> None:
    write(person.project, "deleted", "copied", "both", "neither")
    scan(folder)
    copy = str(person.home / "copy")
    write(person.home, "copy")
    absolute = [os.path.join(folder.path, name) for name in ("deleted", "both")]
    folder.manager.mark_deleted(project_of(folder), absolute, deleted=True)
    copied = [("copied", False), ("both", True)]
    folder.manager.record_backups(
        project_of(folder),
        [
            (record(folder, name).id, os.path.join(folder.path, name), copy, gone, None)
            for name, gone in copied
        ],
    )
    for name in ("deleted", "copied", "both", "neither"):
        (person.project / name).unlink()
    for _ in range(2):
        scan(folder)
        assert recorded(folder) == {"deleted", "copied", "both"}
    assert record(folder, "deleted").is_deleted
    os.unlink(copy)
    scan(folder)
    assert recorded(folder) == {"deleted"}


@pytest.mark.parametrize("does", ["scan", "clean-up"])
def test_records_go_with_backups_that_are_gone(person: Person, folder: Folder, does: str) -> None:
    names = ("deleted", "lost", "kept", "older")
    write(person.project, *names, text="first")
    done = person.cli("run", "-c", "rm deleted; for f in lost kept older; do echo 2 >$f; done")
    assert done.returncode == 0, done.stderr
    project_of(folder)
    copies = {name: Path(str(record(folder, name).last_approved_copy_path)) for name in names}
    yesterday = time.strftime("%y-%m-%d", time.localtime(time.time() - 86400))
    older = copies["older"].with_name(f"{record(folder, 'older').id}-{yesterday}-older")
    copies["older"].rename(older)
    (person.project / "lost").unlink()
    scan(folder)
    assert recorded(folder) >= set(names)
    assert record(folder, "older").last_approved_copy_path == str(older)
    for name in ("deleted", "lost", "kept"):
        copies[name].unlink()
        assert not folder.manager.has_backup(record(folder, name).id)
    if does == "scan":
        assert person.cli("roots", "list").returncode == 0
        assert recorded(folder) == {"kept", "older"}
    else:
        assert folder.manager.cleanup_old_backups(now=time.time()) == 0
        # Whether a file is there, the next scan sees.
        assert recorded(folder) == {"lost", "kept", "older"}
    assert record(folder, "kept").last_approved_copy_path is None


def test_a_changed_file_has_its_time_in_its_record(person: Person, folder: Folder) -> None:
    write(person.project, "file", "other")
    os.utime(person.project / "file", (1000, 1000))
    scan(folder)
    for command in (("run", "-c", "echo new >file"), ("undo",)):
        assert person.cli(*command).returncode == 0
        modified = (person.project / "file").stat().st_mtime
        assert record(folder, "file").last_modified == modified
    assert modified == 1000
    assert person.cli("run", "-c", "rm file").returncode == 0
    assert record(folder, "file").last_modified == 1000


def test_a_recreated_file_is_no_longer_deleted(folder: Folder, person: Person) -> None:
    write(person.project, "back", "ignored", "gone", "now-a-folder")
    scan(folder)
    names = ["back", "ignored", "gone", "now-a-folder"]
    absolute = [os.path.join(folder.path, name) for name in names]
    folder.manager.mark_deleted(project_of(folder), absolute, deleted=True)
    for name in names[2:]:
        (person.project / name).unlink()
    (person.project / "now-a-folder").mkdir()
    write(person.project, ".gitignore", text="ignored")
    scan(folder)
    assert [record(folder, name).is_deleted for name in names] == [False, False, True, True]


def test_records_of_ignored_files_stay_and_none_are_made(folder: Folder, person: Person) -> None:
    write(person.project, "build/old", "old.o", ".git/config")
    scan(folder)
    assert recorded(folder) == {"build/old", "old.o"}
    hook = os.path.join(folder.path, ".git/config")
    records_for(folder.manager, project_of(folder), [hook])
    write(person.project, "build/new", "new.o")
    write(person.project, ".gitignore", text="build/\n*.o\n")
    scan(folder)
    assert recorded(folder) == {"build/old", "old.o", ".git/config", ".gitignore"}
    (person.project / "build/old").unlink()
    scan(folder)
    assert recorded(folder) == {"old.o", ".git/config", ".gitignore"}


def test_a_record_that_was_just_asked_for_is_not_removed(folder: Folder, person: Person) -> None:
    write(person.project, *(str(number) for number in range(5)))
    about_to_be_made = os.path.join(folder.path, "new")

    def ask() -> bool:
        records_for(folder.manager, project_of(folder), [about_to_be_made])
        return False

    Scanner(folder.manager, folder.path, ask).run()
    assert "new" in recorded(folder)
    scan(folder)
    assert "new" not in recorded(folder)


@pytest.mark.parametrize("why", ["closed", "too deep"])
def test_records_in_unreadable_folders_stay(
    folder: Folder, person: Person, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    write(person.project, "a/b/c/file", "a/file")
    scan(folder)
    if why == "too deep":
        monkeypatch.setattr(file_records, "_DEEPEST", 3)
        scan(folder)
    else:
        closed = person.project / "a/b"
        closed.chmod(0)
        try:
            scan(folder)
        finally:
            closed.chmod(0o700)
    assert recorded(folder) == {"a/b/c/file", "a/file"}


def test_a_missing_project_keeps_its_records(folder: Folder, person: Person) -> None:
    write(person.project, "file")
    scan(folder)
    person.project.rename(person.home / "away")
    with pytest.raises(ProjectError):
        scan(folder)
    (person.home / "away").rename(person.project)
    assert recorded(folder) == {"file"}


def test_a_project_that_is_removed_during_a_scan_is_reported(
    folder: Folder, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_records, "_BATCH", 1)
    write(person.project, ".gitignore", *(str(number) for number in range(50)))
    project = project_of(folder)
    read = ignore.read_ignore_file

    def remove_and_read(file: str) -> ignore.IgnoreRules | None:
        Project.delete().where(Project.id == project.id).execute()
        return read(file)

    monkeypatch.setattr(ignore, "read_ignore_file", remove_and_read)
    with pytest.raises(ProjectError, match="no longer a project"):
        scan(folder)
    assert FileRecord.select().count() == 0


# --- finding files, cancelling ------------------------------------------------------------------


def test_files_are_found_by_a_part_of_their_path(folder: Folder, person: Person) -> None:
    odd = os.fsdecode(b"caf\xe9")
    write(person.project, "README", "src/main.py", "src/domain/x", "src/Main/y", "a%b", odd)
    write(person.project, ".git/main")
    assert folder.find_files("") == []
    scan(folder)
    assert folder.find_files("main") == ["src/Main/y", "src/main.py", "src/domain/x"]
    assert folder.find_files("main", most=1) == ["src/Main/y"]
    assert folder.find_files("readme") == ["README"]
    assert folder.find_files("%") == ["a%b"]
    assert folder.find_files("caf") == [odd]
    assert len(folder.find_files("")) == 6
    folder.manager.mark_deleted(project_of(folder), [f"{folder.path}/README"], deleted=True)
    assert folder.find_files("readme") == []


def test_files_that_are_made_from_others_are_not_offered(folder: Folder, person: Person) -> None:
    write(person.project, "src/main.py", "src/__pycache__/main.pyc", "out/main.js")
    # They were recorded before they were ignored.
    scan(folder)
    (person.project / ".gitignore").write_text("out/\n")
    assert folder.find_files("main") == ["src/main.py"]
    assert folder.find_files("main", most=1) == ["src/main.py"]


def test_a_cancelled_scan_removes_nothing(folder: Folder, person: Person) -> None:
    write(person.project, "a", "b", "folder/c")
    (person.project / "link").symlink_to("/usr")
    scan(folder)
    (person.project / "a").unlink()
    (person.project / "link").unlink()
    Scanner(folder.manager, folder.path, lambda: True).run()
    assert recorded(folder) == {"a", "b", "folder/c", "link"}
    assert len(folder.linked_folders()) == 1
