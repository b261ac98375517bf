# SPDX-License-Identifier: GPL-3.0-or-later
"""A bar that moves as long as something is under way, of which nobody knows how long it takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from gettext import gettext as _

from gi.repository import GLib, Gtk

from .signals import signals
from .weak import weakly

_PULSE = 100


class WorkBar(Gtk.ProgressBar):
    __gtype_name__ = "OllmWorkBar"

    # Something is changed from now on, or no longer.
    __gsignals__ = signals({"working": (bool,)})

    def __init__(self) -> None:
        super().__init__()
        self.set_visible(False)
        self.update_property([Gtk.AccessibleProperty.LABEL], [_("Working")])
        self._under_way = 0
        self._changing = 0
        self._source = 0

    @property
    def is_working(self) -> bool:
        return self._changing > 0

    def working(self) -> ExitStack:
        """Something is changed from now on, until this is closed. It is seen, and what depends on
        it is not to be begun."""
        with ExitStack() as stack:
            stack.enter_context(self.during())
            stack.callback(self._changed)
            self._changing += 1
            if self._changing == 1:
                self.emit("working", True)
            return stack.pop_all()

    @contextmanager
    def during(self, *, patience: int = 0) -> Iterator[None]:
        """Seen while this lasts, from the first moment on or after so many milliseconds. Of several
        at once, the last to end hides it."""
        waiting = 0

        def begin() -> bool:
            nonlocal waiting
            waiting = 0
            self._begin()
            return GLib.SOURCE_REMOVE

        if patience:
            waiting = GLib.timeout_add(patience, begin)
        else:
            begin()
        try:
            yield
        finally:
            if waiting:
                GLib.source_remove(waiting)
            else:
                self._end()

    def _changed(self) -> None:
        self._changing -= 1
        if not self._changing:
            self.emit("working", False)

    def _begin(self) -> None:
        self._under_way += 1
        if not self._source:
            self._source = GLib.timeout_add(_PULSE, weakly(self._move))
        self.set_visible(True)

    def _end(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self.set_visible(False)
            GLib.source_remove(self._source)
            self._source = 0

    def _move(self) -> bool:
        self.pulse()
        return GLib.SOURCE_CONTINUE


def hold(button: Gtk.Button, is_held: bool) -> None:
    """Where the keyboard is, it stays: switched off, the button would send it elsewhere."""
    button.set_sensitive(not is_held or button.is_focus())
