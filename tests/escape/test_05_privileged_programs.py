# SPDX-License-Identifier: GPL-3.0-or-later
"""A command tries to gain privileges through setuid programs and programs with capabilities."""

from __future__ import annotations

import os
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.escape.attack import IS_ROOT, python, run_while
from support.person import Person, make_person

from ollmsandbox.project.change import Flag
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.sandbox.spec import RunSpec

if IS_ROOT:

    @pytest.mark.parametrize(("mode", "option"), [(0o4755, "-u"), (0o2755, "-g")])
    def test_program_that_root_prepared_changes_nobody(
        person: Person, mode: int, option: str
    ) -> None:
        file = Path(shutil.copy("/usr/bin/id", person.project / "id"))
        os.chown(file, 65534, 65534)
        file.chmod(mode)
        assert person.run_outside(f"./id {option}").stdout == "65534\n"
        assert person.run(f"./id {option}").stdout.text == "0\n"

    @pytest.mark.parametrize("owner", [0, 1000])
    def test_a_program_with_file_capabilities_gets_none(person: Person, owner: int) -> None:
        file = Path(shutil.copy("/usr/bin/cat", person.project / "cat"))
        os.chown(file, owner, owner)
        # VFS_CAP_REVISION_2 with the effective bit; all that are permitted.
        mask = (1 << 32) - 1
        every = struct.pack("<IIIII", 0x02000001, mask & ~(1 << 24), 0, 0x1FF, 0)
        os.setxattr(file, "security.capability", every)
        result = person.run("./cat /proc/self/status")
        found = [line for line in result.stdout.text.splitlines() if line.startswith("CapEff")]
        # Either it runs without, or the kernel refuses to run what cannot have what it asks for.
        assert found in (["CapEff:\t0000000000000000"], [])

else:

    def test_a_setuid_program_of_the_system_stays_the_person(person: Person) -> None:
        attack = python(_WHO_IS_SU)
        assert person.run_outside(attack).stdout.split()[1] == "0"
        assert person.run(attack).stdout.text.split() == [str(os.getuid())] * 4


PROGRAMS = (
    "mount -t tmpfs none /mnt",
    "mount --bind /etc /mnt",
    "mount -o remount,rw /",
    "umount /proc",
    "umount -l /tmp",
    "setpriv --reuid 65534 true",
    "chroot / true",
)


def test_the_usual_programs_for_privileges_fail(person: Person) -> None:
    result = person.run("\n".join(f"{program} && echo '{program}'" for program in PROGRAMS))
    assert (result.stdout.text, result.stop) == ("", None)
    assert result.stderr.text.count("\n") >= len(PROGRAMS)


_FCHMODAT2 = """
try:
    call(452, -100, b'i', 0o4755, 0)
except OSError as error:
    if error.errno != errno.ENOSYS:  # an older kernel
        raise
    os.chmod('i', 0o4755)
"""
LENDING: dict[str, str] = {
    "chmod": "os.chmod('i', 0o4755)",
    "chmod for the group": "os.chmod('i', 0o2755)",
    "chmod for both": "os.chmod('i', 0o6755)",
    "fchmod": "os.fchmod(os.open('i', os.O_RDWR), 0o4755)",
    "fchmodat": "os.chmod('i', 0o4755, dir_fd=os.open('.', os.O_RDONLY))",
    "fchmodat2": _FCHMODAT2,
    "open": "os.open('j', os.O_CREAT | os.O_WRONLY, 0o4755)",
    "openat2": "call(437, -100, b'l', struct.pack('QQQ', os.O_CREAT | os.O_WRONLY, 0o4755, 0), 24)",
    "mknod": "os.mknod('k', 0o4755)",
    "in a new folder": "os.mkdir('d', 0o777); os.rename('i', 'd/i'); os.chmod('d/i', 0o4755)",
    "with a second name": "os.chmod('i', 0o4755); os.link('i', 'm')",
    "in place of what was there": "os.chmod('i', 0o4755); os.rename('i', 'mine')",
}


def _lent(person: Person) -> set[str]:
    """Programs with the rights of their owner that others can get at: the ways they were made."""
    found = set()
    for folder, folders, files in os.walk(person.home):
        # Others cannot enter.
        folders[:] = [f for f in folders if os.lstat(f"{folder}/{f}").st_mode & 0o001]
        if any(os.lstat(f"{folder}/{file}").st_mode & 0o6000 for file in files):
            found.add(folder.removesuffix("/d").rpartition("/")[2])
    return found


@dataclass(frozen=True)
class Lent:
    """The ways in which setuid programs were made."""

    during: set[str]
    after: set[str]
    stripped: set[str]
    outside: set[str]


def _open_to_all(*folders: Path) -> None:
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)


@pytest.fixture(scope="module", params=[".", "/tmp", "~/playground"])
def lent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lent:
    """Try all ways in one sandbox, each in a folder of its own."""
    person = make_person(tmp_path_factory.mktemp("lending"))
    folder = str(request.param)
    _open_to_all(person.home, person.project, person.paths.data, person.paths.cache)
    for way in LENDING if folder == "." else ():
        _open_to_all(person.project / way)
        (person.project / way / "mine").write_text("mine")
    inside = f"""
        top = os.path.realpath(os.path.expanduser('{folder}'))
        for way, code in {LENDING!r}.items():
            os.makedirs(f'{{top}}/{{way}}', exist_ok=True)
            os.chdir(f'{{top}}/{{way}}')
            open('i', 'w').close()
            exec(code)
        """
    recorder = Recorder(RunSpec(str(person.project)), person.paths)
    during: set[str] = set()
    result = run_while(
        person,
        python(f"{inside}meanwhile_outside()"),
        lambda: during.update(_lent(person)),
        keeper=recorder,
    )
    assert (result.exit_code, result.stdout.text, result.stderr.text) == (0, "ready\n", "")
    after, stripped, outside = _lent(person), set(), set()
    if folder == ".":
        assert recorder.report is not None
        for item in recorder.report.changes:
            if Flag.STRIPPED in item.change.flags:
                stripped.add(item.change.path.partition("/")[0])
    else:
        assert os.listdir(person.project) == []
    if folder != "/tmp":
        shutil.rmtree(person.project)
        _open_to_all(person.project, person.home / "playground")
        done = person.run_outside(python(inside))
        assert (done.returncode, done.stderr) == (0, "")
        outside = _lent(person)
    return Lent(during, after, stripped, outside)


def test_making_a_setuid_program(lent: Lent, request: pytest.FixtureRequest) -> None:
    # Root's would be everybody's way to root, on the real disk.
    assert lent.during | lent.after == set()
    folder = request.node.callspec.params["lent"]
    assert lent.stripped == (set(LENDING) if folder == "." else set())
    assert lent.outside == (set(LENDING) if folder != "/tmp" else set())


def test_a_pending_setuid_program_loses_the_bit_when_applied(person: Person) -> None:
    person.home.chmod(0o755)
    person.project.chmod(0o755)
    done = person.cli("run", "--apply", "review", "-c", "cp /bin/true t; chmod 6755 t")
    assert done.returncode == 0, done.stderr
    assert _lent(person) == set()
    assert person.cli("apply").returncode == 0
    assert (person.project / "t").stat().st_mode & 0o7777 == 0o755
    assert _lent(person) == set()


def test_folders_can_pass_on_their_group(person: Person) -> None:
    assert person.run("mkdir d && chmod 2775 d && stat -c %a d").stdout.text == "2775\n"


def test_no_setuid_program_works_anywhere_a_command_can_write(person: Person) -> None:
    # The last mount at a place is what is seen.
    show = 'touch f && grep " $(stat -c %m .) " /proc/self/mounts | tail -n 1'
    folders = (".", "/tmp", "/dev/shm", "~/playground")
    result = person.run("\n".join(f"(cd {folder} && {show})" for folder in folders))
    mounts = result.stdout.text.splitlines()
    assert len(mounts) == len(folders)
    for mount in mounts:
        assert {"nosuid", "nodev"} <= set(mount.split()[3].split(",")), mount


_WHO_IS_SU = """
import subprocess
process = subprocess.Popen(["su", "-c", "true"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
try:
    status = {}
    while status.get("State") != "S (sleeping)" or status.get("Name") != "su":  # for a password
        lines = open(f"/proc/{process.pid}/status").read().splitlines()
        status = dict(line.split(":\\t", 1) for line in lines)
    print(*status["Uid"].split())
finally:
    process.kill()
"""
