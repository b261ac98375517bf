# SPDX-License-Identifier: GPL-3.0-or-later
"""A scrolled window inside another one that keeps only what it can use.

GTK's own swallows each turn of the wheel, also where it cannot scroll that way: whoever reads on
with the pointer over a table or a piece of code would be stuck there.
"""

from __future__ import annotations

from gi.repository import Gdk, Gtk

from .weak import weakly

_SIDEWAYS = Gtk.EventControllerScrollFlags.HORIZONTAL | Gtk.EventControllerScrollFlags.KINETIC
_BOTH = Gtk.EventControllerScrollFlags.BOTH_AXES | Gtk.EventControllerScrollFlags.KINETIC


class NestedScroller(Gtk.ScrolledWindow):
    __gtype_name__ = "OllmNestedScroller"

    def __init__(self) -> None:
        super().__init__()
        own = self.observe_controllers()
        self._scrolling = [
            controller
            for index in range(own.get_n_items())
            if isinstance(controller := own.get_item(index), Gtk.EventControllerScroll)
        ]
        # It sees each movement before the other controllers.
        first = Gtk.EventControllerScroll(
            flags=Gtk.EventControllerScrollFlags.BOTH_AXES,
            propagation_phase=Gtk.PropagationPhase.CAPTURE,
        )
        first.connect("scroll", weakly(self._before_scrolling))
        self.add_controller(first)

    def _before_scrolling(self, _first: Gtk.EventController, _right: float, down: float) -> bool:
        flags = _BOTH if self._can_go(down) else _SIDEWAYS
        for controller in self._scrolling:
            controller.set_flags(flags)
        return Gdk.EVENT_PROPAGATE

    def _can_go(self, down: float) -> bool:
        if self.get_policy()[1] is Gtk.PolicyType.NEVER:
            return False
        adjustment = self.get_vadjustment()
        value = adjustment.get_value()
        end = adjustment.get_upper() - adjustment.get_page_size()
        return value > 0 if down < 0 else value < end - 1
