# SPDX-License-Identifier: GPL-3.0-or-later
"""The fast path of apply, for regular files on one file system.

`Plain` puts a file of one name in the place of another one, or of nothing, or removes it, with as
few system calls as possible. Everything else, and what was begun here, goes through swap.py.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import threading

from ...files.dirfd import FOLDER, DirEntryAt, OpenTree
from ..changes.change import Change, Kind
from ..database.models import as_bytes
from .swap import OURS, ConflictError, Exchanged, Step, check_again, signature

# Between two file systems nothing is plain, and one may know no other rename than the usual one.
_NEVER = (errno.EXDEV, errno.EINVAL, errno.ENOSYS)
_NOREPLACE = 1


def flush_in_background(folder: str) -> None:
    """Have everything written to the disk of a folder, without waiting for it."""

    def sync() -> None:
        try:
            _syncfs(descriptor)
        finally:
            os.close(descriptor)

    descriptor = os.open(folder, FOLDER)
    # A daemon: the program may end before the disk is ready.
    threading.Thread(target=sync, daemon=True).start()


def is_changed(found: os.stat_result, old: os.stat_result) -> bool:
    """By anybody. That it was moved changed its change time alone."""
    return (
        found.st_ino != old.st_ino
        or found.st_mtime_ns != old.st_mtime_ns
        or found.st_size != old.st_size
        or found.st_mode != old.st_mode
        or found.st_nlink != old.st_nlink
    )


class Plain:
    """Applies plain changes from one layer to one root, if nothing was begun before."""

    def __init__(self, project: OpenTree, layer: OpenTree, versions: int, step: Step) -> None:
        self._project = project
        self._layer = layer
        self._versions = versions
        self._step = step
        self._folder: str | None = None
        self._place = self._source = -1
        self._prefix = ""
        self.is_possible = True
        # Of what could not be finished here: whether something was done, and what was found at its
        # place.
        self.is_begun = False
        self.found = ""

    def reset(self) -> None:
        """The trees have gone elsewhere."""
        self._folder = None
        self.is_begun, self.found = False, ""

    def put(self, change: Change, number: int, began: int) -> Exchanged | None:
        """Apply one change, or return None if it is not plain."""
        self.is_begun, self.found = False, ""
        try:
            folder, _, name = change.path.rpartition("/")
            if folder != self._folder:
                self._place = self._project.folder(folder)
                self._source = -1
                self._folder = folder
            if change.kind is Kind.DELETED:
                # The layer may have no such folder any more.
                return self._remove(name, number, began)
            if self._source < 0:
                self._source = self._layer.folder(folder)
                self._prefix = f"/proc/self/fd/{self._source}/"
            if change.kind is Kind.ADDED:
                return self._add(name)
            return self._replace(name, number, began)
        except OSError as error:
            if error.errno in _NEVER:
                self.is_possible = False
            return None

    def _find(self, name: str, began: int) -> os.stat_result | None:
        """Return what is to be replaced, if it is a file of one name that nobody changed."""
        old = os.stat(name, dir_fd=self._place, follow_symlinks=False)
        is_plain = stat.S_ISREG(old.st_mode) and old.st_nlink == 1
        return old if is_plain and old.st_ctime_ns <= began else None

    def _remove(self, name: str, number: int, began: int) -> Exchanged | None:
        kept = str(number)
        if (old := self._find(name, began)) is None:
            return None
        os.rename(name, kept, src_dir_fd=self._place, dst_dir_fd=self._versions)
        self.is_begun, self.found = True, signature(old)
        if is_changed(os.stat(kept, dir_fd=self._versions, follow_symlinks=False), old):
            # Somebody changed it just now: theirs goes back, and the long way says so.
            self.is_begun, self.found = False, ""
            _move(self._versions, kept, self._place, name)
            return None
        self._step()
        return Exchanged(self.found, "")

    def _replace(self, name: str, number: int, began: int) -> Exchanged | None:
        place, kept = self._place, str(number)
        if (old := self._find(name, began)) is None:
            return None
        os.link(name, kept, src_dir_fd=place, dst_dir_fd=self._versions, follow_symlinks=False)
        self.is_begun, self.found = True, signature(old)
        self._step()
        self._cleanse(name)
        try:
            check_again(DirEntryAt(place, name), old)
        except ConflictError:
            # The long way says so.
            self.is_begun, self.found = False, ""
            os.unlink(kept, dir_fd=self._versions)
            return None
        os.rename(name, name, src_dir_fd=self._source, dst_dir_fd=place)
        self._step()
        return Exchanged(self.found, self._signature(name))

    def _add(self, name: str) -> Exchanged:
        self._cleanse(name)
        _move(self._source, name, self._place, name)
        self._step()
        return Exchanged("", self._signature(name))

    def _signature(self, name: str) -> str:
        """Return the signature of what was put there; "" if it is gone again."""
        return signature(DirEntryAt(self._place, name).lstat())

    def _cleanse(self, name: str) -> None:
        path = self._prefix + name
        try:
            attributes = os.listxattr(path, follow_symlinks=False)
        except OSError:
            return  # not every file system has them
        for attribute in attributes:
            if attribute.startswith(OURS):
                os.removexattr(path, attribute, follow_symlinks=False)


def _move(source: int, name: str, target: int, new_name: str) -> None:
    """Move a file, never in the place of another one."""
    if _renameat2(source, as_bytes(name), target, as_bytes(new_name), _NOREPLACE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


_libc = ctypes.CDLL(None, use_errno=True)
_renameat2, _syncfs = _libc.renameat2, _libc.syncfs
