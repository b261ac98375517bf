# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to write elsewhere while files outside change, or through what a command inherits: open
files, and the program that started its sandbox."""

from __future__ import annotations

import os
import resource
import shutil
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.escape.attack import look, papers, python, refusals, run_while
from support.person import ROOT, Person

from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.sandbox.plan.mounts import OverlayMethod
from ollmsandbox.sandbox.probe.probe import probe


def test_the_current_folder_of_a_command_is_moved_out_of_the_project(person: Person) -> None:
    folder = papers(person.home / "papers")
    (person.project / "sub" / "deep").mkdir(parents=True)
    attack = python("""
        os.chdir('sub/deep')
        meanwhile_outside()
        for name in ('../../file', '../../new', 'here'):
            try:
                open(name, 'w').write('evil')
            except OSError:
                pass
        """)
    run_while(
        person, attack, lambda: (person.project / "sub").rename(person.home / "papers" / "sub")
    )
    assert (folder / "file").read_text() == "mine\n"
    assert sorted(path.name for path in folder.rglob("*")) == ["deep", "file", "sub"]


@pytest.mark.parametrize("what", ["the project", "a folder around it"])
def test_a_folder_is_replaced_by_a_link_while_a_command_runs(person: Person, what: str) -> None:
    """A command in a larger project around this one can do that."""
    folder = papers(person.home / "papers")
    papers(folder / "inner")
    before = look(folder)
    around = person.home / "around"
    (around / "inner").mkdir(parents=True)
    project = around / "inner" if what == "a folder around it" else around

    def replace() -> None:
        around.rename(person.home / "moved")
        around.symlink_to(folder)

    attack = python(f"""
        meanwhile_outside()
        for name in ('file', '{project}/file', '{project}/new'):
            try:
                open(name, 'w').write('evil')
            except OSError:
                pass
        """)
    # The project's path is gone; the message says where the changes are kept.
    with pytest.raises(OllmSandboxError, match=project.name):
        run_while(person, attack, replace, project=project)
    assert look(folder) == before


def test_the_project_is_deleted_while_a_command_runs(person: Person) -> None:
    papers(person.project)
    (person.project / "sub").mkdir()

    def delete() -> None:
        shutil.rmtree(person.project)
        person.project.mkdir()

    result = run_while(
        person,
        python("""
        os.chdir('sub')
        meanwhile_outside()
        for name in ('evil', '../evil', '../../evil'):
            try:
                open(name, 'w')
            except OSError as error:
                pass
        """),
        delete,
    )
    assert (result.exit_code, result.stderr.text) == (0, "")
    # At most what it would be in a project that is there.
    assert {path.name for path in person.project.rglob("*")} <= {"evil", "sub"}
    assert not (person.home / "evil").exists()


def test_a_hidden_folder_is_replaced_while_a_command_runs(person: Person) -> None:
    hidden = papers(person.home / ".ssh")

    def replace_folder() -> None:
        shutil.rmtree(hidden)
        papers(hidden)

    result = run_while(
        person,
        python("""
        meanwhile_outside()
        for change in ("open(f, 'w')", "open(f + '2', 'w')", "os.mkdir(d)", "os.rmdir(d)"):
            d = os.environ['HOME'] + '/.ssh'
            f = d + '/file'
            try:
                exec(change)
                print('succeeded')
            except OSError as error:
                pass
        """),
        replace_folder,
    )
    assert result.stdout.text == "ready\n"
    assert [path.name for path in hidden.iterdir()] == ["file"]
    assert (hidden / "file").read_text() == "mine\n"


# A mount namespace of its own stands for the machine, so that nothing else sees the disk.
MACHINE = """
import subprocess, sys
from pathlib import Path
sys.path[:0] = sys.argv[1].split(":")
from support.escape.attack import python, run_while
from support.person import make_person
from ollmsandbox.sandbox.plan.mounts import OverlayMethod
from ollmsandbox.sandbox.probe.probe import probe

folder, way, disk = Path(sys.argv[2]), OverlayMethod[sys.argv[3]], Path(sys.argv[4])
person = make_person(folder)
found = probe(person.paths, person.environ, fresh=True)._replace(overlay=way)
assert found.can_wrap
mount = ["mount", "-t", "tmpfs", "disk", str(disk)]
attack = python(f"meanwhile_outside(); open('{disk}/evil', 'w').write('evil')")
run_while(person, attack, lambda: subprocess.run(mount, check=True), capabilities=found)
print(*(path.name for path in disk.iterdir()))
"""


@pytest.mark.parametrize("way", [OverlayMethod.UNSHARE, OverlayMethod.NONE])
def test_a_disk_is_mounted_outside_while_a_command_runs(tmp_path: Path, way: OverlayMethod) -> None:
    # Where mounts are passed on into the sandbox, they come without being read-only.
    disk = next(folder for folder in ("/mnt", "/media", "/srv") if os.path.isdir(folder))
    modules = f"{ROOT}:{ROOT}/tests:{ROOT}/tests/escape"
    machine = ["unshare", "--map-root-user", "--mount", "--propagation", "shared"]
    done = subprocess.run(
        [*machine, sys.executable, "-c", MACHINE, modules, tmp_path, way.name, disk],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == "", done.stderr
    assert done.stdout == "\n"


# What a command gets from whoever starts it.


def test_standard_input_is_an_open_file(person: Person) -> None:
    file = papers(person.home / "papers") / "file"
    attack = "cat /proc/self/fd/0; echo evil > /proc/self/fd/0; echo evil >&0; chmod 666 /dev/stdin"
    with file.open("r+b") as stdin:
        done = person.cli("run", "--", "sh", "-c", attack, stdin=stdin)
    assert done.stdout == "mine\n"
    assert file.read_text() == "mine\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    with file.open("rb") as stdin:
        subprocess.run(["sh", "-c", attack], stdin=stdin, capture_output=True, check=False)
    assert file.read_text() != "mine\n"


def test_standard_input_is_a_folder(person: Person) -> None:
    folder = papers(person.home / "papers")
    attack = "echo evil > /proc/self/fd/0/file; echo evil > /proc/self/fd/0/../new"
    before = look(folder)
    stdin = os.open(folder, os.O_RDONLY)
    try:
        person.cli("run", "--", "sh", "-c", attack, stdin=stdin)
        assert look(folder) == before
        assert not (person.home / "new").exists()
        subprocess.run(["sh", "-c", attack], stdin=stdin, check=False)
        assert (folder / "file").read_text() == "evil\n"
    finally:
        os.close(stdin)


def test_standard_input_is_a_pipe_that_others_read_too(person: Person) -> None:
    # As in `producer | while read line; do ollmsandbox run ...; done`, or `... | sh`: what the
    # command puts back into the pipe is read by a program outside.
    attack = "echo evil > /proc/self/fd/0"
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    try:
        person.cli("run", "--", "sh", "-c", attack, stdin=reader)
        with pytest.raises(BlockingIOError):
            print(os.read(reader, 100))
        subprocess.run(["sh", "-c", attack], stdin=reader, check=True)
        assert os.read(reader, 100) == b"evil\n"
    finally:
        os.close(reader)
        os.close(writer)


WRITE_TO_ALL = python("""
    for number in range(3, 4096):
        for change in ("os.write(number, b'evil')", "os.fchmod(number, 0o777)",
                       "os.open('evil', os.O_CREAT, dir_fd=number)"):
            try:
                exec(change)
            except OSError:
                pass
    """)


def test_descriptors_that_are_open_in_the_starting_program(person: Person) -> None:
    folder = papers(person.home / "papers")
    before = look(folder)
    opened = [os.open(folder / "file", os.O_RDWR), os.open(folder, os.O_RDONLY)]
    try:
        person.cli("run", "-c", WRITE_TO_ALL, pass_fds=opened)
        assert look(folder) == before
        subprocess.run(["sh", "-c", WRITE_TO_ALL], pass_fds=opened, check=True)
        assert look(folder) != before
    finally:
        for number in opened:
            os.close(number)


def test_a_descriptor_above_the_limit_for_descriptors(person: Person) -> None:
    folder = papers(person.home / "papers")
    before = look(folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    place = min(soft, 1024) - 1

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (place, hard))

    opened = os.open(folder / "file", os.O_RDWR)
    os.dup2(opened, place)
    try:
        person.cli("run", "-c", WRITE_TO_ALL, pass_fds=[place], preexec_fn=lower)
        assert look(folder) == before
    finally:
        os.close(opened)
        os.close(place)


@pytest.fixture
def bwrap(person: Person, tmp_path: Path) -> Path:
    """A copy of the program that makes sandboxes, which makes this one: an attack that succeeds
    shall not change the machine's."""
    real = shutil.which("bwrap", path=person.environ["PATH"])
    assert real
    (tmp_path / "programs").mkdir()
    copy = Path(shutil.copy(real, tmp_path / "programs"))
    person.environ["PATH"] = f"{copy.parent}:{person.environ['PATH']}"
    assert probe(person.paths, person.environ).bwrap == str(copy)
    return copy


BWRAP_CHANGES = {
    "chmod": "os.fchmod(os.open(program, os.O_RDONLY), 0o4777)",
    "utime": "os.utime(program, (1, 1))",
    "truncate": "os.truncate(program, 0)",
    "write": "open(program, 'r+b').write(b'#!/bin/sh')",
    "hard link": """
        AT_FDCWD, AT_SYMLINK_FOLLOW = -100, 0x400
        if libc.linkat(AT_FDCWD, program.encode(), AT_FDCWD, b'mine', AT_SYMLINK_FOLLOW):
            raise OSError(ctypes.get_errno(), '')
        """,
}


def test_changing_the_program_that_made_the_sandbox(person: Person, bwrap: Path) -> None:
    # It runs on as the first process, and was started from where all can still be written.
    before = look(bwrap.parent)
    begin = f"program = '/proc/1/exe'\nif os.readlink(program) != '{bwrap}': raise OSError(2, '')\n"
    codes = {name: begin + textwrap.dedent(code).strip() for name, code in BWRAP_CHANGES.items()}
    assert all(refusals(person, codes).values())
    assert look(bwrap.parent) == before
