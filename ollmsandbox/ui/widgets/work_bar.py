# SPDX-License-Identifier: GPL-3.0-or-later
"""A progress bar that pulses while work of unknown duration goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from gi.repository import GLib, Gtk

from ...i18n import _
from .scheduling import Timer
from .signals import signals


class WorkBar(Gtk.ProgressBar):
    __gtype_name__ = "OllmWorkBar"

    # Whether work that changes files is going on.
    __gsignals__ = signals({"working": (bool,)})

    def __init__(self) -> None:
        super().__init__()
        self.set_visible(False)
        self.update_property([Gtk.AccessibleProperty.LABEL], [_("Working")])
        self._under_way = 0
        self._changing = 0
        self._timer = Timer(self._move)

    @property
    def is_working(self) -> bool:
        return self._changing > 0

    def working(self) -> ExitStack:
        """Show the bar and report `is_working` until the returned stack is closed."""
        with ExitStack() as stack:
            stack.enter_context(self.during())
            stack.callback(self._changed)
            self._changing += 1
            if self._changing == 1:
                self.emit("working", True)
            return stack.pop_all()

    @contextmanager
    def during(self, *, patience: int = 0) -> Iterator[None]:
        """Show the bar in this context, after `patience` milliseconds. Contexts may overlap."""
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
        self._timer.start(100)
        self.set_visible(True)

    def _end(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self.set_visible(False)
            self._timer.stop()

    def _move(self) -> bool:
        self.pulse()
        return True


def disable_unless_focused(button: Gtk.Button, is_busy: bool) -> None:
    """Disable a button unless it has the focus, which would move elsewhere."""
    button.set_sensitive(not is_busy or button.is_focus())
