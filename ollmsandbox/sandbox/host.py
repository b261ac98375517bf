# SPDX-License-Identifier: GPL-3.0-or-later
"""What the machine has at this moment: sockets, mount points, the resolver's file."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_ESCAPED = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True)
class Host:
    sockets: tuple[str, ...]
    mount_points: tuple[str, ...]
    resolver: str

    @classmethod
    def look(cls) -> Host:
        return cls(
            sockets=_sockets(),
            mount_points=_mount_points(),
            resolver=os.path.realpath("/etc/resolv.conf"),
        )


def _sockets() -> tuple[str, ...]:
    """Full paths of the sockets that are bound now, links resolved."""
    found = set()
    with open("/proc/net/unix", "rb") as file:
        next(file, None)
        for line in file:
            # Num RefCount Protocol Flags Type St Inode Path; the path may hold spaces.
            fields = line.rstrip(b"\n").split(None, 7)
            if len(fields) == 8 and fields[7].startswith(b"/"):
                path = os.path.realpath(os.fsdecode(fields[7]))
                if os.path.lexists(path):
                    found.add(path)
    return tuple(sorted(found))


def _mount_points() -> tuple[str, ...]:
    found = []
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            raw = line.split(b" ")[4]
            plain = _ESCAPED.sub(lambda m: bytes([int(m[1], 8)]), raw)
            found.append(os.fsdecode(plain))
    return tuple(dict.fromkeys(found))
