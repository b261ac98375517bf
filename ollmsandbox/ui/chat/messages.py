# SPDX-License-Identifier: GPL-3.0-or-later
"""A scrolled list of the last entries of a chat, with a button that adds earlier ones.

Rows are made a few at a time, the newest first. What the user reads never moves, whatever happens
above it; at its end, the list follows what is added there.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from gi.repository import GLib, GObject, Gtk, Pango

from ...i18n import _, localized
from ...text.visible import visible_words
from ..widgets.labels import set_accessible_name
from ..widgets.scheduling import FrameByFrame
from ..widgets.signals import signals
from ..widgets.stops import OneStop
from ..widgets.weak import weakly

T = TypeVar("T")

# The number of entries shown at first, and added by each click on "Show Earlier Messages".
PAGE = 200
# Pixels from the end within which scrolling down counts as reaching it.
_NEAR = 24
# Seconds for making rows in one go, and milliseconds of pause in which a frame is drawn.
_SLICE, _PAUSE = 0.005, 8
# A row is in view if this many pixels of it are.
_IN_VIEW = 40
_AROUND_FOCUS = 12
# Allocations in one layout, the last of which may still move something.
_MOST_ROUNDS = 4


class AnchoredViewport(Gtk.Viewport):
    """A viewport that keeps one of the `rows` where it is, or stays at the end.

    The anchor is the row at the upper edge. A layout that moves it is corrected before it is drawn.
    """

    __gtype_name__ = "OllmAnchoredViewport"

    # Emitted in the middle of a layout: handlers must not change widgets.
    __gsignals__ = signals({"moved": ()})

    def __init__(self, rows: Gtk.Box, child: Gtk.Widget) -> None:
        # By default, a viewport gives each output no more than its smallest height.
        natural = Gtk.ScrollablePolicy.NATURAL
        super().__init__(child=child, scroll_to_focus=False, vscroll_policy=natural)
        self._rows = rows
        self._content = child
        self.following = True
        # Whether rows are still to be made, so that the anchor may not be at its place yet.
        self.is_growing = False
        self._anchor: Gtk.Widget | None = None
        # The part of the anchor above the upper edge; None shows as much of the anchor as fits.
        self._above: float | None = 0.0
        self._last_value = 0.0
        self._is_laying_out = False

    def follow_end(self) -> None:
        self.following = True
        self._lay_out()

    def hold(self, row: Gtk.Widget, above: float | None = 0.0) -> None:
        """Bring a row to the upper edge; with None, show all of it, or its end if it is higher."""
        self.following = False
        self._anchor, self._above = row, above
        # At once, for those who ask what is in view; the layout may have to correct it.
        self._correct()
        self._lay_out()

    def release(self, row: Gtk.Widget) -> None:
        """Take a neighbour as the anchor before a row is removed."""
        if row is self._anchor:
            self._anchor, self._above = row.get_next_sibling() or row.get_prev_sibling(), 0.0

    def place_of(self, row: Gtk.Widget) -> tuple[float, float]:
        """Return where a widget begins and ends, from the upper edge of what is in view."""
        known, bounds = row.compute_bounds(self._content)
        top = (bounds.get_y() if known else 0.0) - self._adjustment.get_value()
        return top, top + (bounds.get_height() if known else 0.0)

    def do_size_allocate(self, width: int, height: int, baseline: int) -> None:
        adjustment = self._adjustment
        before = adjustment.get_value(), adjustment.get_upper(), adjustment.get_page_size()
        self._is_laying_out = True
        # A text view may ask for another height once it has its width.
        for _round in range(_MOST_ROUNDS):
            Gtk.Viewport.do_size_allocate(self, width, height, baseline)
            if not self._correct():
                break
        self._is_laying_out = False
        if not self.following and not self.is_growing:
            self.following = adjustment.get_value() >= self._end - 1
            self._hold_what_is_seen()
        if before != (adjustment.get_value(), adjustment.get_upper(), height):
            self.emit("moved")

    @property
    def _adjustment(self) -> Gtk.Adjustment:
        adjustment = self.get_vadjustment()
        assert adjustment is not None  # the scrolled window sets one
        return adjustment

    @property
    def _end(self) -> float:
        adjustment = self._adjustment
        return max(0.0, adjustment.get_upper() - adjustment.get_page_size())

    def _correct(self) -> bool:
        """Scroll to where the anchor is in its place; return whether that is somewhere else."""
        adjustment = self._adjustment
        value = wanted = adjustment.get_value()
        if self.following:
            wanted = self._end
        elif self._anchor is not None and self._anchor.get_height():
            top, bottom = self.place_of(self._anchor)
            hidden = max(0.0, bottom - top - adjustment.get_page_size())
            wanted += top + (hidden if self._above is None else self._above)
            wanted = max(0.0, min(wanted, self._end))
        if wanted == value:
            return False
        was_laying_out, self._is_laying_out = self._is_laying_out, True
        adjustment.set_value(wanted)
        self._is_laying_out = was_laying_out
        return True

    def _hold_what_is_seen(self) -> None:
        row = self._rows.get_first_child()
        while row is not None:
            top, bottom = self.place_of(row)
            if bottom > 0:
                self._anchor, self._above = row, -top
                return
            row = row.get_next_sibling()

    def _lay_out(self) -> None:
        """Allocate every widget from the window down to the rows.

        GtkViewport calls queue_allocate(), which skips the widgets whose size stays the same. A
        text view may ask for another height while it is allocated: that request would get stuck in
        the skipped widgets, and GTK would never draw them again.
        """
        self._rows.queue_resize()

    def note_value(self, adjustment: Gtk.Adjustment) -> None:
        """Find out what the user wants to see after the scroll position has changed."""
        value = adjustment.get_value()
        upwards = value < self._last_value
        self._last_value = value
        if self._is_laying_out:
            return
        # However little the user scrolls up, the list must not pull them back.
        self.following = value >= self._end - (1 if upwards else _NEAR)
        if not self.following:
            self._hold_what_is_seen()
        self._lay_out()
        self.emit("moved")


class MessageList(Gtk.ScrolledWindow, Generic[T]):
    """Show the last items; `at-end` is true while the list follows its end."""

    __gtype_name__ = "OllmMessageList"

    __gsignals__ = signals(
        {
            # Other rows may be in view.
            "scrolled": (),
            # A row was removed: the item, and the row.
            "row-dropped": (object, Gtk.Widget),
        }
    )

    at_end = GObject.Property(type=bool, default=True)

    def __init__(
        self,
        make_row: Callable[[T], Gtk.Widget],
        last: Gtk.Widget | None = None,
        name_row: Callable[[T], str] | None = None,
    ) -> None:
        """`last` is shown below all items. `name_row` returns what a screen reader calls one."""
        super().__init__(hscrollbar_policy=Gtk.PolicyType.NEVER)
        # A method of the widget that contains this one must not keep that alive.
        self._make_row = weakly(make_row) if inspect.ismethod(make_row) else make_row
        self._name_row = name_row
        self._items: list[T] = []
        # The items from here on have rows, or will soon.
        self._first = 0
        self._rows: dict[T, OneStop] = {}
        self.earlier_button = Gtk.Button(
            label=_("Show Earlier Messages"), halign=Gtk.Align.CENTER, visible=False
        )
        for name in ("flat", "earlier-messages"):
            self.earlier_button.add_css_class(name)
        self.earlier_button.connect("clicked", weakly(self._on_earlier))
        self._box = Gtk.Box(
            orientation=Gtk.Orientation.VERTICAL, accessible_role=Gtk.AccessibleRole.LIST
        )
        set_accessible_name(self._box, _("Messages"))
        whole = Gtk.Box(orientation=Gtk.Orientation.VERTICAL)
        whole.append(self.earlier_button)
        whole.append(self._box)
        if last is not None:
            whole.append(last)
        self._viewport = AnchoredViewport(self._box, whole)
        self._viewport.connect("moved", weakly(self.look_again))
        self._viewport.connect("map", weakly(self._on_map))
        self._viewport.connect("unmap", weakly(self._on_unmap))
        self.set_child(self._viewport)
        self.get_vadjustment().connect("value-changed", weakly(self._viewport.note_value))
        self._source = 0
        self._frames = FrameByFrame()
        self._root: Gtk.Root | None = None
        self._focus_handler = 0

    # --- items -----------------------------------------------------------------------------------

    @property
    def items(self) -> Sequence[T]:
        """All items, shown or not."""
        return self._items

    def set_items(self, items: Iterable[T]) -> None:
        """Replace all items, and go to the end."""
        for item in tuple(self._rows):
            self._drop(item)
        self._items = list(items)
        self._show_from(max(0, len(self._items) - PAGE))
        self.scroll_to_end()

    def append(self, item: T) -> None:
        self.insert(len(self._items), item)

    def insert(self, index: int, item: T) -> None:
        self._items.insert(index, item)
        if index < self._first:
            self._first += 1
        elif self._viewport.following:
            self._drop_oldest()
        self._show_from(self._first)

    def remove_at(self, index: int) -> None:
        item = self._items.pop(index)
        self._drop(item)
        self._show_from(self._first - 1 if index < self._first else self._first)

    def row_of(self, item: T) -> Gtk.Widget | None:
        """Return the widget that was made for an item, or None."""
        row = self._rows.get(item)
        return row.get_child() if row is not None else None

    def set_many_stops(self, item: T, is_set: bool) -> None:
        """Let the Tab key stop at each widget of an item's row."""
        if (row := self._rows.get(item)) is not None:
            row.has_many_stops = is_set

    # --- scrolling -------------------------------------------------------------------------------

    def scroll_to_end(self) -> None:
        self._viewport.follow_end()
        self.look_again()

    def scroll_to(self, item: T) -> None:
        """Bring an item to the upper edge, and make its row at once if there is none."""
        self._viewport.hold(self._shown(item))
        self.look_again()

    def show_whole(self, item: T) -> None:
        """Show as much of an item as fits; its end, if that is not all."""
        self._viewport.hold(self._shown(item), None)
        self.look_again()

    @property
    def is_settled(self) -> bool:
        """Whether all rows are made."""
        return not self._source

    def is_in_view(self, item: T) -> bool:
        row = self._rows.get(item)
        if row is None or not row.get_height():
            return False
        top, bottom = self._viewport.place_of(row)
        seen = min(bottom, self._viewport.get_height()) - max(top, 0)
        return seen >= min(_IN_VIEW, bottom - top)

    def is_above(self, item: T) -> bool:
        """Return whether the item begins above the upper edge."""
        row = self._rows.get(item)
        if row is None or not row.get_height():
            return self._items.index(item) < self._first
        return self._viewport.place_of(row)[0] < 0

    def is_cut_off(self, item: T) -> bool:
        """Return whether the upper edge hides a part of the item that there would be room for."""
        row = self._rows.get(item)
        if row is None or not row.get_height():
            return False
        top, bottom = self._viewport.place_of(row)
        return top < 0 and bottom < self._viewport.get_height() - 1

    def look_again(self, *_args: object) -> None:
        """Make missing rows and emit `scrolled` before the next frame."""
        if not self._source and self._viewport.get_mapped():
            self._source = GLib.idle_add(  # type: ignore[call-arg]  # it has the argument
                weakly(self._look), priority=GLib.PRIORITY_HIGH_IDLE
            )

    # --- rows ------------------------------------------------------------------------------------

    def _on_earlier(self, _button: Gtk.Button) -> None:
        self._show_from(max(0, self._first - PAGE))

    def _show_from(self, first: int) -> None:
        self._first = first
        if not first and self.earlier_button.has_focus():
            # A hidden button would pass the keyboard on to somewhere else.
            self.child_focus(Gtk.DirectionType.TAB_FORWARD)
        self.earlier_button.set_visible(first > 0)
        self._viewport.is_growing = len(self._rows) < len(self._items) - first
        self.look_again()

    def _shown(self, item: T) -> Gtk.Widget:
        index = self._items.index(item)
        if index < self._first:
            self._show_from(index)
        if item not in self._rows:
            self._build(index)
        return self._rows[item]

    def _look(self) -> bool:
        if self._viewport.is_growing and self._frames.waits(self._viewport):
            return self._look_later()
        try:
            self._viewport.is_growing = self._build_missing(time.monotonic() + _SLICE)
        finally:
            self._source = 0
        if self._viewport.is_growing:
            self._look_later()
        if self.at_end != self._viewport.following:
            self.at_end = self._viewport.following
        self.emit("scrolled")
        return GLib.SOURCE_REMOVE

    def _look_later(self) -> bool:
        self._source = GLib.timeout_add(_PAUSE, weakly(self._look))
        return GLib.SOURCE_REMOVE

    def _build_missing(self, end: float) -> bool:
        """Make rows, the newest first; return whether some are left to make at the `end`."""
        if len(self._rows) == len(self._items) - self._first:
            return False
        for index in range(len(self._items) - 1, self._first - 1, -1):
            if self._items[index] not in self._rows:
                if time.monotonic() >= end:
                    return True
                self._build(index)
        return False

    def _build(self, index: int) -> None:
        item = self._items[index]
        try:
            child = self._make_row(item)
        except Exception as error:  # noqa: BLE001 - the other rows are shown nevertheless
            sys.excepthook(type(error), error, error.__traceback__)
            child = _error_row(error)
        if child is None:  # the widget that makes them is gone
            return
        row = OneStop(child=child, accessible_role=Gtk.AccessibleRole.LIST_ITEM)
        if self._name_row is not None:
            row.update_property([Gtk.AccessibleProperty.LABEL], [self._name_row(item)])
        earlier = (self._rows.get(one) for one in reversed(self._items[self._first : index]))
        self._box.insert_child_after(row, next((one for one in earlier if one is not None), None))
        self._rows[item] = row

    def _drop(self, item: T) -> None:
        row = self._rows.pop(item, None)
        if row is None:
            return
        self._viewport.release(row)
        child = row.get_child()
        self._box.remove(row)
        if child is not None:
            self.emit("row-dropped", item, child)

    def _drop_oldest(self) -> None:
        while len(self._items) - self._first > PAGE:
            oldest = self._items[self._first]
            if self._has_focus(oldest):
                return
            self._drop(oldest)
            self._first += 1

    # --- the focus -------------------------------------------------------------------------------

    @property
    def focused_item(self) -> T | None:
        return next((item for item in self._rows if self._has_focus(item)), None)

    def _on_map(self, _viewport: Gtk.Widget) -> None:
        self._root = self.get_root()
        if self._root is not None:
            self._focus_handler = self._root.connect("notify::focus-widget", weakly(self._on_focus))
        self.look_again()

    def _on_unmap(self, _viewport: Gtk.Widget) -> None:
        if self._source:
            GLib.source_remove(self._source)
            self._source = 0
        if self._root is not None:
            self._root.disconnect(self._focus_handler)
            self._root = None

    def _focus(self) -> Gtk.Widget | None:
        focus = self._root.get_focus() if self._root is not None else None
        return focus if focus is not None and focus.is_ancestor(self._viewport) else None

    def _has_focus(self, item: T) -> bool:
        focus, row = self._focus(), self._rows.get(item)
        return focus is not None and row is not None and focus.is_ancestor(row)

    def _on_focus(self, root: Gtk.Root, _property: object) -> None:
        focus = self._focus()
        # A click is in view already; only a key may lead out of it.
        if focus is None or not (isinstance(root, Gtk.Window) and root.get_focus_visible()):
            return
        # A widget that was never laid out has no place; its row will be scrolled to.
        if not focus.get_height():
            return
        top, bottom = self._viewport.place_of(focus)
        top, bottom = top - _AROUND_FOCUS, bottom + _AROUND_FOCUS
        page = self._viewport.get_height()
        adjustment = self.get_vadjustment()
        if top < 0 and bottom <= page:
            adjustment.set_value(adjustment.get_value() + max(top, bottom - page))
        # At the end, the next layout follows to what was added there.
        elif bottom > page and top >= 0 and not self._viewport.following:
            adjustment.set_value(adjustment.get_value() + min(top, bottom - page))


def _error_row(error: Exception) -> Gtk.Widget:
    text = _("Something went wrong: {why}").format(why=visible_words(localized(str(error))))
    label = Gtk.Label(label=text, xalign=0, wrap=True, margin_start=12, margin_end=12)
    label.set_wrap_mode(Pango.WrapMode.WORD_CHAR)
    label.add_css_class("dim-label")
    return label
