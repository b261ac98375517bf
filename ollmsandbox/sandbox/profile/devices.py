# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks the devices that a profile lets through to commands."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence

from ... import N_
from ...errors import ProfileError
from ...paths import is_inside

# Below /dev. They lead to disks, to memory, to other programs or to the user's keyboard and
# screen, or every sandbox has one of its own. Compiled when it is used: most profiles name none.
_FORBIDDEN = (
    # memory and the kernel
    r"mem|kmem|port|core|kmsg|snapshot|udmabuf|userfaultfd|cpu/.*|msr.*|vfio.*|vhost.*|mei.*|tpm.*"
    # disks and file systems, also by the character devices that command a disk
    r"|disk/.*|block/.*|sd[a-z].*|sr\d.*|sg\d.*|st\d.*|nst\d.*|bsg.*|nvme.*|ng\d.*|mmcblk.*|mtd.*|raw.*"
    r"|mapper.*|dm-.*|md.*|loop.*|nbd.*|btrfs-control|fuse|cuse|autofs|ubi.*|zfs"
    # keyboards and what imitates them, raw USB, traffic
    r"|input.*|hidraw.*|uinput|uhid|bus/.*|usbmon.*|net/.*|binder.*"
    # terminals and screens
    r"|tty|tty\d+|console|vcs.*|ptmx|pts.*|fb\d.*"
    # the sandbox's own
    r"|null|zero|full|random|urandom|fd.*|stdin|stdout|stderr|shm.*|mqueue.*|log|hugepages.*"
)
# /dev/mem, /dev/kmem and /dev/port, by whatever name.
_MEMORY = {os.makedev(1, minor) for minor in (1, 2, 4)}


def is_forbidden(path: str) -> bool:
    """Return whether a device below /dev is never let through, judged by its name."""
    return re.fullmatch(_FORBIDDEN, path.removeprefix("/dev/")) is not None


def usable_devices(paths: Sequence[str]) -> list[str]:
    """Return those that are there; raise ProfileError for what may not be let through."""
    found = []
    for path in paths:
        real = os.path.realpath(path)
        try:
            device = os.stat(real)
        except OSError:
            continue  # not plugged in
        is_device = stat.S_ISCHR(device.st_mode) and is_inside(real, "/dev")
        names = (path, real, _kernel_name(device.st_rdev))
        if not is_device or device.st_rdev in _MEMORY or any(map(is_forbidden, names)):
            raise ProfileError(
                N_("{path} cannot be let through to commands."),
                N_("Remove it from `devices` in the profile."),
                path=path,
            )
        found.append(path)
    return found


def _kernel_name(device: int) -> str:
    """Return the kernel's name of a character device, or "" if it does not say."""
    try:
        with open(f"/sys/dev/char/{os.major(device)}:{os.minor(device)}/uevent") as file:
            lines = file.read().splitlines()
    except OSError:
        return ""
    return next((line[len("DEVNAME=") :] for line in lines if line.startswith("DEVNAME=")), "")
