# SPDX-License-Identifier: GPL-3.0-or-later
"""The system-call filter of every built-in profile, compiled for every architecture: a hole on one
of them is found on any machine."""

from __future__ import annotations

import itertools
import os
from functools import cache
from pathlib import Path

import pyseccomp
import pytest
from support.escape.bpf import ALLOWED, KILLED, Machine

from ollmsandbox.errors import SandboxError
from ollmsandbox.sandbox import seccomp
from ollmsandbox.sandbox.profile.file import profile_names, read_profile
from ollmsandbox.sandbox.seccomp import FilterRules

pytestmark = pytest.mark.ordinary

# Two of them store the higher bytes first.
ARCHITECTURES = {
    "x86_64": pyseccomp.Arch.X86_64,
    "x86": pyseccomp.Arch.X86,
    "aarch64": pyseccomp.Arch.AARCH64,
    "arm": pyseccomp.Arch.ARM,
    "riscv64": pyseccomp.Arch.RISCV64,
    "ppc64le": pyseccomp.Arch.PPC64LE,
    "ppc64": pyseccomp.Arch.PPC64,
    "s390x": pyseccomp.Arch.S390X,
}
PROFILES = {name: read_profile(name, Path("/nowhere")) for name in profile_names(Path("/nowhere"))}
RULES = {
    **{name: FilterRules.of(profile, network=False) for name, profile in PROFILES.items()},
    # To the strict one it makes no difference.
    "standard with the network": FilterRules.of(PROFILES["standard"], network=True),
}
assert FilterRules.of(PROFILES["strict"], network=True) == RULES["strict"]
WITHOUT_UNIX_SOCKETS = [name for name, rules in RULES.items() if not rules.unix_sockets]

on_every_machine = pytest.mark.parametrize("name", ARCHITECTURES)
with_every_profile = pytest.mark.parametrize("profile", RULES)
everywhere = pytest.mark.parametrize(
    ("name", "profile"), list(itertools.product(ARCHITECTURES, RULES)), ids="-".join
)


@cache
def machine(name: str, profile: str) -> Machine:
    arch = ARCHITECTURES[name]
    return Machine(arch, seccomp.compile_filter(RULES[profile], arch))


# What row 5 of the threats names: new namespaces aside, whatever the arguments are.
PRIVILEGED = (
    "mount", "umount", "umount2", "pivot_root", "chroot",
    "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
    "setns", "clone3", "bpf", "userfaultfd", "perf_event_open",
    "io_uring_setup", "io_uring_enter", "io_uring_register",
    "open_by_handle_at", "kexec_load", "kexec_file_load",
    "init_module", "finit_module", "delete_module", "create_module", "query_module",
    "memfd_secret",
)  # fmt: skip
# The others exist everywhere.
NOT_EVERYWHERE = {"umount", "kexec_file_load", "create_module", "query_module", "memfd_secret"}

# Those that go through socketcall() and ipc() have a number of their own besides.
DIRECT = {
    "x86": {"socket": 359, "socketpair": 360, "shmget": 395, "connect": 362},
    "ppc64le": {"socket": 326, "socketpair": 333, "shmget": 395, "connect": 328},
    "ppc64": {"socket": 326, "socketpair": 333, "shmget": 395, "connect": 328},
    "s390x": {"socket": 359, "socketpair": 360, "shmget": 395, "connect": 362},
}
OPEN_TREE_ATTR = 467

# The kernel takes 32 bits of what a filter sees 64 of.
HIGH = (0, 1 << 32, 1 << 63, 0xFFFF_FFFF << 32)


def number_of(call: str, name: str) -> int:
    """Return the number by which a program makes the call, negative where it cannot."""
    return DIRECT.get(name, {}).get(call) or pyseccomp.resolve_syscall(ARCHITECTURES[name], call)


def with_high_bits(found: Machine, value: int) -> list[int]:
    return [value | high for high in HIGH] if found.has_64_bits else [value]


# --- privileges ----------------------------------------------------------------------------------


@everywhere
def test_privileged_calls_are_refused(name: str, profile: str) -> None:
    numbers = {call: number_of(call, name) for call in PRIVILEGED}
    missing = {call for call, number in numbers.items() if number < 0}
    assert missing <= NOT_EVERYWHERE
    found = machine(name, profile)
    for call in numbers.keys() - missing:
        for value in (0, 1, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF):
            assert found.answer(numbers[call], *[value] * 6) in ("EPERM", "ENOSYS"), call


@everywhere
def test_a_personality_that_makes_memory_executable_is_refused(name: str, profile: str) -> None:
    found, personality = machine(name, profile), number_of("personality", name)
    for value in (0x400000, 0x400008, 0x80400000, 0xFFFFFFFE, 0x7FFFFFFF):
        assert {found.answer(personality, v) for v in with_high_bits(found, value)} == {"EPERM"}
    # The strict profile refuses them all.
    others = "EPERM" if profile.startswith("strict") else "allowed"
    assert {found.answer(personality, value) for value in (0, 8, 0x40000, 0xFFFFFFFF)} == {others}


@everywhere
def test_a_call_that_is_newer_than_the_program_is_one_that_the_kernel_lacks(
    name: str, profile: str
) -> None:
    found = machine(name, profile)
    # On x86_64 512 to 547 were a second way to calls such as ioctl, before Linux 5.4.
    for number in range(OPEN_TREE_ATTR, 600):
        assert found.answer(number) == "ENOSYS"


# mount, cgroup, uts, ipc, user, pid, net
NEW_NAMESPACE = (1 << 17, 1 << 25, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30)
NEW_TIME_NAMESPACE = 0x80
SIGCHLD, CLONE_VM, CLONE_THREAD = 17, 0x00000100, 0x00010000


def clone(name: str, flags: int) -> tuple[int, ...]:
    # The stack comes first on this one.
    return (0, flags) if name == "s390x" else (flags, 0)


@everywhere
def test_a_new_namespace_is_refused(name: str, profile: str) -> None:
    found = machine(name, profile)
    for flag in (*NEW_NAMESPACE, sum(NEW_NAMESPACE)):
        for flags in with_high_bits(found, flag):
            assert found.answer(number_of("unshare", name), flags) == "EPERM"
            assert found.answer(number_of("clone", name), *clone(name, flags | SIGCHLD)) == "EPERM"
    for flags in with_high_bits(found, NEW_TIME_NAMESPACE):
        assert found.answer(number_of("unshare", name), flags) == "EPERM"


@everywhere
def test_ordinary_system_calls_are_allowed(name: str, profile: str) -> None:
    found = machine(name, profile)
    for call in ("read", "openat", "execve", "wait4", "rt_sigreturn", "futex", "openat2"):
        assert found.answer(number_of(call, name), *[1] * 6) == ALLOWED, call
    # A process and a thread, with a stack that has the bits of a new namespace in its address.
    for flags in (SIGCHLD, CLONE_VM | CLONE_THREAD):
        arguments = [0x7E02_0000 if value == 0 else value for value in clone(name, flags)]
        assert found.answer(number_of("clone", name), *arguments) == ALLOWED


# --- another way of calling ----------------------------------------------------------------------

# Whatever a kernel could call itself: a processor, its word size, its byte order, its convention.
_PROCESSORS = {token & 0xFFFF for token in vars(pyseccomp.Arch).values() if isinstance(token, int)}
TOKENS = {
    processor | sum(bits)
    for processor in _PROCESSORS
    for count in range(4)
    for bits in itertools.combinations((0x8000_0000, 0x4000_0000, 0x2000_0000), count)
}


@everywhere
def test_the_calls_of_another_architecture_are_refused(name: str, profile: str) -> None:
    found = machine(name, profile)
    assert found.arch in TOKENS
    calls = [number_of(call, name) for call in ("read", "mount", "socket", "ioctl", "clone3")]
    for token in TOKENS - {found.arch}:
        for number in (*calls, *(0x4000_0000 | number for number in calls), 0, -1):
            assert found.answer(number, arch=token) == KILLED


@with_every_profile
def test_the_x32_numbers_are_refused(profile: str) -> None:
    found = machine("x86_64", profile)
    for number in range(600):
        assert found.answer(0x4000_0000 | number) == KILLED


# --- terminals, sockets, debuggers ---------------------------------------------------------------

TIOCSTI, TIOCLINUX, TIOCSETD, TCGETS = 0x5412, 0x541C, 0x5423, 0x5401


@everywhere
def test_typing_into_a_terminal_is_refused(name: str, profile: str) -> None:
    found = machine(name, profile)
    ioctl = number_of("ioctl", name)
    for refused in (TIOCSTI, TIOCLINUX, TIOCSETD):
        for request in with_high_bits(found, refused):
            assert found.answer(ioctl, 0, request) == "EPERM"
    assert found.answer(ioctl, 0, TCGETS) == ALLOWED


AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_CLOEXEC = 1, 2, 3, 0x80000


@everywhere
def test_only_sockets_of_some_families_can_be_made(name: str, profile: str) -> None:
    rules, found = RULES[profile], machine(name, profile)
    wanted = {AF_INET, AF_INET6}
    wanted |= {AF_UNIX} if rules.unix_sockets else set()
    wanted |= {AF_NETLINK} if rules.netlink else set()
    call = number_of("socket", name)
    made = {family for family in range(64) if found.answer(call, family, SOCK_DGRAM) == ALLOWED}
    assert made == wanted
    for family, high in itertools.product(range(64), HIGH):
        if high and found.has_64_bits:
            assert found.answer(call, family | high, SOCK_DGRAM) == "EAFNOSUPPORT"
    assert found.answer(call, 0xFFFF_FFFF, SOCK_DGRAM) == "EAFNOSUPPORT"


@everywhere
def test_only_some_protocols_can_be_asked_for(name: str, profile: str) -> None:
    found, call = machine(name, profile), number_of("socket", name)
    for family in (AF_INET, AF_INET6):
        answers = {p: found.answer(call, family, SOCK_DGRAM, p) for p in range(300)}
        allowed = {protocol for protocol, answer in answers.items() if answer == ALLOWED}
        assert allowed == {0, 1, 6, 17, 58}
        # Compared as the kernel does not: with more bits.
        for protocol in with_high_bits(found, 132):
            assert found.answer(call, family, SOCK_DGRAM, protocol) == "EPROTONOSUPPORT"


@everywhere
def test_calls_without_names_are_missing(name: str, profile: str) -> None:
    found = machine(name, profile)
    zero = number_of("openat2", name) - 437
    assert {found.answer(zero + number) for number in range(457, 462)} == {"ENOSYS"}
    # mseal, and before it
    assert {found.answer(zero + number) for number in (456, 462, 466)} == {ALLOWED}


@everywhere
def test_the_priority_for_disks_is_not_raised(name: str, profile: str) -> None:
    found, call = machine(name, profile), number_of("ioprio_set", name)
    realtime, best_effort, idle = 1 << 13, 2 << 13, 3 << 13
    for value in (realtime, realtime | 7, best_effort, best_effort | 5, best_effort | 8):
        assert {found.answer(call, 1, 0, v) for v in with_high_bits(found, value)} == {"EPERM"}
    for value in (0, idle, best_effort | 6, best_effort | 7):
        assert found.answer(call, 1, 0, value) == ALLOWED


@everywhere
def test_only_a_profile_with_debuggers_has_listeners(name: str, profile: str) -> None:
    found, call = machine(name, profile), number_of("seccomp", name)
    expected = "EPERM" if profile.startswith("strict") else ALLOWED
    for operation in with_high_bits(found, 1):
        assert found.answer(call, operation, 8 | 1) == expected
    assert found.answer(call, 1, 1) == ALLOWED


@everywhere
def test_netlink_gives_nothing_but_routes(name: str, profile: str) -> None:
    found = machine(name, profile)
    for protocol in range(1, 32):
        for value in with_high_bits(found, protocol):
            answer = found.answer(number_of("socket", name), AF_NETLINK, SOCK_RAW, value)
            assert answer == "EAFNOSUPPORT"


@on_every_machine
@pytest.mark.parametrize("profile", WITHOUT_UNIX_SOCKETS)
def test_a_pair_of_sockets_cannot_be_sent_elsewhere(name: str, profile: str) -> None:
    found = machine(name, profile)
    call = number_of("socketpair", name)
    for kind in (SOCK_DGRAM, SOCK_RAW, SOCK_DGRAM | SOCK_CLOEXEC):
        for value in with_high_bits(found, kind):
            assert found.answer(call, AF_UNIX, value) == "EAFNOSUPPORT"
    assert found.answer(call, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC) == ALLOWED


@everywhere
def test_a_socket_is_not_made_by_the_call_for_many_calls(name: str, profile: str) -> None:
    # What is asked for is in memory, where a filter cannot look.
    found = machine(name, profile)
    multiplexer = number_of("socketcall", name)
    assert (multiplexer >= 0) == (name in DIRECT)
    make_socket, make_pair = 1, 8
    if multiplexer >= 0:
        for call in (*with_high_bits(found, make_socket), *with_high_bits(found, make_pair)):
            assert found.answer(multiplexer, call, 0x7FFF_0000) in ("ENOSYS", "EAFNOSUPPORT")


@everywhere
def test_the_first_process_cannot_be_stopped_or_read(name: str, profile: str) -> None:
    found = machine(name, profile)
    attach, seize = 16, 0x4206
    for first in with_high_bits(found, 1):
        assert found.answer(number_of("ptrace", name), attach, first) == "EPERM"
        assert found.answer(number_of("ptrace", name), seize, first) == "EPERM"
        assert found.answer(number_of("process_vm_readv", name), first) == "EPERM"
        assert found.answer(number_of("process_vm_writev", name), first) == "EPERM"


@with_every_profile
def test_the_calls_of_arm_processors_alone_are_allowed(profile: str) -> None:
    cacheflush, set_tls = 0x0F_0002, 0x0F_0005
    assert machine("arm", profile).answer(cacheflush) == ALLOWED
    assert machine("arm", profile).answer(set_tls) == ALLOWED


# --- calls that a profile names ------------------------------------------------------------------


@on_every_machine
@pytest.mark.parametrize("profile", [name for name in RULES if RULES[name].deny])
def test_a_system_call_named_by_a_profile_is_refused_where_it_exists(
    name: str, profile: str
) -> None:
    numbers = {call: number_of(call, name) for call in RULES[profile].deny}
    assert {call for call, n in numbers.items() if n < 0} <= {"modify_ldt", "io_pgetevents_time64"}
    for number in numbers.values():
        if number >= 0:
            assert machine(name, profile).answer(number) == "EPERM"


@on_every_machine
def test_a_call_that_a_profile_names_has_no_second_way(name: str) -> None:
    arch = ARCHITECTURES[name]
    found = Machine(arch, seccomp.compile_filter(FilterRules(deny=("shmget", "connect")), arch))
    assert found.answer(number_of("shmget", name)) == "EPERM"
    assert found.answer(number_of("connect", name)) == "EPERM"
    if name not in DIRECT:
        return
    # The upper half of the number is a version, which the kernel takes off first.
    shmget, shmat, connect = 23, 21, 3
    for version in (0, 1 << 16, 7 << 16):
        for call in with_high_bits(found, version | shmget):
            assert found.answer(number_of("ipc", name), call) == "EPERM"
    assert found.answer(number_of("ipc", name), shmat) == ALLOWED
    for call in with_high_bits(found, connect):
        assert found.answer(number_of("socketcall", name), call) != ALLOWED


def test_a_call_that_the_library_does_not_know_is_an_error() -> None:
    with pytest.raises(SandboxError, match="no_such_call"):
        seccomp.compile_filter(FilterRules(deny=("no_such_call",)))


# --- what is kept --------------------------------------------------------------------------------


def test_a_filter_is_compiled_once_for_each_boot_and_kind_of_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened() -> int:
        os.close(seccomp.open_filter(FilterRules(), tmp_path))
        return len(list(tmp_path.iterdir()))

    assert [opened(), opened()] == [1, 1]
    name, size, boot = seccomp.machine()
    for other in ((name, size, "another"), (name, 2**31 - 1, boot), ("riscv64", size, boot)):
        monkeypatch.setattr(seccomp, "machine", lambda other=other: other)
        before = len(list(tmp_path.iterdir()))
        assert [opened(), opened()] == [before + 1, before + 1]


def test_filters_of_long_ago_are_removed(tmp_path: Path) -> None:
    old = tmp_path / "seccomp-0123456789abcdef.bpf"
    old.write_bytes(b"")
    os.utime(old, (0, 0))
    os.close(seccomp.open_filter(FilterRules(), tmp_path))
    assert not old.exists()
    assert len(list(tmp_path.glob("seccomp-*.bpf"))) == 1
