# SPDX-License-Identifier: GPL-3.0-or-later
"""A project's folder: its roots, the links in it, and what a scan records."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Person
from folder_helper import opened, project_of, recorded, scan, write

from ollmsandbox import loop
from ollmsandbox.errors import ProjectError
from ollmsandbox.project import ignore
from ollmsandbox.project import scan as scan_module
from ollmsandbox.project.folder import Folder
from ollmsandbox.project.models import FileRecord, FoundLink
from ollmsandbox.project.scan import Progress, Scan


def record(folder: Folder, name: str) -> FileRecord:
    return FileRecord.get(FileRecord.path == os.path.join(folder.path, name))


def make(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


@pytest.fixture
def folder(person: Person) -> Iterator[Folder]:
    with opened(person) as folder:
        yield folder


# --- roots -------------------------------------------------------------------------------------


def test_only_agreed_folders_are_roots(folder: Folder, person: Person) -> None:
    yes, no = make(person.home / "yes"), make(person.home / "no")
    for target in (yes, no):
        (person.project / target.name).symlink_to(target)
    assert folder.build_roots() == (folder.path,)
    scan(folder)
    assert folder.build_roots() == (folder.path,)
    folder.manager.agree(project_of(folder), yes)
    assert folder.build_roots() == (folder.path, str(yes))
    folder.manager.revoke(project_of(folder), yes)
    assert folder.build_roots() == (folder.path,)


def test_nested_roots_are_merged(folder: Folder, person: Person) -> None:
    for name in ("out/a/b", "out/a", "out/a-b", "out/ab", "project/inside"):
        path = person.home / name
        path.mkdir(parents=True, exist_ok=True)
        folder.manager.agree(project_of(folder), path)
    outside = person.home / "out"
    roots = (folder.path, *(str(outside / name) for name in ("a", "a-b", "ab")))
    assert folder.build_roots() == roots


def test_roots_that_vanished_are_left_out_until_they_are_back(
    folder: Folder, person: Person
) -> None:
    outside = make(person.home / "outside")
    folder.manager.agree(project_of(folder), outside)
    outside.rmdir()
    assert folder.build_roots() == (folder.path,)
    outside.touch()
    assert folder.build_roots() == (folder.path,)
    outside.unlink()
    outside.mkdir()
    assert folder.build_roots() == (folder.path, str(outside))


def test_a_link_in_the_place_of_an_agreed_folder_opens_nothing(
    folder: Folder, person: Person
) -> None:
    secret = make(person.home / ".ssh")
    outside = make(person.home / "around/outside")
    folder.manager.agree(project_of(folder), outside)
    outside.rmdir()
    outside.symlink_to(secret)
    assert folder.build_roots() == (folder.path,)
    outside.unlink()
    outside.parent.rmdir()
    make(person.home / "other/outside")
    outside.parent.symlink_to(person.home / "other")
    assert folder.build_roots() == (folder.path,)


def test_a_root_never_holds_the_project_or_the_home_folder(folder: Folder, person: Person) -> None:
    store = folder.manager.store
    wide = ["/", str(person.home.parent), str(person.home), folder.path, str(person.paths.data)]
    with store.transaction() as connection:
        connection.executemany(
            "INSERT INTO agreedroot (project_id, path) VALUES (?, ?)",
            [(project_of(folder).id, os.fsencode(path)) for path in wide],
        )
    assert folder.build_roots() == (folder.path,)


def test_the_same_folder_by_a_link_is_the_same_project(folder: Folder, person: Person) -> None:
    link = person.home / "link"
    link.symlink_to(person.project)
    outside = make(person.home / "outside")
    folder.manager.agree(project_of(folder), outside)
    assert Folder(str(link), folder.manager).build_roots() == (folder.path, str(outside))


# --- links -------------------------------------------------------------------------------------


def test_links_to_folders_outside_are_found(folder: Folder, person: Person) -> None:
    outside, other = make(person.home / "outside"), make(person.home / "other")
    write(outside, "file", "deep/file")
    write(person.project, "inside/file", ".gitignore", text="ignored\n")
    (person.project / "one").symlink_to(outside)
    (person.project / "inside/two").symlink_to("../../outside/deep/..")
    (person.project / "ignored").symlink_to(other)
    (person.project / "within").symlink_to("inside")
    (person.project / "to-file").symlink_to(outside / "file")
    (person.project / "nowhere").symlink_to("/does/not/exist")
    (person.project / "loop").symlink_to("loop")
    (person.project / "home").symlink_to("..")

    found = scan(folder)
    assert found.links == 4
    assert [(one.path, one.links, one.can_be_agreed) for one in folder.linked_folders()] == [
        (str(person.home), ("home",), False),
        (str(other), ("ignored",), True),
        (str(outside), ("inside/two", "one"), True),
    ]
    # The links themselves are files; nothing behind them is.
    assert recorded(folder) == {
        *("one", "inside/two", "within", "to-file", "nowhere", "loop", "home"),
        *("inside/file", ".gitignore"),
    }
    folder.manager.agree(project_of(folder), outside)
    assert [one.path for one in folder.linked_folders()] == [str(person.home), str(other)]

    (person.project / "ignored").unlink()
    (person.project / "home").unlink()
    scan(folder)
    assert folder.linked_folders() == []
    assert {link.path for link in FoundLink.select()} == {"one", "inside/two"}


def test_a_flood_of_links_is_counted_and_not_kept(
    folder: Folder, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "_MOST_LINKS", 5)
    for number in range(20):
        (person.project / str(number)).symlink_to("/usr")
    assert scan(folder).links == 20
    assert FoundLink.select().count() == 5


def test_a_folder_that_was_never_scanned_has_no_links(folder: Folder) -> None:
    assert folder.linked_folders() == []
    assert folder.manager.projects() == []


# --- records -----------------------------------------------------------------------------------


def test_a_scan_records_files_with_any_name(folder: Folder, person: Person) -> None:
    odd = os.fsdecode(b"caf\xe9\n 'x'")
    write(person.project, "a", "b/c", "b/d/e", odd)
    os.mkfifo(person.project / "pipe")
    found = scan(folder)
    assert recorded(folder) == {"a", "b/c", "b/d/e", odd}
    assert (found.files, found.folders, found.unreadable, found.is_cancelled) == (4, 3, 0, False)
    ids = {one.path: one.id for one in FileRecord.select()}
    scan(folder)
    assert {one.path: one.id for one in FileRecord.select()} == ids
    assert folder.manager.records_for(project_of(folder), list(ids)) == ids


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
    found = scan(folder)
    assert recorded(folder) == {"kept", "behind"}
    assert found.removed == 4


def test_records_of_deleted_files_and_of_files_with_a_copy_stay(
    folder: Folder, person: Person
) -> None:
    write(person.project, "deleted", "copied", "both", "neither")
    scan(folder)
    absolute = [os.path.join(folder.path, name) for name in ("deleted", "both")]
    folder.manager.mark_deleted(project_of(folder), absolute, deleted=True)
    copied = [("copied", False), ("both", True)]
    folder.manager.note_backups(
        project_of(folder),
        [
            (record(folder, name).id, os.path.join(folder.path, name), "/copy", gone)
            for name, gone in copied
        ],
    )
    for name in ("deleted", "copied", "both", "neither"):
        (person.project / name).unlink()
    for _ in range(2):
        scan(folder)
        assert recorded(folder) == {"deleted", "copied", "both"}
    assert record(folder, "deleted").is_deleted
    folder.manager.forget_copies([(record(folder, "copied").id, "/copy")])
    folder.manager.forget_copies([(record(folder, "both").id, "/copy")])
    scan(folder)
    assert recorded(folder) == {"deleted", "both"}


def test_a_deleted_file_that_is_there_again_is_no_longer_deleted(
    folder: Folder, person: Person
) -> None:
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
    folder.manager.records_for(project_of(folder), [hook])
    write(person.project, "build/new", "new.o")
    write(person.project, ".gitignore", text="build/\n*.o\n")
    found = scan(folder)
    assert recorded(folder) == {"build/old", "old.o", ".git/config", ".gitignore"}
    assert found.ignored == 3
    (person.project / "build/old").unlink()
    scan(folder)
    assert recorded(folder) == {"old.o", ".git/config", ".gitignore"}


def test_a_record_that_was_just_asked_for_is_not_removed(folder: Folder, person: Person) -> None:
    write(person.project, *(str(number) for number in range(5)))
    about_to_be_made = os.path.join(folder.path, "new")

    def ask(_progress: Progress) -> None:
        folder.manager.records_for(project_of(folder), [about_to_be_made])

    loop.run(folder.scan(ask))
    assert "new" in recorded(folder)
    scan(folder)
    assert "new" not in recorded(folder)


def test_records_of_another_project_are_not_touched(folder: Folder, person: Person) -> None:
    other = folder.manager.add_project(person.home)
    mine = os.path.join(folder.path, "gone")
    folder.manager.records_for(other, [mine])
    scan(folder)
    assert [one.project_id for one in FileRecord.select()] == [other.id]


@pytest.mark.parametrize("why", ["closed", "too deep"])
def test_what_cannot_be_read_is_counted_and_its_records_stay(
    folder: Folder, person: Person, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    write(person.project, "a/b/c/file", "a/file")
    scan(folder)
    if why == "too deep":
        monkeypatch.setattr(scan_module, "_DEEPEST", 3)
        assert scan(folder).unreadable == 1
    else:
        closed = person.project / "a/b"
        closed.chmod(0)
        try:
            assert scan(folder).unreadable == (os.getuid() != 0)
        finally:
            closed.chmod(0o700)
    assert recorded(folder) == {"a/b/c/file", "a/file"}


def test_a_folder_deeper_than_any_path_ends_the_walk_and_not_the_scan(
    folder: Folder, person: Person
) -> None:
    write(person.project, "file")
    around = os.open(person.project, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d" * 20, dir_fd=around)
        inner = os.open("d" * 20, os.O_RDONLY, dir_fd=around)
        os.close(around)
        around = inner
    os.close(around)
    found = scan(folder)
    assert (found.unreadable, found.files) == (1, 1)


def test_a_project_that_is_gone_is_told_and_keeps_its_records(
    folder: Folder, person: Person
) -> None:
    write(person.project, "file")
    scan(folder)
    person.project.rename(person.home / "away")
    with pytest.raises(ProjectError):
        scan(folder)
    (person.home / "away").rename(person.project)
    assert recorded(folder) == {"file"}


def test_a_project_that_is_removed_meanwhile_is_told(
    folder: Folder, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "_BATCH", 1)
    write(person.project, *(str(number) for number in range(50)))
    project = project_of(folder)
    read = ignore.read

    def remove_and_read(name: str, around: int) -> ignore.Rules | None:
        folder.manager.remove_project(project)
        return read(name, around)

    monkeypatch.setattr(ignore, "read", remove_and_read)
    with pytest.raises(ProjectError, match="no longer a project"):
        scan(folder)
    assert FileRecord.select().count() == 0


# --- progress and cancelling -------------------------------------------------------------------


@pytest.mark.anybody
def test_progress_is_told_where_the_scan_is_awaited(folder: Folder, person: Person) -> None:
    write(person.project, *(f"{number % 10}/{number}" for number in range(3000)))
    told: list[tuple[Progress, int]] = []

    async def work() -> float:
        start = time.monotonic()
        await folder.scan(lambda state: told.append((state, threading.get_ident())))
        return time.monotonic() - start

    took = loop.run(work())
    assert {thread for _, thread in told} == {threading.get_ident()}
    states = [state for state, _ in told]
    assert states[-1] == Progress(folders=11, files=3000, is_done=True)
    assert not any(state.is_done for state in states[:-1])
    assert [state.files for state in states] == sorted(state.files for state in states)
    assert len(states) <= took / 0.1 + 2


def test_a_cancelled_scan_removes_nothing(folder: Folder, person: Person) -> None:
    write(person.project, "a", "b", "folder/c")
    (person.project / "link").symlink_to("/usr")
    scan(folder)
    (person.project / "a").unlink()
    (person.project / "link").unlink()
    cancel = threading.Event()
    cancel.set()
    told: list[Progress] = []
    found = loop.run(folder.scan(told.append, cancel))
    assert found.is_cancelled
    assert told[-1].is_done
    assert recorded(folder) == {"a", "b", "folder/c", "link"}
    assert len(folder.linked_folders()) == 1


def test_a_scan_that_nobody_awaits_any_more_ends(
    folder: Folder, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(person.project, *(str(number) for number in range(100)))
    entered, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    read = ignore.read

    def slow(name: str, around: int) -> ignore.Rules | None:
        entered.set()
        go_on.wait(30)
        return read(name, around)

    monkeypatch.setattr(ignore, "read", slow)
    run = scan_module.Scanner.run

    def noted(scanner: scan_module.Scanner) -> Scan:
        try:
            return run(scanner)
        finally:
            ended.set()

    monkeypatch.setattr(scan_module.Scanner, "run", noted)

    async def work() -> None:
        task = asyncio.ensure_future(folder.scan())
        await asyncio.to_thread(entered.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        assert await asyncio.to_thread(ended.wait, 30)

    loop.run(work())
    assert recorded(folder) == set()


@pytest.mark.anybody
def test_a_large_scan_needs_little_memory_and_lets_others_write(
    folder: Folder, person: Person
) -> None:
    for number in range(20_000):
        if number % 2000 == 0:
            around = make(person.project / str(number))
        (around / f"some-file-with-a-name-{number}").touch()
    project = project_of(folder)
    waited: list[float] = []

    def write_too(_state: Progress) -> None:
        start = time.monotonic()
        folder.manager.records_for(project, [f"/elsewhere/{len(waited)}"])
        waited.append(time.monotonic() - start)

    tracemalloc.start()
    try:
        found = loop.run(folder.scan(write_too))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.files == 20_000
    assert peak < 3_000_000
    assert waited
    assert max(waited) < 20


# --- ignore files ------------------------------------------------------------------------------
