# SPDX-License-Identifier: GPL-3.0-or-later
"""Stored versions and backups bring files back with their attributes and folders."""

from __future__ import annotations

import contextlib
import os
import struct
import time

import pytest
from support.cli_inline import cli_here
from support.person import Person

from ollmsandbox.database.tables import Run
from ollmsandbox.files.copying import copy_whole
from ollmsandbox.files.dirfd import FOLDER, DirEntryAt
from ollmsandbox.project import backups
from ollmsandbox.project.change import MANY, State
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.project.review import Review
from ollmsandbox.project.state import read_current


def test_a_backup_that_cannot_be_made_does_not_keep_a_run_off_the_record(person: Person) -> None:
    (person.project / "a").write_text("old\n")
    (person.project / "b").write_text("kept\n")
    person.paths.backups.parent.mkdir(parents=True)
    person.paths.backups.write_text("somebody's own file")
    changes = person.cli_run("rm b; echo new >a")["changes"]
    assert {one["path"]: one["state"] for one in changes} == {"a": "applied", "b": "applied"}
    undone = cli_here(person, "undo")
    assert (undone.returncode, undone.stdout) == (0, "2 changes undone.\n")
    assert (person.project / "a").read_text() == "old\n"
    assert (person.project / "b").read_text() == "kept\n"


def test_attributes_of_a_file_come_back_with_it(person: Person) -> None:
    file = person.project / "file"
    file.write_text("old\n")
    os.setxattr(file, "user.note", b"mine")
    person.cli_run("echo new >>file")
    assert os.getxattr(file, "user.note") == b"mine"
    assert cli_here(person, "undo").returncode == 0
    assert (file.read_text(), os.getxattr(file, "user.note")) == ("old\n", b"mine")


def test_rights_of_others_to_a_file_are_copied_with_it(person: Person) -> None:
    file = person.project / "file"
    file.write_text("text\n")
    nobody = 2**32 - 1
    rights = [(1, 6, nobody), (2, 4, 12345), (4, 0, nobody), (16, 4, nobody), (32, 0, nobody)]
    words = b"".join(struct.pack("<HHI", *one) for one in rights)
    with contextlib.suppress(OSError):  # not every file system has them
        os.setxattr(file, "system.posix_acl_access", struct.pack("<I", 2) + words)
    os.setxattr(file, "user.overlay.origin", b"never to be seen")
    around = os.open(person.project, FOLDER)
    try:
        copy_whole(DirEntryAt(around, "file"), DirEntryAt(around, "copy"))
    finally:
        os.close(around)
    given = {name: os.getxattr(file, name) for name in os.listxattr(file)}
    del given["user.overlay.origin"]
    made = person.project / "copy"
    assert {name: os.getxattr(made, name) for name in os.listxattr(made)} == given
    assert made.stat().st_mode == file.stat().st_mode


def test_one_file_of_a_deleted_folder_comes_back_with_the_folders_around_it(person: Person) -> None:
    inner = person.project / "d" / "e"
    inner.mkdir(parents=True)
    (inner / "a").write_text("a\n")
    (inner / "b").write_text("b\n")
    (person.project / "d").chmod(0o750)
    run = person.cli_run("rm -rf d")["run_id"]
    done = cli_here(person, "undo", run, "d/e/a")
    assert (done.returncode, done.stdout) == (0, "3 changes undone.\n")
    assert [one.name for one in inner.iterdir()] == ["a"]
    assert (person.project / "d").stat().st_mode & 0o777 == 0o750
    assert cli_here(person, "undo", run).returncode == 0
    assert (inner / "b").read_text() == "b\n"
    assert cli_here(person, "apply", run).returncode == 0
    assert not (person.project / "d").exists()


def test_one_undone_file_is_redone_with_the_folders_around_it(person: Person) -> None:
    run = person.cli_run("mkdir -p x/y/z; echo 1 >x/y/f; echo 2 >x/y/z/g")["run_id"]
    assert cli_here(person, "undo", run).returncode == 0
    assert not (person.project / "x").exists()
    done = cli_here(person, "apply", run, "x/y/f")
    assert (done.returncode, done.stdout) == (0, "3 changes applied.\n")
    assert [one.name for one in (person.project / "x/y").iterdir()] == ["f"]
    assert cli_here(person, "undo", run).returncode == 0
    assert not (person.project / "x").exists()


def test_one_discarded_file_is_applied_with_the_folders_around_it(person: Person) -> None:
    run = person.cli_run("mkdir x; echo 1 >x/f; echo 2 >x/g", "--apply", "review")["run_id"]
    assert cli_here(person, "discard", run).returncode == 0
    assert cli_here(person, "apply", run, "x/f").returncode == 0
    assert [one.name for one in (person.project / "x").iterdir()] == ["f"]


@pytest.mark.ordinary
def test_a_run_is_kept_for_as_long_after_it_was_applied_as_after_it_ran(person: Person) -> None:
    run, other = (person.cli_run(f"echo >{name}", "--apply", "review")["run_id"] for name in "ab")
    manager = ProjectManager(person.paths)
    day = 86400
    long_ago = time.time() - 60 * day
    with manager.store.transaction():
        Run.update(started_at=long_ago, ended_at=long_ago).execute()
    for kept in person.paths.runs.glob("*/*"):
        os.utime(kept, (long_ago, long_ago))
    assert cli_here(person, "apply", run).returncode == 0
    assert backups.cleanup_old_runs(manager, now=time.time()) == []
    assert cli_here(person, "discard", other).returncode == 0
    assert backups.cleanup_old_runs(manager, now=time.time() + 29 * day) == []
    removed = backups.cleanup_old_runs(manager, now=time.time() + 31 * day)
    assert sorted(removed) == sorted([run, other])
    manager.close()


@pytest.mark.ordinary
def test_approved_roots_are_lost_with_a_damaged_database(person: Person) -> None:
    outside = person.home / "outside"
    outside.mkdir()
    (person.project / "link").symlink_to(outside)
    assert cli_here(person, "roots", "add", str(outside)).returncode == 0
    person.cli_run("echo >link/first")
    assert (outside / "first").exists()
    person.paths.database.write_bytes(b"damaged" * 1000)
    assert "cannot change it" in cli_here(person, "roots", "list").stdout
    person.cli("run", "-c", "echo >link/second")
    assert not (outside / "second").exists()


@pytest.mark.ordinary
def test_versions_of_a_large_run_stay_known(person: Person, review: Review) -> None:
    file = person.project / "file"
    file.write_text("1\n2\n3\n")
    large = review.manager.run(
        person.record(f"sed -i s/1/ONE/ file; seq {MANY} | xargs touch").run_id
    )
    later = review.manager.run(person.record("sed -i s/3/THREE/ file").run_id)
    review.undo(later)
    assert file.read_text() == "ONE\n2\n3\n"
    assert {item.state for item in read_current(review.manager, large)} == {State.APPLIED}
    assert {item.note for item in read_current(review.manager, large)} == {None}
    assert {item.state for item in review.undo(large).changes} == {State.UNDONE}
    assert file.read_text() == "1\n2\n3\n"
    # The other way round: what is in the project is the version from before.
    again = review.manager.run(person.record("sed -i s/3/THREE/ file").run_id)
    review.undo(again)
    assert {item.state for item in review.apply(large).changes} == {State.APPLIED}
    assert file.read_text() == "ONE\n2\n3\n"
    # The lines of a later run stay.
    person.record("sed -i s/3/THREE/ file")
    assert {item.state for item in review.undo(large).changes} == {State.UNDONE}
    assert file.read_text() == "1\n2\nTHREE\n"
