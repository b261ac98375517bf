# SPDX-License-Identifier: GPL-3.0-or-later
"""Move the focus to a neighbour when the focused widget is disabled or removed: GTK would leave the
keyboard user without a focus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gi.repository import GLib, GObject, Gtk

from .weak import weak_reference, weakly


class FocusKeeper:
    def __init__(self, window: Gtk.Window) -> None:
        # Weak references to the widget that had the focus last, and to its parents.
        self._last: list[Callable[[], Gtk.Widget | None]] = []
        self._focus: Gtk.Widget | None = None
        window.connect("notify::focus-widget", weakly(self._on_focus))

    def _on_focus(self, window: Gtk.Window, _property: GObject.ParamSpec) -> None:
        focus = window.get_focus()
        # GTK 4.8 reads the widget that had the focus once more, even if it was removed meanwhile.
        GLib.timeout_add(0, _let_go, self._focus)
        self._focus = focus
        if focus is not None:
            self._last = [weak_reference(widget) for widget in _with_parents(focus)]
        elif self._last:
            # Later: whoever took the focus away may give it to another widget.
            GLib.timeout_add(0, weakly(self._bring_back), window)

    def _bring_back(self, window: Gtk.Window) -> bool:
        if window.get_focus() is None and window.get_mapped():
            there = (widget for ref in self._last if (widget := ref()) is not None)
            any(_focus_beside(widget) for widget in there if widget.get_root() is window)
        return GLib.SOURCE_REMOVE


def window_around(widget: Gtk.Widget) -> Gtk.Window:
    """Return the window. Do not keep a reference to it in the widget: it would never be freed."""
    window = widget.get_root()
    assert isinstance(window, Gtk.Window)
    return window


def focus_around(widget: Gtk.Widget) -> Gtk.Widget | None:
    """Return what has the focus in the window that a widget is in."""
    window = widget.get_root()
    return window.get_focus() if isinstance(window, Gtk.Window) else None


def contains_focus(widget: Gtk.Widget) -> bool:
    focus = focus_around(widget)
    return focus is not None and focus.is_ancestor(widget)


def _let_go(_widget: Gtk.Widget | None) -> bool:
    """End a timer, which has kept the widget alive until now."""
    return GLib.SOURCE_REMOVE


def _with_parents(widget: Gtk.Widget) -> Iterator[Gtk.Widget]:
    above: Gtk.Widget | None = widget
    while above is not None:
        yield above
        above = above.get_parent()


def _focus_beside(widget: Gtk.Widget) -> bool:
    """Focus the next sibling that takes the focus, else the one before. Return whether one did."""
    for step, direction in (
        (Gtk.Widget.get_next_sibling, Gtk.DirectionType.TAB_FORWARD),
        (Gtk.Widget.get_prev_sibling, Gtk.DirectionType.TAB_BACKWARD),
    ):
        beside = step(widget)
        while beside is not None:
            if beside.get_mapped() and beside.child_focus(direction):
                return True
            beside = step(beside)
    return False
