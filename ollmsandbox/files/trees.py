# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure and remove folders as a command may leave them: without permissions, deeper than any path
can be long, full of links."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from .dirfd import (
    FOLDER,
    FOLDER_OR_LINK,
    UnlockedFolder,
    allow_many_descriptors,
    open_folder,
    set_mode,
)


def measure(
    folder: Path, *, since: int = 0, unlock: bool = False, least: int = 0
) -> tuple[int, int]:
    """Return the number of files, and the bytes on disk, of what was changed since a time (in ns).

    Links are not followed. Folders without permissions count as empty, or get them for a moment.
    Each file and folder counts as `least` bytes or more.
    """
    files = size = 0
    # One descriptor for each level: a path could be too long to be opened.
    allow_many_descriptors()
    levels: list[tuple[int, list[str], list[UnlockedFolder]]] = []

    def enter(name: str, dir_fd: int) -> None:
        nonlocal files, size
        with contextlib.suppress(OSError):
            unlocked: list[UnlockedFolder] = []
            if unlock:
                descriptor = open_folder(name, dir_fd, unlocked)
            else:
                descriptor = os.open(name, FOLDER, dir_fd=dir_fd)
            folders: list[str] = []
            levels.append((descriptor, folders, unlocked))
            for entry in os.listdir(descriptor):
                found = os.stat(entry, dir_fd=descriptor, follow_symlinks=False)
                is_new = found.st_ctime_ns >= since
                size += max(least, found.st_blocks * 512) if is_new else 0
                if stat.S_ISDIR(found.st_mode):
                    folders.append(entry)
                elif is_new:
                    files += 1

    try:
        around = os.open(folder.parent, FOLDER_OR_LINK)
    except OSError:
        return 0, 0
    enter(folder.name, around)
    while levels:
        descriptor, folders, unlocked = levels[-1]
        if folders:
            enter(folders.pop(), descriptor)
        else:
            os.close(descriptor)
            for one in unlocked:
                with contextlib.suppress(OSError):
                    one.restore()
            levels.pop()
    os.close(around)
    return files, size


def empty(folder: Path) -> None:
    """Remove everything in a folder."""
    top = os.open(folder, FOLDER)
    try:
        _empty(top)
    finally:
        os.close(top)


def remove(name: str, dir_fd: int) -> None:
    """Remove a file, or a folder with everything in it."""
    if not _is_folder(name, dir_fd):
        os.unlink(name, dir_fd=dir_fd)
        return
    _unlock(name, dir_fd)
    folder = os.open(name, FOLDER, dir_fd=dir_fd)
    try:
        _empty(folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=dir_fd)


def _empty(top: int) -> None:
    # Folders in folders are moved up first, so that none is too deep.
    number = 0
    while names := os.listdir(top):
        for name in names:
            if not _is_folder(name, top):
                os.unlink(name, dir_fd=top)
                continue
            _unlock(name, top)
            inner = os.open(name, FOLDER, dir_fd=top)
            try:
                for entry in os.listdir(inner):
                    if _is_folder(entry, inner):
                        number = _move_up(entry, inner, top, number)
                    else:
                        os.unlink(entry, dir_fd=inner)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)


def _move_up(name: str, dir_fd: int, top: int, number: int) -> int:
    # Moving a folder changes its "..", for which it has to be writable.
    _unlock(name, dir_fd)
    while True:
        number += 1
        target = f".removed-{number}"
        if not os.access(target, os.F_OK, dir_fd=top, follow_symlinks=False):
            os.rename(name, target, src_dir_fd=dir_fd, dst_dir_fd=top)
            return number


def _unlock(name: str, dir_fd: int) -> None:
    """A command may have left a folder without permissions."""
    set_mode(name, dir_fd, 0o700)


def _is_folder(name: str, dir_fd: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
