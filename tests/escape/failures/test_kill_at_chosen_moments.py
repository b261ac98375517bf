# SPDX-License-Identifier: GPL-3.0-or-later
"""SIGKILL at moments that counting steps rarely hits: in the middle of a write, after the last
pending change, while a closed folder is open, before a backup is recorded."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.escape.copy_back import review, settle
from support.escape.kill import (
    Snapshot,
    check_finished,
    finish,
    has_job,
    killed_when,
)
from support.person import Person

from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.project.recover import finish_leftovers
from ollmsandbox.project.run import RunFolder
from ollmsandbox.project.versions import earlier_versions
from ollmsandbox.sandbox.spec import Mode, RunSpec


@pytest.fixture
def snapshot(person: Person) -> Iterator[Snapshot]:
    for name in "ab":
        (person.project / name).write_text("old\n")
    yield Snapshot(person)
    # So that who removes the folder can.
    subprocess.run(["chmod", "-R", "u+rwx", person.home], check=True)


def halves(person: Person) -> list[Path]:
    """Files that are not whole yet."""
    data = person.paths.data
    patterns = ("runs/*/.*", "runs/*/*/*.half", "projects/*/.*", "projects/*/.*/*")
    return [*person.paths.cache.glob(".*"), *(one for at in patterns for one in data.glob(at))]


ACTS: dict[Mode | None, Callable[[Snapshot], object]] = {
    Mode.REVIEW: Snapshot.apply,
    Mode.AUTO: Snapshot.undo,
    None: lambda snapshot: snapshot.settle(Mode.REVIEW),
}


@pytest.mark.parametrize("settled", ACTS)
def test_no_half_of_what_was_being_written_is_left(
    snapshot: Snapshot, settled: Mode | None
) -> None:
    person = snapshot.person
    snapshot.leave("echo new >a; rm b; echo c >c")
    if settled is not None:
        snapshot.settle(settled)
    assert killed_when(lambda: bool(halves(person)), lambda: ACTS[settled](snapshot))
    finish(snapshot)
    # At the latest when something is done to the project again.
    snapshot.undo()
    assert not halves(person)
    check_finished(person)


def test_what_a_change_needs_is_applied_with_it_after_a_kill(snapshot: Snapshot) -> None:
    """Both changed the same line, so the second one needs the first."""
    person = snapshot.person
    settle(person, "echo first >a", Mode.REVIEW)
    second = settle(person, "echo second >a", Mode.REVIEW).run_id
    assert killed_when(lambda: has_job(person), lambda: review(person, "apply", second))
    assert (person.project / "a").read_text() == "old\n"
    finish(snapshot)
    assert not halves(person)
    check_finished(person)
    assert (person.project / "a").read_text() == "second\n"


def test_a_folder_that_was_open_is_closed_if_nothing_in_it_is_ours_any_more(
    snapshot: Snapshot,
) -> None:
    person = snapshot.person
    closed = person.project / "closed"
    closed.mkdir()
    (closed / "in").write_text("old\n")
    closed.chmod(0o555)
    first = "chmod u+w closed; echo first >closed/in; chmod 555 closed"
    run = settle(person, first, Mode.REVIEW).run_id

    def is_open() -> bool:
        return bool(closed.stat().st_mode & stat.S_IWUSR)

    # To root it is open as it is.
    killed_when(is_open, lambda: review(person, "apply", run))
    person.write("closed/in", "second\n", Mode.REVIEW)
    finish(snapshot)
    check_finished(person)
    assert not is_open()


def may(file: Path, bit: int) -> bool:
    return bool(file.stat().st_mode & bit)


def test_a_file_that_even_its_owner_may_not_write_to_is_so_after_a_kill(snapshot: Snapshot) -> None:
    """Removing the overlay's attributes makes it writable for a moment."""
    person = snapshot.person
    snapshot.leave("echo new >a; chmod 444 a")
    (upper,) = person.paths.cache.glob("overlay-*/upper/overlay1")
    (upper / "a").chmod(0o644)
    os.setxattr(upper / "a", "user.overlay.test", b"")
    (upper / "a").chmod(0o444)
    # Root may do it as it is.
    killed_when(
        lambda: (upper / "a").exists() and not os.listxattr(upper / "a"),
        lambda: snapshot.settle(Mode.AUTO),
    )
    finish(snapshot)
    check_finished(person)
    snapshot.apply()
    file = person.project / "a"
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("new\n", 0o444)


def test_a_file_that_even_its_owner_may_not_read_is_so_after_a_kill(snapshot: Snapshot) -> None:
    person = snapshot.person
    file = person.project / "a"
    file.chmod(0o200)
    run = settle(person, "rm a", Mode.AUTO).run_id
    kept = RunFolder(person.paths, run).base(0)
    killed_when(
        lambda: kept.exists() and may(kept, stat.S_IRUSR),
        lambda: review(person, "undo", run),
    )
    finish(snapshot)
    review(person, "undo", run)
    check_finished(person)
    assert stat.S_IMODE(file.stat().st_mode) == 0o200
    (copied,) = person.paths.backups.iterdir()
    assert stat.S_IMODE(copied.stat().st_mode) == 0o200


def test_an_unrecorded_backup_is_not_used_for_another_file(snapshot: Snapshot) -> None:
    """A kill took its number, which another file got."""
    person = snapshot.person
    snapshot.leave("echo new >a")
    assert killed_when(
        lambda: any(person.paths.backups.glob("*-a")),
        lambda: snapshot.settle(Mode.AUTO),
    )
    other = replace(person, project=person.home / "other")
    other.project.mkdir()

    def earlier() -> list[bytes]:
        with closing(ProjectManager(person.paths)) as manager:
            project = manager.add_project(other.project)
            found = earlier_versions(manager, project, str(other.project / "a"))
            return [one.version.read() for one in found]

    other.write("a", "first\n")
    assert earlier() == []
    other.write("a", "second\n")
    assert earlier() == [b"first\n"]
    finish(snapshot)
    kept = sorted(one.read_text() for one in person.paths.backups.iterdir())
    assert kept == ["first\n", "old\n"]


def test_backups_whose_numbers_a_kill_has_taken_are_not_left(snapshot: Snapshot) -> None:
    """If more is to be recorded then, they get other ones."""
    person = snapshot.person
    snapshot.leave("echo new >b; rm a; echo c >c")
    assert killed_when(
        lambda: any(person.paths.backups.glob("*-b")),
        lambda: snapshot.settle(Mode.AUTO),
    )
    for stray in [*person.paths.backups.iterdir()]:
        stray.rename(stray.with_name(f"7{stray.name}"))
    finish(snapshot)
    assert sorted(one.read_text() for one in person.paths.backups.iterdir()) == ["old\n"] * 2
    assert not [*person.paths.backups.glob("7*")]


def test_half_a_backup_is_not_used(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are copied where a file cannot have two names."""
    person = snapshot.person
    backups = person.paths.backups
    real = os.link

    def refused(source: str, target: str, **options: Any) -> None:
        around = options.get("dst_dir_fd")
        if around is None or os.readlink(f"/proc/self/fd/{around}") != str(backups):
            real(source, target, **options)
        elif os.path.lexists(backups / target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        else:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), target)

    monkeypatch.setattr(os, "link", refused)
    # So that it is on record, and has no backup.
    settle(person, "echo made >c", Mode.AUTO)
    snapshot.leave("echo new >c")
    assert killed_when(
        lambda: backups.is_dir() and bool(os.listdir(backups)),
        lambda: snapshot.settle(Mode.AUTO),
    )
    finish(snapshot)
    assert [one.read_text() for one in backups.iterdir()] == ["made\n"]


@pytest.mark.parametrize("name", ["closed/sub/f", "made/anew/f"])
def test_an_interrupted_edit_is_pending_as_a_whole(snapshot: Snapshot, name: str) -> None:
    """It may also not be pending at all; but no folder that was made or opened for it is left."""
    person = snapshot.person
    (person.project / "closed" / "sub").mkdir(parents=True)
    (person.project / "closed" / "sub" / "f").write_text("old\n")
    (person.project / "closed").chmod(0o555)
    assert killed_when(
        lambda: any(person.paths.cache.glob("overlay-*/upper/overlay1/*")),
        lambda: person.write(name, "new\n"),
    )
    assert not has_job(person)
    finish(snapshot)
    check_finished(person)
    paths = [path for path, *_ in snapshot.look().rows]
    assert paths[-1] == name
    assert paths[:-1] in ([], ["made", "made/anew"])


def test_half_of_what_is_on_another_disk_is_not_used(person: Person) -> None:
    """What is on another disk is copied."""
    inner = person.project / "there" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        folder.chmod(0o755)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        person.environ["XDG_CACHE_HOME"] = elsewhere
        snapshot = Snapshot(person)
        snapshot.leave("echo x >there/inner/f; echo y >there/inner/g")

        def has(name: str) -> bool:
            return any(person.paths.runs.glob(f"*/result/{name}"))

        for name in ("0.half", "0", "1.half"):
            is_there = partial(has, name)
            assert killed_when(is_there, lambda: finish_leftovers(person.paths))
        finish(snapshot)
        check_finished(person)
        seen = person.run("stat -c %A there there/inner; cat there/inner/*").stdout.text
        assert seen.split() == ["drwxr-xr-x", "drwxr-xr-x", "x", "y"]


def test_half_of_a_pending_layer_is_not_used(snapshot: Snapshot) -> None:
    person = snapshot.person
    settle(person, "echo new >a; rm b; echo c >c", Mode.REVIEW)

    def is_half() -> bool:
        return any(person.paths.projects.glob("*/.layer-*/overlay1/a"))

    def look() -> str:
        keeper = Recorder(RunSpec(str(person.project), mode=Mode.NEVER), person.paths)
        return person.run("cat a c; ls", keeper=keeper).stdout.text

    assert killed_when(is_half, look)
    finish(snapshot)
    assert look().split() == ["new", "c", "a", "c"]
    check_finished(person)


def test_a_backup_that_is_removed_is_on_no_record_any_more(snapshot: Snapshot) -> None:
    person = snapshot.person
    settle(person, "echo new >a", Mode.AUTO)
    (kept,) = person.paths.backups.iterdir()
    number = int(kept.name.partition("-")[0])

    def clean() -> None:
        with closing(ProjectManager(person.paths)) as manager:
            manager.cleanup_old_backups(now=time.time() + 30 * 86400)

    assert killed_when(lambda: not kept.exists(), clean)
    with closing(ProjectManager(person.paths)) as manager:
        assert not manager.has_backup(number)
