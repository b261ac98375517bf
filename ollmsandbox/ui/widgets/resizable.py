# SPDX-License-Identifier: GPL-3.0-or-later
"""A pane at a side of a window whose width the user changes at its inner edge."""

from __future__ import annotations

from gi.repository import Adw, Gdk, Gtk

from .keyboard import on_key
from .signals import signals
from .weak import weakly

# Pixels for each press of an arrow key.
_STEP = 24


class ResizablePane(Adw.Bin):
    __gtype_name__ = "OllmResizablePane"

    # The user has chosen a width.
    __gsignals__ = signals({"resized": (int,)})

    def __init__(self) -> None:
        super().__init__()
        # A layout manager would be asked instead of do_measure.
        self.set_layout_manager(None)
        self._least = self.wanted = self._most = self._extra = 0
        self._is_at_end = False
        self._edge: Gtk.Widget | None = None

    def resize(self, width: int) -> None:
        self.wanted = max(self._least, width)
        self.queue_resize()

    def limit(self, width: int, extra: int = 0) -> None:
        """Set the largest width that the window has room for. The wanted one comes back with it.
        `extra` is room beside it that is free for now, and that it takes, too.

        With 0, the pane is hidden and needs almost no room.
        """
        if (width, extra) != (self._most, self._extra):
            self._most, self._extra = width, extra
            self.queue_resize()

    def add_edge(self, edge: Gtk.Widget, name: str, least: int, *, is_at_end: bool) -> None:
        """Let the user drag this widget, or press the arrow keys on it, to change the width."""
        self._least, self._is_at_end = least, is_at_end
        edge.set_cursor(Gdk.Cursor.new_from_name("col-resize"))
        edge.update_property([Gtk.AccessibleProperty.LABEL], [name])
        drag = Gtk.GestureDrag()
        drag.connect("drag-update", weakly(self._on_drag))
        drag.connect("drag-end", weakly(self._on_end))
        edge.add_controller(drag)
        on_key(edge, self._on_key)
        self._edge = edge

    def set_can_resize(self, can_resize: bool) -> None:
        if self._edge is not None:
            self._edge.set_visible(can_resize)

    @property
    def _outwards(self) -> int:
        """The direction in which the pane grows."""
        is_rtl = self.get_direction() is Gtk.TextDirection.RTL
        return 1 if is_rtl is self._is_at_end else -1

    def _on_drag(self, _drag: Gtk.GestureDrag, x: float, _y: float) -> None:
        # The edge moves with the pane, so this is how far the pointer is from it by now.
        self._resize_to(self.get_width() + round(x) * self._outwards)

    def _resize_to(self, width: int) -> None:
        self.resize(width - self._extra)

    def _on_end(self, *_args: object) -> None:
        self._resize_to(self.get_width())
        self.emit("resized", self.wanted)

    def _on_key(self, _keys: object, key: int, _code: int, _state: Gdk.ModifierType) -> bool:
        by = {Gdk.KEY_Left: -_STEP, Gdk.KEY_Right: _STEP}.get(key)
        if by is None:
            return Gdk.EVENT_PROPAGATE
        self._resize_to(self.get_width() + by * self._outwards)
        self.emit("resized", self.wanted)
        return Gdk.EVENT_STOP

    # --- the layout ------------------------------------------------------------------------------

    def do_get_request_mode(self) -> Gtk.SizeRequestMode:
        return Gtk.SizeRequestMode.CONSTANT_SIZE

    def do_measure(self, orientation: Gtk.Orientation, _for_size: int) -> tuple[int, int, int, int]:
        child = self.get_child()
        least, natural = child.measure(orientation, -1)[:2] if child else (0, 0)
        if orientation is Gtk.Orientation.HORIZONTAL:
            # An Adw.Flap gives its flap no more than the minimum.
            shown = max(least, self._least, min(self.wanted + self._extra, self._most))
            # To open it, the Adw.Flap divides by the width it had: 0 would be an animation of NaN.
            least = natural = shown if self._most else 1
        return least, natural, -1, -1

    def do_size_allocate(self, width: int, height: int, baseline: int) -> None:
        child = self.get_child()
        if child is not None and self._most:
            child.allocate(width, height, baseline, None)
