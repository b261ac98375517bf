# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes a window halt though it has nothing to do itself: Python looks through all objects for
those that only hold each other, and meanwhile nothing goes on."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from gi.repository import GLib

# Milliseconds to the next look: while much is made, else, and when nobody does anything. The more
# there is to look at, the longer the window halts.
_SOON, _NEXT, _LATER = 20, 100, 1000
# Seconds in which nothing was drawn: nobody does anything, and nothing moves.
_QUIET = 30
# After so many looks at what is new, what is a little older is looked through, too. Python itself
# would wait for ten of them, and then halt for longer.
_SOME = 3
# All objects are looked through after so many of those: in a quiet moment, or, if there never is
# one, at last.
_OFTEN_ENOUGH, _AT_LAST = 10, 1500


class Sweeper:
    """Frees what only holds itself. Python by itself would do that in whatever thread just needs
    memory; but widgets are among it, and those are for the main thread alone.

    `count_frames` tells how many were drawn so far."""

    def __init__(self, count_frames: Callable[[], int]) -> None:
        self._count_frames = count_frames
        self._drawn = -1
        self._quiet_since = 0.0

    def look(self) -> bool:
        now = time.monotonic()
        is_busy = self.sweep(now)
        pause = _LATER if self._is_quiet(now) else _NEXT
        GLib.timeout_add(_SOON if is_busy else pause, self.look)
        return GLib.SOURCE_REMOVE

    def sweep(self, now: float) -> bool:
        """Whether much was made since the last time."""
        drawn = self._count_frames()
        if drawn != self._drawn:
            self._drawn, self._quiet_since = drawn, now
        young, middle, old = gc.get_count()
        most_young = gc.get_threshold()[0]
        if old >= (_OFTEN_ENOUGH if self._is_quiet(now) else _AT_LAST):
            gc.collect()
        elif middle >= _SOME:
            gc.collect(1)
        elif young >= most_young:
            gc.collect(0)
        return young >= most_young

    def _is_quiet(self, now: float) -> bool:
        return now >= self._quiet_since + _QUIET


def keep_smooth(count_frames: Callable[[], int]) -> None:
    """For the rest of the program's life."""
    # What is loaded now stays, and need not be looked through.
    gc.freeze()
    gc.disable()
    Sweeper(count_frames).look()
