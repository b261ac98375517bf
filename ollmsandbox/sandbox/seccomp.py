# SPDX-License-Identifier: GPL-3.0-or-later
"""The system-call filter: it refuses calls that no profile needs and that the kernel allows."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib
import itertools
import os
import re
import socket
import struct
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from .. import N_
from ..errors import OllmSandboxError, SandboxError
from ..paths import make_folder
from ..record import Record
from .starter.client import memory_file

if TYPE_CHECKING:
    from .profile.profile import Profile

_VERSION = 9
# Seconds after which a kept filter is likely to be of an earlier boot.
_OLD = 30 * 24 * 3600

_REFUSED = (
    # other file systems and roots
    "mount", "umount2", "umount", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen",
    "fsconfig", "fsmount", "fspick", "mount_setattr", "setns", "swapon", "swapoff", "quotactl",
    "quotactl_fd", "open_by_handle_at", "name_to_handle_at", "fanotify_init",
    # the kernel itself
    "bpf", "perf_event_open", "userfaultfd", "kexec_load", "kexec_file_load", "init_module",
    "finit_module", "delete_module", "create_module", "get_kernel_syms", "query_module", "reboot",
    "syslog", "acct", "uselib", "ustat", "sysfs", "nfsservctl", "lookup_dcookie", "vhangup",
    "iopl", "ioperm", "vm86", "vm86old", "_sysctl",
    # the machine's clock and name
    "settimeofday", "stime", "clock_settime", "clock_settime64", "adjtimex", "clock_adjtime",
    "clock_adjtime64", "sethostname", "setdomainname",
    # keyrings are shared by all processes of a user, across namespaces
    "add_key", "keyctl", "request_key",
    # placement of other processes' memory
    "move_pages", "migrate_pages",
    # descriptors of other processes
    "pidfd_getfd",
)  # fmt: skip

# Programs that find these missing fall back; EPERM would make some give up. What socketcall(), a
# second way to make sockets on some architectures, is asked for lies in memory, out of sight.
_ABSENT = (
    "clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "socketcall",
    # memory that no limit counts
    "memfd_secret",
)  # fmt: skip

# Numbers that are missing, too, because older versions of libseccomp have no names for them:
# statmount, listmount and lsm_*, which tell about the machine's mounts and policy; and all calls
# newer than this program. 467, the first of them, is another way to mount (open_tree_attr). Since
# 2019 a new call has the same number everywhere, counted from where an architecture begins. By 512
# to 547 kernels before 5.4 let 64-bit programs make some of the x32 calls. Above, ARM has calls
# that every program there needs.
_OPENAT2 = 437
_WITHOUT_NAMES = ((457, 461), (467, 999))

# libseccomp's numbers, less than zero, of calls that can also be made through another one:
# socketcall() from -100 on, ipc() from -200 on.
_MULTIPLEXED, _THROUGH_IPC = range(-299, -99), range(-299, -199)
_NAME = r"[a-z0-9_]+"
_LITTLE_ENDIAN = 0x40000000  # __AUDIT_ARCH_LE

_PTRACE_ATTACH, _PTRACE_SEIZE = 16, 0x4206

_NEW_NAMESPACE = (
    0x00020000,  # CLONE_NEWNS
    0x02000000,  # CLONE_NEWCGROUP
    0x04000000,  # CLONE_NEWUTS
    0x08000000,  # CLONE_NEWIPC
    0x10000000,  # CLONE_NEWUSER
    0x20000000,  # CLONE_NEWPID
    0x40000000,  # CLONE_NEWNET
)
_NEW_TIME_NAMESPACE = 0x00000080
# Of personality(): what is readable can be executed, in every program that is started.
_READ_IMPLIES_EXEC = 0x00400000
_ALLOWED_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
_SOCKET_TYPE_MASK = 0xF
# Others (SCTP, DCCP, MPTCP, UDP-Lite) would load kernel modules.
_ALLOWED_PROTOCOLS = (
    0,
    socket.IPPROTO_ICMP,
    socket.IPPROTO_TCP,
    socket.IPPROTO_UDP,
    socket.IPPROTO_ICMPV6,
)
# Of seccomp(): a filter whose questions a process answers, which sees and changes what others do.
_SET_FILTER, _NEW_LISTENER = 1, 8
# Of ioprio_set(): the class and the level; the starter's nice value makes it best-effort, 6.
_CLASS, _REALTIME, _BEST_EFFORT, _LEVEL, _OWN_LEVEL = 0xE000, 0x2000, 0x4000, 7, 6
# Of fcntl(): whoever opens the file to write waits for its holder, up to 45 seconds.
_SET_LEASE = 1024
_LOW_HALF = 0xFFFFFFFF


class _Rule(Record):
    """A call that is refused if all comparisons are true: an argument's place, an operator of
    libseccomp and one or two numbers."""

    error: int
    call: str
    comparisons: tuple[tuple[int, ...], ...] = ()


class FilterRules(Record):
    """Options of the filter, besides its fixed list.

    `unix_sockets` is off in strict profiles, and while the network is on: abstract sockets belong
    to the network namespace, and a filter cannot see the address of a connect().
    """

    unix_sockets: bool = True
    netlink: bool = True
    deny: tuple[str, ...] = ()

    @classmethod
    def of(cls, profile: Profile, *, network: bool) -> FilterRules:
        sockets = profile.unix_sockets
        return cls(sockets and not network, sockets, profile.deny_syscalls)


def open_filter(rules: FilterRules, cache: Path) -> int:
    """A descriptor of the compiled filter; compiling costs 30 ms, so the result is kept."""
    key = repr((_VERSION, rules, _REFUSED, _ABSENT, _WITHOUT_NAMES, machine()))
    file = cache / f"seccomp-{hashlib.sha256(key.encode()).hexdigest()[:16]}.bpf"
    try:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        pass  # not compiled yet, or it cannot be kept
    content = compile_filter(rules)
    # On a full disk, or one that is not ours to write, it is compiled anew each time.
    with contextlib.suppress(OSError, OllmSandboxError):
        _keep(content, file)
    return memory_file("filter", content)


def _keep(content: bytes, file: Path) -> None:
    import tempfile

    make_folder(file.parent)
    for old in file.parent.glob("seccomp-*.bpf"):
        if time.time() - old.stat().st_mtime > _OLD:
            old.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent, prefix="seccomp-") as folder:
        whole = Path(folder, "filter")
        whole.write_bytes(content)
        whole.rename(file)


def machine() -> tuple[object, ...]:
    """Return what decides for which machine libseccomp compiles, and by which version of it.

    A newer version knows more calls; it counts from the next boot on, because to load it and ask
    would take 5 ms before every command. The kernel's name for the machine alone does not tell:
    32-bit programs run on 64-bit kernels, too.
    """
    boot = Path("/proc/sys/kernel/random/boot_id")
    return os.uname().machine, sys.maxsize, boot.read_text(encoding="ascii")


def _library() -> ModuleType:
    try:
        return importlib.import_module("pyseccomp")
    except (ImportError, OSError, RuntimeError) as error:
        raise SandboxError(
            N_("The system-call filter cannot be built: {why}."),
            N_("Install libseccomp2."),
            why=str(error),
        ) from error


def find_call(name: str, arch: int = 0) -> int | None:
    """Return libseccomp's number of a system call, or None if the architecture, by default this
    machine's, does not have the call. Raise LookupError if libseccomp knows of none that has it."""
    number = int(_library().resolve_syscall(arch, name)) if re.fullmatch(_NAME, name) else -1
    if number == -1:
        raise LookupError(name)
    return number if number >= 0 or number in _MULTIPLEXED else None


def compile_filter(rules: FilterRules, arch: int = 0) -> bytes:
    """Return the filter for an architecture, by default this machine's. The kernel kills whoever
    makes a call of another one: a program can switch to the calls of a 32-bit processor."""
    lib = _library()
    made = lib.SyscallFilter(lib.ALLOW)
    native = lib.system_arch()
    arch = arch or native
    if arch != native:
        made.remove_arch(native)
        made.add_arch(arch)
    for rule in (
        *_rules_by_name(rules, arch),
        *_process_rules(rules, arch),
        *_terminal_rules(),
        *_socket_rules(rules),
    ):
        comparisons = (lib.Arg(*comparison) for comparison in rule.comparisons)
        made.add_rule(lib.ERRNO(rule.error), rule.call, *comparisons)

    with open(os.memfd_create("filter", os.MFD_CLOEXEC), "r+b") as file:
        made.export_bpf(file)
        file.seek(0)
        return _first_instructions(arch) + file.read()


def _rules_by_name(rules: FilterRules, arch: int) -> Iterator[_Rule]:
    """Yield the calls that are refused whatever their arguments are."""
    equal = _library().MASKED_EQ
    for error, names in (
        (errno.EPERM, _REFUSED),
        (errno.ENOSYS, _ABSENT),
        (errno.EPERM, rules.deny),
    ):
        for name in names:
            try:
                number = find_call(name, arch)
            except LookupError as problem:
                raise SandboxError(
                    N_("libseccomp does not know the system call {name}."),
                    N_("Install a newer version of libseccomp2."),
                    name=name,
                ) from problem
            if number is None:
                continue  # nothing to refuse: not every architecture has every call
            yield _Rule(error, name)
            if number in _THROUGH_IPC:
                # libseccomp compares all bits of ipc()'s number, the kernel the lowest 16.
                yield _Rule(error, "ipc", ((0, equal, 0xFFFF, -number - 200),))


def _process_rules(rules: FilterRules, arch: int) -> Iterator[_Rule]:
    """Yield what is refused about processes: namespaces, and power over others."""
    lib = _library()
    equal = lib.MASKED_EQ
    # The first process inside is bwrap's: stopped by a debugger, it would block the run.
    first = (equal, _LOW_HALF, 1)
    for request in (_PTRACE_ATTACH, _PTRACE_SEIZE):
        yield _Rule(errno.EPERM, "ptrace", ((0, lib.EQ, request), (1, *first)))
    for name in ("process_vm_readv", "process_vm_writev"):
        yield _Rule(errno.EPERM, name, ((0, *first),))
    if "ptrace" in rules.deny:
        # No debuggers: a listener is one, too.
        listen = (1, equal, _NEW_LISTENER, _NEW_LISTENER)
        yield _Rule(errno.EPERM, "seccomp", ((0, equal, _LOW_HALF, _SET_FILTER), listen))

    # Here alone the new stack comes first.
    place = 1 if arch in (lib.Arch.S390, lib.Arch.S390X) else 0
    for flag in _NEW_NAMESPACE:
        yield _Rule(errno.EPERM, "clone", ((place, equal, flag, flag),))
    for flag in (*_NEW_NAMESPACE, _NEW_TIME_NAMESPACE):
        yield _Rule(errno.EPERM, "unshare", ((0, equal, flag, flag),))

    yield _Rule(errno.EPERM, "ioprio_set", ((2, equal, _CLASS, _REALTIME),))
    for name in ("fcntl", "fcntl64"):
        if find_call(name, arch) is not None:
            yield _Rule(errno.EPERM, name, ((1, equal, _LOW_HALF, _SET_LEASE),))
    for level in range(_OWN_LEVEL):
        higher = (2, equal, _CLASS | _LEVEL, _BEST_EFFORT | level)
        yield _Rule(errno.EPERM, "ioprio_set", (higher,))


def _terminal_rules() -> Iterator[_Rule]:
    """Yield what is refused about terminals: to type into one, or to load another line discipline
    into the kernel."""
    # The kernel looks at 32 bits only; a filter that compares 64 is passed by setting a high one.
    equal = _library().MASKED_EQ
    for request in (termios.TIOCSTI, termios.TIOCLINUX, termios.TIOCSETD):
        yield _Rule(errno.EPERM, "ioctl", ((1, equal, _LOW_HALF, request),))


def _socket_rules(rules: FilterRules) -> Iterator[_Rule]:
    """Yield the kinds of sockets that are refused."""
    lib = _library()
    no_family = errno.EAFNOSUPPORT
    families = set(_ALLOWED_FAMILIES)
    if not rules.unix_sockets:
        families.discard(socket.AF_UNIX)
    if not rules.netlink:
        families.discard(socket.AF_NETLINK)
    highest = int(max(_ALLOWED_FAMILIES))
    yield _Rule(no_family, "socket", ((0, lib.GT, highest),))
    for family in range(highest + 1):
        if family not in families:
            yield _Rule(no_family, "socket", ((0, lib.EQ, family),))
    highest = int(max(_ALLOWED_PROTOCOLS))
    for family in (int(socket.AF_INET), int(socket.AF_INET6)):
        ip = (0, lib.EQ, family)
        yield _Rule(errno.EPROTONOSUPPORT, "socket", (ip, (2, lib.GT, highest)))
        for protocol in set(range(highest)).difference(_ALLOWED_PROTOCOLS):
            yield _Rule(errno.EPROTONOSUPPORT, "socket", (ip, (2, lib.EQ, protocol)))
    # Only Unix sockets come in pairs, but asking for others would load kernel modules.
    yield _Rule(no_family, "socketpair", ((0, lib.NE, int(socket.AF_UNIX)),))
    if rules.netlink:
        # Routes only: no kernel events, no audit, no table of all sockets.
        netlink = (0, lib.EQ, int(socket.AF_NETLINK))
        yield _Rule(no_family, "socket", (netlink, (2, lib.NE, 0)))
    if not rules.unix_sockets:
        # A pair is harmless, unless it is of datagram sockets: those can be sent to any address.
        for kind in (int(socket.SOCK_DGRAM), int(socket.SOCK_RAW)):
            sent = (1, lib.MASKED_EQ, _SOCKET_TYPE_MASK, kind)
            yield _Rule(no_family, "socketpair", (sent,))


def _first_instructions(arch: int) -> bytes:
    """Return the instructions that a filter begins with, for which libseccomp has no rules: they
    refuse ranges of calls, and personality() with one bit, but not with all of them, which only
    asks for the current one."""
    lib = _library()
    zero = int(lib.resolve_syscall(arch, "openat2")) - _OPENAT2
    personality = int(lib.resolve_syscall(arch, "personality"))
    order, low_half = ("<", 16) if arch & _LITTLE_ENDIAN else (">", 20)
    load, end = 0x20, 0x06
    if_equal, if_at_least, if_set = 0x15, 0x35, 0x45
    # What to do, how many instructions to leave out then and else, and a number.
    ranges = (
        (
            (if_at_least, 0, 2, zero + first),
            (if_at_least, 1, 0, zero + last + 1),
            (end, 0, 0, lib.ERRNO(errno.ENOSYS)),
        )
        for first, last in _WITHOUT_NAMES
    )
    instructions = (
        (load, 0, 0, 0),
        *itertools.chain.from_iterable(ranges),
        (if_equal, 0, 4, personality),
        (load, 0, 0, low_half),
        (if_equal, 2, 0, 0xFFFFFFFF),
        (if_set, 0, 1, _READ_IMPLIES_EXEC),
        (end, 0, 0, lib.ERRNO(errno.EPERM)),
    )
    return b"".join(struct.pack(f"{order}HBBI", *fields) for fields in instructions)
