# SPDX-License-Identifier: GPL-3.0-or-later
"""Exchange a file and what is at a place, in one step of the kernel, and only if that is the file
that is expected there. Every step can be repeated after a kill."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os

from . import dirfd
from .copying import copy_entry, start_writing
from .dirfd import DirEntryAt

_NOREPLACE, _EXCHANGE = 1, 2
# A file system that knows only the usual rename.
_NO_FLAGS = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
# One that makes no second name for a file.
NO_LINKS = (*_NO_FLAGS, errno.EPERM, errno.EMLINK, errno.EXDEV)
_LIBC = ctypes.CDLL(None, use_errno=True)

# Inode, time of modification, size, mode, and change time (0 if that may differ).
Expected = tuple[int, int, int, int, int]


class UnexpectedFileError(Exception):
    """Something else is at a place than was expected; None for nothing."""

    def __init__(self, found: os.stat_result | None) -> None:
        super().__init__(found)
        self.found = found


def expect(found: os.stat_result) -> Expected:
    # Moving one name of a file changes the change time of all.
    changed = found.st_ctime_ns if found.st_nlink == 1 else 0
    return (found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode, changed)


def _rename(one: DirEntryAt, other: DirEntryAt, flag: int) -> None:
    done = _LIBC.renameat2(
        one.dir_fd, os.fsencode(one.name), other.dir_fd, os.fsencode(other.name), flag
    )
    if done:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), one.name)


def exchange(
    slot: DirEntryAt, inode: int, place: DirEntryAt, expected: Expected | None, *, is_resumed: bool
) -> os.stat_result | None:
    """Exchange a staged file and what is at a place, on one file system. Return what came out, and
    is in the slot now; None if nothing was there, or if it was taken out of the slot before.

    Raise UnexpectedFileError, or FileExistsError if nothing is expected there.
    """
    if is_resumed:
        old = _old_name(slot)
        if old.lstat() is not None and _finish_without_exchange(slot, old, inode):
            return slot.lstat()
        staged = slot.lstat()
        if staged is None:
            return None
        if staged.st_ino != inode:
            return _look_again(slot, inode, place, expected)
    if expected is None:
        try:
            move_new(slot, place)
        except FileExistsError:
            if not is_resumed or not is_linked(slot, place):
                raise
            slot.unlink()
        return None
    # A link that was made before a kill has changed the change time.
    check_expected(place.lstat(), (*expected[:4], 0) if is_resumed else expected)
    try:
        _rename(slot, place, _EXCHANGE)
    except FileNotFoundError:
        raise UnexpectedFileError(None) from None
    except OSError as error:
        if error.errno not in _NO_FLAGS:
            raise
        return _swap_without_exchange(slot, _old_name(slot), place, expected)
    return _look_again(slot, inode, place, expected)


def _old_name(slot: DirEntryAt) -> DirEntryAt:
    return DirEntryAt(slot.dir_fd, f"{slot.name}.old")


def _look_again(
    slot: DirEntryAt, inode: int, place: DirEntryAt, expected: Expected | None
) -> os.stat_result:
    """Return what came out. If that is not what was expected, because somebody has just saved the
    file, exchange both again and raise UnexpectedFileError."""
    came_out = slot.lstat()
    assert came_out is not None
    # Where files cannot be linked, it is a copy with another inode.
    looks = (came_out.st_mtime_ns, came_out.st_size, came_out.st_mode)
    if expected is not None and looks == expected[1:4]:
        return came_out
    exchange_back(slot, place)
    if inode_of(slot) not in (0, inode):
        # They have saved it once more: the last one belongs there.
        exchange_back(slot, place)
    raise UnexpectedFileError(came_out)


def exchange_back(slot: DirEntryAt, place: DirEntryAt) -> None:
    """Undo an exchange: what came out of the place goes back to it."""
    try:
        _rename(slot, place, _EXCHANGE)
    except OSError as error:
        if error.errno not in _NO_FLAGS:
            raise
        slot.rename_to(place)


def _swap_without_exchange(
    slot: DirEntryAt, old: DirEntryAt, place: DirEntryAt, expected: Expected
) -> os.stat_result | None:
    """Link, check and rename, where the file system cannot exchange two names."""
    try:
        place.link_to(old)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        copy_entry(place, old)
    try:
        check_expected(place.lstat(), (*expected[:4], 0))
    except UnexpectedFileError:
        old.unlink()
        raise
    slot.rename_to(place)
    old.rename_to(slot)
    came_out = slot.lstat()
    assert came_out is not None
    if (came_out.st_mtime_ns, came_out.st_size) != expected[1:3]:
        # Somebody wrote to it just now.
        place.rename_to(old)
        slot.rename_to(place)
        old.rename_to(slot)
        raise UnexpectedFileError(came_out)
    return came_out


def _finish_without_exchange(slot: DirEntryAt, old: DirEntryAt, inode: int) -> bool:
    """Return whether the staged file was in its place before a kill."""
    if slot.lstat() is None:
        old.rename_to(slot)
        return True
    if inode_of(slot) == inode:
        old.unlink()
    return False


def move_new(source: DirEntryAt, target: DirEntryAt) -> None:
    """Move a file, never in the place of another one."""
    try:
        _rename(source, target, _NOREPLACE)
    except OSError as error:
        if error.errno not in _NO_FLAGS:
            raise
    else:
        return
    try:
        source.link_to(target)
    except OSError as error:
        if error.errno not in NO_LINKS or error.errno == errno.EXDEV:
            raise
        if target.lstat() is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        source.rename_to(target)
    else:
        source.unlink()


def check_expected(found: os.stat_result | None, expected: Expected) -> None:
    """Raise UnexpectedFileError if a file is not the expected one any more."""
    if (
        found is None
        or (found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode) != expected[:4]
        or expected[4] not in (0, found.st_ctime_ns)
    ):
        raise UnexpectedFileError(found)


def is_linked(one: DirEntryAt, other: DirEntryAt) -> bool:
    """Return whether two names are of one file."""
    found, there = one.lstat(), other.lstat()
    return found is not None and there is not None and os.path.samestat(found, there)


def inode_of(spot: DirEntryAt) -> int:
    found = spot.lstat()
    return found.st_ino if found else 0


def start_writing_at(spot: DirEntryAt) -> None:
    """Have the kernel write the data of a file, if it is one that we may read."""
    with contextlib.suppress(OSError), dirfd.open_regular_file(spot.name, spot.dir_fd) as file:
        start_writing(file.fileno())


def sync_disk(folder: str | os.PathLike[str]) -> None:
    """Wait until everything on the file system of a folder is on disk."""
    with dirfd.opened_folder(folder) as descriptor:
        _LIBC.syncfs(descriptor)
