# SPDX-License-Identifier: GPL-3.0-or-later
"""What the next scan of a project's folder looks at: only what has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.folder import project_of, recorded, records_for, scan, write
from support.person import Person

from ollmsandbox.database.tables import Project
from ollmsandbox.project.records import scan_cache
from ollmsandbox.project.records.file_records import Scanner
from ollmsandbox.project.records.folder import Folder

pytestmark = pytest.mark.ordinary

TOO_FRESH = scan_cache._TOO_FRESH


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat folders that have just changed like others. Use `changed` after a change."""
    monkeypatch.setattr(scan_cache, "_TOO_FRESH", -3600.0)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The folders that scans list, by their inodes."""
    found: list[int] = []
    list_folder = os.scandir

    def listing(folder: int | str) -> os._ScandirIterator[str]:
        if isinstance(folder, int):
            found.append(os.fstat(folder).st_ino)
        return list_folder(folder)

    monkeypatch.setattr(os, "scandir", listing)
    return found


def changed(*folders: Path) -> None:
    """Give folders another time, even if they changed within one tick of the clock."""
    for folder in folders:
        later = folder.stat().st_mtime_ns + 1_000_000_000
        os.utime(folder, ns=(later, later))


def test_only_changed_folders_are_listed(folder: Folder, person: Person, listed: list[int]) -> None:
    write(person.project, "a", "b/c", "b/d/old", "b/d/kept", "b/d/ignored", "other/f")
    write(person.project, "b/.gitignore", text="ignored")
    scan(folder)
    assert len(listed) == 4
    listed.clear()
    scan(folder)
    assert not listed
    assert recorded(folder) == {"a", "b/.gitignore", "b/c", "b/d/old", "b/d/kept", "other/f"}
    inner = person.project / "b/d"
    (inner / "old").unlink()
    write(inner, "new")
    changed(inner)
    scan(folder)
    assert listed == [inner.stat().st_ino]
    assert recorded(folder) == {"a", "b/.gitignore", "b/c", "b/d/new", "b/d/kept", "other/f"}


def test_a_folder_that_changed_just_before_is_listed_again(
    folder: Folder, person: Person, listed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_cache, "_TOO_FRESH", TOO_FRESH)
    write(person.project, "a", "b/c")
    scan(folder)
    listed.clear()
    scan(folder)
    assert len(listed) == 2


def test_the_records_of_a_folder_that_is_gone_are_removed(folder: Folder, person: Person) -> None:
    write(person.project, "a/b/c", "kept")
    scan(folder)
    (person.project / "a/b/c").unlink()
    (person.project / "a/b").rmdir()
    changed(person.project / "a")
    scan(folder)
    assert recorded(folder) == {"kept"}


def test_another_folder_in_its_place_is_listed(folder: Folder, person: Person) -> None:
    write(person.project, "a/old", "b/new")
    scan(folder)
    project = person.project
    (project / "a").rename(project / "c")
    (project / "b").rename(project / "a")
    (project / "c").rename(project / "b")
    changed(project)
    scan(folder)
    assert recorded(folder) == {"a/new", "b/old"}


@pytest.mark.parametrize("name", [".gitignore", "a/.gitignore", ".git/info/exclude"])
def test_changed_ignore_rules_are_obeyed_below(folder: Folder, person: Person, name: str) -> None:
    write(person.project, "a/b/c/one", "a/b/c/two")
    write(person.project, name, text="one\n")
    scan(folder)
    files = {"a/b/c/two", name} - {".git/info/exclude"}
    assert recorded(folder) == files
    # In place, which the folder's time does not show.
    write(person.project, name, text="none\n")
    scan(folder)
    assert recorded(folder) == files | {"a/b/c/one"}


def test_links_are_followed_again(folder: Folder, person: Person, listed: list[int]) -> None:
    target = person.home / "elsewhere"
    write(person.project, "a/file")
    (person.project / "a/link").symlink_to(target)
    scan(folder)
    assert not folder.linked_folders()
    listed.clear()
    target.mkdir()
    scan(folder)
    assert [found.path for found in folder.linked_folders()] == [os.path.realpath(target)]
    scan(folder)
    assert len(folder.linked_folders()) == 1
    assert not listed


def test_a_new_database_gets_all_records(folder: Folder, person: Person) -> None:
    write(person.project, "a", "b/c")
    scan(folder)
    Project.delete().where(Project.path == folder.path).execute()
    scan(folder)
    assert recorded(folder) == {"a", "b/c"}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"version": 1}', "null"])
def test_a_damaged_cache_only_costs_time(folder: Folder, person: Person, text: str) -> None:
    write(person.project, "a", "b/c")
    scan(folder)
    file = person.paths.scan_cache(folder.path)
    assert file.exists()
    file.write_text(text)
    write(person.project, "b/d")
    scan(folder)
    assert recorded(folder) == {"a", "b/c", "b/d"}


def test_a_cancelled_scan_is_not_remembered(folder: Folder, person: Person) -> None:
    write(person.project, "a", "b/c")
    Scanner(folder.manager, folder.path, lambda: True).run()
    scan(folder)
    assert recorded(folder) == {"a", "b/c"}


def test_a_record_without_a_file_is_removed(folder: Folder, person: Person) -> None:
    write(person.project, "a/b", "other/c")
    scan(folder)
    never_made = os.path.join(folder.path, "a/never-made")
    records_for(folder.manager, project_of(folder), [never_made])
    changed(person.project / "other")
    scan(folder)
    assert recorded(folder) == {"a/b", "other/c"}
