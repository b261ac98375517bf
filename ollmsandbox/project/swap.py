# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts one staged file into the project and takes out what was there, in one step of the kernel.

Each step can be repeated after a kill: whether it was done is told from the inode of the staged
file. A file that somebody saves in the same moment goes back to its place.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from ..files import dirfd
from ..files.copying import HALF, copy_entry, copy_whole
from ..files.dirfd import DirEntryAt, OpenTree
from .reasons import Reason
from .run import OpenRuns, signature

_NOREPLACE, _EXCHANGE = 1, 2
_START_WRITING = 2
# A file system that knows only the usual rename.
_NO_FLAGS = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_NO_LINKS = (*_NO_FLAGS, errno.EPERM, errno.EMLINK, errno.EXDEV)
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_LIBC = ctypes.CDLL(None, use_errno=True)
_sync_file_range = _LIBC.sync_file_range
_sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)

# Of a project on another file system, at the end of a slot's name: the note with the inode of the
# copy beside the place, and what came out.
_NOTE = ".copy"
OUT = "-out"

# Inode, time of modification, size, mode, and change time (0 if that may differ).
Expected = tuple[int, int, int, int, int]


class Item(NamedTuple):
    """One thing to do in the project."""

    run: str
    number: int
    root: str
    path: str
    # put, remove, mkdir, rmdir or mode
    does: str
    # What has to be at the place; None for nothing.
    expected: Expected | None = None
    # In the folder of the run: the staged file, and where to keep what comes out. What stays in
    # the slot is kept until the next job.
    slot: str = ""
    inode: int = 0
    out: str = ""
    # Of what comes in: its signature ("" if it is a merge), and the mode of a folder.
    after: str = ""
    mode: int = 0
    # The state of the change when this is done, and when it is a conflict.
    state: str = "applied"
    otherwise: str = "conflict"
    # The pair of versions that is made by it, if that is not base and result.
    made: str = ""


class Left(NamedTuple):
    """What is at a place after an item was done: its signature ("" if it is nothing or a merge),
    and its change time if it replaced something."""

    signature: str = ""
    changed: int = 0


class ConflictError(Exception):
    """Somebody else changed what should be changed. It is left as it is."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


def expect(found: os.stat_result) -> Expected:
    # Moving one name of a file changes the change time of all.
    changed = found.st_ctime_ns if found.st_nlink == 1 else 0
    return (found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode, changed)


def _is_same(found: os.stat_result | None, expected: Expected) -> bool:
    """Return whether a file is the expected one, also if it has been moved since."""
    return found is not None and (
        (found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode) == expected[:4]
    )


def _rename(one: DirEntryAt, other: DirEntryAt, flag: int) -> None:
    done = _LIBC.renameat2(
        one.dir_fd, os.fsencode(one.name), other.dir_fd, os.fsencode(other.name), flag
    )
    if done:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), one.name)


class Swapper:
    """Does items in one root of a project."""

    def __init__(
        self,
        root: str,
        runs: OpenRuns,
        modes: Path,
        removed: Collection[str],
        *,
        is_resumed: bool,
        flushes: bool,
    ) -> None:
        """`modes` is the file that notes folders that are writable for a while, `removed` are the
        folders that the job removes. `flushes` starts writing each file before it gets its name: a
        power cut leaves no empty file."""
        self._root = root
        self._removed = removed
        self._tree = OpenTree(root, modes, top=dirfd.open_root(root), is_durable=True)
        self._runs = runs
        self._is_resumed = is_resumed
        self._flushes = flushes

    def close(self) -> list[tuple[str, OSError]]:
        """Set the modes of folders; return those that failed."""
        return self._tree.close()

    def leave(self) -> None:
        self._tree.leave()

    def do(self, item: Item) -> Left:
        """Do one thing, and return what was left.

        Raise ConflictError if the place is not as expected, and OSError if it cannot be done.
        """
        try:
            return self._do(item, self._is_resumed)
        except PermissionError:
            # The command may have made the folder writable only while it wrote there.
            self._tree.unlock(os.path.dirname(item.path))
            return self._do(item, is_resumed=True)

    def _do(self, item: Item, is_resumed: bool) -> Left:
        if item.does == "mode":
            self._set_mode(item)
            return Left()
        try:
            place = DirEntryAt(*self._tree.split(item.path))
        except OSError as error:
            if error.errno in _NO_FOLDER and self._is_over(item, is_resumed):
                return Left(item.after)
            raise
        if item.does == "put":
            return self._put(item, place, is_resumed)
        if item.does == "remove":
            self._remove(item, place, is_resumed)
        elif item.does == "mkdir":
            self._make_folder(item, place)
        else:
            _remove_folder(place)
        return Left()

    def _is_over(self, item: Item, is_resumed: bool) -> bool:
        """Return whether there is nothing to do where the folder around an item is gone: because
        it is to go, or because a later item of the job removed it before a kill."""
        if item.does in ("remove", "rmdir"):
            return is_resumed or not os.path.lexists(os.path.dirname(f"{self._root}/{item.path}"))
        if not is_resumed:
            return False
        if item.does == "put":
            staged = self._runs.at(item.run, item.slot).lstat()
            return staged is None or staged.st_ino != item.inode
        return item.path in self._removed

    # --- files and links ---------------------------------------------------------------------

    def _put(self, item: Item, place: DirEntryAt, is_resumed: bool) -> Left:
        slot = self._runs.at(item.run, item.slot)
        if self._flushes:
            _start_writing(slot)
        if is_resumed:
            if self._runs.at(item.run, f"{item.slot}{_NOTE}").lstat() is not None:
                return self._put_far(item, slot, place)
            # Without the note, nothing of the user's is in the copy.
            _remove_copy(_beside(item, place))
            self._runs.at(item.run, f"{item.slot}{_NOTE}~").unlink(missing_ok=True)
        try:
            came_out = _swap(slot, item.inode, place, item.expected, is_resumed=is_resumed)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            return self._put_far(item, slot, place)
        if came_out is None:
            return Left(_now_known_as(item, place) if is_resumed else item.after)
        if item.out:
            slot.rename_to(self._runs.at(item.run, item.out))
        return Left(item.after, came_out.st_ctime_ns)

    def _put_far(self, item: Item, slot: DirEntryAt, place: DirEntryAt) -> Left:
        """Put a copy into a project on another file system: the copy is beside the place, and its
        inode is noted before it is moved."""
        near = _beside(item, place)
        note = self._runs.at(item.run, f"{item.slot}{_NOTE}")
        if note.lstat() is None:
            try:
                copy_whole(slot, near)
                _write_number(note, _inode(near))
            except OSError:
                _remove_copy(near)
                raise
        try:
            came_out = _swap(near, _read_number(note), place, item.expected, is_resumed=True)
        except ConflictError:
            near.unlink(missing_ok=True)
            note.unlink()
            raise
        if came_out is not None:
            self._keep(near, self._runs.at(item.run, item.out or f"{item.slot}{OUT}"))
        # In this order: without the staged file it is done.
        slot.unlink(missing_ok=True)
        note.unlink()
        changed = came_out.st_ctime_ns if came_out is not None else 0
        return Left(_now_known_as(item, place), changed)

    def _keep(self, near: DirEntryAt, kept: DirEntryAt) -> None:
        """Move what came out to the run, on another file system."""
        found = near.lstat()
        if found is not None and not (stat.S_ISSOCK(found.st_mode) or stat.S_ISCHR(found.st_mode)):
            copy_whole(near, kept)
        near.unlink(missing_ok=True)

    def _remove(self, item: Item, place: DirEntryAt, is_resumed: bool) -> None:
        slot, near = self._runs.at(item.run, item.slot), _beside(item, place)
        assert item.expected is not None
        if is_resumed and near.lstat() is not None:
            self._keep(near, slot)
            return
        found = place.lstat()
        if is_resumed and slot.lstat() is not None:
            if _is_linked(slot, place):
                place.unlink()
            return
        if found is None:
            return
        _check(found, item.expected)
        for kept in (slot, near):
            try:
                _move_new(place, kept)
            except OSError as error:
                if error.errno != errno.EXDEV or kept is near:
                    raise
                continue
            if not _is_same(kept.lstat(), item.expected):
                # Somebody saved it just now.
                _move_new(kept, place)
                raise ConflictError(Reason.CHANGED)
            if kept is near:
                self._keep(near, slot)
            break

    # --- folders -----------------------------------------------------------------------------

    def _make_folder(self, item: Item, place: DirEntryAt) -> None:
        try:
            os.mkdir(place.name, 0o700, dir_fd=place.dir_fd)
        except FileExistsError:
            found = place.lstat()
            if found is None or not stat.S_ISDIR(found.st_mode):
                raise ConflictError(Reason.PLACE_TAKEN) from None
        self._set_mode(item)

    def _set_mode(self, item: Item) -> None:
        path = "" if item.path == "." else item.path
        # Keep the set-group-ID bit, which commands do not see.
        group_bit = os.fstat(self._tree.folder(path)).st_mode & stat.S_ISGID
        self._tree.set_mode(path, item.mode | group_bit)


def _remove_folder(place: DirEntryAt) -> None:
    try:
        os.rmdir(place.name, dir_fd=place.dir_fd)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise ConflictError(Reason.FOLDER_NOT_EMPTY) from error
        raise


def _swap(
    slot: DirEntryAt,
    inode: int,
    place: DirEntryAt,
    expected: Expected | None,
    *,
    is_resumed: bool,
) -> os.stat_result | None:
    """Exchange a staged file and what is at a place, on one file system. Return what came out, and
    is in the slot now; None if nothing was there, or if it was taken out of the slot before."""
    old = DirEntryAt(slot.dir_fd, f"{slot.name}.old")
    if is_resumed:
        if old.lstat() is not None and _finish_without_exchange(slot, old, inode):
            return slot.lstat()
        staged = slot.lstat()
        if staged is None:
            return None
        if staged.st_ino != inode:
            return _look_again(slot, inode, place, expected)
    if expected is None:
        try:
            _move_new(slot, place)
        except FileExistsError:
            if not is_resumed or not _is_linked(slot, place):
                raise ConflictError(Reason.PLACE_TAKEN) from None
            slot.unlink()
        return None
    _check(place.lstat(), expected)
    try:
        _rename(slot, place, _EXCHANGE)
    except FileNotFoundError:
        raise ConflictError(Reason.REMOVED) from None
    except OSError as error:
        if error.errno not in _NO_FLAGS:
            raise
        return _swap_without_exchange(slot, old, place, expected)
    return _look_again(slot, inode, place, expected)


def _look_again(
    slot: DirEntryAt, inode: int, place: DirEntryAt, expected: Expected | None
) -> os.stat_result:
    """Return what came out. If that is not what was expected, because somebody has just saved the
    file, exchange both again and raise ConflictError."""
    came_out = slot.lstat()
    assert came_out is not None
    if expected is not None and _is_same(came_out, expected):
        return came_out
    _rename(slot, place, _EXCHANGE)
    if _inode(slot) != inode:
        # They have saved it once more: the last one belongs there.
        _rename(slot, place, _EXCHANGE)
    raise ConflictError(Reason.CHANGED)


def _swap_without_exchange(
    slot: DirEntryAt, old: DirEntryAt, place: DirEntryAt, expected: Expected
) -> os.stat_result | None:
    """Link, check and rename, where the file system cannot exchange two names."""
    try:
        place.link_to(old)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        copy_entry(place, old)
    try:
        _check(place.lstat(), (*expected[:4], 0))
    except ConflictError:
        old.unlink()
        raise
    slot.rename_to(place)
    old.rename_to(slot)
    return slot.lstat()


def _finish_without_exchange(slot: DirEntryAt, old: DirEntryAt, inode: int) -> bool:
    """Return whether the staged file was in its place before a kill."""
    if slot.lstat() is None:
        old.rename_to(slot)
        return True
    if _inode(slot) == inode:
        old.unlink()
    return False


def _move_new(source: DirEntryAt, target: DirEntryAt) -> None:
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
        if error.errno not in _NO_LINKS or error.errno == errno.EXDEV:
            raise
        if target.lstat() is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        source.rename_to(target)
    else:
        source.unlink()


def _check(found: os.stat_result | None, expected: Expected) -> None:
    """Raise ConflictError if a file is not the expected one any more."""
    if found is None:
        raise ConflictError(Reason.REMOVED)
    if not _is_same(found, expected) or expected[4] not in (0, found.st_ctime_ns):
        is_folder = stat.S_ISDIR(found.st_mode)
        raise ConflictError(Reason.IS_FOLDER if is_folder else Reason.CHANGED)


def _is_linked(one: DirEntryAt, other: DirEntryAt) -> bool:
    """Return whether two names are of one file."""
    found, there = one.lstat(), other.lstat()
    return found is not None and there is not None and os.path.samestat(found, there)


def _beside(item: Item, place: DirEntryAt) -> DirEntryAt:
    return DirEntryAt(place.dir_fd, f".ollmsandbox-{item.run}-{item.number}~")


def _remove_copy(near: DirEntryAt) -> None:
    for name in (near.name, f"{near.name}{HALF}"):
        DirEntryAt(near.dir_fd, name).unlink(missing_ok=True)


def _now_known_as(item: Item, place: DirEntryAt) -> str:
    """Return the signature of what an item put into the project, where a copy may have another
    inode; "" if it is a merge, or if somebody has edited it since."""
    now = signature(place.lstat())
    return now if item.after and now.partition(":")[2] == item.after.partition(":")[2] else ""


def _inode(spot: DirEntryAt) -> int:
    found = spot.lstat()
    return found.st_ino if found else 0


def _write_number(spot: DirEntryAt, number: int) -> None:
    half = DirEntryAt(spot.dir_fd, f"{spot.name}~")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(half.name, flags, 0o600, dir_fd=half.dir_fd), "w", encoding="ascii") as file:
        file.write(str(number))
    half.rename_to(spot)


def _read_number(spot: DirEntryAt) -> int:
    with dirfd.open_regular_file(spot.name, spot.dir_fd) as file:
        return int(file.read())


def _start_writing(spot: DirEntryAt) -> None:
    """Have the kernel write a file's data before its new name, without waiting for the disk."""
    with contextlib.suppress(OSError), dirfd.open_regular_file(spot.name, spot.dir_fd) as file:
        _sync_file_range(file.fileno(), 0, 0, _START_WRITING)


def sync_disk(folder: str | os.PathLike[str]) -> None:
    """Wait until everything on the file system of a folder is on disk."""
    with dirfd.opened_folder(folder) as descriptor:
        _LIBC.syncfs(descriptor)
