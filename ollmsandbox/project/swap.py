# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts one staged file into the project and takes out what was there, in one step of the kernel.

Each step can be repeated after a kill: whether it was done is told from the inode of the staged
file. A file that somebody saves in the same moment goes back to its place.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from ..files import dirfd
from ..files.copying import HALF, copy_whole
from ..files.dirfd import DirEntryAt, OpenTree
from ..files.exchange import (
    Expected,
    UnexpectedFileError,
    check_expected,
    exchange,
    inode_of,
    is_expected,
    is_linked,
    move_new,
    start_writing,
)
from .reasons import Reason
from .run import OpenRuns, signature

_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

# Of a project on another file system, at the end of a slot's name: the note with the inode of the
# copy beside the place, and what came out.
_NOTE = ".copy"
OUT = "-out"


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
            try:
                return self._do(item, self._is_resumed)
            except PermissionError:
                # The command may have made the folder writable only while it wrote there.
                self._tree.unlock(os.path.dirname(item.path))
                return self._do(item, is_resumed=True)
        except FileExistsError as error:
            raise ConflictError(Reason.PLACE_TAKEN) from error
        except UnexpectedFileError as error:
            raise ConflictError(_reason(error.found)) from error

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
            start_writing(slot)
        if is_resumed:
            if self._runs.at(item.run, f"{item.slot}{_NOTE}").lstat() is not None:
                return self._put_far(item, slot, place)
            # Without the note, nothing of the user's is in the copy.
            _remove_copy(_beside(item, place))
            self._runs.at(item.run, f"{item.slot}{_NOTE}~").unlink(missing_ok=True)
        try:
            came_out = exchange(slot, item.inode, place, item.expected, is_resumed=is_resumed)
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
                start_writing(near)
                _write_number(note, inode_of(near))
            except OSError:
                _remove_copy(near)
                raise
        try:
            came_out = exchange(near, _read_number(note), place, item.expected, is_resumed=True)
        except (UnexpectedFileError, FileExistsError):
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
            if is_linked(slot, place):
                place.unlink()
            return
        if found is None:
            return
        check_expected(found, item.expected)
        for kept in (slot, near):
            try:
                move_new(place, kept)
            except OSError as error:
                if error.errno != errno.EXDEV or kept is near:
                    raise
                continue
            if not is_expected(kept.lstat(), item.expected):
                # Somebody saved it just now.
                move_new(kept, place)
                raise UnexpectedFileError(found)
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


def _reason(found: os.stat_result | None) -> Reason:
    if found is None:
        return Reason.REMOVED
    return Reason.IS_FOLDER if stat.S_ISDIR(found.st_mode) else Reason.CHANGED


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


def _write_number(spot: DirEntryAt, number: int) -> None:
    half = DirEntryAt(spot.dir_fd, f"{spot.name}~")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(half.name, flags, 0o600, dir_fd=half.dir_fd), "w", encoding="ascii") as file:
        file.write(str(number))
    half.rename_to(spot)


def _read_number(spot: DirEntryAt) -> int:
    with dirfd.open_regular_file(spot.name, spot.dir_fd) as file:
        return int(file.read())
