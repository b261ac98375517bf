# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds out whether the user can see a widget: scrolled into view, and not covered."""

from __future__ import annotations

from gi.repository import Graphene, Gtk

# Pixels that edges may be off, from rounding.
_SLACK = 2


def edges_in_sight(widget: Gtk.Widget) -> tuple[bool, bool]:
    """Return whether its upper and lower edge are visible in all scrolled windows around it."""
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
    last = max(0, widget.get_height() - 1)
    inner = min(last, 2 * _SLACK)
    return top and _is_on_top(widget, inner), bottom and _is_on_top(widget, last - inner)


def is_covered(widget: Gtk.Widget) -> bool:
    """Return whether another page covers the one that contains the widget."""
    page = scrolled_around(widget) or widget
    return not (page.get_mapped() and _is_on_top(page, page.get_height() / 2))


def is_in_reach(widget: Gtk.Widget) -> bool:
    """Return whether a part of the widget is scrolled into view."""
    around = scrolled_around(widget)
    if around is None:
        return True
    known, bounds = widget.compute_bounds(around)
    return (
        known and bounds.get_y() + bounds.get_height() > 0 and bounds.get_y() < around.get_height()
    )


def place_in_window(widget: Gtk.Widget) -> tuple[int, ...] | None:
    """Return x, y, width and height in the window, or None if it is not shown."""
    root = widget.get_root()
    if not (widget.get_mapped() and isinstance(root, Gtk.Window)):
        return None
    known, bounds = widget.compute_bounds(root)
    if not known:
        return None
    sides = bounds.get_x(), bounds.get_y(), bounds.get_width(), bounds.get_height()
    return tuple(map(round, sides))


def scrolled_around(widget: Gtk.Widget) -> Gtk.ScrolledWindow | None:
    found = widget.get_ancestor(Gtk.ScrolledWindow)
    return found if isinstance(found, Gtk.ScrolledWindow) else None


def _is_on_top(widget: Gtk.Widget, y: float) -> bool:
    """Return whether the widget is what the pointer would hit at this height."""
    root = widget.get_root()
    if not isinstance(root, Gtk.Window):
        return False
    known, place = widget.compute_point(root, Graphene.Point().init(widget.get_width() / 2, y))
    if not known:
        return False
    found = root.pick(place.x, place.y, Gtk.PickFlags.INSENSITIVE)
    return found is not None and (found is widget or found.is_ancestor(widget))
