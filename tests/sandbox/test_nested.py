# SPDX-License-Identifier: GPL-3.0-or-later
"""A sandbox on systems with other mounts, and inside other sandboxes."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.bubble import IS_ROOT, command_beside, in_mounts, run_beside, with_profile
from support.person import Person

# --- where something is mounted ------------------------------------------------------------------


DISK = 'mount -t tmpfs none "$1"; echo seen >"$1/file"'
READ_ONLY = f'{DISK}; mount -o remount,bind,ro "$1"'


def test_a_project_on_a_read_only_file_system_can_be_read(person: Person) -> None:
    """A command may write there as everywhere; only applying it fails, with a report."""
    around = in_mounts(READ_ONLY, person.project)
    command = "cat file; echo new >new && cat new; touch ~/playground/new"
    done = command_beside(person, around, command, "--json")
    told = json.loads(done.stdout)
    assert (told["exit_code"], told["stdout"]) == (0, "seen\nnew\n")
    (change,) = told["changes"]
    assert (change["path"], change["state"]) == ("new", "failed")
    assert "Read-only file system" in change["note"]
    assert os.listdir(person.project) == []
    assert (person.playground / "new").exists()


def test_mounts_in_the_home_folder_are_seen_and_not_written(person: Person) -> None:
    disk = person.home / "disk"
    disk.mkdir()
    command = 'cat ~/disk/file; touch ~/disk/new || echo "not written"; touch new'
    done = command_beside(person, in_mounts(DISK, disk), command)
    assert (done.returncode, done.stdout) == (0, "seen\nnot written\n")
    # Of the project changes can be recorded all the same.
    assert os.listdir(person.project) == ["new"]


def test_mounts_in_the_project_are_seen_and_not_written(person: Person) -> None:
    """An overlay does not reach into other mounts, so nothing there could be recorded."""
    disk = person.project / "disk"
    disk.mkdir()
    (person.project / "old").write_text("old\n")
    write = "echo x >disk/file; echo new >new; cat disk/file; touch ~/playground/a"
    done = command_beside(person, in_mounts(DISK, disk), f"cat old disk/file; {write}")
    assert (done.returncode, done.stdout) == (0, "old\nseen\nseen\n")
    assert "disk/file: Read-only file system" in done.stderr
    assert (person.playground / "a").exists()
    if IS_ROOT:
        assert (person.project / "new").read_text() == "new\n"
    else:
        # A user namespace cannot take the project apart from what is mounted in it.
        assert "new: Read-only file system" in done.stderr
        assert f"{person.project} (the project) is read-only" in done.stderr
        assert not (person.project / "new").exists()
    assert os.listdir(disk) == []


# As high as overlays can be stacked, so that no other can be put on top.
STACKED = (
    'mount -t overlay none -o "userxattr,lowerdir=$1:$2" "$3";'
    'mount -t overlay none -o "userxattr,lowerdir=$3:$4" "$1"'
)


def test_commands_run_where_no_overlay_can_be_mounted(person: Person, tmp_path: Path) -> None:
    for name in ("DATA", "CACHE"):
        person.environ[f"XDG_{name}_HOME"] = str(tmp_path / name)
    (person.home / ".ssh").mkdir()
    for name in ("two", "three", "four"):
        (tmp_path / name).mkdir()
    around = in_mounts(STACKED, person.home, *(tmp_path / n for n in ("two", "three", "four")))
    told = json.loads(run_beside(person, around, "doctor", "--json").stdout)
    assert (told["overlay"], told["sandboxed"]) == ("none", True)
    overlay = next(check for check in told["checks"] if check["key"] == "overlay")
    assert (overlay["ok"], overlay["needed"]) == (False, False)
    assert overlay["cause"]
    assert "project" in overlay["remedy"]
    writes = next(check for check in told["checks"] if check["key"] == "writes")
    assert (writes["ok"], writes["needed"]) == (False, False)
    assert "recorded" in writes["cause"]
    command = "ls ~; ls -A ~/.ssh; touch ~/playground/new; touch new"
    done = command_beside(person, around, command)
    assert (done.returncode, done.stdout) == (1, "playground\nproject\n")
    assert "cannot touch 'new': Read-only file system" in done.stderr
    assert f"{person.project} (the project) is read-only" in done.stderr
    assert os.listdir(person.playground) == ["new"]
    assert os.listdir(person.project) == []


def test_where_changes_cannot_be_kept_the_project_is_not_written(
    person: Person, tmp_path: Path
) -> None:
    """An overlay's own changes cannot be kept on another overlay, as a container's disk is one."""
    cache = tmp_path / "cache"
    person.environ["XDG_CACHE_HOME"] = str(cache)
    for folder in (cache, tmp_path / "two", tmp_path / "upper", tmp_path / "work"):
        folder.mkdir()
    mounted = 'mount -t overlay none -o "userxattr,lowerdir=$2,upperdir=$3,workdir=$4" "$1"'
    folders = (cache, *(tmp_path / name for name in ("two", "upper", "work")))
    command = "pwd; touch ~/playground/new; touch new"
    done = command_beside(person, in_mounts(mounted, *folders), command)
    assert (done.returncode, done.stdout) == (1, f"{person.project}\n")
    assert f"{person.project} (the project) is read-only" in done.stderr
    assert os.listdir(person.playground) == ["new"]
    assert os.listdir(person.project) == []


# --- in other sandboxes --------------------------------------------------------------------------


NESTED = ["bwrap", "--dev-bind", "/", "/", "--unshare-user", "--unshare-pid", "--proc", "/proc"]


def test_in_another_sandbox_a_command_runs_in_one_of_its_own_or_not_at_all(person: Person) -> None:
    (person.home / ".ssh").mkdir()
    command = 'touch ran; ls -A ~; echo x >~/new || echo "not written"'
    done = command_beside(person, NESTED, command)
    assert "Traceback" not in done.stderr
    assert not (person.home / "new").exists()
    if IS_ROOT and done.returncode == 125:
        # The kernel lets root mount no second /proc where the one around is partly covered.
        assert done.stdout == ""
        assert "cannot be sandboxed here" in done.stderr
        assert "container or sandbox around" in done.stderr
        assert not (person.project / "ran").exists()
    else:
        assert done.returncode == 0
        assert "not written" in done.stdout
        assert ".ssh" not in done.stdout
        assert (person.project / "ran").exists()


@pytest.fixture
def stranger() -> Iterator[Path]:
    """A folder of another user, with two folders in it."""
    if not IS_ROOT:
        yield Path("/usr/share")
        return
    folder = Path(tempfile.mkdtemp(dir="/opt"))
    for name in ("doc", "man"):
        (folder / name).mkdir()
        (folder / name / "file").touch()
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
        os.chown(path, 12345, 12345)
    yield folder
    shutil.rmtree(folder)


def test_root_of_a_user_namespace_hides_what_a_stranger_has(person: Person, stranger: Path) -> None:
    """The namespace has no id for the owner of that folder."""
    with_profile(person, f"masks: ['{stranger}/doc']")
    # Layers are kept there, and one that is there already is not made again.
    layers = person.home.with_name("run")
    layers.mkdir(mode=0o700)
    person.environ["XDG_RUNTIME_DIR"] = str(layers)
    command = f"ls -A {stranger}/doc; ls -d {stranger}/man"
    around = ["unshare", "--user", "--map-root-user"]
    done = command_beside(person, around, command, "--profile", "mine")
    assert (done.returncode, done.stdout) == (0, f"{stranger}/man\n"), done.stderr


def test_inside_our_own_sandbox_no_other_can_start_and_this_is_reported(person: Person) -> None:
    bwrap = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    result = person.run([*bwrap, "--unshare-user", "touch", "ran"])
    assert result.exit_code not in (0, 127)
    assert not (person.project / "ran").exists()
