# SPDX-License-Identifier: GPL-3.0-or-later
"""A row that the Tab key enters once; the arrow keys move inside it."""

from __future__ import annotations

from gi.repository import Adw, Gtk

TAB_DIRECTIONS = (Gtk.DirectionType.TAB_FORWARD, Gtk.DirectionType.TAB_BACKWARD)


class TabStop(Adw.Bin):
    __gtype_name__ = "OllmTabStop"

    # For a question, whose answers are worth a stop each, and for a command that waits for input.
    has_many_stops = False

    def do_focus(self, direction: Gtk.DirectionType) -> bool:
        child = self.get_child()
        if child is None:
            return False
        if direction in TAB_DIRECTIONS and not self.has_many_stops:
            if self.get_focus_child() is not None:
                return False
            # From below, too, it begins with what comes first.
            direction = Gtk.DirectionType.TAB_FORWARD
        return child.child_focus(direction)
