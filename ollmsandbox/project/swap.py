# SPDX-License-Identifier: GPL-3.0-or-later
"""Exchanges a staged file and the one in the project, in one step of the kernel.

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

from ..files import dirfd, exchange
from ..files.copying import HALF, copy_whole
from ..files.dirfd import DirEntryAt, OpenTree
from ..files.overlayfs import same_bytes
from .reasons import Reason
from .run import OpenRuns, signature

_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

# The slot of a file that is still in the command's upper folder, at the same path.
UPPER = "upper"
# At the end of a slot's name: what came out of a project on another file system.
OUT = "-out"


class Item(NamedTuple):
    """One step of a job."""

    run: str
    number: int
    root: str
    path: str
    # put, remove, mkdir, rmdir or mode
    does: str
    # What has to be at the place; None for nothing.
    expected: exchange.Expected | None = None
    # In the folder of the run: the staged file, with its inode and time of modification, and where
    # the replaced file goes; without such a place, it stays in the slot until the next job.
    slot: str = ""
    inode: int = 0
    modified: int = 0
    out: str = ""
    # The signature of the new file ("" for a merge), and the mode of a new folder.
    after: str = ""
    mode: int = 0
    # The state of the change when this is done, and when it is a conflict.
    state: str = "applied"
    otherwise: str = "conflict"
    # The pair of versions that is made by it, if that is not base and result.
    made: str = ""


class Left(NamedTuple):
    """The file at a place after an item was done: its signature ("" for nothing or a merge), and
    its change time if it replaced something."""

    signature: str = ""
    changed: int = 0


class ConflictError(Exception):
    """The file is not what was expected there. It is left alone."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class Swapper:
    """Does items in one root of a project."""

    def __init__(
        self,
        root: str,
        upper: str,
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
        self._tree = OpenTree(root, modes, top=dirfd.open_root(root))
        self._runs = runs
        self._upper = OpenTree(upper, missing_ok=True) if upper else None
        self._is_resumed = is_resumed
        self._flushes = flushes

    def close(self) -> list[tuple[str, OSError]]:
        """Set the modes of folders; return those that failed."""
        return self._tree.close()

    def leave(self) -> None:
        self._tree.leave()
        if self._upper is not None:
            self._upper.leave()

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
        except exchange.UnexpectedFileError as error:
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
        """Return whether an item is done although the folder around it is missing: it was to be
        removed, or a later item removed the folder before a kill."""
        if item.does in ("remove", "rmdir"):
            return is_resumed or not os.path.lexists(os.path.dirname(f"{self._root}/{item.path}"))
        if item.does == "put":
            return is_resumed and exchange.inode_of(self._slot(item)) != item.inode
        return is_resumed and item.path in self._removed

    # --- files and links ---------------------------------------------------------------------

    def _put(self, item: Item, place: DirEntryAt, is_resumed: bool) -> Left:
        slot = self._slot(item)
        if self._flushes and item.expected is not None:
            # A new file replaces nothing, and 4 GiB of it would take a second.
            exchange.start_writing_at(slot)
        if is_resumed:
            near = _beside(item, place)
            DirEntryAt(near.dir_fd, f"{near.name}{HALF}").unlink(missing_ok=True)
            if near.lstat() is not None or _is_far(slot, place):
                return self._resume_far(item, slot, place)
        try:
            came_out = exchange.exchange(
                slot, item.inode, place, item.expected, is_resumed=is_resumed
            )
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            return self._put_far(item, slot, place)
        if came_out is None:
            return Left(_now_known_as(item, place) if is_resumed else item.after)
        if item.out:
            try:
                slot.rename_to(self._runs.at(item.run, item.out))
            except OSError:
                exchange.exchange_back(slot, place)
                raise
        return Left(item.after, came_out.st_ctime_ns)

    def _slot(self, item: Item) -> DirEntryAt:
        if item.slot != UPPER or self._upper is None:
            return self._runs.at(item.run, item.slot)
        # Before a kill it may have failed, and was kept.
        kept = self._runs.at(item.run, f"result/{item.number}") if self._is_resumed else None
        if kept is not None and kept.lstat() is not None:
            return kept
        return DirEntryAt(*self._upper.split(item.path))

    def _put_far(self, item: Item, slot: DirEntryAt, place: DirEntryAt) -> Left:
        """Put a copy into a project on another file system. It is made beside the place."""
        near = _beside(item, place)
        near.unlink(missing_ok=True)
        copy_whole(slot, near)
        try:
            came_out = exchange.exchange(
                near, exchange.inode_of(near), place, item.expected, is_resumed=False
            )
        except (exchange.UnexpectedFileError, FileExistsError):
            near.unlink(missing_ok=True)
            raise
        return self._end_far(item, slot, place, came_out)

    def _resume_far(self, item: Item, slot: DirEntryAt, place: DirEntryAt) -> Left:
        """Finish what a kill interrupted. Which file is which is told by inodes, else by bytes."""
        near = _beside(item, place)
        found, staged = near.lstat(), slot.lstat()
        if staged is None or (found is None and _is_same(slot, place)):
            return self._end_far(item, slot, place, None)
        if found is None or item.expected is None:
            return self._put_far(item, slot, place)
        if found.st_ino == item.expected[0]:
            return self._end_far(item, slot, place, found)
        if exchange.inode_of(place) == item.expected[0] or _is_same(slot, near):
            return self._put_far(item, slot, place)
        # Somebody saved the file in the moment of the exchange.
        exchange.exchange_back(near, place)
        if _is_same(slot, near):
            near.unlink()
        raise exchange.UnexpectedFileError(found)

    def _end_far(
        self, item: Item, slot: DirEntryAt, place: DirEntryAt, came_out: os.stat_result | None
    ) -> Left:
        """Keep what came out of the place, and is beside it now."""
        if came_out is not None:
            near, inode = _beside(item, place), exchange.inode_of(place)
            try:
                _keep(near, self._runs.at(item.run, item.out or f"{item.slot}{OUT}"))
            except OSError:
                exchange.exchange_back(near, place)
                if exchange.inode_of(near) == inode:
                    near.unlink()
                raise
        # Last: without the staged file it is done.
        slot.unlink(missing_ok=True)
        return Left(_now_known_as(item, place), came_out.st_ctime_ns if came_out else 0)

    def _remove(self, item: Item, place: DirEntryAt, is_resumed: bool) -> None:
        slot, near = self._runs.at(item.run, item.slot), _beside(item, place)
        assert item.expected is not None
        if is_resumed and exchange.is_linked(slot, place):
            place.unlink()
            return
        moved = [spot for spot in (near, slot) if is_resumed and spot.lstat() is not None]
        if not moved:
            found = place.lstat()
            if found is None:
                return
            exchange.check_expected(found, item.expected)
            try:
                exchange.move_new(place, slot)
                moved = [slot]
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                exchange.move_new(place, near)
                moved = [near]
        now = moved[0].lstat()
        if now is None or not _looks_expected(now, item.expected):
            # Somebody saved it just now.
            exchange.move_new(moved[0], place)
            raise exchange.UnexpectedFileError(now)
        if moved[0] is near:
            try:
                _keep(near, slot)
            except OSError:
                exchange.move_new(near, place)
                raise

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


def _keep(near: DirEntryAt, kept: DirEntryAt) -> None:
    """Copy the replaced file from the project to the folder of the run, and remove it."""
    found = near.lstat()
    if found and stat.S_IFMT(found.st_mode) in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO):
        copy_whole(near, kept)
    near.unlink(missing_ok=True)


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


def _looks_expected(found: os.stat_result, expected: exchange.Expected) -> bool:
    """Return whether a file is the expected one, or a copy of it: that has another inode, and a
    link another time."""
    _, modified, size, mode, _ = expected
    is_same = found.st_size == size and stat.S_IFMT(found.st_mode) == stat.S_IFMT(mode)
    return is_same and (found.st_mtime_ns == modified or not stat.S_ISREG(mode))


def _is_far(slot: DirEntryAt, place: DirEntryAt) -> bool:
    return os.fstat(slot.dir_fd).st_dev != os.fstat(place.dir_fd).st_dev


def _is_same(one: DirEntryAt, other: DirEntryAt) -> bool:
    """Return whether two files or links have the same content and mode."""
    found, there = one.lstat(), other.lstat()
    if found is None or there is None or found.st_mode != there.st_mode:
        return False
    if stat.S_ISLNK(found.st_mode):
        words = [os.readlink(spot.name, dir_fd=spot.dir_fd) for spot in (one, other)]
        return words[0] == words[1]
    return same_bytes(one.name, one.dir_fd, other.name, other.dir_fd)


def _now_known_as(item: Item, place: DirEntryAt) -> str:
    """Return the signature of what an item put into the project, where a copy may have another
    inode; "" if it is a merge, or if somebody has edited it since."""
    now = signature(place.lstat())
    return now if item.after and now.partition(":")[2] == item.after.partition(":")[2] else ""
