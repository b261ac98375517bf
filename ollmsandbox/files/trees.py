# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders as a command may leave them: closed, deeper than any path can be long, full of links."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import stat
from dataclasses import dataclass
from pathlib import Path

from .. import N_
from ..errors import ProjectError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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
            descriptor = os.open(name, _FOLDER, dir_fd=around)
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
    top = os.open(folder, _FOLDER)
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
            inner = os.open(name, _FOLDER, dir_fd=top)
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
    folder = os.open(name, _FOLDER, dir_fd=around)
    try:
        _empty(folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=around)


@dataclass(frozen=True)
class Opened:
    """A folder that was without permissions, to be so again."""

    name: str
    around: int
    mode: int

    def close_again(self) -> None:
        set_mode(self.name, self.around, self.mode)


def open_folder(name: str, around: int, opened: list[Opened], wanted: int = os.X_OK) -> int:
    """Also one that was left without permissions, if it is the person's: what is in it can only be
    looked at while it has them."""
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=around)
        if os.access(".", wanted, dir_fd=descriptor, effective_ids=True):
            return descriptor
        os.close(descriptor)
    except PermissionError:
        pass
    mode = stat.S_IMODE(os.stat(name, dir_fd=around, follow_symlinks=False).st_mode)
    set_mode(name, around, 0o700 | mode)
    opened.append(Opened(name, around, mode))
    return os.open(name, _FOLDER, dir_fd=around)


def open_root(root: str) -> int:
    """A folder that was named with all links resolved, and has none on the way to it since."""
    try:
        descriptor = os.open(root, _FOLDER)
    except OSError as error:
        raise _is_elsewhere(root) from error
    if os.readlink(f"/proc/self/fd/{descriptor}") != root:
        os.close(descriptor)
        raise _is_elsewhere(root)
    return descriptor


def _is_elsewhere(root: str) -> ProjectError:
    return ProjectError(
        N_("{root} is not the folder that it was: it is gone, or a link leads elsewhere now."),
        N_("Put the folder back and try again."),
        root=root,
    )


def _move_up(name: str, around: int, top: int, number: int) -> int:
    # Moving a folder changes its "..", for which it has to be writable.
    _unlock(name, around)
    while True:
        number += 1
        target = f".removed-{number}"
        if not os.access(target, os.F_OK, dir_fd=top, follow_symlinks=False):
            os.rename(name, target, src_dir_fd=around, dst_dir_fd=top)
            return number


def _unlock(name: str, around: int) -> None:
    """A command may have left a folder without permissions."""
    set_mode(name, around, 0o700)


def set_mode(name: str, around: int, mode: int, *, any_kind: bool = False) -> None:
    """Never through a link, which somebody might put there just now; and unless it may be of any
    kind, only a folder's: a file at its name may have another name elsewhere."""
    kind = 0 if any_kind else os.O_DIRECTORY
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=around)
    try:
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        os.chmod(f"/proc/self/fd/{descriptor}", mode)
    finally:
        os.close(descriptor)


def _is_folder(name: str, around: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=around, follow_symlinks=False).st_mode)


def allow_many_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1 << 16
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
