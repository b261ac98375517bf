# SPDX-License-Identifier: GPL-3.0-or-later
"""What there is no room for is told when the pointer rests on it."""

from __future__ import annotations

from gi.repository import Gtk


def tell_when_cut_off(*widgets: Gtk.Widget) -> None:
    """Labels, or what has labels in it."""
    for widget in widgets:
        if isinstance(widget, Gtk.Label):
            widget.set_has_tooltip(True)
            widget.connect("query-tooltip", _tell)
            continue
        child = widget.get_first_child()
        while child is not None:
            tell_when_cut_off(child)
            child = child.get_next_sibling()


def is_cut_off(label: Gtk.Label) -> bool:
    return label.get_layout().is_ellipsized()


def _tell(label: Gtk.Label, _x: int, _y: int, _by_key: bool, tooltip: Gtk.Tooltip) -> bool:
    tooltip.set_text(label.get_text())
    return is_cut_off(label)
