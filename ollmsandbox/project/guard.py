# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether what is at a place is still what it was when a change to it was decided."""

from __future__ import annotations

import os
from collections.abc import Callable

from .exchange import Found, signature

Check = Callable[[Found], bool]


class Guard:
    """For all changes of one run to one root."""

    def __init__(self, decided: int) -> None:
        """`decided` is when somebody decided what is finished now, after a kill; else 0."""
        self._decided = decided
        self._linked: dict[int, tuple[int, int, int]] = {}
        # Of the change that is at work: what was at its place, and whether it is the second try.
        self.found = ""
        self.is_again = False

    def unchanged_since(self, began: int) -> Check:
        def check(found: Found) -> bool:
            there = found.stat
            if found.is_linked:
                return self._is_as_linked(there, began)
            looks = (there.st_mtime_ns, there.st_size, there.st_mode)
            # That we took another of its names away changed its time, too.
            if there.st_ctime_ns > began and self._linked.get(there.st_ino) != looks:
                return False
            if there.st_nlink > 1:
                self._linked[there.st_ino] = looks
            self.found = signature(there)
            return True

        return check

    def as_left(self, after: str) -> Check:
        def check(found: Found) -> bool:
            there = found.stat
            inode, _, changed = after.partition(":")
            if not found.is_linked or not changed:
                return signature(there) == after
            return there.st_ino == int(inode) and self._is_as_linked(there, int(changed))

        return check

    def whatever(self) -> Check:
        """Where the person said so. What was saved after that, and before a kill is mended, was not
        meant."""
        return self.unchanged_since(self._decided) if self._decided else _any

    def _is_as_linked(self, there: os.stat_result, at: int) -> bool:
        """When it was linked, by the first try or before a kill, it was as it should be."""
        return self.is_again or there.st_mtime_ns <= at


def _any(_found: Found) -> bool:
    return True
