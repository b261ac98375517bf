# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what the host has right now: sockets, mount points, the resolver's file."""

from __future__ import annotations

import os
import re
import stat
from functools import cached_property, lru_cache

from ...paths import is_inside
from ...record import Record

_ESCAPED = rb"\\([0-7]{3})"


def path_and_parents(path: str) -> list[str]:
    """Return the path itself and all folders that contain it, outermost first."""
    parts = path.rstrip("/").split("/")
    return ["/".join(parts[: n + 1]) or "/" for n in range(len(parts))]


class MountPoint(Record):
    """A path where a file system, or the part of it below `root`, is mounted."""

    path: str
    device: str
    root: str


class Host:
    """The sockets and mounts of this computer, as they are when a command starts."""

    def __init__(self) -> None:
        self.sockets = _sockets()
        self.mounts = mount_table()
        self.resolver = os.path.realpath("/etc/resolv.conf")

    def sockets_below(self, folder: str) -> list[str]:
        return [socket for socket in self.sockets if is_inside(socket, folder)]

    def mounted_below(self, folder: str) -> list[str]:
        start = f"{folder.rstrip('/')}/"
        return sorted({m.path for m in self.mounts if m.path.startswith(start)} - {folder})

    def mount_around(self, path: str) -> MountPoint | None:
        parents = reversed(path_and_parents(path))
        return next((self._by_path[p] for p in parents if p in self._by_path), None)

    def aliases(self, path: str) -> list[str]:
        """Return other paths of the same file: its file system may be mounted twice, or bound."""
        place = self._place(path)
        if place is None:
            return []
        device, inner = place
        found = {
            _move(inner, other.root, other.path)
            for other in self._by_device[device]
            if is_inside(inner, other.root)
        }
        return sorted(alias for alias in found - {path} if _same(alias, path))

    def _place(self, path: str) -> tuple[str, str] | None:
        """Return the device that a path is on, and the path there."""
        mount = self.mount_around(path)
        return None if mount is None else (mount.device, _move(path, mount.path, mount.root))

    def views(self, folder: str) -> list[str]:
        """Return mount points elsewhere that show a part of the folder, or all of it."""
        inner = self._place(folder)
        if inner is None:
            return []
        device, root = inner
        found = {mount.path for mount in self._by_device[device] if is_inside(mount.root, root)}
        return sorted(path for path in found if not is_inside(path, folder))

    @cached_property
    def _by_path(self) -> dict[str, MountPoint]:
        # The last mount at a path covers the others.
        return {mount.path: mount for mount in self.mounts}

    @cached_property
    def _by_device(self) -> dict[str, list[MountPoint]]:
        found: dict[str, list[MountPoint]] = {}
        for mount in self.mounts:
            found.setdefault(mount.device, []).append(mount)
        return found


class PathResolver:
    """Resolves links as os.path.realpath does, but each folder only once: many paths are in the
    same ones."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, os.stat_result | None]] = {"/": ("/", os.stat("/"))}

    def resolve(self, path: str) -> tuple[str, os.stat_result | None]:
        """Return the path with links resolved, and its status if it exists."""
        if path not in self._known:
            around, _, name = path.rpartition("/")
            real, found = self.resolve(around or "/")
            here = f"{real.rstrip('/')}/{name}"
            # If its parent does not exist, neither does this.
            self._known[path] = (here, None) if found is None else _look(here)
        return self._known[path]


def _look(path: str) -> tuple[str, os.stat_result | None]:
    try:
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            path = os.path.realpath(path)
            found = os.stat(path)
    except OSError:
        return path, None
    return path, found


def _sockets() -> tuple[str, ...]:
    """Return the paths of all bound sockets, with links resolved."""
    given = set()
    for line in _read("/proc/net/unix").split(b"\n")[1:]:
        # Num RefCount Protocol Flags Type St Inode Path; the path may hold spaces.
        if b" /" in line:
            fields = line.split(None, 7)
            if len(fields) == 8 and fields[7].startswith(b"/"):
                given.add(fields[7])
    seen = PathResolver()
    found = set()
    for path in map(os.fsdecode, given):
        plain = os.path.normpath(path) == path
        found.add(seen.resolve(path)[0] if plain else os.path.realpath(path))
    return tuple(sorted(filter(os.path.lexists, found)))


def mount_table() -> tuple[MountPoint, ...]:
    return _mounts_of(_read("/proc/self/mountinfo"))


def _read(table: str) -> bytes:
    # In large pieces: for each, the kernel takes a lock that other programs wait for.
    with open(table, "rb", buffering=0) as file:
        return b"".join(iter(lambda: file.read(1 << 16), b""))


@lru_cache(maxsize=2)
def _mounts_of(table: bytes) -> tuple[MountPoint, ...]:
    found = []
    # Not with splitlines: a name may contain other characters that end a line.
    for line in table.split(b"\n")[:-1]:
        # ID PARENT MAJOR:MINOR ROOT MOUNT-POINT ...
        fields = line.split(b" ", 5)
        found.append(MountPoint(_plain(fields[4]), _plain(fields[2]), _plain(fields[3])))
    return tuple(dict.fromkeys(found))


def _plain(field: bytes) -> str:
    if b"\\" in field:
        field = re.sub(_ESCAPED, lambda match: bytes([int(match[1], 8)]), field)
    return os.fsdecode(field)


def _move(path: str, folder: str, other: str) -> str:
    """Return the path in `other` that corresponds to `path` in `folder`."""
    return (other.rstrip("/") + path[len(folder.rstrip("/")) :]) or "/"


def _same(one: str, two: str) -> bool:
    try:
        return os.path.samestat(os.lstat(one), os.lstat(two))
    except OSError:
        return False
