# SPDX-License-Identifier: GPL-3.0-or-later
"""A long column of rows of different heights, of which only those in sight exist as widgets."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from gettext import gettext as _
from typing import Generic, TypeVar

from gi.repository import Adw, GLib, GObject, Gtk, Pango

from ..text.visible import visible_words
from .lazy_layout import LazyLayout
from .lazy_rows import Row
from .spoken import spoken
from .turns import FrameByFrame
from .weakly import weakly

T = TypeVar("T")

# Built besides what is in sight: so many pages above and below. More than twice that is dropped.
_MARGIN = 0.75
# Seconds at a time for making rows, and milliseconds of pause, in which a frame is drawn. The first
# row is made in any case.
_SLICE, _PAUSE = 0.005, 8
# A row is in view if so many pixels of it are.
_IN_VIEW = 40
_AROUND_FOCUS = 12


class LazyColumn(Gtk.ScrolledWindow, Generic[T]):
    """Follows the end while the person is there; `at-end` tells."""

    __gtype_name__ = "OllmLazyColumn"

    at_end = GObject.Property(type=bool, default=True)

    def __init__(self, make_row: Callable[[T], Gtk.Widget], spacing: int = 0) -> None:
        super().__init__(hscrollbar_policy=Gtk.PolicyType.NEVER)
        # Most likely a method of the widget that this one is in.
        self._make_row = weakly(make_row) if inspect.ismethod(make_row) else make_row
        self._layout = LazyLayout(spacing)
        self._layout.connect("moved", weakly(self._look_soon))
        self._layout.connect("map", weakly(self._on_map))
        self._layout.connect("unmap", weakly(self._on_unmap))
        self.set_child(self._layout)
        self._source = 0
        self._is_behind = False
        self._frames = FrameByFrame()
        self._root: Gtk.Root | None = None
        self._focus_handler = 0

    @GObject.Signal
    def scrolled(self):
        """Other rows may be in view."""

    @GObject.Signal(arg_types=(object, Gtk.Widget))
    def row_dropped(self, item: T, row: Gtk.Widget) -> None:
        """It is out of sight, and will be made anew when it is needed."""

    # --- items -----------------------------------------------------------------------------------

    @property
    def items(self) -> Sequence[T]:
        return [row.item for row in self._layout.rows.rows]

    def set_items(self, items: Iterable[T]) -> None:
        """Instead of all there were; at the end."""
        for row in self._layout.rows.rows:
            self._drop(row)
        self._layout.rows.clear()
        for item in items:
            self._layout.rows.insert(len(self._layout.rows.rows), item)
        self.scroll_to_end()
        self._changed()

    def append(self, item: T) -> None:
        self.insert(len(self._layout.rows.rows), item)

    def insert(self, index: int, item: T) -> None:
        self._layout.rows.insert(index, item)
        self._changed()

    def remove(self, item: T) -> None:
        row = self._layout.rows.of(item)
        self._layout.let_go(row)
        self._layout.rows.remove(item)
        self._drop(row)
        self._changed()

    def remove_at(self, index: int) -> None:
        self.remove(self._layout.rows.rows[index].item)

    def pin(self, item: T) -> None:
        """It exists wherever the person scrolls: something happens in it."""
        self._layout.rows.of(item).pinned = True
        self._look_soon()

    def unpin(self, item: T) -> None:
        self._layout.rows.of(item).pinned = False
        self._look_soon()

    def row_of(self, item: T) -> Gtk.Widget | None:
        """What was made of it, if that exists now."""
        widget = self._layout.rows.of(item).widget
        return widget.get_child() if isinstance(widget, Adw.Bin) else None

    # --- scrolling -------------------------------------------------------------------------------

    def scroll_to_end(self) -> None:
        self._layout.follow_end()
        self._look_soon()

    def scroll_to(self, item: T) -> None:
        """Its upper edge to the upper edge; it is made at once if it has to be."""
        row = self._layout.rows.of(item)
        if row.widget is None:
            self._build(row)
        self._layout.hold(row)
        self._look_soon()

    def show_whole(self, item: T) -> None:
        """As much of it as there is room for; its end, where that is not all."""
        row = self._layout.rows.of(item)
        self._layout.hold(row, max(0, self._layout.rows.height(row) - self._layout.get_height()))
        self._look_soon()

    @property
    def is_settled(self) -> bool:
        """Whether all is made that is in view, or near it."""
        return not self._source

    def is_in_view(self, item: T) -> bool:
        row = self._layout.rows.of(item)
        top = self._layout.rows.top_of(row) - self._layout.value
        bottom = top + self._layout.rows.height(row)
        seen = min(bottom, self._layout.get_height()) - max(top, 0)
        return row.widget is not None and seen >= min(_IN_VIEW, bottom - top)

    def is_above(self, item: T) -> bool:
        """Its upper edge is over the upper edge."""
        return self._layout.rows.top_of(self._layout.rows.of(item)) < self._layout.value

    def is_cut_off(self, item: T) -> bool:
        """At the upper edge, although there would be room for more of it."""
        row = self._layout.rows.of(item)
        bottom = self._layout.rows.top_of(row) + self._layout.rows.height(row) - self._layout.value
        return self.is_above(item) and bottom < self._layout.get_height() - 1

    def look_again(self) -> None:
        """Before the next frame, `scrolled` is told in any case."""
        self._look_soon()

    # --- what exists -----------------------------------------------------------------------------

    def _changed(self) -> None:
        self._layout.queue_resize()
        self._look_soon()

    def _look_soon(self, *_args: object) -> None:
        """Before the next frame, and not as a part of it, which takes its time as it is. A column
        that is not shown needs no rows."""
        if not self._source and self._layout.get_mapped():
            self._source = GLib.idle_add(  # type: ignore[call-arg]  # it has the argument
                weakly(self._look), priority=GLib.PRIORITY_HIGH_IDLE
            )

    def _look(self) -> bool:
        if self._is_behind and self._frames.waits(self._layout):
            return self._look_later()
        end = time.monotonic() + _SLICE
        try:
            more = self._build_missing(end) or self._drop_far(end) or self._layout.fit_rows(end)
        finally:
            # Whatever failed, there is a next time.
            self._source = 0
        self._is_behind = more
        if more:
            self._look_later()
        if self.at_end != self._layout.following:
            self.at_end = self._layout.following
        self.emit("scrolled")
        return GLib.SOURCE_REMOVE

    def _look_later(self) -> bool:
        self._source = GLib.timeout_add(_PAUSE, weakly(self._look))
        return GLib.SOURCE_REMOVE

    def _near(self, pages: float) -> Iterable[Row]:
        value, height = self._layout.value, self._layout.get_height()
        return self._layout.rows.between(value - pages * height, value + (1 + pages) * height)

    def _build_missing(self, end: float) -> bool:
        """Whether some are left for the next time."""
        if not self._layout.get_width():
            return True
        pinned = [row for row in self._layout.rows.rows if row.pinned]
        for row in (*self._near(0), *pinned, *self._near(_MARGIN)):
            if row.widget is None:
                self._build(row)
                if time.monotonic() >= end:
                    return True
        return False

    def _drop_far(self, end: float) -> bool:
        near = {id(row) for row in self._near(2 * _MARGIN)}
        for row in self._layout.rows.rows:
            if row.widget is None or row.pinned or id(row) in near or self._has_focus(row):
                continue
            self._drop(row)
            if time.monotonic() >= end:
                return True
        return False

    def _build(self, row: Row[T, Gtk.Widget]) -> None:
        try:
            child = self._make_row(row.item)
        except Exception as error:  # noqa: BLE001 - one row must not hold up the others
            # A mistake of ours: seen on the console, and by the tests. The others are shown.
            sys.excepthook(type(error), error, error.__traceback__)
            child = _stand_in(error)
        if child is None:  # whoever makes them is gone
            return
        row.widget = Adw.Bin(child=child, accessible_role=Gtk.AccessibleRole.LIST_ITEM)
        # In its place among the others, for the Tab key.
        rows = self._layout.rows.rows
        after = rows[rows.index(row) + 1 :]
        following = next((other.widget for other in after if other.widget is not None), None)
        row.widget.insert_before(self._layout, following)
        # Here and not in the layout, so that it counts as time for making rows.
        if width := self._layout.get_width():
            self._layout.measure_row(row, width)

    def _drop(self, row: Row[T, Gtk.Widget]) -> None:
        if row.widget is None:
            return
        widget, row.widget = row.widget, None
        child = widget.get_child() if isinstance(widget, Adw.Bin) else None
        widget.unparent()
        if child is not None:
            self.emit("row-dropped", row.item, child)

    # --- the focus -------------------------------------------------------------------------------

    @property
    def focused_item(self) -> T | None:
        """The one that the keyboard is in."""
        return next((row.item for row in self._layout.rows.rows if self._has_focus(row)), None)

    def _on_map(self, _layout: Gtk.Widget) -> None:
        self._root = self.get_root()
        if self._root is not None:
            self._focus_handler = self._root.connect("notify::focus-widget", weakly(self._on_focus))
        self._look_soon()

    def _on_unmap(self, _layout: Gtk.Widget) -> None:
        if self._source:
            GLib.source_remove(self._source)
            self._source = 0
        if self._root is not None:
            self._root.disconnect(self._focus_handler)
            self._root = None

    def _focus(self) -> Gtk.Widget | None:
        focus = self._root.get_focus() if self._root is not None else None
        return focus if focus is not None and focus.is_ancestor(self._layout) else None

    def _has_focus(self, row: Row[T, Gtk.Widget]) -> bool:
        focus = self._focus()
        return focus is not None and row.widget is not None and focus.is_ancestor(row.widget)

    def _on_focus(self, root: Gtk.Root, _property: object) -> None:
        focus = self._focus()
        # A click goes where one looks already; only a key may lead out of sight.
        if focus is None or not (isinstance(root, Gtk.Window) and root.get_focus_visible()):
            return
        known, bounds = focus.compute_bounds(self._layout)
        # What is not laid out yet has no place; the layout will bring its row into view.
        if not known or not focus.get_height():
            return
        top = bounds.get_y() - _AROUND_FOCUS
        bottom = bounds.get_y() + bounds.get_height() + _AROUND_FOCUS
        page = self._layout.get_height()
        adjustment = self.get_vadjustment()
        if top < 0 and bottom <= page:
            adjustment.set_value(adjustment.get_value() + max(top, bottom - page))
        # At the end, the next layout follows to what was added there.
        elif bottom > page and top >= 0 and not self._layout.following:
            adjustment.set_value(adjustment.get_value() + min(top, bottom - page))


def _stand_in(error: Exception) -> Gtk.Widget:
    text = _("Something went wrong: {why}").format(why=visible_words(spoken(str(error))))
    label = Gtk.Label(label=text, xalign=0, wrap=True, margin_start=12, margin_end=12)
    label.set_wrap_mode(Pango.WrapMode.WORD_CHAR)
    label.add_css_class("dim-label")
    return label
