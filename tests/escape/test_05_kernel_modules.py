# SPDX-License-Identifier: GPL-3.0-or-later
"""A command asks for parts of the kernel that it has no use for, some of which would be loaded."""

from __future__ import annotations

import pytest
from support.escape.attack import NUMBERS, refusals, work_outside
from support.person import Person

# --- protocols -----------------------------------------------------------------------------------

_KINDS = {"stream": 1, "datagram": 2, "raw": 3, "packet": 5, "dccp": 6}
_PROTOCOLS = {"IGMP": 2, "DCCP": 33, "SCTP": 132, "UDP-Lite": 136, "RAW": 255, "MPTCP": 262}
_SOCKETS = {
    f"{name} {kind} {family} {high}": f"call('socket', {family}, {number}, {protocol | high})"
    for name, protocol in _PROTOCOLS.items()
    for kind, number in _KINDS.items()
    for family in (2, 10)
    # The kernel takes 32 bits of what a filter sees 64 of.
    for high in (0, 1 << 32, 1 << 63)
}
_ORDINARY = {
    "TCP": "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 6)",
    "UDP": "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM, 17)",
    "by itself": "socket.socket(socket.AF_INET)",
    "Unix, by its number": "socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 1)",
}


@pytest.mark.parametrize("options", [{}, {"network": True}, {"profile": "strict"}], ids=str)
def test_no_other_protocol_is_asked_for(person: Person, options: dict[str, object]) -> None:
    # Whatever the kernel would have said.
    assert set(refusals(person, _SOCKETS, **options).values()) == {"EPROTONOSUPPORT"}


def test_the_kernel_has_another_protocol_outside(person: Person) -> None:
    assert work_outside(person, {"MPTCP": "call('socket', 2, 1, 262)"}) == {"MPTCP": True}


# --- line disciplines ----------------------------------------------------------------------------

_DISCIPLINE = """
controller, terminal = os.openpty()
number = ctypes.c_int(0)
call('ioctl', terminal, {request}, ctypes.byref(number))
"""
_DISCIPLINES = {str(high): _DISCIPLINE.format(request=0x5423 | high) for high in (0, 1 << 32)}


def test_a_line_discipline_is_not_loaded(person: Person) -> None:
    assert refusals(person, _DISCIPLINES) == dict.fromkeys(_DISCIPLINES, "EPERM")
    assert work_outside(person, _DISCIPLINES) == dict.fromkeys(_DISCIPLINES, True)


# --- the priority for disks ----------------------------------------------------------------------

_OWN, _BEST_EFFORT, _IDLE = 0, 2 << 13, 3 << 13
_HIGHER = {
    f"{level} {hint}": f"call('ioprio_set', 1, 0, {_BEST_EFFORT | level | hint << 3})"
    for level in range(6)
    for hint in (0, 1)
}


def test_the_priority_for_disks_cannot_be_raised(person: Person) -> None:
    assert refusals(person, _HIGHER) == dict.fromkeys(_HIGHER, "EPERM")
    assert work_outside(person, {"highest": _HIGHER["0 0"]}) == {"highest": True}


# --- calls with a use for few --------------------------------------------------------------------

_MEMORY = {"secret memory": "os.close(call(447, 0))"}
_LISTENER = """
# One instruction: allow. The descriptor of a listener is the answer.
code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', 1, ctypes.addressof(code)))
libc.prctl(38, 1, 0, 0, 0)
os.close(call('seccomp', {operation}, 8, program))
"""
_LISTENERS = {str(high): _LISTENER.format(operation=1 | high) for high in (0, 1 << 32)}


def test_memory_that_nobody_counts_cannot_be_had(person: Person) -> None:
    assert refusals(person, _MEMORY) == {"secret memory": "ENOSYS"}


def test_what_others_need_is_allowed(person: Person) -> None:
    levels = {"default": _OWN, "idle": _IDLE, "6": _BEST_EFFORT | 6, "7": _BEST_EFFORT | 7}
    lower = {name: f"call('ioprio_set', 1, 0, {value})" for name, value in levels.items()}
    # The kernel derives the level of a command from the nice value.
    nice = {"nice": "if os.nice(0) < 10: raise OSError(1, '')"}
    allowed = {**_ORDINARY, **lower, **nice}
    assert refusals(person, allowed) == dict.fromkeys(allowed, "")


def test_no_process_listens_to_the_calls_of_others_in_the_strict_profile(person: Person) -> None:
    refused = dict.fromkeys(_LISTENERS, "EPERM")
    assert refusals(person, _LISTENERS, profile="strict") == refused
    assert refusals(person, _LISTENERS) == dict.fromkeys(_LISTENERS, "")
    assert work_outside(person, _LISTENERS) == dict.fromkeys(_LISTENERS, True)


_STRICT = {
    "process_madvise": 440,
    "process_mrelease": 448,
    "set_mempolicy_home_node": 450,
    "io_setup": NUMBERS["io_setup"],
}


def test_calls_with_a_use_for_few_are_refused_in_the_strict_profile(person: Person) -> None:
    calls = {name: f"call({number}, *[-1] * 6)" for name, number in _STRICT.items()}
    assert refusals(person, calls, profile="strict") == dict.fromkeys(calls, "EPERM")
    assert "EPERM" not in refusals(person, calls).values()
