# SPDX-License-Identifier: GPL-3.0-or-later
"""A project's roots, and the links in its folder."""

from __future__ import annotations

import os

import pytest
from support.folder import found, make, project_of, scan, write
from support.person import Person

from ollmsandbox.project.records import file_records
from ollmsandbox.project.records.folder import Folder

pytestmark = pytest.mark.ordinary


def test_only_agreed_folders_are_roots(folder: Folder, person: Person) -> None:
    yes, no = make(person.home / "yes"), make(person.home / "no")
    for target in (yes, no):
        (person.project / target.name).symlink_to(target)
    assert folder.build_roots() == (folder.path,)
    scan(folder)
    assert folder.build_roots() == (folder.path,)
    folder.manager.approve_root(project_of(folder), yes)
    assert folder.build_roots() == (folder.path, str(yes))
    folder.manager.revoke(project_of(folder), yes)
    assert folder.build_roots() == (folder.path,)


def test_nested_roots_are_merged(folder: Folder, person: Person) -> None:
    for name in ("out/a/b", "out/a", "out/a-b", "out/ab", "project/inside"):
        path = person.home / name
        path.mkdir(parents=True, exist_ok=True)
        folder.manager.approve_root(project_of(folder), path)
    outside = person.home / "out"
    roots = (folder.path, *(str(outside / name) for name in ("a", "a-b", "ab")))
    assert folder.build_roots() == roots


def test_roots_that_vanished_are_left_out(folder: Folder, person: Person) -> None:
    outside = make(person.home / "outside")
    folder.manager.approve_root(project_of(folder), outside)
    outside.rmdir()
    assert folder.build_roots() == (folder.path,)
    outside.touch()
    assert folder.build_roots() == (folder.path,)
    outside.unlink()
    outside.mkdir()
    assert folder.build_roots() == (folder.path, str(outside))


def test_a_link_in_place_of_a_root_opens_nothing(folder: Folder, person: Person) -> None:
    secret = make(person.home / ".ssh")
    outside = make(person.home / "around/outside")
    folder.manager.approve_root(project_of(folder), outside)
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
            "INSERT INTO approvedroot (project_id, path) VALUES (?, ?)",
            [(project_of(folder).id, os.fsencode(path)) for path in wide],
        )
    assert folder.build_roots() == (folder.path,)


def test_the_same_folder_by_a_link_is_the_same_project(folder: Folder, person: Person) -> None:
    link = person.home / "link"
    link.symlink_to(person.project)
    outside = make(person.home / "outside")
    folder.manager.approve_root(project_of(folder), outside)
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

    scan(folder)
    assert [(one.path, one.links, one.can_be_approved) for one in folder.linked_folders()] == [
        (str(person.home), ("home",), False),
        (str(other), ("ignored",), True),
        (str(outside), ("inside/two", "one"), True),
    ]
    # The links themselves are files; nothing behind them is.
    assert found(folder) == {
        *("one", "inside/two", "within", "to-file", "nowhere", "loop", "home"),
        *("inside/file", ".gitignore"),
    }
    folder.manager.approve_root(project_of(folder), outside)
    assert [one.path for one in folder.linked_folders()] == [str(person.home), str(other)]

    (person.project / "ignored").unlink()
    (person.project / "home").unlink()
    scan(folder)
    assert folder.linked_folders() == []


def test_of_a_flood_of_links_only_some_are_kept(
    folder: Folder, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_records, "_MOST_LINKS", 5)
    for number in range(20):
        (person.project / str(number)).symlink_to("/usr")
    scan(folder)
    assert len(folder.linked_folders()[0].links) == 5


def test_a_folder_that_was_never_scanned_has_no_links(folder: Folder) -> None:
    assert folder.linked_folders() == []
    assert folder.manager.projects() == []
