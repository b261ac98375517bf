# SPDX-License-Identifier: GPL-3.0-or-later
"""The numbers of system calls that attacks use."""

from __future__ import annotations

import platform

MACHINE = platform.machine()

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
    # what all processes of a user share
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "move_pages": (279, 239), "migrate_pages": (256, 238),
}  # fmt: skip
# Since 2019 a system call has the same number everywhere.
_NEW = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "clone3": 435, "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447,
    "statmount": 457, "listmount": 458, "lsm_get_self_attr": 459, "lsm_set_self_attr": 460,
    "lsm_list_modules": 461, "open_tree_attr": 467,
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
