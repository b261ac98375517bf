# SPDX-License-Identifier: GPL-3.0-or-later
"""A command tries to gain privileges, or to use a process that has them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from support.escape.attack import attempt, python, refusal, refusals
from support.escape.processes import children_of
from support.person import Person

from ollmsandbox import loop
from ollmsandbox.sandbox.process import Sinks

ATTACH, SEIZE = 16, 0x4206
USER = 0x10000000  # a user namespace

_VECTOR = """
buffer = ctypes.create_string_buffer(8)
here = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 8)
there = (ctypes.c_uint64 * 2)(0x400000, 8)
call('{}', {}, here, 1, there, 1, 0)
"""
# The kernel looks at the lower 32 bits of a process id only.
_HIGH = 1 << 32 | 1
REACHING: dict[str, str] = {
    "attach": f"call('ptrace', {ATTACH}, 1, 0, 0)",
    "attach with high bits": f"call('ptrace', {ATTACH}, {_HIGH}, 0, 0)",
    "seize": f"call('ptrace', {SEIZE}, 1, 0, 0)",
    "seize with high bits": f"call('ptrace', {SEIZE}, {_HIGH}, 0, 0)",
    "seize with a sign": f"call('ptrace', {SEIZE}, {1 - (1 << 32)}, 0, 0)",
    "read its memory": _VECTOR.format("process_vm_readv", 1),
    "read its memory with high bits": _VECTOR.format("process_vm_readv", _HIGH),
    "write its memory": _VECTOR.format("process_vm_writev", 1),
    "write its memory with high bits": _VECTOR.format("process_vm_writev", _HIGH),
    "take its descriptors": "call('pidfd_getfd', call('pidfd_open', 1, 0), 6, 0)",
    "open its memory": "os.open('/proc/1/mem', os.O_RDWR)",
    "open its memory by its thread": "os.open('/proc/1/task/1/mem', os.O_RDWR)",
    "open its memory by a neighbour": "os.open('/proc/self/../1/mem', os.O_RDWR)",
    "open its memory by the root": "os.open('/proc/self/root/proc/1/mem', os.O_RDWR)",
    "open its descriptors": "os.open('/proc/1/fd/6', os.O_RDWR)",
    "open its program": "os.open('/proc/1/exe', os.O_RDONLY)",
    "open its root": "os.open('/proc/1/root', os.O_RDONLY)",
}


# --- what the command starts with ----------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"network": True}, {"profile": "strict"}], ids=str)
@pytest.mark.parametrize("process", ["the command", "the first process"])
def test_no_process_inside_has_a_capability(
    person: Person, process: str, options: dict[str, Any]
) -> None:
    if process == "the command":
        status = _parsed(person.run(["cat", "/proc/self/status"], **options).stdout.text)
    else:
        status = _status_of_the_first_process(person, **options)
    for kind in ("Eff", "Prm", "Inh", "Bnd", "Amb"):
        assert int(status[f"Cap{kind}"], 16) == 0, kind
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert status["Seccomp_filters"] == "1"
    assert status["Uid"].split() == [str(os.getuid())] * 4
    assert status["Gid"].split() == [str(os.getgid())] * 4


def test_the_first_process_is_out_of_reach(person: Person) -> None:
    # bwrap's first process takes on the filter after it has forked the one that becomes the
    # command. Who is quicker, one run in fifty on a busy machine, and could write to its memory,
    # would have it do all that is refused to everybody else.
    for way, why in refusals(person, REACHING).items():
        assert why in ("EPERM", "ENOENT"), way


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
        call('ptrace', {SEIZE}, child, 0, 0)
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


def test_changing_its_own_process_is_refused(person: Person) -> None:
    for what, why in refusals(person, CHANGES).items():
        assert why in ("EPERM", "EACCES", "EINVAL", "EROFS", "EAFNOSUPPORT"), what


def test_another_personality_does_not_bypass_the_filter(person: Person) -> None:
    # 32-bit Linux, code in data, fixed addresses, all at once.
    each = {
        hex(flags): f"call('personality', {flags})\ncall('unshare', {USER})"
        for flags in (0x0008, 0x0400000, 0x0040000, 0xFFFFFF)
    }
    for flags, why in refusals(person, each).items():
        assert why in ("EPERM", "EINVAL"), flags


# --- helpers -------------------------------------------------------------------------------------


def _status_of_the_first_process(person: Person, **options: Any) -> dict[str, str]:
    """Looked at from outside, while a command runs."""
    found: dict[str, str] = {}

    def noticed(_data: bytes) -> None:
        # It may be a moment behind the command.
        end = time.monotonic() + 20
        while found.get("Seccomp") != "2" and time.monotonic() < end:
            time.sleep(0.01)
            found.update(_first_of_the_innermost_namespace())
        (person.playground / "go").touch()

    person.share_playground()
    waiting = "echo begun; until test -e ~/playground/go; do sleep 0.01; done"
    command = person.bubble(**options).exec(waiting, sinks=Sinks(noticed))
    assert loop.run(command).exit_code == 0
    return found


def _first_of_the_innermost_namespace() -> dict[str, str]:
    found: list[dict[str, str]] = []
    pids = [os.getpid()]
    for pid in pids:
        pids += children_of(pid)
        found.append(_parsed(_read(f"/proc/{pid}/status")))
    first = [one for one in found if one.get("NSpid", "").endswith("\t1")]
    return max(first, key=lambda one: len(one["NSpid"].split()))


def _read(file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError:
        return ""


def _parsed(status: str) -> dict[str, str]:
    lines = (line.partition(":") for line in status.splitlines())
    return {key: value.strip() for key, _, value in lines}


# Where the registers are: a system call's number, first argument and result, the instruction.
_REGISTERS = {"x86_64": (27, 10, 14, 10, 16, 2), "aarch64": (34, 8, 0, 0, 32, 4)}[
    os.uname().machine
]

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
registers[number] = NUMBERS['unshare']
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
