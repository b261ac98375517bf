# SPDX-License-Identifier: GPL-3.0-or-later
"""The system-call filter: it refuses calls that no profile needs and that the kernel allows."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import N_
from ..errors import OllmSandboxError, SandboxError
from ..paths import make_folder

if TYPE_CHECKING:
    from .profile.profile import Profile

_VERSION = 5

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

# Programs fall back if these are missing; with EPERM some would give up.
_ABSENT = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")

# A newer call that mounts.
_NEWER = {"open_tree_attr": 467}

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
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_ALLOWED_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
_SOCKET_TYPE_MASK = 0xF


@dataclass(frozen=True)
class FilterRules:
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
    """Return a descriptor of the compiled filter, which is cached: compiling takes 30 ms."""
    key = repr((_VERSION, rules, _REFUSED, _ABSENT, _NEWER, os.uname().machine))
    file = cache / f"seccomp-{hashlib.sha256(key.encode()).hexdigest()[:16]}.bpf"
    try:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        pass  # not compiled yet, or not readable
    made = os.memfd_create("filter", os.MFD_CLOEXEC)
    _compile(rules, Path(f"/proc/self/fd/{made}"))
    # If it cannot be cached, for example on a full disk, it is compiled each time.
    with contextlib.suppress(OSError, OllmSandboxError):
        _keep(os.pread(made, os.fstat(made).st_size, 0), file)
    return made


def _keep(content: bytes, file: Path) -> None:
    import tempfile

    make_folder(file.parent)
    with tempfile.TemporaryDirectory(dir=file.parent, prefix="seccomp-") as folder:
        whole = Path(folder, "filter")
        whole.write_bytes(content)
        whole.rename(file)


def _compile(rules: FilterRules, target: Path) -> None:
    try:
        import pyseccomp as lib
    except (ImportError, OSError, RuntimeError) as error:
        raise SandboxError(
            N_("Cannot build the system-call filter: {why}."),
            N_("Install libseccomp2."),
            why=str(error),
        ) from error

    made = lib.SyscallFilter(lib.ALLOW)
    eperm, enosys = lib.ERRNO(errno.EPERM), lib.ERRNO(errno.ENOSYS)
    no_family = lib.ERRNO(errno.EAFNOSUPPORT)

    def known(name: str) -> bool:
        # Not every architecture has every call.
        return int(lib.resolve_syscall(lib.Arch.NATIVE, name)) >= 0

    for name in _REFUSED:
        if known(name):
            made.add_rule(eperm, name)
    for name in _ABSENT:
        if known(name):
            made.add_rule(enosys, name)
    for name in rules.deny:
        if not known(name):
            raise SandboxError(
                N_("The profile refuses an unknown system call: {name}."),
                N_("Correct deny_syscalls in the profile."),
                name=name,
            )
        made.add_rule(eperm, name)

    for number in _NEWER.values():
        # By number, the same on all architectures: the library may not know the name yet.
        made.add_rule(enosys, number)

    # The first process inside is bwrap's: stopped by a debugger, it would block the run.
    for request in (_PTRACE_ATTACH, _PTRACE_SEIZE):
        made.add_rule(
            eperm,
            "ptrace",
            lib.Arg(0, lib.EQ, request),
            lib.Arg(1, lib.MASKED_EQ, 0xFFFFFFFF, 1),
        )

    for name in ("process_vm_readv", "process_vm_writev"):
        made.add_rule(eperm, name, lib.Arg(0, lib.MASKED_EQ, 0xFFFFFFFF, 1))

    for flag in _NEW_NAMESPACE:
        made.add_rule(eperm, "clone", lib.Arg(0, lib.MASKED_EQ, flag, flag))
        made.add_rule(eperm, "unshare", lib.Arg(0, lib.MASKED_EQ, flag, flag))
    flag = _NEW_TIME_NAMESPACE
    made.add_rule(eperm, "unshare", lib.Arg(0, lib.MASKED_EQ, flag, flag))

    # The kernel looks at 32 bits only; a filter that compares 64 is passed by setting a high one.
    for request in (_TIOCSTI, _TIOCLINUX):
        made.add_rule(eperm, "ioctl", lib.Arg(1, lib.MASKED_EQ, 0xFFFFFFFF, request))

    families = set(_ALLOWED_FAMILIES)
    if not rules.unix_sockets:
        families.discard(socket.AF_UNIX)
    if not rules.netlink:
        families.discard(socket.AF_NETLINK)
    highest = int(max(_ALLOWED_FAMILIES))
    made.add_rule(no_family, "socket", lib.Arg(0, lib.GT, highest))
    for family in range(highest + 1):
        if family not in families:
            made.add_rule(no_family, "socket", lib.Arg(0, lib.EQ, family))
    # Only Unix sockets come in pairs, but asking for others would load kernel modules.
    made.add_rule(no_family, "socketpair", lib.Arg(0, lib.NE, int(socket.AF_UNIX)))
    if rules.netlink:
        # Routes only: no kernel events, no audit, no table of all sockets.
        made.add_rule(
            no_family,
            "socket",
            lib.Arg(0, lib.EQ, int(socket.AF_NETLINK)),
            lib.Arg(2, lib.NE, 0),
        )
    if not rules.unix_sockets:
        # A pair is harmless, unless it is of datagram sockets: those can be sent to any address.
        made.add_rule(
            no_family,
            "socketpair",
            lib.Arg(1, lib.MASKED_EQ, _SOCKET_TYPE_MASK, int(socket.SOCK_DGRAM)),
        )
        made.add_rule(
            no_family,
            "socketpair",
            lib.Arg(1, lib.MASKED_EQ, _SOCKET_TYPE_MASK, int(socket.SOCK_RAW)),
        )

    with target.open("wb") as file:
        made.export_bpf(file)
