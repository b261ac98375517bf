# SPDX-License-Identifier: GPL-3.0-or-later
"""A scrolled window inside another one that keeps only what it can use.

GTK's own swallows each turn of the wheel, also where it cannot scroll that way: whoever reads on
with the pointer over a table or a piece of code would be stuck there.
"""

from __future__ import annotations

from gi.repository import Gdk, GLib, GObject, Gtk

from .weak import weak_reference, weakly

_SIDEWAYS = Gtk.EventControllerScrollFlags.HORIZONTAL | Gtk.EventControllerScrollFlags.KINETIC
_BOTH = Gtk.EventControllerScrollFlags.BOTH_AXES | Gtk.EventControllerScrollFlags.KINETIC


def lower_when_wider(scroller: Gtk.ScrolledWindow) -> None:
    """Make a scrolled text view lower when it gets wider, which GTK itself does not."""
    view = weak_reference(scroller.get_child())
    before = 0.0

    def measure() -> bool:
        if (there := view()) is not None:
            there.queue_resize()
        return GLib.SOURCE_REMOVE

    def look(width: Gtk.Adjustment, _property: GObject.ParamSpec) -> None:
        nonlocal before
        if width.get_page_size() > before > 0:
            # By then, it has wrapped its lines anew.
            GLib.timeout_add(50, measure)
        before = width.get_page_size()

    scroller.get_hadjustment().connect("notify::page-size", look)


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
