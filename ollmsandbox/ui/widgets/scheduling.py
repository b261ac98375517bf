# SPDX-License-Identifier: GPL-3.0-or-later
"""Put off work that can wait, so that the main loop stays responsive."""

from __future__ import annotations

from gi.repository import GLib, Gtk

# Microseconds.
_LONG = 2000
# Iterations of the main loop.
_ENOUGH = 10


def is_late() -> bool:
    """Return whether this iteration of the main loop has taken long already."""
    source = GLib.main_current_source()
    return source is not None and GLib.get_monotonic_time() - source.get_time() > _LONG


class Patience:
    """Put work off while iterations are slow, but not for ever: all of them may be."""

    def __init__(self) -> None:
        self._waited = 0

    def waits(self) -> bool:
        """Return whether the caller should try again later."""
        self._waited = self._waited + 1 if is_late() and self._waited < _ENOUGH else 0
        return self._waited > 0


class FrameByFrame:
    """Put work off until the widgets made last are drawn.

    Laying them out takes about as long as making them, and happens once per frame.
    """

    def __init__(self) -> None:
        self._seen = -1
        self._waited = 0

    def waits(self, widget: Gtk.Widget) -> bool:
        """Return whether the caller should try again later. A hidden window draws no frames."""
        clock = widget.get_frame_clock()
        drawn = clock.get_frame_counter() if clock is not None and widget.get_mapped() else -1
        if drawn >= 0 and drawn == self._seen and self._waited < _ENOUGH:
            self._waited += 1
            return True
        self._seen, self._waited = drawn, 0
        return False
