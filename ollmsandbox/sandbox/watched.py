# SPDX-License-Identifier: GPL-3.0-or-later
"""A folder that is watched for changes, and how one is opened that a hostile command makes."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gi.repository import Gio

# What is not there any more, or not what it was.
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass
class Folder:
    monitor: Gio.FileMonitor
    identity: tuple[int, int]
    # There before the command, which therefore did not make it.
    old: set[str] = field(default_factory=set)
    # The watched folders and the changed paths directly in it.
    names: set[str] = field(default_factory=set)
    # Of these there are too many; and how many were found so far, while they are counted again.
    not_kept: int = 0
    recount: int | None = None


class Upper:
    """The folder around all roots' upper folders, and where these are in projects."""

    def __init__(self, folder: str, overlay_map: Mapping[str, str]) -> None:
        self.path = os.path.realpath(folder)
        self._roots = dict(overlay_map)

    def is_wanted(self, path: str) -> bool:
        around, _, name = path.rpartition("/")
        return around != self.path or name in self._roots

    def real(self, path: str) -> str | None:
        """Where it is in the project; nothing for a root itself, which does not change."""
        name, _, rest = path.removeprefix(f"{self.path}/").partition("/")
        return os.path.join(self._roots[name], rest) if rest and name in self._roots else None


def open_folder(path: str) -> int | None:
    """If no link leads there: the command may put one anywhere, at any time. Raises what is no sign
    of that."""
    try:
        descriptor = os.open(path, _FOLDER)
    except OSError as error:
        if error.errno not in GONE:
            raise
        return None
    if _place(descriptor) == path:
        return descriptor
    os.close(descriptor)
    return None


def entries(path: str) -> Iterator[os.DirEntry[str]]:
    descriptor = open_folder(path)
    if descriptor is None:
        return
    try:
        with contextlib.suppress(OSError), os.scandir(descriptor) as found:
            yield from found
    finally:
        os.close(descriptor)


def new_monitor(path: str) -> tuple[Gio.FileMonitor, tuple[int, int]] | None:
    """And which folder it is that is watched now."""
    from gi.repository import Gio, GLib

    descriptor = open_folder(path)
    if descriptor is None:
        return None
    try:
        found = os.fstat(descriptor)
        flags = Gio.FileMonitorFlags.WATCH_MOVES
        monitor = Gio.File.new_for_path(path).monitor_directory(flags, None)
    except GLib.Error as error:
        raise OSError(errno.ENOSPC, error.message) from error
    finally:
        os.close(descriptor)
    return monitor, (found.st_dev, found.st_ino)


def is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def watches_held() -> int:
    """By this process, for whatever."""
    held = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:inotify":
                with open(f"/proc/self/fdinfo/{name}", "rb") as lines:
                    held += sum(line.startswith(b"inotify ") for line in lines)
    return held


def _place(descriptor: int) -> str | None:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return None
