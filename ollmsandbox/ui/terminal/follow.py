# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps a scrolled window at its end while text is added, until the user scrolls up."""

from __future__ import annotations

import time

from gi.repository import Gdk, GLib, Gtk

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
        self._idle = 0
        adjustment = scroller.get_vadjustment()
        self._last = adjustment.get_value()
        adjustment.connect("value-changed", weakly(self._scrolled))
        adjustment.connect("changed", weakly(self._resized))
        wheel = Gtk.EventControllerScroll.new(Gtk.EventControllerScrollFlags.VERTICAL)
        wheel.set_propagation_phase(Gtk.PropagationPhase.CAPTURE)
        wheel.connect("scroll", weakly(self._wheel))
        scroller.add_controller(wheel)
        touch = Gtk.GestureDrag()
        touch.set_propagation_phase(Gtk.PropagationPhase.CAPTURE)
        touch.connect("drag-update", weakly(self._acted))
        scroller.add_controller(touch)
        keys = Gtk.EventControllerKey()
        keys.set_propagation_phase(Gtk.PropagationPhase.CAPTURE)
        keys.connect("key-pressed", weakly(self._acted))
        scroller.add_controller(keys)

    def _wheel(self, *_args: object) -> bool:
        self._acted()
        return Gdk.EVENT_PROPAGATE

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

    def _resized(self, adjustment: Gtk.Adjustment) -> None:
        # Not now: this may be called during layout.
        if self.is_following and not self._idle:
            self._idle = GLib.timeout_add(0, weakly(self._go_to_end), adjustment)

    def _go_to_end(self, adjustment: Gtk.Adjustment) -> bool:
        self._idle = 0
        if self.is_following:
            self._is_moving = True
            adjustment.set_value(adjustment.get_upper() - adjustment.get_page_size())
            self._is_moving = False
        return GLib.SOURCE_REMOVE
