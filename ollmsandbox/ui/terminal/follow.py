# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps a scrolled window at its end while text is added, until the user scrolls up."""

from __future__ import annotations

import time

from gi.repository import Gdk, Gtk

from ..widgets.scheduling import Timer
from ..widgets.weak import weakly

# Seconds for which kinetic scrolling may go on.
_AFTER = 1.0


class Follower:
    """A text view scrolls by itself while it measures its lines. So only a change right after an
    action of the user counts as the user's wish."""

    def __init__(self, scroller: Gtk.ScrolledWindow) -> None:
        self.is_following = True
        self._user_until = 0.0
        self._is_moving = False
        self._due = Timer(self._go_to_end)
        self._adjustment = adjustment = scroller.get_vadjustment()
        self._last = adjustment.get_value()
        adjustment.connect("value-changed", weakly(self._scrolled))
        adjustment.connect("changed", weakly(self._resized))
        wheel = Gtk.EventControllerScroll.new(Gtk.EventControllerScrollFlags.VERTICAL)
        for controller, signal in (
            (wheel, "scroll"),
            (Gtk.GestureDrag(), "drag-update"),
            (Gtk.EventControllerKey(), "key-pressed"),
        ):
            controller.set_propagation_phase(Gtk.PropagationPhase.CAPTURE)
            controller.connect(signal, weakly(self._acted))
            scroller.add_controller(controller)

    def _acted(self, *_args: object) -> bool:
        self._user_until = time.monotonic() + _AFTER
        return Gdk.EVENT_PROPAGATE

    def _scrolled(self, adjustment: Gtk.Adjustment) -> None:
        value, last = adjustment.get_value(), self._last
        self._last = value
        if self._is_moving:
            return
        is_at_end = value >= adjustment.get_upper() - adjustment.get_page_size() - 1
        if time.monotonic() < self._user_until:
            if is_at_end:
                self.is_following = True
            elif value < last:
                self.is_following = False
        elif not is_at_end:
            self._resized(adjustment)

    def _resized(self, _adjustment: Gtk.Adjustment) -> None:
        # Not now: this may be called during layout.
        if self.is_following:
            self._due.start()

    def _go_to_end(self) -> None:
        if self.is_following:
            self._is_moving = True
            end = self._adjustment.get_upper() - self._adjustment.get_page_size()
            self._adjustment.set_value(end)
            self._is_moving = False
