# SPDX-License-Identifier: GPL-3.0-or-later
"""A turn of the main loop does all that is due; what can wait lets the next turn come first."""

from __future__ import annotations

from gi.repository import GLib, Gtk

# Microseconds.
_LONG = 2000
# Turns, one after the other.
_ENOUGH = 10


def is_late() -> bool:
    """Whether this turn has taken long already. For what the main loop calls."""
    source = GLib.main_current_source()
    return source is not None and GLib.get_monotonic_time() - source.get_time() > _LONG


class Patience:
    """Lets the next turn come first, but not for ever: each one may be a long one."""

    def __init__(self) -> None:
        self._waited = 0

    def waits(self) -> bool:
        """Whether what is called now is to be put off."""
        self._waited = self._waited + 1 if is_late() and self._waited < _ENOUGH else 0
        return self._waited > 0


class FrameByFrame:
    """Lets what was made last be drawn first. To lay it out takes about as long again, and all that
    is made between two frames is laid out in one go."""

    def __init__(self) -> None:
        self._seen = -1
        self._waited = 0

    def waits(self, widget: Gtk.Widget) -> bool:
        """Whether what is called now is to be put off; not for ever, as nothing is drawn of a
        window that nobody sees."""
        clock = widget.get_frame_clock()
        drawn = clock.get_frame_counter() if clock is not None and widget.get_mapped() else -1
        if drawn >= 0 and drawn == self._seen and self._waited < _ENOUGH:
            self._waited += 1
            return True
        self._seen, self._waited = drawn, 0
        return False
