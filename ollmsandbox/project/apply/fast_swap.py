# SPDX-License-Identifier: GPL-3.0-or-later
"""The fast path of apply, for regular files on one file system.

`Plain` puts a file of one name in the place of another one, or of nothing, or removes it, with as
few system calls as possible. `Bulk` does so for very many files: each swaps places with the one it
replaces, so the run's layer then contains the old versions, which are kept as a whole (see
kept_versions.py). Everything else, and what was begun here, goes through swap.py.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat

from ...files.dirfd import DirEntryAt, OpenTree
from ..changes.change import Change, Kind
from ..database.models import as_bytes
from .swap import OURS, ConflictError, Exchanged, Step, check_again, signature

# Between two file systems nothing is plain, and one may know no other rename than the usual one.
_NEVER = (errno.EXDEV, errno.EINVAL, errno.ENOSYS)


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
        kind = change.kind
        try:
            folder, _, name = change.path.rpartition("/")
            if folder != self._folder:
                self._place = self._project.folder(folder)
                self._source = -1
                self._folder = folder
            if kind is Kind.DELETED and not change.inode:
                # The layer may have no such folder any more.
                return self._remove(name, number, began)
            if self._source < 0:
                self._source = self._layer.folder(folder)
                self._prefix = f"/proc/self/fd/{self._source}/"
            if kind is Kind.DELETED:
                return self._remove_alone(name, number, began)
            if kind is Kind.ADDED:
                return self._add(name)
            return self._replace(name, number, began)
        except OSError as error:
            if error.errno in _NEVER:
                self.is_possible = False
            return None

    def _remove(self, name: str, number: int, began: int) -> Exchanged | None:
        place, kept = self._place, str(number)
        old = os.stat(name, dir_fd=place, follow_symlinks=False)
        if not stat.S_ISREG(old.st_mode) or old.st_nlink != 1 or old.st_ctime_ns > began:
            return None
        os.rename(name, kept, src_dir_fd=place, dst_dir_fd=self._versions)
        self.is_begun, self.found = True, signature(old)
        if is_changed(os.stat(kept, dir_fd=self._versions, follow_symlinks=False), old):
            self._give_back(name, kept)
            return None
        self._step()
        return Exchanged(self.found, "")

    def _remove_alone(self, name: str, number: int, began: int) -> Exchanged | None:
        """What is around it is in the layer, too."""
        return self._remove(name, number, began)

    def _give_back(self, name: str, kept: str) -> None:
        """Somebody changed it just now: theirs goes back, and the long way says so."""
        self.is_begun, self.found = False, ""
        given, place = self._versions, self._place
        try:
            os.link(kept, name, src_dir_fd=given, dst_dir_fd=place, follow_symlinks=False)
        except PermissionError:
            # A folder, which cannot have two names.
            os.rename(kept, name, src_dir_fd=given, dst_dir_fd=place)
        else:
            os.unlink(kept, dir_fd=given)

    def _replace(self, name: str, number: int, began: int) -> Exchanged | None:
        place, source = self._place, self._source
        old = os.stat(name, dir_fd=place, follow_symlinks=False)
        if not stat.S_ISREG(old.st_mode) or old.st_nlink != 1 or old.st_ctime_ns > began:
            return None
        before = signature(old)
        kept = str(number)
        os.link(name, kept, src_dir_fd=place, dst_dir_fd=self._versions, follow_symlinks=False)
        self.is_begun, self.found = True, before
        self._step()
        self._cleanse(name)
        try:
            check_again(DirEntryAt(place, name), old)
        except ConflictError:
            # The long way says so.
            self.is_begun, self.found = False, ""
            os.unlink(kept, dir_fd=self._versions)
            return None
        os.rename(name, name, src_dir_fd=source, dst_dir_fd=place)
        self._step()
        new = os.stat(name, dir_fd=place, follow_symlinks=False)
        return Exchanged(before, signature(new))

    def _add(self, name: str) -> Exchanged:
        place, source = self._place, self._source
        self._cleanse(name)
        # A rename would replace what somebody puts there just now.
        os.link(name, name, src_dir_fd=source, dst_dir_fd=place, follow_symlinks=False)
        self.is_begun = True
        self._step()
        os.unlink(name, dir_fd=source)
        new = os.stat(name, dir_fd=place, follow_symlinks=False)
        return Exchanged("", signature(new))

    def _cleanse(self, name: str) -> None:
        path = self._prefix + name
        try:
            attributes = os.listxattr(path, follow_symlinks=False)
        except OSError:
            return  # not every file system has them
        for attribute in attributes:
            if attribute.startswith(OURS):
                os.removexattr(path, attribute, follow_symlinks=False)


_NOREPLACE, _EXCHANGE = 1, 2


class Bulk(Plain):
    """Exchanges files in one step each. After a kill, the inode tells which were exchanged."""

    def __init__(self, project: OpenTree, layer: OpenTree, versions: int, step: Step) -> None:
        super().__init__(project, layer, versions, step)
        # By number: the paths of which the layer has the earlier version now.
        self.exchanged: dict[int, str] = {}

    def _replace(self, name: str, number: int, began: int) -> Exchanged | None:
        place, source = self._place, self._source
        old = os.stat(name, dir_fd=place, follow_symlinks=False)
        if not stat.S_ISREG(old.st_mode) or old.st_nlink != 1 or old.st_ctime_ns > began:
            return None
        self._cleanse(name)
        _rename(source, place, name, _EXCHANGE)
        self.exchanged[number] = f"{self._folder}/{name}" if self._folder else name
        got = os.stat(name, dir_fd=source, follow_symlinks=False)
        if is_changed(got, old):
            # Somebody changed it just now: theirs goes back, and the long way says so.
            _rename(source, place, name, _EXCHANGE)
            del self.exchanged[number]
            return None
        self._step()
        try:
            after = signature(os.stat(name, dir_fd=place, follow_symlinks=False))
        except OSError:
            after = ""  # put there, and gone again
        return Exchanged(signature(old), after)

    def _remove_alone(self, name: str, number: int, began: int) -> Exchanged | None:
        """It goes to where the layer says that it is to be gone: that goes first, since what takes
        another's place is written to the disk at once."""
        place, source = self._place, self._source
        old = os.stat(name, dir_fd=place, follow_symlinks=False)
        if not stat.S_ISREG(old.st_mode) or old.st_nlink != 1 or old.st_ctime_ns > began:
            return None
        os.unlink(name, dir_fd=source)
        is_done = False
        try:
            _rename(place, source, name, _NOREPLACE)
            self.exchanged[number] = f"{self._folder}/{name}" if self._folder else name
            is_done = not is_changed(os.stat(name, dir_fd=source, follow_symlinks=False), old)
            if not is_done:
                # As above.
                _rename(source, place, name, _NOREPLACE)
                del self.exchanged[number]
        finally:
            if not is_done and number not in self.exchanged:
                os.mknod(name, stat.S_IFCHR, 0, dir_fd=source)
        self._step()
        return Exchanged(signature(old), "") if is_done else None

    def _add(self, name: str) -> Exchanged:
        place = self._place
        self._cleanse(name)
        _rename(self._source, place, name, _NOREPLACE)
        self._step()
        try:
            return Exchanged("", signature(os.stat(name, dir_fd=place, follow_symlinks=False)))
        except OSError:
            return Exchanged()


def _rename(source: int, target: int, name: str, flags: int) -> None:
    plain = as_bytes(name)
    if _renameat2(source, plain, target, plain, flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


_renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
