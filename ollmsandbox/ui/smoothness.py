# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes a window halt though it has nothing to do itself: Python looks through all objects for
those that only hold each other, and meanwhile nothing goes on; and a thread that computes keeps
Python to itself for some time."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

from gi.repository import GLib

# Seconds that a thread keeps Python if another one wants it. Each call of GTK gives it away.
_TURN = 0.001
# Seconds in which nothing was drawn: nobody does anything, and nothing moves.
_QUIET = 30
# All objects are looked through after so many looks at the younger ones: in a quiet moment, or,
# if there never is one, at last.
_OFTEN_ENOUGH, _AT_LAST = 10, 100


class Sweeper:
    """`count_frames` tells how many were drawn so far."""

    def __init__(self, count_frames: Callable[[], int]) -> None:
        self._count_frames = count_frames
        self._drawn = -1

    def look(self) -> bool:
        before, self._drawn = self._drawn, self._count_frames()
        if self._drawn == before and gc.get_count()[2] >= _OFTEN_ENOUGH:
            gc.collect()
        return GLib.SOURCE_CONTINUE


def keep_smooth(count_frames: Callable[[], int]) -> None:
    """For the rest of the program's life."""
    # What is loaded now stays, and need not be looked through.
    gc.freeze()
    young, middle, _old = gc.get_threshold()
    gc.set_threshold(young, middle, _AT_LAST)
    sys.setswitchinterval(_TURN)
    GLib.timeout_add_seconds(_QUIET, Sweeper(count_frames).look)
