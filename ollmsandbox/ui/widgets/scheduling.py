# SPDX-License-Identifier: GPL-3.0-or-later
"""Put off work: until later, or as long as it can wait, so that the main loop stays responsive."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from gi.repository import GLib, Gtk

from .weak import weakly

# Iterations of the main loop.
_ENOUGH = 10


def is_late() -> bool:
    """Return whether this iteration of the main loop has taken long already."""
    source = GLib.main_current_source()
    return source is not None and GLib.get_monotonic_time() - source.get_time() > 2000


class Timer:
    """Calls a method after a while, and again each time as long as it returns True."""

    def __init__(self, method: Callable[[], object]) -> None:
        self._call = weakly(method)
        self._source = 0

    @property
    def is_running(self) -> bool:
        return self._source > 0

    def start(self, milliseconds: int = 0) -> None:
        """Start the timer, unless it runs already."""
        if not self._source:
            self._source = GLib.timeout_add(milliseconds, self._run)

    def restart(self, milliseconds: int) -> None:
        self.stop()
        self.start(milliseconds)

    def stop(self) -> None:
        if self._source:
            GLib.source_remove(self._source)
            self._source = 0

    def soon(self, *_args: object) -> None:
        """Start the timer for the next turn of the main loop, as the handler of a signal."""
        self.start()

    def _run(self) -> bool:
        source, self._source = self._source, 0
        if self._call() is True and not self._source:
            self._source = source
            return GLib.SOURCE_CONTINUE
        return GLib.SOURCE_REMOVE


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


class LazyModule:
    """Stands for a module that the first frame does not need: it is loaded when it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        return getattr(import_module(self._name), attribute)
