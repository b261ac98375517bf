# SPDX-License-Identifier: GPL-3.0-or-later
"""A command tries dangerous system calls, one by one."""

from __future__ import annotations

import ast
import os
import signal
import struct

import pytest
from support.escape.attack import (
    REFUSED,
    attempt,
    attempts,
    python,
    reasons,
    refusals,
    works_outside,
)
from support.person import Person

MACHINE = os.uname().machine
# Arguments that no kernel accepts: were it to get through, it would say EINVAL or EFAULT.
SYSTEM_CALLS = {name: f"call('{name}', *[-1] * 6)" for name in REFUSED}
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


EVERYWHERE = pytest.mark.parametrize(
    "options", [{}, {"network": True}, {"profile": "strict"}], ids=str
)


@EVERYWHERE
def test_system_calls_are_refused(person: Person, options: dict[str, object]) -> None:
    for name, why in refusals(person, SYSTEM_CALLS, **options).items():
        assert why in ("EPERM", "ENOSYS"), name


def test_without_the_filter_the_kernel_checks_the_arguments(person: Person) -> None:
    # So the refusals above are the wall's.
    names = ("mount", "open_tree", "bpf", "clone3", "setns", "name_to_handle_at", "settimeofday")
    calls = {name: SYSTEM_CALLS[name] for name in (*names, "chroot")}
    done = person.run_outside(attempts(calls))
    for name, why in reasons(calls, done.stdout).items():
        assert why not in ("", "EPERM", "ENOSYS"), name


def test_a_new_namespace_is_refused(person: Person) -> None:
    codes = {f"unshare {name}": f"call('unshare', {flag})" for name, flag in NAMESPACES.items()}
    for name, flag in NAMESPACES.items():
        if name != "time":
            codes[f"clone {name}"] = _clone(flag | signal.SIGCHLD)
    assert refusals(person, codes) == dict.fromkeys(codes, "EPERM")


def test_a_new_user_namespace_with_all_others_is_refused(person: Person) -> None:
    everything = 0
    for flag in NAMESPACES.values():
        everything |= flag
    # The kernel looks at the lower 32 bits only.
    flags = {"everything": everything, "with high bits": USER | 1 << 40}
    answers = refusals(person, {name: f"call('unshare', {flag})" for name, flag in flags.items()})
    assert answers == dict.fromkeys(flags, "EPERM")


def test_a_user_namespace_can_be_had_outside(person: Person) -> None:
    assert works_outside(person, attempt(f"call('unshare', {USER})"))
    assert works_outside(person, attempt(_clone(USER | signal.SIGCHLD)))


def test_the_usual_programs_for_namespaces_fail(person: Person) -> None:
    result = person.run("unshare -r true || unshare -m true || nsenter -t $$ -m true")
    assert result.exit_code != 0
    assert result.stderr.text.count("not permitted") == 3


def test_entering_a_namespace_is_refused(person: Person) -> None:
    kinds = ("user", "mnt", "pid", "net")
    enter = "call('setns', os.open('/proc/self/ns/{}', os.O_RDONLY), 0)"
    answers = refusals(person, {kind: enter.format(kind) for kind in kinds})
    assert answers == dict.fromkeys(kinds, "EPERM")


# --- other doors to the same system calls --------------------------------------------------------

_CODE = """
import mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex({code!r}))
enter = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
answer = enter()
if answer < 0:
    raise OSError(-answer, '')
"""


def _int_0x80(number: int, first: int = 0, second: int = 0) -> str:
    # push rbx; mov ebx, first; mov ecx, second; xor edx, edx; mov eax, number; int 0x80; pop rbx
    words = [struct.pack("<i", word).hex() for word in (first, second, number)]
    return _CODE.format(code="53bb{}b9{}31d2b8{}cd805bc3".format(*words))


def _x32(number: int, first: int = 0, second: int = 0) -> str:
    # mov edi, first; mov esi, second; xor edx, edx; mov eax, 0x40000000 | number; syscall; ret
    words = [struct.pack("<i", word).hex() for word in (first, second, 1 << 30 | number)]
    return _CODE.format(code="bf{}be{}31d2b8{}0f05c3".format(*words))


OTHER_DOORS: dict[str, str] = {
    # getpid, unshare of a user namespace, and a Unix socket
    "the 32-bit door": _int_0x80(20),
    "a namespace through the 32-bit door": _int_0x80(310, USER),
    "a socket through the 32-bit door": _int_0x80(359, 1, 1),
    "the x32 numbers": _x32(39),
    "a namespace through the x32 numbers": _x32(272, USER),
    "a socket through the x32 numbers": _x32(41, 1, 1),
}


if MACHINE == "x86_64":

    @EVERYWHERE
    def test_other_doors_are_closed(person: Person, options: dict[str, object]) -> None:
        result = person.run(attempts(OTHER_DOORS), **options)
        found = dict(ast.literal_eval(line) for line in result.stdout.text.splitlines())
        # ENOSYS, or dead by SIGSYS or (a kernel without that door) SIGSEGV.
        closed = {"refused ENOSYS", *(f"died {-n}" for n in (signal.SIGSYS, signal.SIGSEGV))}
        assert found.keys() == OTHER_DOORS.keys()
        assert set(found.values()) <= closed, found


if MACHINE == "aarch64":
    # A whole program for a 32-bit processor: mov r0, 42; mov r7, 1 (exit); svc 0
    _PROGRAM_32 = struct.pack(
        "<16s2H5I6H 8I 3I",
        b"\x7fELF\1\1\1", 2, 40, 1, 0x10054, 52, 0, 5 << 24, 52, 32, 1, 0, 0, 0,
        1, 0, 0x10000, 0x10000, 96, 96, 5, 0x10000,
        0xE3A0002A, 0xE3A07001, 0xEF000000,
    )  # fmt: skip

    def test_a_32_bit_program_is_killed(person: Person) -> None:
        attack = python(f"""
            program = os.memfd_create("program")
            os.write(program, {_PROGRAM_32!r})
            os.execv(f"/proc/self/fd/{{program}}", ["program"])
            """)
        outside = person.run_outside(attack)
        result = person.run(attack)
        if outside.returncode == 42:
            assert result.signal == signal.SIGSYS
        else:
            # A processor without that door.
            assert "Exec format error" in outside.stderr
            assert "Exec format error" in result.stderr.text


def _clone(flags: int) -> str:
    # A child that got through ends at once.
    return f"""
        child = call('clone', {flags}, 0, 0, 0, 0)
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        """


# --- a personality for which all that is readable is executable -----------------------------------

_PERSONALITY = """
import ctypes
libc = ctypes.CDLL(None)
for value in ({values}):
    print(libc.personality(ctypes.c_ulong(value)))
print(libc.personality(0xffffffff) & 0x400000)
"""


def test_executable_memory_for_all_programs_is_refused(person: Person) -> None:
    bit = 0x400000
    values = (bit, bit | 8, bit | 1 << 31, 0xFFFFFFFE, 0x7FFFFFFF, bit | 1 << 40)
    told = person.run(python(_PERSONALITY.format(values=", ".join(map(str, values)))))
    assert told.stdout.text.split() == ["-1"] * len(values) + ["0"]


def test_other_personalities_are_as_usual(person: Person) -> None:
    # As debuggers do: without random addresses.
    told = person.run(python(_PERSONALITY.format(values=f"{0x40000}, {0x40000}")))
    assert told.stdout.text.split() == ["0", str(0x40000), "0"]
