# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes a window halt though it has nothing to do itself: Python looks through all objects for
those that only hold each other, and meanwhile nothing goes on."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from gi.repository import GLib

# Milliseconds to the next look while much is made, and seconds while there is not. Soon, because a
# look at all that was made in a tenth of a second, and nine times before, takes as long itself.
_SOON, _LATER = 20, 1
# Seconds in which nothing was drawn: nobody does anything, and nothing moves.
_QUIET = 30
# All objects are looked through after so many looks at the younger ones: in a quiet moment, or,
# if there never is one, at last.
_OFTEN_ENOUGH, _AT_LAST = 10, 500


class Sweeper:
    """Frees what only holds itself. Python by itself would do that in whatever thread just needs
    memory; but widgets are among it, and those are for the main thread alone.

    `count_frames` tells how many were drawn so far."""

    def __init__(self, count_frames: Callable[[], int]) -> None:
        self._count_frames = count_frames
        self._drawn = -1
        self._quiet_since = 0.0

    def look(self) -> bool:
        is_busy = self.sweep(time.monotonic())
        if is_busy:
            GLib.timeout_add(_SOON, self.look)
        else:
            GLib.timeout_add_seconds(_LATER, self.look)
        return GLib.SOURCE_REMOVE

    def sweep(self, now: float) -> bool:
        """Whether much was made since the last time."""
        drawn = self._count_frames()
        if drawn != self._drawn:
            self._drawn, self._quiet_since = drawn, now
        young, middle, old = gc.get_count()
        most_young, most_middle, _most_old = gc.get_threshold()
        if old >= (_OFTEN_ENOUGH if now >= self._quiet_since + _QUIET else _AT_LAST):
            gc.collect()
        elif middle >= most_middle:
            gc.collect(1)
        elif young >= most_young:
            gc.collect(0)
        return young >= most_young


def keep_smooth(count_frames: Callable[[], int]) -> None:
    """For the rest of the program's life."""
    # What is loaded now stays, and need not be looked through.
    gc.freeze()
    gc.disable()
    Sweeper(count_frames).look()
