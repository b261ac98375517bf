# SPDX-License-Identifier: GPL-3.0-or-later
"""A long column of rows of different heights, of which only those in sight exist as widgets.

Where the rows of a column are, built or not: pure numbers, without a widget.

Lays out the rows of a lazy column that exist, around an anchor: the row at the upper edge.

What is above it may turn out higher or lower than was guessed, and what is being read stays where
it is. Or the anchor is the end, for as long as the person is there.

A long column of rows of different heights, of which only those in sight exist as widgets.
"""

from __future__ import annotations

import inspect
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from gettext import gettext as _
from itertools import accumulate
from typing import Generic, TypeVar

from gi.repository import Adw, GLib, GObject, Graphene, Gsk, Gtk, Pango

from ...text.visible import visible_words
from ..i18n import spoken
from .scheduling import FrameByFrame
from .weak import weakly

T = TypeVar("T")
W = TypeVar("W")

_FIRST_GUESS = 96


@dataclass(eq=False)
class Row(Generic[T, W]):
    item: T
    widget: W | None = None
    # As measured last, if ever; for the width that there was, and the one that it takes.
    height: int | None = None
    given: int = 0
    width: int = 0
    pinned: bool = False


@dataclass
class Rows(Generic[T, W]):
    """By identity: two messages may be equal. Each row holds its item, or PyGObject might make
    another Python object for it meanwhile."""

    spacing: int
    rows: list[Row[T, W]] = field(default_factory=list)
    _by_item: dict[int, Row[T, W]] = field(default_factory=dict)
    _tops: list[int] | None = None
    _guess: int = _FIRST_GUESS
    _measured: int = 0
    _next_guess_at: int = 1

    def insert(self, index: int, item: T) -> Row[T, W]:
        if id(item) in self._by_item:
            raise ValueError("The item is in the column already.")
        row: Row[T, W] = Row(item)
        self.rows.insert(index, row)
        self._by_item[id(item)] = row
        self._tops = None
        return row

    def remove(self, item: T) -> Row[T, W]:
        row = self.of(item)
        self.rows.remove(row)
        del self._by_item[id(item)]
        self._tops = None
        return row

    def clear(self) -> None:
        self.rows.clear()
        self._by_item.clear()
        self._tops = None

    def of(self, item: T) -> Row[T, W]:
        return self._by_item[id(item)]

    def height(self, row: Row[T, W]) -> int:
        return self._guess if row.height is None else row.height

    def set_height(self, row: Row[T, W], height: int) -> None:
        if row.height == height:
            return
        if row.height is None:
            self._measured += 1
        row.height = height
        self._tops = None
        # A better guess moves every row that was never seen, so there are few of them.
        if self._measured >= self._next_guess_at:
            self._next_guess_at = 2 * self._measured
            known = [one.height for one in self.rows if one.height is not None]
            self._guess = sum(known) // max(1, len(known))

    @property
    def tops(self) -> Sequence[int]:
        """Where each row begins, and where one more would."""
        if self._tops is None:
            self._tops = list(
                accumulate((self.height(row) + self.spacing for row in self.rows), initial=0)
            )
        return self._tops

    @property
    def total(self) -> int:
        return max(0, self.tops[-1] - self.spacing)

    def top_of(self, row: Row[T, W]) -> int:
        return self.tops[self.rows.index(row)]

    def index_at(self, place: float) -> int:
        """Of the row that is there, or of the nearest."""
        return max(0, min(bisect_right(self.tops, place) - 1, len(self.rows) - 1))

    def between(self, first: float, last: float) -> Iterator[Row[T, W]]:
        """From the middle outwards: what is looked at comes first."""
        if not self.rows:
            return
        low, high = self.index_at(first), self.index_at(last)
        middle = self.index_at((first + last) / 2)
        for distance in range(high - low + 1):
            for index in {middle - distance, middle + distance}:
                if low <= index <= high:
                    yield self.rows[index]


# So near to the end, downwards, is at the end.
_NEAR = 24
# Seconds after which a width has come to rest.
_REST = 0.1


class LazyLayout(Gtk.Widget, Gtk.Scrollable):  # type: ignore[misc]  # GObject has both
    __gtype_name__ = "OllmLazyLayout"

    hscroll_policy = GObject.Property(
        type=Gtk.ScrollablePolicy, default=Gtk.ScrollablePolicy.MINIMUM
    )
    vscroll_policy = GObject.Property(
        type=Gtk.ScrollablePolicy, default=Gtk.ScrollablePolicy.MINIMUM
    )
    hadjustment = GObject.Property(type=Gtk.Adjustment)

    def __init__(self, spacing: int) -> None:
        self._vadjustment: Gtk.Adjustment | None = None
        self._value_handler = 0
        super().__init__(accessible_role=Gtk.AccessibleRole.LIST, overflow=Gtk.Overflow.HIDDEN)
        self.rows: Rows = Rows(spacing)
        self.following = True
        self._anchor: Row | None = None
        self._above = 0.0  # how much of the anchor is over the edge
        self._last_value = 0.0
        self._laying_out = False
        self._width = 0
        self._width_since = 0.0
        self.connect("destroy", _unparent_all)

    @GObject.Signal
    def moved(self):
        """Other rows may be in sight now. Comes in the middle of a layout: only to take note of."""

    @GObject.Property(type=Gtk.Adjustment)
    def vadjustment(self):
        return self._vadjustment

    @vadjustment.setter  # type: ignore[no-redef]
    def vadjustment(self, adjustment):
        if self._vadjustment is not None:
            self._vadjustment.disconnect(self._value_handler)
        self._vadjustment = adjustment
        if adjustment is not None:
            self._value_handler = adjustment.connect("value-changed", weakly(self._on_value))
            self._lay_out_anew()

    @property
    def value(self) -> float:
        return self._vadjustment.get_value() if self._vadjustment else 0.0

    # --- the anchor ------------------------------------------------------------------------------

    def follow_end(self) -> None:
        self.following = True
        self._lay_out_anew()

    def hold(self, row: Row, above: float = 0.0) -> None:
        """Brings it to the upper edge."""
        self.following = False
        self._anchor, self._above = row, above
        self._lay_out_anew()

    def let_go(self, row: Row) -> None:
        """Before it is removed."""
        if row is self._anchor:
            index = self.rows.rows.index(row)
            others = (
                self.rows.rows[index + 1 : index + 2] or self.rows.rows[max(0, index - 1) : index]
            )
            self._anchor, self._above = (others[0] if others else None), 0.0

    def _hold_what_is_seen(self) -> None:
        if self.rows.rows:
            index = self.rows.index_at(self.value)
            self._anchor = self.rows.rows[index]
            self._above = self.value - self.rows.tops[index]

    def _on_value(self, adjustment: Gtk.Adjustment) -> None:
        value = adjustment.get_value()
        upwards = value < self._last_value
        self._last_value = value
        if self._laying_out:
            return
        end = adjustment.get_upper() - adjustment.get_page_size()
        # However little somebody moves up, they want to be there, and not be pulled back.
        self.following = value >= end - (1 if upwards else _NEAR)
        if not self.following:
            self._hold_what_is_seen()
        self._lay_out_anew()
        self.emit("moved")

    # --- the layout ------------------------------------------------------------------------------

    def _lay_out_anew(self) -> None:
        """Not by queue_allocate(), which leaves out what is around this if that stays as large as
        it was. A text asks for another height while it is given its place: that would stick to
        those left out, and GTK would draw none of them."""
        self.queue_resize()

    def do_get_request_mode(self) -> Gtk.SizeRequestMode:
        return Gtk.SizeRequestMode.CONSTANT_SIZE

    def do_measure(self, orientation: Gtk.Orientation, _for_size: int) -> tuple[int, int, int, int]:
        if orientation is Gtk.Orientation.VERTICAL:
            return 0, self.rows.total, -1, -1
        sizes = [
            row.widget.measure(orientation, -1)[:2]
            for row in self.rows.rows
            if row.widget is not None
        ]
        least = max((size[0] for size in sizes), default=0)
        return least, max((size[1] for size in sizes), default=0), -1, -1

    def measure_row(self, row: Row, width: int) -> None:
        """Its size, which is remembered."""
        assert row.widget is not None
        row.given = width
        row.width = max(width, row.widget.measure(Gtk.Orientation.HORIZONTAL, -1)[0])
        self.rows.set_height(row, row.widget.measure(Gtk.Orientation.VERTICAL, row.width)[1])

    def fit_rows(self, end: float) -> bool:
        """Those out of sight, too, once the width has come to rest; whether some are left at the
        `end`."""
        if time.monotonic() < self._width_since + _REST:
            return any(True for _row in self._misfits())
        for row in self._misfits():
            self.measure_row(row, self._width)
            self._lay_out_anew()
            if time.monotonic() >= end:
                return True
        return False

    def _misfits(self) -> Iterator[Row]:
        return (r for r in self.rows.rows if r.widget is not None and r.given != self._width)

    def _measure(self, width: int, height: int) -> None:
        """While a pane slides in, each frame has another width: what is out of sight keeps the one
        it had."""
        for row in self.rows.rows:
            if row.widget is not None:
                self.measure_row(row, row.given or width)
        # What is in sight is known when what is there has its height.
        while misfits := [row for row in self._in_sight(height) if row.given != width]:
            for row in misfits:
                self.measure_row(row, width)

    def _in_sight(self, height: int) -> Iterator[Row]:
        value = self._wanted(max(0, self.rows.total - height))
        return (row for row in self.rows.between(value, value + height) if row.widget is not None)

    def do_size_allocate(self, width: int, height: int, _baseline: int) -> None:
        if self._vadjustment is None:
            return
        self._laying_out = True
        if width != self._width:
            self._width, self._width_since = width, time.monotonic()
        self._measure(width, height)
        total = self.rows.total
        end = max(0, total - height)
        value = self._wanted(end)
        before = self.value, self._vadjustment.get_upper(), self._vadjustment.get_page_size()
        self._vadjustment.configure(
            value, 0, max(total, height), height * 0.1, height * 0.9, height
        )
        if self.hadjustment is not None:
            self.hadjustment.configure(0, 0, width, width * 0.1, width * 0.9, width)
        tops = self.rows.tops
        is_built = all(
            row.widget is not None for row in self.rows.between(value, value + height - 1)
        )
        is_fit = True
        for index, row in enumerate(self.rows.rows):
            if row.widget is None:
                continue
            point = Graphene.Point().init(0, round(tops[index] - value))
            transform = Gsk.Transform.new().translate(point)
            row.widget.allocate(row.width, self.rows.height(row), -1, transform)
            is_fit &= row.given == width
        if is_built and not self.following:
            self.following = value >= end - 1
            self._hold_what_is_seen()
        self._laying_out = False
        if not is_built or not is_fit or before != (value, max(total, height), height):
            self.emit("moved")

    def do_snapshot(self, snapshot: Gtk.Snapshot) -> None:
        # Without a graphics card, what is out of sight would be drawn as well.
        for row in self.rows.between(self.value, self.value + self.get_height()):
            if row.widget is not None:
                self.snapshot_child(row.widget, snapshot)

    def _wanted(self, end: int) -> float:
        if self.following:
            return end
        if self._anchor is None:
            return min(self.value, end)
        return max(0.0, min(self.rows.top_of(self._anchor) + self._above, end))


def _unparent_all(widget: Gtk.Widget) -> None:
    # At the end of the program nothing can be imported any more, which Gtk's types need at times.
    if sys.is_finalizing():
        return
    while child := widget.get_first_child():
        child.unparent()


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
