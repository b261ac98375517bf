# SPDX-License-Identifier: GPL-3.0-or-later
"""Each run writes to a playground of its own, which becomes part of the common one at its end."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support.bubble import by, command_beside, each_overlay, in_mounts
from support.escape.attack import python
from support.escape.paused import kill
from support.person import Person
from support.timing import PATIENCE, wait_for

from ollmsandbox import loop
from ollmsandbox.files import trees
from ollmsandbox.sandbox.plan.mounts import OverlayMethod
from ollmsandbox.sandbox.process import Result, Sinks

pytestmark = pytest.mark.ordinary


def tree(folder: Path) -> dict[str, str]:
    """Return the names in a folder with their texts, "/" for a folder, and the targets of links."""
    found = {}
    for path in folder.rglob("*"):
        mode = path.lstat().st_mode
        text = "/" if stat.S_ISDIR(mode) else f"-> {path.readlink()}" if path.is_symlink() else "?"
        found[str(path.relative_to(folder))] = path.read_text() if stat.S_ISREG(mode) else text
    return found


def fill(playground: Path) -> None:
    for name in ("kept", "changed", "gone", "moved", "becomes a folder", "folder/kept"):
        (playground / name).parent.mkdir(parents=True, exist_ok=True)
        (playground / name).write_text("old")
    for name in ("gone folder", "new folder", "becomes a file", "becomes a link", "moved folder"):
        (playground / name / "deep").mkdir(parents=True)
        (playground / name / "deep/file").write_text("old")


CHANGES = r"""
cd ~/playground
printf new >changed; printf new >added; rm gone; mv moved there
rm 'becomes a folder'; mkdir 'becomes a folder'; printf new >'becomes a folder/file'
printf new >folder/added; printf new >"$(printf 'a\nb \377')"
rm -r 'gone folder' 'new folder' 'becomes a file' 'becomes a link'
mkdir 'new folder'; printf new >'new folder/file'
printf new >'becomes a file'
ln -s "$1" 'becomes a link'
mv 'moved folder' 'folder/inner'
"""


@each_overlay
def test_what_a_command_did_is_in_the_playground_when_it_has_ended(
    person: Person, way: OverlayMethod
) -> None:
    fill(person.playground)
    victim = person.home / "victim"
    victim.mkdir()
    found = by(person, way)
    changes = ["sh", "-ec", CHANGES, "sh", str(victim)]
    result = person.run(changes, capabilities=found)
    assert (result.exit_code, result.stderr.text) == (0, "")
    expected = {
        "kept": "old", "changed": "new", "added": "new", "there": "old", "a\nb \udcff": "new",
        "becomes a folder": "/", "becomes a folder/file": "new", "becomes a file": "new",
        "becomes a link": f"-> {victim}", "new folder": "/", "new folder/file": "new",
        "folder": "/", "folder/kept": "old", "folder/added": "new", "folder/inner": "/",
        "folder/inner/deep": "/", "folder/inner/deep/file": "old",
    }  # fmt: skip
    assert tree(person.playground) == expected
    listed = person.run("find . -mindepth 1 | wc -l", working_dir="playground", capabilities=found)
    assert int(listed.stdout.text) == len(expected) + 1  # one has two lines
    assert list(victim.iterdir()) == []
    assert not list(person.paths.cache.glob("overlay-*"))


@each_overlay
def test_folders_without_permissions(person: Person, way: OverlayMethod) -> None:
    (person.playground / "old/inner").mkdir(parents=True)
    (person.playground / "old/inner/file").write_text("old")
    person.playground.chmod(0o755)
    found = by(person, way)
    close = "mkdir -p new/inner; echo x >new/inner/file; echo x >old/inner/new"
    close += "; chmod 0 new/inner new old/inner old ."
    result = person.run(close, working_dir="playground", capabilities=found)
    assert (result.exit_code, result.stderr.text) == (0, "")
    modes = "stat -c %a . old new; chmod 700 old new; stat -c %a old/inner new/inner"
    seen = person.run(modes, working_dir="playground", capabilities=found)
    assert seen.stdout.text.split() == ["755", "0", "0", "0", "0"]
    show = "chmod 700 */inner; cat */inner/*"
    seen = person.run(show, working_dir="playground", capabilities=found)
    assert seen.stdout.text == "x\noldx\n"


SPECIAL = """
    os.chdir(os.environ['HOME'] + '/playground')
    for folder in ('.', 'old', 'new/deep', 'closed/deep'):
        os.makedirs(folder, exist_ok=True)
        os.mkfifo(folder + '/pipe')
        socket.socket(socket.AF_UNIX).bind(folder + '/socket')
        open(folder + '/file', 'w').close()
    os.unlink('replaced')
    os.mkfifo('replaced')
    os.chmod('closed/deep', 0o500)
    os.chmod('closed', 0o500)
    """


def test_pipes_and_sockets_end_with_the_run(person: Person) -> None:
    (person.playground / "old").mkdir(parents=True)
    (person.playground / "replaced").write_text("old")
    os.mkfifo(person.playground / "of the user")
    assert person.run(python(SPECIAL)).exit_code == 0
    folders = ["closed", "closed/deep", "new", "new/deep", "old"]
    files = ["closed/deep/file", "file", "new/deep/file", "of the user", "old/file"]
    assert sorted(tree(person.playground)) == sorted(folders + files)
    assert stat.S_IMODE((person.playground / "closed/deep").stat().st_mode) == 0o500


_DEEP_PIPE = """
os.chdir(os.path.expanduser("~/playground"))
for _ in range({}):
    os.mkdir("d")
    os.chdir("d")
os.mkfifo("pipe")
open("file", "w").close()
"""


def test_pipes_deep_in_a_new_folder_end_with_the_run(person: Person) -> None:
    assert person.run(python(_DEEP_PIPE.format(110))).exit_code == 0
    found = subprocess.run(["find", person.playground], stdout=subprocess.PIPE, check=True).stdout
    assert b"/pipe\n" not in found
    assert found.count(b"/file\n") == 1
    command = f"rm -r ~/playground/d; {python(_DEEP_PIPE.format(1100))}"
    assert person.run(command).exit_code == 0
    assert person.run("cd ~/playground; find . -type p; find . -name file").stdout.text == ""
    # It is too deep for pytest to remove.
    trees.empty(person.playground)


def run_during(person: Person, command: str, meanwhile: Callable[[], object] | str) -> Result:
    """Run a command, and something else before it ends: another command, or a function."""
    reader, writer = os.pipe()

    async def both() -> Result:
        ready, main = asyncio.Event(), asyncio.get_running_loop()

        def noticed(_data: bytes) -> None:
            main.call_soon_threadsafe(ready.set)

        first = person.bubble().exec(
            f"{command}; echo ready; cat", stdin=reader, sinks=Sinks(noticed)
        )
        running = asyncio.ensure_future(first)
        await asyncio.wait_for(ready.wait(), PATIENCE)
        if callable(meanwhile):
            meanwhile()
        else:
            assert (await person.bubble().exec(meanwhile)).exit_code == 0
        os.close(writer)
        return await running

    try:
        return loop.run(both())
    finally:
        os.close(reader)


def test_of_two_runs_at_once_the_last_one_to_end_wins(person: Person) -> None:
    (person.playground / "both").mkdir(parents=True)
    (person.playground / "gone").touch()
    first = "cd ~/playground; printf 1 >first; printf 1 >same; printf 1 >both/first; rm gone"
    second = "cd ~/playground; printf 2 >second; printf 2 >same; printf 2 >both/second"
    assert run_during(person, first, f"{second}; test ! -e first").exit_code == 0
    both = {"both": "/", "both/first": "1", "both/second": "2"}
    assert tree(person.playground) == {"first": "1", "second": "2", "same": "1", **both}


def test_a_link_that_takes_the_place_of_a_folder_is_not_followed(person: Person) -> None:
    folder, victim = person.playground / "folder", person.home / "victim"
    for made in (folder, victim):
        made.mkdir(parents=True)
        (made / "file").write_text("old")
        (made / "gone").write_text("old")

    def replace() -> None:
        folder.rename(person.home / "aside")
        folder.symlink_to(victim)

    run_during(person, "cd ~/playground/folder; printf new >file; rm gone; mkdir new", replace)
    assert tree(victim) == {"file": "old", "gone": "old"}
    assert tree(person.playground) == {"folder": "/", "folder/file": "new", "folder/new": "/"}


def test_a_playground_that_is_removed_meanwhile(person: Person) -> None:
    def remove() -> None:
        person.playground.rename(person.home / "aside")

    run_during(person, "cd ~/playground; printf new >file", remove)
    assert tree(person.playground) == {"file": "new"}


def test_what_a_killed_program_wrote_is_merged_at_the_next_start(person: Person) -> None:
    person.playground.mkdir(parents=True)
    (person.playground / "gone").touch()
    (person.playground / "kept").write_text("old")
    write = "cd ~/playground; rm gone; mkfifo pipe; printf new >new; sleep 600"
    started = person.start("run", "-c", write)
    files = person.paths.cache.glob
    wait_for(lambda: any(file.stat().st_size for file in files("overlay-*/playground/new")))
    kill(person, started)
    assert tree(person.playground) == {"gone": "", "kept": "old"}
    assert person.cli("run", "--", "true").returncode == 0
    assert tree(person.playground) == {"kept": "old", "new": "new"}
    assert not list(person.paths.cache.glob("overlay-*"))


def test_a_merge_that_fails_half_way_is_finished_at_the_next_start(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c", "folder/d"):
        (person.playground / name).parent.mkdir(parents=True, exist_ok=True)
        (person.playground / name).write_text("old")
    removed: list[str] = []

    def remove(name: str, dir_fd: int) -> None:
        if removed:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        removed.append(name)
        os.unlink(name, dir_fd=dir_fd)

    write = "cd ~/playground; rm a b c; printf new >folder/d; printf new >new; echo new >~-/made"
    with monkeypatch.context() as broken:
        broken.setattr(trees, "remove", remove)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            person.run(write)
    assert len(removed) == 1
    left = {"a", "b", "c"}.intersection(tree(person.playground))
    assert left == {"a", "b", "c"} - {*removed}
    done = person.cli("run", "--", "true")
    assert (done.returncode, "made" in done.stderr) == (0, True)
    assert tree(person.playground) == {"folder": "/", "folder/d": "new", "new": "new"}


def test_a_clone_of_a_repository_in_the_playground(person: Person) -> None:
    make = "git init -q a && cd a && echo a >a && git add a"
    make += " && git -c user.name=a -c user.email=a commit -q -m a"
    for command in (make, "git clone -q a b && git -C b log --oneline"):
        result = person.run(command, working_dir="playground")
        assert (result.exit_code, result.stderr.text) == (0, "")


def test_a_playground_on_another_disk_is_shared(person: Person) -> None:
    """What was written could not be moved there."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as disk:
        assert os.stat(disk).st_dev != os.stat(person.home).st_dev
        person.paths.data.mkdir(parents=True)
        person.playground.symlink_to(disk)
        assert person.run("echo x >~/playground/file").exit_code == 0
        assert os.listdir(disk) == ["file"]


def test_something_mounted_in_the_playground_is_visible(person: Person) -> None:
    (person.playground / "disk").mkdir(parents=True)
    around = in_mounts('mount -t tmpfs disk "$1"; echo x >"$1/file"', person.playground / "disk")
    done = command_beside(person, around, "cat ~/playground/disk/file")
    assert (done.returncode, done.stdout) == (0, "x\n"), done.stderr


def test_a_run_that_wrote_nothing_there_changes_nothing(person: Person) -> None:
    person.playground.mkdir(parents=True)
    (person.playground / "file").touch()
    before = os.stat(person.playground).st_ctime_ns
    for command in ("true", "ls ~/playground"):
        person.run(command)
        assert os.stat(person.playground).st_ctime_ns == before
