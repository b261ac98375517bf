# SPDX-License-Identifier: GPL-3.0-or-later
"""A folder that too much happens in to be told of each thing: it is looked at from time to time."""

from __future__ import annotations

import os
from enum import Enum, auto

# Looks in a row at which it was the same.
_QUIET = 3


class Flow(Enum):
    GONE = auto()
    CHANGED = auto()
    UNCHANGED = auto()
    # For so long that it can be watched again.
    QUIET = auto()


class Flood:
    def __init__(self) -> None:
        self._changed = -1
        self._quiet = 0

    def look(self, path: str, *, is_exact: bool) -> Flow:
        """If what is in it is not known by name, only to list it again is exact: then it is never
        watched again."""
        try:
            changed = os.lstat(path).st_mtime_ns
        except OSError:
            return Flow.GONE
        if changed != self._changed:
            self._changed, self._quiet = changed, 0
            return Flow.CHANGED
        self._quiet += is_exact
        return Flow.QUIET if self._quiet >= _QUIET else Flow.UNCHANGED
