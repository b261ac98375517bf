# SPDX-License-Identifier: GPL-3.0-or-later
"""Lays out the rows of a lazy column that exist, around an anchor: the row at the upper edge.

What is above it may turn out higher or lower than was guessed, and what is being read stays where
it is. Or the anchor is the end, for as long as the person is there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from gi.repository import GObject, Graphene, Gsk, Gtk

from .lazy_rows import Row, Rows
from .weakly import weakly

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
