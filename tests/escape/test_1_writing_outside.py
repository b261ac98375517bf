# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to change anything besides the project, the playground and temporary files."""

from __future__ import annotations

import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attack import (
    IS_ROOT,
    attempt,
    folder_elsewhere,
    look,
    python,
    refusal,
    run_while,
    works_outside,
)
from conftest import ROOT, Person

from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.sandbox.mounts import OverlayWay
from ollmsandbox.sandbox.probe import probe

# {file} holds "mine\n", {folder} is the folder around it, {project} may be written.
CHANGES = {
    "write": "open('{file}', 'w').write('evil')",
    "append": "open('{file}', 'a').write('evil')",
    "truncate": "os.truncate('{file}', 0)",
    "write through a mapping": """
        import mmap
        fd = os.open('{file}', os.O_RDWR)
        mmap.mmap(fd, 0)[:4] = b'evil'
        """,
    "chmod": "os.chmod('{file}', 0o666)",
    "chmod of an open file": "os.fchmod(os.open('{file}', os.O_RDONLY), 0o666)",
    "utime": "os.utime('{file}', (1, 1))",
    "remove": "os.remove('{file}')",
    "rename": "os.rename('{file}', '{folder}/renamed')",
    "take into the project": "os.rename('{file}', '{project}/taken')",
    "replace": """
        open('{project}/new', 'w').write('evil')
        os.rename('{project}/new', '{file}')
        """,
    "swap": """
        open('{project}/new', 'w').write('evil')
        AT_FDCWD, RENAME_EXCHANGE = -100, 2
        if libc.renameat2(AT_FDCWD, b'{project}/new', AT_FDCWD, b'{file}', RENAME_EXCHANGE):
            raise OSError(ctypes.get_errno(), '')
        """,
    "new file": "open('{folder}/new', 'x')",
    "new file without a name": "os.open('{folder}', os.O_TMPFILE | os.O_RDWR)",
    "new folder": "os.mkdir('{folder}/new')",
    "new link": "os.symlink('/', '{folder}/new')",
    "new hard link": "os.link('{file}', '{folder}/new')",
    "new pipe": "os.mkfifo('{folder}/new')",
    "new socket": "os.chdir('{folder}'); socket.socket(socket.AF_UNIX).bind('new')",
}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    with folder_elsewhere(tmp_path / "elsewhere") as folder:
        yield folder


def papers(folder: Path) -> Path:
    """A folder with a file to be attacked."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    (folder / "file").write_text("mine\n")
    (folder / "file").chmod(0o644)
    return folder


def attack_on(folder: Path, code: str, person: Person) -> str:
    return attempt(code.format(file=folder / "file", folder=folder, project=person.project))


@pytest.mark.parametrize("change", CHANGES)
def test_changing_the_home_folder(person: Person, change: str) -> None:
    folder = papers(person.home / "papers")
    before = look(folder)
    attack = attack_on(folder, CHANGES[change], person)
    assert refusal(person, attack) in ("EROFS", "EXDEV")
    assert look(folder) == before
    assert works_outside(person, attack)


@pytest.mark.parametrize(
    "change", ["write", "chmod", "remove", "rename", "take into the project", "new file"]
)
def test_changing_a_folder_elsewhere(person: Person, elsewhere: Path, change: str) -> None:
    folder = papers(elsewhere)
    before = look(folder)
    attack = attack_on(folder, CHANGES[change], person)
    # A folder for temporary files is the sandbox's own, so nothing is there.
    expected = ("EROFS", "EXDEV") if IS_ROOT else ("ENOENT",)
    assert refusal(person, attack) in expected
    assert look(folder) == before
    # Outside it may be on another disk than the project.
    if change != "take into the project":
        assert works_outside(person, attack)


@pytest.mark.parametrize("name", ["other", "project-evil", "project.old", "projec", "PROJECT"])
@pytest.mark.parametrize("change", ["write", "new file"])
def test_changing_another_project(person: Person, name: str, change: str) -> None:
    folder = papers(person.home / name)
    before = look(folder)
    attack = attack_on(folder, CHANGES[change], person)
    assert refusal(person, attack) == "EROFS"
    assert look(folder) == before
    assert works_outside(person, attack)


@pytest.mark.parametrize("change", ["new file", "new folder", "new link"])
def test_changing_the_folder_around_the_project(person: Person, change: str) -> None:
    work = person.home / "work"
    project = work / "project"
    project.mkdir(parents=True)
    before = look(work)
    attack = attempt(CHANGES[change].format(folder="..", file="", project=""))
    assert refusal(person, attack, project=project) == "EROFS"
    assert look(work) == before


@pytest.mark.parametrize(
    "command",
    ["rmdir ../project", "mv ../project ../gone", "rm -rf ../project; mkdir ../project"],
)
def test_replacing_the_project_folder_itself(person: Person, command: str) -> None:
    inode = person.project.stat().st_ino
    result = person.run(command)
    assert result.exit_code != 0
    assert person.project.stat().st_ino == inode
    assert [path.name for path in person.home.iterdir() if path.name[0] != "."] == ["project"]


SYSTEM_FOLDERS = ["/", "/usr", "/usr/bin", "/etc", "/var", "/var/lib", "/opt", "/boot", "/home"]


@pytest.mark.parametrize("folder", [f for f in SYSTEM_FOLDERS if os.path.isdir(f)])
def test_changing_the_system(person: Person, folder: str) -> None:
    name = os.path.join(folder, f"evil-{os.getpid()}")
    assert refusal(person, attempt(f"open({name!r}, 'x')")) in ("EROFS", "EACCES")
    assert not os.path.lexists(name)


@pytest.mark.parametrize("file", ["/etc/passwd", "/etc/hosts", "/usr/bin/env", "/etc/os-release"])
def test_changing_a_file_of_the_system(person: Person, file: str) -> None:
    before = os.stat(file)
    code = f"os.open({file!r}, os.O_WRONLY)"
    assert refusal(person, attempt(code)) in ("EROFS", "EACCES")
    assert refusal(person, attempt(f"os.utime({file!r})")) in ("EROFS", "EACCES")
    after = os.stat(file)
    assert (after.st_mtime_ns, after.st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns)


ROUTES = {
    "dots": "../papers/file",
    "dots around the root": "{project}/../../../../../../../../../../../../..{file}",
    "/proc/self/root": "/proc/self/root{file}",
    "/proc/self/cwd": "/proc/self/cwd/../papers/file",
    "/proc/thread-self/cwd": "/proc/thread-self/cwd/../papers/file",
    "/proc of the parent": "/proc/{{os.getppid()}}/root{file}",
    "/proc of itself by number": "/proc/{{os.getpid()}}/cwd/../papers/file",
    "/dev/fd": "/dev/fd/{{os.open('.', os.O_PATH)}}/../papers/file",
    "/proc/self/fd": "/proc/self/fd/{{os.open('..', os.O_RDONLY)}}/papers/file",
    "a link in the project": "away/file",
    "a link in the project to a file": "file",
    "a chain of links": "chain/file",
}


@pytest.mark.parametrize("route", ROUTES)
def test_writing_to_the_home_folder_by_another_route(person: Person, route: str) -> None:
    folder = papers(person.home / "papers")
    (person.project / "away").symlink_to(folder)
    (person.project / "chain").symlink_to("../project/away")
    (person.project / "file").symlink_to("../papers/file")
    before = look(folder)
    path = ROUTES[route].format(project=person.project, file=folder / "file")
    attack = attempt(f"open(f\"{path}\", 'w').write('evil')")
    assert refusal(person, attack) == "EROFS"
    assert look(folder) == before
    assert works_outside(person, attack)


@pytest.mark.parametrize("route", ["/proc/1/root", "/proc/1/cwd/..", "/proc/self/task/1/root"])
def test_writing_by_way_of_the_first_process(person: Person, route: str) -> None:
    folder = papers(person.home / "papers")
    path = f"{route}{folder}/file" if route.endswith("root") else f"{route}/papers/file"
    why = refusal(person, attempt(f"open({path!r}, 'w').write('evil')"))
    assert why in ("EROFS", "ENOENT", "EACCES")
    assert (folder / "file").read_text() == "mine\n"


def test_writing_through_a_link_made_inside(person: Person) -> None:
    folder = papers(person.home / "papers")
    attack = attempt(f"""
        os.symlink({str(folder)!r}, 'link')
        open('link/file', 'w').write('evil')
        """)
    assert refusal(person, attack) == "EROFS"
    assert (folder / "file").read_text() == "mine\n"
    (person.project / "link").unlink()
    assert works_outside(person, attack)


HARD_LINKS = {
    "by name": "os.link('{file}', 'mine')",
    "by an open file": """
        AT_FDCWD, AT_SYMLINK_FOLLOW = -100, 0x400
        opened = b'/proc/self/fd/%d' % os.open('{file}', os.O_RDONLY)
        if libc.linkat(AT_FDCWD, opened, AT_FDCWD, b'mine', AT_SYMLINK_FOLLOW):
            raise OSError(ctypes.get_errno(), '')
        """,
    "by an open folder": "os.link('file', 'mine', src_dir_fd=os.open('{folder}', os.O_PATH))",
    "into the playground": "os.link('{file}', os.environ['HOME'] + '/playground/mine')",
    "out of the project": "open('mine', 'w'); os.link('mine', '{folder}/file2')",
}


@pytest.mark.parametrize("way", HARD_LINKS)
def test_a_hard_link_between_the_project_and_a_file_outside(person: Person, way: str) -> None:
    folder = papers(person.home / "papers")
    attack = attempt(HARD_LINKS[way].format(file=folder / "file", folder=folder))
    before = look(folder)
    assert refusal(person, attack) in ("EXDEV", "EROFS")
    assert look(folder) == before
    (person.project / "mine").unlink(missing_ok=True)
    (person.home / "playground").mkdir()
    assert works_outside(person, attack)


def test_writing_into_memory_that_a_file_outside_is_mapped_to(person: Person) -> None:
    folder = papers(person.home / "papers")
    result = person.run(
        python(f"""
        import mmap
        fd = os.open('{folder}/file', os.O_RDONLY)
        for flags in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            view = mmap.mmap(fd, 0, flags, mmap.PROT_READ)
            libc.mmap.restype = ctypes.c_void_p
            place = libc.mmap(None, ctypes.c_size_t(4096), 1, flags, fd, ctypes.c_long(0))
            memory = os.open('/proc/self/mem', os.O_RDWR)
            try:
                os.pwrite(memory, b'evil', place)
            except OSError:
                pass
        print(open('{folder}/file').read())
        """)
    )
    assert result.stdout.text == "mine\n\n"
    assert (folder / "file").read_text() == "mine\n"


MS_RDONLY, MS_REMOUNT, MS_BIND, MNT_DETACH = 1, 32, 4096, 2
AT_RECURSIVE, OPEN_TREE_CLONE = 0x8000, 1
MOUNTS = {
    "remount the home folder": f"call('mount', None, home, None, {MS_REMOUNT | MS_BIND}, None)",
    "remount the root": f"call('mount', None, b'/', None, {MS_REMOUNT | MS_BIND}, None)",
    "bind the root into the project": f"call('mount', b'/', project, None, {MS_BIND}, None)",
    "bind the project elsewhere": f"call('mount', project, b'/usr', None, {MS_BIND}, None)",
    "take the layer away": f"call('umount2', home, {MNT_DETACH})",
    "take /proc/sys away": f"call('umount2', b'/proc/sys', {MNT_DETACH})",
    "take /run away": f"call('umount2', b'/run', {MNT_DETACH})",
    "a tree to move": f"call('open_tree', -100, b'/', {OPEN_TREE_CLONE | AT_RECURSIVE})",
    "mount_setattr": f"call('mount_setattr', -100, b'/', {AT_RECURSIVE}, bytes(32), 32)",
    "a new proc": "call('mount', b'proc', project, b'proc', 0, None)",
    "a device": "call('mount', b'/dev/vda', project, b'ext4', 0, None)",
}


@pytest.mark.parametrize("trick", MOUNTS)
def test_mounting_it_another_way(person: Person, trick: str) -> None:
    code = f"""
        home, project = os.environb[b'HOME'], os.getcwdb()
        {MOUNTS[trick]}
        """
    assert refusal(person, attempt(code)) == "EPERM"


def test_only_the_project_the_playground_and_scratch_are_on_writable_mounts(
    person: Person,
) -> None:
    result = person.run(
        python("""
        seen = set()
        for line in open('/proc/self/mountinfo'):
            point = line.split()[4].encode().decode('unicode_escape')
            # What is mounted over by something else cannot be reached.
            try:
                writable = not os.statvfs(point).f_flag & os.ST_RDONLY
            except OSError:
                continue
            if writable and not point.startswith('/dev/'):
                seen.add(point)
        print(*sorted(seen), sep='\\n')
        """)
    )
    # Those in /proc are empty, of the sandbox's own, and hold a page.
    allowed = {"/proc", "/proc/1", "/proc/acpi", "/proc/scsi", "/tmp", "/var/tmp", "/run"}
    allowed |= {str(person.project), f"{person.home}/playground"}
    assert set(result.stdout.text.splitlines()) <= allowed


def test_the_project_the_playground_and_temporary_files_can_be_written(person: Person) -> None:
    result = person.run("echo a > in-project; echo b > ~/playground/file; echo c > /tmp/c")
    assert result.exit_code == 0
    assert (person.project / "in-project").read_text() == "a\n"
    assert (person.playground / "file").read_text() == "b\n"


# While the command runs, things outside change.


def test_the_folder_the_command_stands_in_is_moved_out_of_the_project(person: Person) -> None:
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


def test_the_project_is_replaced_by_a_link_while_a_command_runs(person: Person) -> None:
    folder = papers(person.home / "papers")
    before = look(folder)

    def replace_project() -> None:
        person.project.rename(person.home / "moved")
        person.project.symlink_to(folder)

    attack = python(f"""
        meanwhile_outside()
        for name in ('file', '{person.project}/file', '{person.home}/project/new'):
            try:
                open(name, 'w').write('evil')
            except OSError:
                pass
        """)
    # What was written has no place any more; where it is kept is told.
    with pytest.raises(OllmSandboxError, match="project"):
        run_while(person, attack, replace_project)
    assert look(folder) == before


def test_a_folder_around_the_project_is_replaced_by_a_link_while_a_command_runs(
    person: Person,
) -> None:
    """As a command can do it that runs in a larger project around this one."""
    folder = papers(person.home / "papers")
    (folder / "inner").mkdir()
    papers(folder / "inner")
    before = look(folder)
    around = person.home / "around"
    (around / "inner").mkdir(parents=True)

    def replace_folder() -> None:
        around.rename(person.home / "moved")
        around.symlink_to(folder)

    attack = python("""
        meanwhile_outside()
        open('file', 'w').write('evil')
        open('new', 'w').write('evil')
        """)
    with pytest.raises(OllmSandboxError, match="inner"):
        run_while(person, attack, replace_folder, project=around / "inner")
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
from dataclasses import replace
from pathlib import Path
sys.path[:0] = sys.argv[1].split(":")
from attack import python, run_while
from conftest import make_person
from ollmsandbox.sandbox.mounts import OverlayWay
from ollmsandbox.sandbox.probe import probe

folder, way, disk = Path(sys.argv[2]), OverlayWay[sys.argv[3]], Path(sys.argv[4])
person = make_person(folder)
found = replace(probe(person.paths, person.environ, fresh=True), overlay=way)
assert found.can_wrap
mount = ["mount", "-t", "tmpfs", "disk", str(disk)]
attack = python(f"meanwhile_outside(); open('{disk}/evil', 'w').write('evil')")
run_while(person, attack, lambda: subprocess.run(mount, check=True), capabilities=found)
print(*(path.name for path in disk.iterdir()))
"""


@pytest.mark.parametrize("way", [OverlayWay.UNSHARE, OverlayWay.NONE])
def test_a_disk_is_mounted_outside_while_a_command_runs(tmp_path: Path, way: OverlayWay) -> None:
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
    assert (done.stdout, done.stderr) == ("\n", "")


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


def test_descriptors_that_are_open_in_whoever_starts_the_command(person: Person) -> None:
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
    place = 900
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft > place

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))

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


@pytest.mark.parametrize("change", BWRAP_CHANGES)
def test_changing_the_program_that_made_the_sandbox(
    person: Person, bwrap: Path, change: str
) -> None:
    # It runs on as the first process, and was started from where all can still be written.
    before = look(bwrap.parent)
    attack = attempt(f"""
        program = '/proc/1/exe'
        if os.readlink(program) != '{bwrap}':
            raise FileNotFoundError
        {BWRAP_CHANGES[change].strip()}
        """)
    assert refusal(person, attack)
    assert look(bwrap.parent) == before


# Devices and the kernel.


def test_a_device_of_its_own(person: Person) -> None:
    code = "os.mknod('disk', stat.S_IFBLK | 0o600, os.makedev(7, 0))"
    assert refusal(person, attempt(code)) == "EPERM"
    assert refusal(person, attempt(code.replace("'disk'", "'/tmp/disk'"))) == "EPERM"
    assert not (person.project / "disk").exists()


def test_disks_and_other_devices_are_not_there(person: Person) -> None:
    result = person.run("find /dev ! -type d ! -type l; ls /dev/pts")
    devices = {"null", "zero", "full", "random", "urandom", "tty", "console"}
    allowed = {f"/dev/{name}" for name in devices} | {"/dev/pts/ptmx", "ptmx"}
    assert set(result.stdout.text.split()) <= allowed


def test_putting_something_into_dev(person: Person) -> None:
    for change in ("open('/dev/new', 'x')", "os.remove('/dev/null')", "os.mkdir('/dev/new')"):
        assert refusal(person, attempt(change)) in ("EROFS", "EBUSY", "EACCES")


if IS_ROOT:

    def test_a_device_that_lies_in_the_project(person: Person) -> None:
        node = person.project / "node"
        os.mknod(node, stat.S_IFCHR | 0o666, os.stat("/dev/null").st_rdev)
        attack = attempt("open('node', 'w').write('evil')")
        assert refusal(person, attack) == "EACCES"
        assert works_outside(person, attack)


def test_a_pipe_in_the_home_folder(person: Person) -> None:
    pipe = person.home / "pipe"
    os.mkfifo(pipe)
    attack = attempt(f"os.write(os.open('{pipe}', os.O_WRONLY | os.O_NONBLOCK), b'evil')")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert refusal(person, attack) == "ENXIO"
        assert os.read(reader, 100) == b""
        assert works_outside(person, attack)
        assert os.read(reader, 100) == b"evil"
    finally:
        os.close(reader)


@pytest.mark.parametrize(
    "file",
    [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/hotplug",
        "/proc/sys/fs/binfmt_misc/register",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sys/vm/drop_caches",
        "/proc/sys/kernel/randomize_va_space",
        "/proc/sysrq-trigger",
        "/proc/irq/default_smp_affinity",
        "/proc/acpi/wakeup",
        "/proc/scsi/scsi",
        "/proc/mtrr",
        "/sys/kernel/uevent_helper",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/power/state",
        "/sys/fs/cgroup/cgroup.procs",
        "/sys/fs/cgroup/unified/cgroup.procs",
        "/sys/fs/cgroup/memory/release_agent",
    ],
)
def test_settings_of_the_kernel(person: Person, file: str) -> None:
    # Opened and not written: if this worked it would change the machine.
    assert refusal(person, attempt(f"os.open({file!r}, os.O_WRONLY)"))


def test_no_file_of_the_kernel_outside_of_namespaces_can_be_opened_for_writing(
    person: Person,
) -> None:
    result = person.run(
        python("""
        for folder, folders, files in os.walk('/proc'):
            if folder == '/proc':
                folders[:] = [f for f in folders if not f.isdigit() and not f.endswith('self')]
            for name in files:
                try:
                    os.close(os.open(f'{folder}/{name}', os.O_WRONLY | os.O_NONBLOCK))
                    print(f'{folder}/{name}')
                except OSError:
                    pass
        """)
    )
    # Those of the sandbox's own namespaces; pressure is where anybody may ask to be told.
    own = ["/proc/pressure/", "/proc/sys/fs/mqueue/", "/proc/sys/net/", "/proc/sys/user/"]
    numbers = ("msg", "sem", "shm", "auto_msgmni", "ns_last_pid", "pid_max")
    own += [f"/proc/sys/kernel/{name}" for name in numbers]
    left = [line for line in result.stdout.text.splitlines() if not line.startswith(tuple(own))]
    assert left == []


def test_a_control_group_of_its_own(person: Person) -> None:
    groups = [
        folder
        for folder in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory")
        if os.path.isdir(folder)
    ]
    for folder in groups:
        name = f"{folder}/evil-{os.getpid()}"
        assert refusal(person, attempt(f"os.mkdir({name!r})")) in ("EROFS", "EACCES")
        assert not os.path.exists(name)


# Afterwards.


def test_nothing_is_left_behind_in_the_home_folder(person: Person) -> None:
    (person.home / ".local" / "share").mkdir(parents=True)
    (person.home / ".cache").mkdir()
    (person.home / ".config").mkdir()

    def names() -> list[str]:
        ours = {person.paths.data, person.paths.cache}
        return [
            str(path) for path in sorted(person.home.rglob("*")) if not ours & {path, *path.parents}
        ]

    before = names()
    person.run("ls -lR ~; touch ~/new ~/.config/new; mkdir ~/.ssh ~/.config/gh")
    person.run("true", profile="strict")
    person.run("true", network=True)
    assert names() == before


def test_temporary_files_are_not_shared_with_the_machine(person: Person) -> None:
    name = f"evil-{os.getpid()}"
    folders = [f for f in ("/tmp", "/var/tmp", "/dev/shm") if os.path.isdir(f)]
    for folder in folders:
        result = person.run(f"echo evil > {folder}/{name} && cat {folder}/{name}")
        assert result.stdout.text == "evil\n"
        assert not os.path.exists(f"{folder}/{name}")
