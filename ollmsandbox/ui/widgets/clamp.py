# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits the width of the chat."""

from __future__ import annotations

from gi.repository import Adw, Graphene, Gsk, Gtk

# Pixels: up to the first, the child has all the room; then it grows ever more slowly to the second.
_TIGHTENS_FROM, _MOST = 400, 860


class ClampedBin(Adw.Bin):
    """Limits the width of its child and centres it, like an Adw.Clamp.

    Adw.Clamp gives its child another style class for each range of widths. GTK then looks up the
    styles of all that is inside: for a long chat, that would stop the window for half a second.
    """

    def __init__(self, child: Gtk.Widget) -> None:
        super().__init__(child=child, margin_start=12, margin_end=12)
        # A layout manager would be asked instead of do_measure.
        self.set_layout_manager(None)

    def do_get_request_mode(self) -> Gtk.SizeRequestMode:
        return Gtk.SizeRequestMode.HEIGHT_FOR_WIDTH

    def do_measure(self, orientation: Gtk.Orientation, for_size: int) -> tuple[int, int, int, int]:
        child = self.get_child()
        if child is None:
            return 0, 0, -1, -1
        if orientation == Gtk.Orientation.VERTICAL:
            for_size = self._width_in(for_size)
        least, natural, *_baselines = child.measure(orientation, for_size)
        return least, natural, -1, -1

    def do_size_allocate(self, width: int, height: int, baseline: int) -> None:
        child = self.get_child()
        if child is None or not child.should_layout():
            return
        inner = self._width_in(width)
        place = Graphene.Point().init((width - inner) // 2, 0)
        child.allocate(inner, height, baseline, Gsk.Transform.new().translate(place))

    def _width_in(self, width: int) -> int:
        child = self.get_child()
        least = child.measure(Gtk.Orientation.HORIZONTAL, -1)[0] if child is not None else 0
        start = max(_TIGHTENS_FROM, least)
        if width <= start:
            return width
        left = max(0.0, 1 - (width - start) / (3 * max(1, _MOST - start)))
        return min(width, max(start, _MOST - round((_MOST - start) * left**3)))
