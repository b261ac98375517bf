# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders as a command may leave them: closed, deeper than any path can be long, full of links."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from .dirfd import FOLDER, _is_folder, _unlock, allow_many_descriptors


def measure(folder: Path, *, since: int = 0) -> tuple[int, int]:
    """How many files, and bytes on disk, of what was changed `since` then (in ns). Links are not
    followed; closed folders count as empty."""
    files = size = 0
    # One descriptor for each level we are in: a path could be too long to be opened.
    allow_many_descriptors()
    levels: list[tuple[int, list[str]]] = []

    def enter(name: str | Path, around: int | None) -> None:
        nonlocal files, size
        with contextlib.suppress(OSError):
            descriptor = os.open(name, FOLDER, dir_fd=around)
            folders: list[str] = []
            levels.append((descriptor, folders))
            for entry in os.listdir(descriptor):
                found = os.stat(entry, dir_fd=descriptor, follow_symlinks=False)
                is_meant = found.st_ctime_ns >= since
                size += found.st_blocks * 512 if is_meant else 0
                if stat.S_ISDIR(found.st_mode):
                    folders.append(entry)
                elif is_meant:
                    files += 1

    enter(folder, None)
    while levels:
        descriptor, folders = levels[-1]
        if folders:
            enter(folders.pop(), descriptor)
        else:
            os.close(descriptor)
            levels.pop()
    return files, size


def empty(folder: Path) -> None:
    """Remove all that is in it. What lies deep is moved up first, so that nothing is too deep."""
    top = os.open(folder, FOLDER)
    try:
        _empty(top)
    finally:
        os.close(top)


def _empty(top: int) -> None:
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


def remove(name: str, around: int) -> None:
    """A file, or a folder with all that is in it."""
    if not _is_folder(name, around):
        os.unlink(name, dir_fd=around)
        return
    _unlock(name, around)
    folder = os.open(name, FOLDER, dir_fd=around)
    try:
        _empty(folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=around)


def _move_up(name: str, around: int, top: int, number: int) -> int:
    # Moving a folder changes its "..", for which it has to be writable.
    _unlock(name, around)
    while True:
        number += 1
        target = f".removed-{number}"
        if not os.access(target, os.F_OK, dir_fd=top, follow_symlinks=False):
            os.rename(name, target, src_dir_fd=around, dst_dir_fd=top)
            return number
