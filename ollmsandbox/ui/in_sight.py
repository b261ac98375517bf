# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a widget can be seen where the person has scrolled to."""

from __future__ import annotations

from gi.repository import Gtk

# Edges may be that much off, from rounding.
_SLACK = 2


def edges_in_sight(widget: Gtk.Widget) -> tuple[bool, bool]:
    """Its upper and its lower edge, in all the scrolled windows around it."""
    if not widget.get_mapped():
        return False, False
    top = bottom = True
    around = widget.get_parent()
    while around is not None:
        if isinstance(around, Gtk.ScrolledWindow):
            known, bounds = widget.compute_bounds(around)
            if not known:
                return False, False
            upper, height = bounds.get_y(), around.get_height()
            lower = upper + bounds.get_height()
            top = top and -_SLACK <= upper <= height
            bottom = bottom and 0 <= lower <= height + _SLACK
        around = around.get_parent()
    return top, bottom


def scrolled_around(widget: Gtk.Widget) -> Gtk.ScrolledWindow | None:
    found = widget.get_ancestor(Gtk.ScrolledWindow)
    return found if isinstance(found, Gtk.ScrolledWindow) else None
