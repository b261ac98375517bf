# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a widget can be seen: where the person has scrolled to, and under what lies over it."""

from __future__ import annotations

from gi.repository import Graphene, Gtk

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
    last = max(0, widget.get_height() - 1)
    inner = min(last, 2 * _SLACK)
    return top and _is_on_top(widget, inner), bottom and _is_on_top(widget, last - inner)


def is_covered(widget: Gtk.Widget) -> bool:
    """Another page lies over the one it is on, or that is not shown."""
    page = scrolled_around(widget) or widget
    return not (page.get_mapped() and _is_on_top(page, page.get_height() / 2))


def is_in_reach(widget: Gtk.Widget) -> bool:
    """A part of it is where the person has scrolled to."""
    around = scrolled_around(widget)
    if around is None:
        return True
    known, bounds = widget.compute_bounds(around)
    return (
        known and bounds.get_y() + bounds.get_height() > 0 and bounds.get_y() < around.get_height()
    )


def place_in_window(widget: Gtk.Widget) -> tuple[int, ...] | None:
    """Its left and upper edge, its width and its height."""
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
    """What is there in the window is the widget: nothing that was drawn later."""
    root = widget.get_root()
    if not isinstance(root, Gtk.Window):
        return False
    known, place = widget.compute_point(root, Graphene.Point().init(widget.get_width() / 2, y))
    if not known:
        return False
    found = root.pick(place.x, place.y, Gtk.PickFlags.INSENSITIVE)
    return found is not None and (found is widget or found.is_ancestor(widget))
