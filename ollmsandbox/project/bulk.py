# SPDX-License-Identifier: GPL-3.0-or-later
"""Plain files, many at once. Each changes places with the one it replaces, in one step: what was
replaced is then in the run's own layer, and so is what was deleted; that is kept as a whole (see
`kept.py`)."""

from __future__ import annotations

import ctypes
import os
import stat

from .exchange import Exchanged, Step, signature
from .models import as_bytes
from .plain import Plain, is_changed
from .tree import Tree

_NOREPLACE, _EXCHANGE = 1, 2


class Bulk(Plain):
    """After a kill the inode tells whether a file has changed places."""

    def __init__(self, project: Tree, layer: Tree, versions: int, step: Step) -> None:
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
