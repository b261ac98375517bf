# SPDX-License-Identifier: GPL-3.0-or-later
"""What a scan of a project's folder finds, and the records of the files that runs have changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.folder import found, project_of, recorded, records_for, scan, write
from support.person import Person

from ollmsandbox.database.tables import FileRecord
from ollmsandbox.errors import ProjectError
from ollmsandbox.project.records import file_records
from ollmsandbox.project.records.file_records import scan_project
from ollmsandbox.project.records.folder import Folder

pytestmark = pytest.mark.ordinary


def record(folder: Folder, name: str) -> FileRecord:
    return FileRecord.get(FileRecord.path == os.path.join(folder.path, name))


def record_all(folder: Folder, *names: str) -> list[str]:
    """Make records, as runs do; return the full paths."""
    paths = [os.path.join(folder.path, name) for name in names]
    records_for(folder.manager, project_of(folder), paths)
    return paths


# --- files -------------------------------------------------------------------------------------


def test_a_scan_finds_files_with_any_name(folder: Folder, person: Person) -> None:
    odd = os.fsdecode(b"caf\xe9\n 'x'")
    write(person.project, "a", "b/c", "b/d/e", odd, ".git/config")
    os.mkfifo(person.project / "pipe")
    (person.project / "link").symlink_to("nowhere")
    assert found(folder) == set()
    scan(folder)
    assert found(folder) == {"a", "b/c", "b/d/e", odd, "link"}
    (person.project / "b/c").unlink()
    write(person.project, ".gitignore", text="d/\n")
    scan(folder)
    assert found(folder) == {"a", odd, "link", ".gitignore"}
    assert recorded(folder) == set()


def test_a_closed_folder_is_passed_over(folder: Folder, person: Person) -> None:
    write(person.project, "a/b/file", "a/file")
    closed = person.project / "a/b"
    record_all(folder, "a/b/file")
    closed.chmod(0)
    try:
        scan(folder)
    finally:
        closed.chmod(0o700)
    assert found(folder) >= {"a/file"}
    assert recorded(folder) == {"a/b/file"}


def test_a_folder_that_is_too_deep_is_passed_over(
    folder: Folder, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(person.project, "a/b/c/file", "a/b/file")
    monkeypatch.setattr(file_records, "_DEEPEST", 3)
    scan(folder)
    assert found(folder) == {"a/b/file"}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"version": 1}', "null"])
def test_a_damaged_list_is_made_again(folder: Folder, person: Person, text: str) -> None:
    write(person.project, "a", "b/c")
    scan(folder)
    person.paths.scan_cache(folder.path).write_text(text)
    assert folder.find_files("") == [] and folder.linked_folders() == []
    scan(folder)
    assert found(folder) == {"a", "b/c"}


def test_a_scan_that_is_stopped_changes_nothing(folder: Folder, person: Person) -> None:
    write(person.project, "a", "folder/c")
    (person.project / "link").symlink_to("/usr")
    scan(folder)
    record_all(folder, "a")
    (person.project / "a").unlink()
    (person.project / "link").unlink()
    scan_project(folder.manager, folder.path, lambda: True)
    assert found(folder) == {"a", "folder/c", "link"}
    assert recorded(folder) == {"a"}
    assert len(folder.linked_folders()) == 1


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
    # What runs have changed since.
    readme, _new = record_all(folder, "README", "src/new")
    folder.manager.mark_deleted(project_of(folder), [readme], deleted=True)
    assert folder.find_files("readme") == []
    assert folder.find_files("new") == ["src/new"]


def test_files_that_are_made_from_others_are_not_offered(folder: Folder, person: Person) -> None:
    write(person.project, "src/main.py", "src/__pycache__/main.pyc", "out/main.js")
    # They were found before they were ignored.
    scan(folder)
    (person.project / ".gitignore").write_text("out/\n")
    assert folder.find_files("main") == ["src/main.py"]
    assert folder.find_files("main", most=1) == ["src/main.py"]


# --- records -----------------------------------------------------------------------------------


def test_a_record_goes_with_its_file(folder: Folder, person: Person) -> None:
    write(person.project, "gone", "folder/gone", "now-a-folder", "behind/file", "kept", "ignored")
    names = ("gone", "folder/gone", "now-a-folder", "behind/file", "never-made")
    record_all(folder, *names, "kept", "ignored", ".git/config")
    write(person.project, ".git/config", ".gitignore", text="ignored")
    scan(folder)
    for name in names[:4]:
        (person.project / name).unlink()
    (person.project / "folder").rmdir()
    (person.project / "now-a-folder").mkdir()
    (person.project / "behind").rmdir()
    write(person.home, "elsewhere/file")
    (person.project / "behind").symlink_to(person.home / "elsewhere")
    scan(folder)
    assert recorded(folder) == {"kept", "ignored", ".git/config"}


def test_records_of_deleted_and_of_copied_files_stay(folder: Folder, person: Person) -> None:
    write(person.project, "deleted", "copied", "both", "neither")
    paths = record_all(folder, "deleted", "copied", "both", "neither")
    copy = str(person.home / "copy")
    write(person.home, "copy")
    folder.manager.mark_deleted(project_of(folder), [paths[0], paths[2]], deleted=True)
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
    assert recorded(folder) == {"deleted", "both"}


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
        # Deleted files are forgotten by the clean-up.
        assert recorded(folder) == {"deleted", "kept", "older"}
    else:
        assert folder.manager.cleanup_old_backups(now=time.time()) == 0
        # Whether a file is there, the next scan sees.
        assert recorded(folder) == {"lost", "kept", "older"}
    assert record(folder, "kept").last_approved_copy_path is None


def test_a_changed_file_has_its_time_in_its_record(person: Person, folder: Folder) -> None:
    write(person.project, "file", "other")
    os.utime(person.project / "file", (1000, 1000))
    project_of(folder)
    for command in (("run", "-c", "echo new >file"), ("undo",)):
        assert person.cli(*command).returncode == 0
        modified = (person.project / "file").stat().st_mtime
        assert record(folder, "file").last_modified == modified
    assert modified == 1000
    assert person.cli("run", "-c", "rm file").returncode == 0
    assert record(folder, "file").last_modified == 1000
    assert recorded(folder) == {"file"}


def test_a_recreated_file_is_no_longer_deleted(folder: Folder, person: Person) -> None:
    names = ["back", "ignored", "gone", "now-a-folder"]
    write(person.project, *names[:2])
    paths = record_all(folder, *names)
    folder.manager.mark_deleted(project_of(folder), paths, deleted=True)
    (person.project / "now-a-folder").mkdir()
    write(person.project, ".gitignore", text="ignored")
    scan(folder)
    assert [record(folder, name).is_deleted for name in names] == [False, False, True, True]


def test_a_missing_project_keeps_its_records(folder: Folder, person: Person) -> None:
    write(person.project, "file")
    record_all(folder, "file")
    person.project.rename(person.home / "away")
    with pytest.raises(ProjectError):
        scan(folder)
    (person.home / "away").rename(person.project)
    assert recorded(folder) == {"file"}
