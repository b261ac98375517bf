# SPDX-License-Identifier: GPL-3.0-or-later
"""A command tries to become more than it is: by the kernel's own doors, one by one."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import signal
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from attack import IS_ROOT, attempt, python, refusal, run_while, works_outside
from conftest import Person

from ollmsandbox import loop
from ollmsandbox.project.changes import Flag
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.sandbox.process import Sinks

MACHINE = platform.machine()
REFUSED = ("EPERM", "ENOSYS")

# By number: x86_64, aarch64. A program that wants in does not ask a library for the name.
_OLD = {
    # other file systems and roots
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "swapon": (167, 224), "swapoff": (168, 225), "quotactl": (179, 60), "acct": (163, 89),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "setns": (308, 268),
    "fanotify_init": (300, 262),
    # the kernel itself
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142),
    "syslog": (103, 116), "lookup_dcookie": (212, 18), "iopl": (172, None), "ioperm": (173, None),
    # the machine's clock and name
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "sethostname": (170, 161), "setdomainname": (171, 162),
    # what all processes of a person share
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "move_pages": (279, 239), "migrate_pages": (256, 238),
}  # fmt: skip
# Since 2019 a system call has the same number everywhere.
_NEW = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "clone3": 435, "mount_setattr": 442, "quotactl_fd": 443, "open_tree_attr": 467,
}  # fmt: skip
NUMBERS: dict[str, int] = _NEW | {
    name: number
    for name, both in _OLD.items()
    if (number := dict(zip(("x86_64", "aarch64"), both, strict=True))[MACHINE]) is not None
}
UNSHARE, CLONE, PERSONALITY = {"x86_64": (272, 56, 135), "aarch64": (97, 220, 92)}[MACHINE]
PTRACE, READV, WRITEV = {"x86_64": (101, 310, 311), "aarch64": (117, 270, 271)}[MACHINE]
PIDFD_OPEN, PIDFD_GETFD = 434, 438
ATTACH, SEIZE = 16, 0x4206

NAMESPACES = {
    "time": 0x00000080,
    "mount": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
# What an ordinary user gets outside without being asked for anything.
USER = NAMESPACES["user"]


_VECTOR = """
buffer = ctypes.create_string_buffer(8)
here = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 8)
there = (ctypes.c_uint64 * 2)(0x400000, 8)
call({}, {}, here, 1, there, 1, 0)
"""
# The kernel looks at the lower 32 bits of a process id only.
_HIGH = 1 << 32 | 1
REACHING: dict[str, str] = {
    "attach": f"call({PTRACE}, {ATTACH}, 1, 0, 0)",
    "attach with high bits": f"call({PTRACE}, {ATTACH}, {_HIGH}, 0, 0)",
    "seize": f"call({PTRACE}, {SEIZE}, 1, 0, 0)",
    "seize with high bits": f"call({PTRACE}, {SEIZE}, {_HIGH}, 0, 0)",
    "seize with a sign": f"call({PTRACE}, {SEIZE}, {1 - (1 << 32)}, 0, 0)",
    "read its memory": _VECTOR.format(READV, 1),
    "read its memory with high bits": _VECTOR.format(READV, _HIGH),
    "write its memory": _VECTOR.format(WRITEV, 1),
    "write its memory with high bits": _VECTOR.format(WRITEV, _HIGH),
    "take its descriptors": f"call({PIDFD_GETFD}, call({PIDFD_OPEN}, 1, 0), 6, 0)",
    "open its memory": "os.open('/proc/1/mem', os.O_RDWR)",
    "open its memory by its thread": "os.open('/proc/1/task/1/mem', os.O_RDWR)",
    "open its memory by a neighbour": "os.open('/proc/self/../1/mem', os.O_RDWR)",
    "open its memory by the root": "os.open('/proc/self/root/proc/1/mem', os.O_RDWR)",
    "open its descriptors": "os.open('/proc/1/fd/6', os.O_RDWR)",
    "open its program": "os.open('/proc/1/exe', os.O_RDONLY)",
    "open its root": "os.open('/proc/1/root', os.O_RDONLY)",
}


# --- what the command starts with ----------------------------------------------------------------


@pytest.mark.parametrize("profile", ["standard", "strict"])
@pytest.mark.parametrize("process", ["the command", "the first process"])
def test_no_process_inside_has_a_capability(person: Person, process: str, profile: str) -> None:
    look = _status if process == "the command" else _status_of_the_first_process
    status = look(person, profile=profile)
    for kind in ("Eff", "Prm", "Inh", "Bnd", "Amb"):
        assert int(status[f"Cap{kind}"], 16) == 0, kind
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert status["Seccomp_filters"] == "1"
    assert status["Uid"].split() == [str(os.getuid())] * 4
    assert status["Gid"].split() == [str(os.getgid())] * 4


@pytest.mark.parametrize("network", [False, True], ids=["without network", "with network"])
def test_the_network_brings_no_capability(person: Person, network: bool) -> None:
    assert int(_status(person, network=network)["CapEff"], 16) == 0


@pytest.mark.parametrize("way", sorted(REACHING))
def test_the_first_process_is_out_of_reach(person: Person, way: str) -> None:
    # bwrap's first process takes on the filter after it has forked the one that becomes the
    # command. Who is quicker, one run in fifty on a busy machine, and could write to its memory,
    # would have it do all that is refused to everybody else.
    assert refusal(person, attempt(REACHING[way])) in ("EPERM", "ENOENT")


def test_nothing_is_seen_of_the_first_process(person: Person) -> None:
    result = person.run("ls -A /proc/1; cat /proc/1/status")
    assert result.stdout.text == ""
    assert result.exit_code != 0


def test_a_command_can_trace_its_own_children(person: Person) -> None:
    # So the refusals above are for the first process.
    attack = f"""
        child = os.fork()
        if child == 0:
            time.sleep(20)
        call({PTRACE}, {SEIZE}, child, 0, 0)
        os.kill(child, signal.SIGKILL)
        """
    assert refusal(person, attempt(attack)) == ""


@pytest.mark.parametrize("profile", ["standard", "strict"])
def test_a_debugger_of_the_first_process_gets_no_further_than_the_command(
    person: Person, profile: str
) -> None:
    # It is of the same user. Could it be traced, what it is made to do would have to be refused as
    # it is to the command.
    attack = python(_PUPPET)
    result = person.run(attack, profile=profile)
    said = result.stdout.text.split()
    if profile == "strict":
        assert said == ["refused", "EPERM"], result.stderr.text
    else:
        assert said in (["made", "it", "fail", "EPERM"], ["refused", "EPERM"]), result.stderr.text


# --- system calls, by their numbers --------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_system_call_is_refused(person: Person, name: str) -> None:
    # Arguments that no kernel accepts: were it to get through, it would say EINVAL or EFAULT.
    assert refusal(person, attempt(f"call({NUMBERS[name]}, *[-1] * 6)")) in REFUSED


@pytest.mark.parametrize(
    "name",
    ["mount", "open_tree", "bpf", "clone3", "setns", "name_to_handle_at", "settimeofday", "chroot"],
)
def test_without_the_wall_the_kernel_looks_at_the_arguments(person: Person, name: str) -> None:
    # So the refusals above are the wall's.
    done = person.run_outside(attempt(f"call({NUMBERS[name]}, *[-1] * 6)"))
    assert done.stdout.startswith("refused ")
    assert done.stdout.split()[1] not in REFUSED


@pytest.mark.parametrize("name", sorted(NAMESPACES))
def test_a_new_namespace_by_unshare_is_refused(person: Person, name: str) -> None:
    assert refusal(person, attempt(f"call({UNSHARE}, {NAMESPACES[name]})")) == "EPERM"


@pytest.mark.parametrize("name", sorted(set(NAMESPACES) - {"time"}))
def test_a_new_namespace_by_clone_is_refused(person: Person, name: str) -> None:
    # A child that got through ends at once.
    attack = _clone(NAMESPACES[name] | signal.SIGCHLD)
    assert refusal(person, attack) == "EPERM"


def test_a_new_user_namespace_with_all_others_is_refused(person: Person) -> None:
    everything = 0
    for flag in NAMESPACES.values():
        everything |= flag
    assert refusal(person, attempt(f"call({UNSHARE}, {everything})")) == "EPERM"
    # The kernel looks at the lower 32 bits only.
    assert refusal(person, attempt(f"call({UNSHARE}, {USER | 1 << 40})")) == "EPERM"


def test_a_user_namespace_can_be_had_outside(person: Person) -> None:
    assert works_outside(person, attempt(f"call({UNSHARE}, {USER})"))
    assert works_outside(person, _clone(USER | signal.SIGCHLD))


@pytest.mark.parametrize("command", ["unshare -r true", "unshare -m true", "nsenter -t $$ -m true"])
def test_the_usual_programs_for_namespaces_fail(person: Person, command: str) -> None:
    result = person.run(command)
    assert result.exit_code != 0
    assert "not permitted" in result.stderr.text


@pytest.mark.parametrize("kind", ["user", "mnt", "pid", "net"])
def test_entering_a_namespace_is_refused(person: Person, kind: str) -> None:
    attack = f"call({NUMBERS['setns']}, os.open('/proc/self/ns/{kind}', os.O_RDONLY), 0)"
    assert refusal(person, attempt(attack)) == "EPERM"


# --- other doors to the same system calls --------------------------------------------------------

_CODE = """
import mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex({code!r}))
enter = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
print("answer", enter(), flush=True)
"""


def _int_0x80(number: int, first: int = 0) -> str:
    # push rbx; mov ebx, first; mov eax, number; int 0x80; pop rbx; ret
    code = f"53bb{struct.pack('<i', first).hex()}b8{struct.pack('<i', number).hex()}cd805bc3"
    return python(_CODE.format(code=code))


def _x32(number: int, first: int = 0) -> str:
    # mov edi, first; mov eax, 0x40000000 | number; syscall; ret
    code = f"bf{struct.pack('<i', first).hex()}b8{struct.pack('<i', 1 << 30 | number).hex()}0f05c3"
    return python(_CODE.format(code=code))


OTHER_DOORS: dict[str, str] = {
    # getpid, and unshare of a user namespace
    "the 32-bit door": _int_0x80(20),
    "a namespace through the 32-bit door": _int_0x80(310, USER),
    "the x32 numbers": _x32(39),
    "a namespace through the x32 numbers": _x32(272, USER),
}


if MACHINE == "x86_64":

    @pytest.mark.parametrize("door", sorted(OTHER_DOORS))
    def test_other_door_is_closed(person: Person, door: str) -> None:
        result = person.run(OTHER_DOORS[door])
        # ENOSYS, or dead by SIGSYS or (a kernel without that door) SIGSEGV.
        if result.exit_code == 0:
            assert result.stdout.text == "answer -38\n"
        else:
            assert result.stdout.text == ""
            assert result.signal in (signal.SIGSYS, signal.SIGSEGV)


# --- programs with privileges of their own -------------------------------------------------------


def _copy_of_id(person: Person) -> Path:
    return Path(shutil.copy("/usr/bin/id", person.project / "id"))


def _setuid(person: Person) -> None:
    file = _copy_of_id(person)
    os.chown(file, 65534, 65534)
    file.chmod(0o4755)


def _setgid(person: Person) -> None:
    file = _copy_of_id(person)
    os.chown(file, 65534, 65534)
    file.chmod(0o2755)


ROOTS: dict[str, tuple[Callable[[Person], None], str]] = {
    "a setuid program": (_setuid, "./id -u"),
    "a setgid program": (_setgid, "./id -g"),
}


if IS_ROOT:

    @pytest.mark.parametrize("name", sorted(ROOTS))
    def test_program_that_root_prepared_changes_nobody(person: Person, name: str) -> None:
        prepare, command = ROOTS[name]
        prepare(person)
        assert person.run_outside(command).stdout == "65534\n"
        assert person.run(command).stdout.text == "0\n"

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

    @pytest.mark.parametrize("device", [(1, 1), (1, 11)])
    def test_a_device_that_lies_in_the_project_cannot_be_opened(
        person: Person, device: tuple[int, int]
    ) -> None:
        # /dev/mem and /dev/kmsg by another name.
        os.mknod(person.project / "device", 0o20666, os.makedev(*device))
        assert refusal(person, attempt("os.open('device', os.O_RDONLY)")) == "EACCES"

else:

    def test_a_setuid_program_of_the_system_stays_the_person(person: Person) -> None:
        attack = python(_WHO_IS_SU)
        assert person.run_outside(attack).stdout.split()[1] == "0"
        assert person.run(attack).stdout.text.split() == [str(os.getuid())] * 4


@pytest.mark.parametrize(
    "command",
    [
        "mount -t tmpfs none /mnt",
        "mount --bind /etc /mnt",
        "mount -o remount,rw /",
        "umount /proc",
        "umount -l /tmp",
        "setpriv --reuid 65534 true",
        "chroot / true",
    ],
)
def test_the_usual_programs_for_privileges_fail(person: Person, command: str) -> None:
    result = person.run(command)
    assert result.exit_code != 0
    assert result.stop is None


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
    """Programs with the rights of their owner that others can get at."""
    found = set()
    for folder, folders, files in os.walk(person.home):
        # Others cannot enter.
        folders[:] = [f for f in folders if os.lstat(f"{folder}/{f}").st_mode & 0o001]
        found |= {f for f in files if os.lstat(f"{folder}/{f}").st_mode & 0o6000}
    return found


@pytest.mark.parametrize("folder", [".", "/tmp", "~/playground"])
@pytest.mark.parametrize("way", sorted(LENDING))
def test_making_a_setuid_program(person: Person, folder: str, way: str) -> None:
    # Root's would be everybody's way to root, on the real disk.
    for opened in (person.home, person.project, person.paths.data, person.paths.cache):
        opened.mkdir(parents=True, exist_ok=True)
        opened.chmod(0o755)
    (person.project / "mine").write_text("mine")
    inside = f"os.chdir(os.path.expanduser('{folder}'))\nopen('i', 'w').close()\n{LENDING[way]}\n"
    recorder = Recorder(str(person.project), person.paths)
    during: set[str] = set()
    result = run_while(
        person,
        python(inside + "meanwhile_outside()"),
        lambda: during.update(_lent(person)),
        keeper=recorder,
    )
    assert (result.exit_code, result.stdout.text, result.stderr.text) == (0, "ready\n", "")
    assert during == set()
    assert _lent(person) == set()
    if folder == ".":
        assert recorder.report is not None
        flags = {flag for item in recorder.report.changes for flag in item.change.flags}
        assert Flag.STRIPPED in flags
    else:
        assert os.listdir(person.project) == ["mine"]
    if folder != "/tmp":
        shutil.rmtree(person.project)
        for new in (person.project, person.home / "playground"):
            new.mkdir()
            new.chmod(0o755)
        done = person.run_outside(python(inside))
        assert (done.returncode, done.stderr) == (0, "")
        assert _lent(person) != set()


def test_a_setuid_program_that_waits_is_none_when_it_is_applied(person: Person) -> None:
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


@pytest.mark.parametrize("folder", [".", "/tmp", "/dev/shm", "~/playground"])
def test_no_setuid_program_works_anywhere_a_command_can_write(person: Person, folder: str) -> None:
    result = person.run(
        f'cd {folder} && touch f && stat -c %m . && grep " $(stat -c %m .) " /proc/self/mounts'
    )
    point, *mounts = result.stdout.text.splitlines()
    assert mounts, point
    # The last one is what is seen.
    assert {"nosuid", "nodev"} <= set(mounts[-1].split()[3].split(","))


# --- changes of oneself --------------------------------------------------------------------------

_PRCTL = "libc.prctl.restype = ctypes.c_int\nif libc.prctl({}) != 0: raise OSError(errno.EPERM, '')"
_CAPSET = """
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
sets = (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
if libc.capset(header, sets) != 0:
    raise OSError(ctypes.get_errno(), "")
"""
_SETRLIMIT = """
if libc.setrlimit(6, (ctypes.c_ulong * 2)(1 << 20, 1 << 20)) != 0:
    raise OSError(ctypes.get_errno(), "")
"""
_WRITE = "os.write(os.open('/proc/self/{}', os.O_WRONLY), b'{}')"
CHANGES: dict[str, str] = {
    "all capabilities": _CAPSET,
    "an ambient capability": _PRCTL.format("47, 2, 21, 0, 0"),
    "new privileges again": _PRCTL.format("38, 0, 0, 0, 0"),
    "no filter": _PRCTL.format("22, 0, 0, 0, 0"),
    "a strict filter instead": _PRCTL.format("22, 1, 0, 0, 0"),
    "securebits": _PRCTL.format("28, 1, 0, 0, 0"),
    "another user": "os.setresuid(65534, 65534, 65534)",
    "another group": "os.setresgid(65534, 65534, 65534)",
    "root": "os.setuid(0 if os.getuid() else 1)",
    "other groups": "os.setgroups([0, 4, 27])",
    "a user map": _WRITE.format("uid_map", "0 0 4294967295"),
    "a group map": _WRITE.format("gid_map", "0 0 4294967295"),
    "groups allowed": _WRITE.format("setgroups", "allow"),
    "the last to be killed": _WRITE.format("oom_score_adj", "-1000"),
    "a disk": "os.mknod('disk', stat.S_IFBLK | 0o666, os.makedev(8, 0))",
    "the memory": "os.mknod('mem', stat.S_IFCHR | 0o666, os.makedev(1, 1))",
    "a terminal's disk": "os.mknod('/tmp/vcs', stat.S_IFCHR | 0o666, os.makedev(7, 0))",
    "more processes": _SETRLIMIT,
    "a raw socket": "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
    "a packet socket": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
}


@pytest.mark.parametrize("what", sorted(CHANGES))
def test_changing_oneself_is_refused(person: Person, what: str) -> None:
    why = refusal(person, attempt(CHANGES[what]))
    assert why in ("EPERM", "EACCES", "EINVAL", "EROFS", "EAFNOSUPPORT"), why


@pytest.mark.parametrize("flags", [0x0008, 0x0400000, 0x0040000, 0xFFFFFF])
def test_another_personality_gets_through_no_wall(person: Person, flags: int) -> None:
    # 32-bit Linux, code in data, fixed addresses, all at once.
    attack = f"call({PERSONALITY}, {flags})\ncall({UNSHARE}, {USER})"
    assert refusal(person, attempt(attack)) in ("EPERM", "EINVAL")


@pytest.mark.parametrize("profile", ["standard", "strict"])
def test_no_file_of_the_kernel_can_be_opened_for_writing(person: Person, profile: str) -> None:
    # As root most of them need no capability: one starts a program of the command's choice
    # outside, another one restarts the machine. They are opened only, nothing is written.
    result = person.run(python(_OPEN_ALL), profile=profile)
    assert result.exit_code == 0, result.stderr.text
    opened = set(result.stdout.text.splitlines())
    assert "looked at" in opened
    # Of the namespaces that the command has to itself, and watching one's own load.
    own = ("/proc/sys/kernel/", "/proc/sys/fs/mqueue/", "/proc/pressure/")
    names = {"shm", "msg", "sem", "ns_", "pid", "que", "aut", "io", "cpu", "mem", "irq"}
    foreign = {f for f in opened if not (f.startswith(own) and f.rpartition("/")[2][:3] in names)}
    assert foreign == {"looked at"}
    if IS_ROOT:
        assert not any(file.startswith("/proc/sys/") for file in opened)


def test_the_program_for_crashes_cannot_be_named(person: Person) -> None:
    # Nothing is written, not even by an attack that succeeds.
    attack = attempt("os.close(os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY))")
    assert refusal(person, attack) in ("EPERM", "EACCES", "EROFS")


def test_the_devices_are_the_harmless_ones(person: Person) -> None:
    result = person.run("find /dev -type c -o -type b | sort")
    assert set(result.stdout.text.split()) <= {
        *(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty")),
        *("/dev/pts/ptmx", "/dev/console"),
    }


@pytest.mark.parametrize("device", ["mem", "kmem", "port", "kmsg", "kvm", "fuse", "loop-control"])
def test_device_is_not_there(person: Person, device: str) -> None:
    assert refusal(person, attempt(f"os.open('/dev/{device}', os.O_RDONLY)")) == "ENOENT"


# --- helpers -------------------------------------------------------------------------------------


def _status(person: Person, *, profile: str = "standard", network: bool = False) -> dict[str, str]:
    result = person.run(["cat", "/proc/self/status"], profile=profile, network=network)
    return _parsed(result.stdout.text)


def _status_of_the_first_process(person: Person, *, profile: str) -> dict[str, str]:
    """Looked at from outside, while a command runs."""
    found: list[dict[str, str]] = []

    async def noticed(_data: bytes) -> None:
        # It may be a moment behind the command.
        await asyncio.sleep(0.3)
        pids = [str(os.getpid())]
        for pid in pids:
            pids += _read(f"/proc/{pid}/task/{pid}/children").split()
            found.append(_parsed(_read(f"/proc/{pid}/status")))

    command = person.bubble(profile=profile).exec("echo begun; sleep 1", sinks=Sinks(noticed))
    assert loop.run(command).exit_code == 0
    # The first of the innermost namespace.
    ids = {one["NSpid"]: one for one in found if one.get("NSpid", "").endswith("\t1")}
    return ids[max(ids, key=lambda numbers: len(numbers.split()))]


def _read(file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError:
        return ""


def _parsed(status: str) -> dict[str, str]:
    lines = (line.partition(":") for line in status.splitlines())
    return {key: value.strip() for key, _, value in lines}


def _clone(flags: int) -> str:
    return attempt(
        f"""
        child = call({CLONE}, {flags}, 0, 0, 0, 0)
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        """
    )


# Where the registers are: a system call's number, first argument and result, the instruction.
_REGISTERS = {"x86_64": (27, 10, 14, 10, 16, 2), "aarch64": (34, 8, 0, 0, 32, 4)}[MACHINE]

# Make the first process call unshare() at the place where it waits for its children.
_PUPPET = f"""
SEIZE, INTERRUPT, GETREGSET, SETREGSET, SYSCALL = 0x4206, 0x4207, 0x4204, 0x4205, 24
count, number, first, result, instruction, length = {_REGISTERS}
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
registers = (ctypes.c_uint64 * count)()
vector = (ctypes.c_uint64 * 2)(ctypes.addressof(registers), ctypes.sizeof(registers))

def ptrace(request, address=0, data=0):
    if libc.ptrace(request, 1, address, data) == -1:
        print("refused", errno.errorcode[ctypes.get_errno()])
        sys.exit(1)

def stopped():
    os.waitpid(1, 0x40000000)
    ptrace(GETREGSET, 1, ctypes.addressof(vector))

ptrace(SEIZE)
ptrace(INTERRUPT)
stopped()
registers[instruction] -= length
registers[number] = {UNSHARE}
registers[first] = {USER}
if count == 27:
    registers[15] = 2**64 - 1  # nothing is to be restarted
ptrace(SETREGSET, 1, ctypes.addressof(vector))
for _ in ("in", "out"):
    ptrace(SYSCALL)
    stopped()
code = ctypes.c_int64(registers[result]).value
print("made it", "fail" if code < 0 else "succeed", errno.errorcode.get(-code, code))
"""

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

_OPEN_ALL = """
for top in ("/proc", "/sys"):
    for folder, folders, files in os.walk(top):
        if folder == "/proc":  # processes are not the kernel's
            folders[:] = [f for f in folders if not f.isdigit() and not f.endswith("self")]
        for file in files:
            try:
                os.close(os.open(f"{folder}/{file}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY))
            except OSError:
                continue
            print(f"{folder}/{file}")
print("looked at")
"""
