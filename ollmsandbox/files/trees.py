# SPDX-License-Identifier: GPL-3.0-or-later
"""Walk through folders as a command may leave them, and measure and remove them: without
permissions, deeper than any path can be long, full of links, with overlayfs' marks of deletions."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from .dirfd import allow_many_descriptors, open_folder, opened_folder, set_mode

# The attribute of a folder of an overlayfs layer that hides what is in the one below it.
OPAQUE = "user.overlay.opaque"


def is_whiteout(found: os.stat_result) -> bool:
    """Return whether an entry of a layer says that a name is deleted."""
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def is_opaque(folder: int) -> bool:
    """Return whether a folder of a layer hides what is in the one below it."""
    # A command cannot forge it: overlayfs stores what it sets under another name.
    try:
        return os.getxattr(folder, OPAQUE) == b"y"
    except OSError:
        return False


class WalkedFolder:
    """A folder that a walk has reached. It is open until the walk has left it."""

    def __init__(
        self, name: str, dir_fd: int | None, parent: WalkedFolder | None, rights: int
    ) -> None:
        self._name = name
        self._dir_fd = dir_fd
        self._parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.descriptor, self._mode = open_folder(name, dir_fd, rights)
        # The names of the folders to enter from here. The caller adds them.
        self.folders: list[str] = []

    @property
    def path(self) -> str:
        """The path below the top, which is ""."""
        names, folder = [], self
        while folder._parent is not None:
            names.append(folder._name)
            folder = folder._parent
        return "/".join(reversed(names))

    def leave(self) -> None:
        os.close(self.descriptor)
        if self._mode is not None:
            set_mode(self._name, self._dir_fd, self._mode)


def walk(
    name: str | os.PathLike[str],
    dir_fd: int | None = None,
    *,
    rights: int = 0,
    skip_errors: bool = False,
) -> Iterator[WalkedFolder]:
    """Open a folder, and then each one that the caller adds to its `folders`, and so on.

    Links are not followed. There is one descriptor for each level: a path could be too long to be
    opened. A folder that lacks these `rights` (os.X_OK and the like) gets them while it is open.
    With `skip_errors`, folders that cannot be opened are passed over.
    """
    allow_many_descriptors()
    levels: list[WalkedFolder] = []
    waiting = [os.fspath(name)]
    failures = (OSError,) if skip_errors else ()
    try:
        while waiting or levels:
            if not waiting:
                with contextlib.suppress(*failures):
                    levels.pop().leave()
            else:
                parent = levels[-1] if levels else None
                around = dir_fd if parent is None else parent.descriptor
                with contextlib.suppress(*failures):
                    levels.append(WalkedFolder(waiting.pop(), around, parent, rights))
                    yield levels[-1]
            waiting = levels[-1].folders if levels else []
    finally:
        while levels:
            with contextlib.suppress(*failures):
                levels.pop().leave()


def measure(
    folder: Path, *, since: int = 0, unlock: bool = False, least: int = 0
) -> tuple[int, int]:
    """Return the number of files, and the bytes on disk, of what was changed since a time (in ns).

    Links are not followed. Folders without permissions count as empty, or get them for a moment.
    Each file and folder counts as `least` bytes or more.
    """
    files = size = 0
    for level in walk(folder, rights=os.X_OK if unlock else 0, skip_errors=True):
        with contextlib.suppress(OSError):
            for entry in os.listdir(level.descriptor):
                found = os.stat(entry, dir_fd=level.descriptor, follow_symlinks=False)
                is_new = found.st_ctime_ns >= since
                size += max(least, found.st_blocks * 512) if is_new else 0
                if stat.S_ISDIR(found.st_mode):
                    level.folders.append(entry)
                elif is_new:
                    files += 1
    return files, size


def empty(folder: Path) -> None:
    """Remove everything in a folder."""
    with opened_folder(folder) as top:
        _empty(top)


def remove(name: str, dir_fd: int) -> None:
    """Remove a file, or a folder with everything in it."""
    if not _is_folder(name, dir_fd):
        os.unlink(name, dir_fd=dir_fd)
        return
    # A command may have left it without permissions.
    set_mode(name, dir_fd, 0o700)
    with opened_folder(name, dir_fd) as folder:
        _empty(folder)
    os.rmdir(name, dir_fd=dir_fd)


def remove_path(path: str | os.PathLike[str]) -> None:
    """Remove a file, or a folder with everything in it, by its path."""
    with opened_folder(os.path.dirname(path), follow_link=True) as around:
        remove(os.path.basename(path), around)


def _empty(top: int) -> None:
    # Folders in folders are moved up first, so that none is too deep.
    number = 0
    while names := os.listdir(top):
        for name in names:
            if not _is_folder(name, top):
                os.unlink(name, dir_fd=top)
                continue
            set_mode(name, top, 0o700)
            with opened_folder(name, top) as inner:
                for entry in os.listdir(inner):
                    if _is_folder(entry, inner):
                        number = _move_up(entry, inner, top, number)
                    else:
                        os.unlink(entry, dir_fd=inner)
            os.rmdir(name, dir_fd=top)


def _move_up(name: str, dir_fd: int, top: int, number: int) -> int:
    # Moving a folder changes its "..", for which it has to be writable.
    set_mode(name, dir_fd, 0o700)
    while True:
        number += 1
        target = f".removed-{number}"
        if not os.access(target, os.F_OK, dir_fd=top, follow_symlinks=False):
            os.rename(name, target, src_dir_fd=dir_fd, dst_dir_fd=top)
            return number


def _is_folder(name: str, dir_fd: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
