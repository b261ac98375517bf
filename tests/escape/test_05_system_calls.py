# SPDX-License-Identifier: GPL-3.0-or-later
"""A command tries dangerous system calls, one by one."""

from __future__ import annotations

import signal
import struct

import pytest
from support.escape.attack import attempt, python, refusals, works_outside
from support.escape.system_calls import CLONE, MACHINE, NAMESPACES, NUMBERS, UNSHARE, USER
from support.person import Person

REFUSED = ("EPERM", "ENOSYS")
# Arguments that no kernel accepts: were it to get through, it would say EINVAL or EFAULT.
SYSTEM_CALLS = {name: f"call({number}, *[-1] * 6)" for name, number in NUMBERS.items()}


@pytest.fixture(scope="module")
def answers_to_calls(shared_person: Person) -> dict[str, str]:
    return refusals(shared_person, SYSTEM_CALLS)


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_system_call_is_refused(answers_to_calls: dict[str, str], name: str) -> None:
    assert answers_to_calls[name] in REFUSED


@pytest.mark.parametrize(
    "name",
    ["mount", "open_tree", "bpf", "clone3", "setns", "name_to_handle_at", "settimeofday", "chroot"],
)
def test_without_the_filter_the_kernel_checks_the_arguments(person: Person, name: str) -> None:
    # So the refusals above are the wall's.
    done = person.run_outside(attempt(SYSTEM_CALLS[name]))
    assert done.stdout.startswith("refused ")
    assert done.stdout.split()[1] not in REFUSED


@pytest.fixture(scope="module")
def answers_to_unshare(shared_person: Person) -> dict[str, str]:
    codes = {name: f"call({UNSHARE}, {flag})" for name, flag in NAMESPACES.items()}
    return refusals(shared_person, codes)


@pytest.mark.parametrize("name", sorted(NAMESPACES))
def test_a_new_namespace_by_unshare_is_refused(
    answers_to_unshare: dict[str, str], name: str
) -> None:
    assert answers_to_unshare[name] == "EPERM"


@pytest.fixture(scope="module")
def answers_to_clone(shared_person: Person) -> dict[str, str]:
    codes = {name: _clone(flag | signal.SIGCHLD) for name, flag in NAMESPACES.items()}
    del codes["time"]
    return refusals(shared_person, codes)


@pytest.mark.parametrize("name", sorted(set(NAMESPACES) - {"time"}))
def test_a_new_namespace_by_clone_is_refused(answers_to_clone: dict[str, str], name: str) -> None:
    assert answers_to_clone[name] == "EPERM"


def test_a_new_user_namespace_with_all_others_is_refused(person: Person) -> None:
    everything = 0
    for flag in NAMESPACES.values():
        everything |= flag
    # The kernel looks at the lower 32 bits only.
    flags = {"everything": everything, "with high bits": USER | 1 << 40}
    answers = refusals(person, {name: f"call({UNSHARE}, {flag})" for name, flag in flags.items()})
    assert answers == dict.fromkeys(flags, "EPERM")


def test_a_user_namespace_can_be_had_outside(person: Person) -> None:
    assert works_outside(person, attempt(f"call({UNSHARE}, {USER})"))
    assert works_outside(person, attempt(_clone(USER | signal.SIGCHLD)))


@pytest.mark.parametrize("command", ["unshare -r true", "unshare -m true", "nsenter -t $$ -m true"])
def test_the_usual_programs_for_namespaces_fail(person: Person, command: str) -> None:
    result = person.run(command)
    assert result.exit_code != 0
    assert "not permitted" in result.stderr.text


def test_entering_a_namespace_is_refused(person: Person) -> None:
    kinds = ("user", "mnt", "pid", "net")
    enter = f"call({NUMBERS['setns']}, os.open('/proc/self/ns/{{}}', os.O_RDONLY), 0)"
    answers = refusals(person, {kind: enter.format(kind) for kind in kinds})
    assert answers == dict.fromkeys(kinds, "EPERM")


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
        child = call({CLONE}, {flags}, 0, 0, 0, 0)
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
