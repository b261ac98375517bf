# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to change anything besides the project, the playground and temporary files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.escape.attack import (
    IS_ROOT,
    look,
    papers,
    python,
    refusals,
    work_outside,
    writable_caches,
)
from support.person import Person

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
    "hard link by name": "os.link('{file}', '{project}/mine')",
    "hard link by an open file": """
        AT_FDCWD, AT_SYMLINK_FOLLOW = -100, 0x400
        opened = b'/proc/self/fd/%d' % os.open('{file}', os.O_RDONLY)
        if libc.linkat(AT_FDCWD, opened, AT_FDCWD, b'{project}/mine', AT_SYMLINK_FOLLOW):
            raise OSError(ctypes.get_errno(), '')
        """,
    "hard link by an open folder":
        "os.link('file', '{project}/mine', src_dir_fd=os.open('{folder}', os.O_PATH))",
    "hard link into the playground": "os.link('{file}', os.environ['HOME'] + '/playground/mine')",
    "hard link out of the project":
        "open('{project}/mine', 'w'); os.link('{project}/mine', '{folder}/file2')",
    "write through a new link": """
        os.symlink('{folder}', '{project}/mine')
        open('{project}/mine/file', 'w').write('evil')
        """,
}  # fmt: skip


@dataclass(frozen=True)
class Tried:
    """The result of each attack on a folder, all made in one sandbox."""

    refusals: dict[str, str]
    changed: set[str]
    work_outside: dict[str, bool]


def try_each(person: Person, codes: Mapping[str, str], folders: Mapping[str, Path]) -> Tried:
    """Make each attack on a folder of its own."""
    before = {name: look(folder) for name, folder in folders.items()}
    why = refusals(person, codes)
    changed = {name for name, folder in folders.items() if look(folder) != before[name]}
    for path in person.project.rglob("*"):
        # What an attack made before it was refused.
        if path.name in ("new", "mine") and (path.is_symlink() or not path.is_dir()):
            path.unlink()
    return Tried(why, changed, work_outside(person, codes))


def attack_on(folder: Path, code: str, person: Person) -> str:
    own = person.project / folder.name
    own.mkdir(exist_ok=True)
    return code.format(file=folder / "file", folder=folder, project=own)


def test_changing_the_home_folder(person: Person) -> None:
    (person.home / "playground").mkdir()
    folders = {change: papers(person.home / f"papers, {change}") for change in CHANGES}
    codes = {change: attack_on(folders[change], code, person) for change, code in CHANGES.items()}
    tried = try_each(person, codes, folders)
    for change in CHANGES:
        assert tried.refusals[change] in ("EROFS", "EXDEV"), change
        assert tried.work_outside[change], change
    assert tried.changed == set()


def test_changing_a_folder_elsewhere(person: Person, elsewhere: Path) -> None:
    changes = ("write", "chmod", "remove", "rename", "take into the project", "new file")
    folders = {change: papers(elsewhere / change) for change in changes}
    codes = {change: attack_on(folders[change], CHANGES[change], person) for change in changes}
    tried = try_each(person, codes, folders)
    # A folder for temporary files is the sandbox's own, so nothing is there.
    expected = ("EROFS", "EXDEV") if IS_ROOT else ("ENOENT",)
    for change in changes:
        assert tried.refusals[change] in expected, change
        # Outside it may be on another disk than the project.
        assert tried.work_outside[change] or change == "take into the project", change
    assert tried.changed == set()


@pytest.mark.parametrize("change", ["write", "new file"])
def test_changing_another_project(person: Person, change: str) -> None:
    names = ("other", "project-evil", "project.old", "projec", "PROJECT")
    folders = {name: papers(person.home / name) for name in names}
    codes = {name: attack_on(folder, CHANGES[change], person) for name, folder in folders.items()}
    tried = try_each(person, codes, folders)
    assert tried == Tried(dict.fromkeys(names, "EROFS"), set(), dict.fromkeys(names, True))


def test_changing_the_folder_around_the_project(person: Person) -> None:
    work = person.home / "work"
    project = work / "project"
    project.mkdir(parents=True)
    before = look(work)
    changes = ("new file", "new folder", "new link")
    codes = {name: CHANGES[name].format(folder="..", file="", project="") for name in changes}
    assert refusals(person, codes, project=project) == dict.fromkeys(changes, "EROFS")
    assert look(work) == before


def test_replacing_the_project_folder_itself(person: Person) -> None:
    inode = person.project.stat().st_ino
    attacks = ("rmdir ../project", "mv ../project ../gone", "rm -rf ../project; mkdir ../project")
    result = person.run("\n".join(f"({attack}) && echo '{attack}'" for attack in attacks))
    assert result.stdout.text == ""
    assert person.project.stat().st_ino == inode
    assert [path.name for path in person.home.iterdir() if path.name[0] != "."] == ["project"]


SYSTEM_FOLDERS = ["/", "/usr", "/usr/bin", "/etc", "/var", "/var/lib", "/opt", "/boot", "/home"]


def test_changing_the_system(person: Person) -> None:
    folders = [folder for folder in SYSTEM_FOLDERS if os.path.isdir(folder)]
    names = [os.path.join(folder, f"evil-{os.getpid()}") for folder in folders]
    why = refusals(person, {name: f"open({name!r}, 'x')" for name in names})
    for name in names:
        assert why[name] in ("EROFS", "EACCES"), name
        assert not os.path.lexists(name)


def test_changing_files_of_the_system(person: Person) -> None:
    # One program that nobody runs: while one runs, the kernel refuses with another error first.
    files = ("/etc/passwd", "/etc/hosts", "/usr/bin/sha384sum", "/etc/os-release")
    codes = {f"write {file}": f"os.open({file!r}, os.O_WRONLY)" for file in files}
    codes |= {f"touch {file}": f"os.utime({file!r})" for file in files}

    def times() -> list[tuple[int, int]]:
        return [(seen.st_mtime_ns, seen.st_ctime_ns) for seen in map(os.stat, files)]

    before = times()
    for name, why in refusals(person, codes).items():
        assert why in ("EROFS", "EACCES"), name
    assert times() == before


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


def test_writing_to_the_home_folder_by_another_route(person: Person) -> None:
    folder = papers(person.home / "papers")
    (person.project / "away").symlink_to(folder)
    (person.project / "chain").symlink_to("../project/away")
    (person.project / "file").symlink_to("../papers/file")
    codes = {}
    for name, route in ROUTES.items():
        path = route.format(project=person.project, file=folder / "file")
        # That it was written is seen under the usual name.
        codes[name] = f"""
            path = f"{path}"
            open(path, 'w').write({name!r})
            if open('{folder}/file').read() != {name!r}:
                raise FileNotFoundError
            """
    tried = try_each(person, codes, dict.fromkeys(ROUTES, folder))
    assert tried == Tried(dict.fromkeys(ROUTES, "EROFS"), set(), dict.fromkeys(ROUTES, True))


def test_writing_by_way_of_the_first_process(person: Person) -> None:
    folder = papers(person.home / "papers")
    paths = [f"{root}{folder}/file" for root in ("/proc/1/root", "/proc/self/task/1/root")]
    paths.append("/proc/1/cwd/../papers/file")
    for path, why in refusals(
        person, {p: f"open({p!r}, 'w').write('evil')" for p in paths}
    ).items():
        assert why in ("EROFS", "ENOENT", "EACCES"), path
    assert (folder / "file").read_text() == "mine\n"


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


def test_mounting_it_another_way(person: Person) -> None:
    begin = "home, project = os.environb[b'HOME'], os.getcwdb()"
    found = refusals(person, {name: f"{begin}\n{code}" for name, code in MOUNTS.items()})
    assert found == dict.fromkeys(MOUNTS, "EPERM")


def test_only_the_project_the_playground_caches_and_scratch_are_on_writable_mounts(
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
    allowed |= writable_caches(person)
    assert set(result.stdout.text.splitlines()) <= allowed


def test_the_project_the_playground_and_temporary_files_can_be_written(person: Person) -> None:
    result = person.run("echo a > in-project; echo b > ~/playground/file; echo c > /tmp/c")
    assert result.exit_code == 0
    assert (person.project / "in-project").read_text() == "a\n"
    assert (person.playground / "file").read_text() == "b\n"


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
    files = [f"{folder}/evil-{os.getpid()}" for folder in ("/tmp", "/var/tmp", "/dev/shm")]
    result = person.run("".join(f"echo evil > {file} && cat {file}; " for file in files))
    assert result.stdout.text == "evil\n" * len(files)
    assert not any(map(os.path.exists, files))
