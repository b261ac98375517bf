# SPDX-License-Identifier: GPL-3.0-or-later
"""The blocks of a text, one below the other, of which only those in sight are drawn.

Where there is no graphics card, GTK draws what is out of sight too: a long text would make each
frame slow.
"""

from __future__ import annotations

from bisect import bisect_left

from gi.repository import Gtk

from .weakly import weakly


class MarkdownColumn(Gtk.Box):
    __gtype_name__ = "OllmMarkdownColumn"

    def __init__(self) -> None:
        super().__init__(orientation=Gtk.Orientation.VERTICAL, spacing=12)
        self.add_css_class("markdown")
        self._blocks: list[Gtk.Widget] = []
        self._scroller: Gtk.Widget | None = None
        self._adjustment: Gtk.Adjustment | None = None
        self._handlers: list[int] = []
        self.connect("map", weakly(self._mapped))
        self.connect("unmap", weakly(self._unmapped))

    def add(self, widget: Gtk.Widget, *, before: Gtk.Widget | None = None) -> None:
        index = len(self._blocks) if before is None else self._blocks.index(before)
        self._blocks.insert(index, widget)
        widget.insert_before(self, before)

    def take(self, widget: Gtk.Widget) -> None:
        self._blocks.remove(widget)
        self.remove(widget)

    def take_last(self) -> bool:
        """Whether there was one."""
        if self._blocks:
            self.remove(self._blocks.pop())
            return True
        return False

    def clear(self) -> None:
        for widget in self._blocks:
            self.remove(widget)
        self._blocks = []

    def do_snapshot(self, snapshot: Gtk.Snapshot) -> None:
        top, bottom = self._in_sight()
        count = len(self._blocks)
        # What is being written stands last, and has no place while there is nothing of it.
        if count and not self._blocks[-1].get_visible():
            count -= 1
        for index in range(bisect_left(self._blocks, top, hi=count, key=self._bottom), count):
            widget = self._blocks[index]
            self.snapshot_child(widget, snapshot)
            if self._bottom(widget) > bottom:
                break

    def _in_sight(self) -> tuple[float, float]:
        """From where to where, with a page more on both sides."""
        if self._scroller is None:
            return 0, self.get_height()
        page = self._scroller.get_height()
        known, bounds = self.compute_bounds(self._scroller)
        return (-bounds.get_y() - page, 2 * page - bounds.get_y()) if known else (0, 0)

    def _bottom(self, widget: Gtk.Widget) -> float:
        _known, bounds = widget.compute_bounds(self)
        return bounds.get_y() + bounds.get_height()

    def _mapped(self, _widget: Gtk.Widget) -> None:
        scroller = self.get_ancestor(Gtk.ScrolledWindow)
        if isinstance(scroller, Gtk.ScrolledWindow):
            self._scroller, self._adjustment = scroller, scroller.get_vadjustment()
            self._handlers = [
                self._adjustment.connect(name, weakly(self._scrolled))
                for name in ("value-changed", "changed")
            ]

    def _unmapped(self, _widget: Gtk.Widget) -> None:
        if self._adjustment is not None:
            for handler in self._handlers:
                self._adjustment.disconnect(handler)
        self._scroller = self._adjustment = None

    def _scrolled(self, _adjustment: Gtk.Adjustment) -> None:
        # What is not much longer than the view is drawn as a whole.
        if self._scroller is not None and self.get_height() > self._scroller.get_height():
            self.queue_draw()
