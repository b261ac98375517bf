# SPDX-License-Identifier: GPL-3.0-or-later
"""A viewport that never moves what the user reads, and columns in it that draw what is in view."""

from __future__ import annotations

from collections.abc import Callable

from gi.repository import Gtk

from .signals import signals
from .weak import weak_reference

# Pixels from the end within which scrolling down counts as reaching it.
_NEAR = 24
# Pixels. Shadows and focus rings reach out of their widgets.
_AROUND = 50
# Allocations in one layout, the last of which may still move something.
_MOST_ROUNDS = 4


def _nothing() -> None:
    return None


class VisibleColumn(Gtk.Box):
    """A vertical box that draws only those of its children that its viewport shows.

    GTK's software renderer draws all that a window contains, in view or not, at each frame. A long
    chat would take longer than a frame may.
    """

    __gtype_name__ = "OllmVisibleColumn"

    def __init__(
        self, spacing: int = 0, role: Gtk.AccessibleRole = Gtk.AccessibleRole.GENERIC
    ) -> None:
        vertical = Gtk.Orientation.VERTICAL
        super().__init__(orientation=vertical, spacing=spacing, accessible_role=role)
        # The first child drawn last time, near which the next one is looked for. It may be gone.
        self._first: Callable[[], Gtk.Widget | None] = _nothing
        # Whether a part of it was left out, and the viewport knows.
        self.waits_for_layout = False

    def do_snapshot(self, snapshot: Gtk.Snapshot) -> None:
        viewport = self.get_ancestor(AnchoredViewport)
        known, view = viewport.compute_bounds(self) if viewport is not None else (False, None)
        if not isinstance(viewport, AnchoredViewport) or view is None or not known:
            Gtk.Box.do_snapshot(self, snapshot)
            return
        bottom = view.get_y() + view.get_height() + _AROUND
        first = child = self._first_below(view.get_y() - _AROUND)
        self._first = weak_reference(first) if first is not None else _nothing
        while child is not None and (not child.get_mapped() or self._extent(child)[0] < bottom):
            self.snapshot_child(child, snapshot)
            child = child.get_next_sibling()
        is_whole = child is None and first == self.get_first_child()
        if not is_whole and not self.waits_for_layout:
            self.waits_for_layout = True
            viewport.draw_when_moved(self)

    def _first_below(self, top: float) -> Gtk.Widget | None:
        """Return the first child that ends below `top`. Some children may be hidden."""
        child = self._first()
        if child is None or child.get_parent() != self:
            child = self.get_last_child()
        while (
            child is not None
            and (not child.get_mapped() or self._extent(child)[1] > top)
            and (before := child.get_prev_sibling()) is not None
        ):
            child = before
        while child is not None and (not child.get_mapped() or self._extent(child)[1] <= top):
            child = child.get_next_sibling()
        return child

    def _extent(self, child: Gtk.Widget) -> tuple[float, float]:
        _known, bounds = child.compute_bounds(self)
        return bounds.get_y(), bounds.get_y() + bounds.get_height()


class AnchoredViewport(Gtk.Viewport):
    """A viewport that keeps one of its rows where it is, or stays at the end.

    The rows are in `pages`, a column of columns. The anchor is the row at the upper edge. A layout
    that moves it is corrected before it is drawn.
    """

    __gtype_name__ = "OllmAnchoredViewport"

    # Emitted in the middle of a layout: handlers must not change widgets.
    __gsignals__ = signals({"moved": ()})

    def __init__(self, pages: Gtk.Box, child: Gtk.Widget) -> None:
        # By default, a viewport gives each output no more than its smallest height.
        natural = Gtk.ScrollablePolicy.NATURAL
        super().__init__(child=child, scroll_to_focus=False, vscroll_policy=natural)
        self._pages = pages
        self._content = child
        self.following = True
        # Whether rows are still to be made, so that the anchor may not be at its place yet.
        self.is_growing = False
        self._anchor: Gtk.Widget | None = None
        # The part of the anchor above the upper edge; None shows as much of the anchor as fits.
        self._above: float | None = 0.0
        self._last_value = 0.0
        self._is_laying_out = False
        self._partly_drawn: list[Callable[[], VisibleColumn | None]] = []

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
        if row == self._anchor:
            self._anchor, self._above = _next_row(row) or row.get_prev_sibling(), 0.0

    def place_of(self, row: Gtk.Widget) -> tuple[float, float]:
        """Return where a widget begins and ends, from the upper edge of what is in view."""
        known, bounds = row.compute_bounds(self._content)
        top = (bounds.get_y() if known else 0.0) - self._adjustment.get_value()
        return top, top + (bounds.get_height() if known else 0.0)

    def draw_when_moved(self, column: VisibleColumn) -> None:
        """Draw a column again at the next layout, of which a part was not drawn now."""
        self._partly_drawn.append(weak_reference(column))

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
        for reference in self._partly_drawn:
            if (column := reference()) is not None:
                column.waits_for_layout = False
                column.queue_draw()
        self._partly_drawn.clear()
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
        row = self._first_in_view(self._pages)
        if row is not None and (row := self._first_in_view(row)) is not None:
            self._anchor, self._above = row, -self.place_of(row)[0]

    def _first_in_view(self, column: Gtk.Widget) -> Gtk.Widget | None:
        """Return the first child of which something is in view; empty ones have no height."""
        child = column.get_first_child()
        while child is not None:
            top, bottom = self.place_of(child)
            if bottom > max(top, 0):
                return child
            child = child.get_next_sibling()
        return None

    def _lay_out(self) -> None:
        """Allocate every widget from the window down to the rows.

        GtkViewport calls queue_allocate(), which skips the widgets whose size stays the same. A
        text view may ask for another height while it is allocated: that request would get stuck in
        the skipped widgets, and GTK would never draw them again.
        """
        page = self._pages.get_first_child()
        while page is not None:
            page.queue_resize()
            page = page.get_next_sibling()

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


def _next_row(row: Gtk.Widget) -> Gtk.Widget | None:
    """Return the row below, which may be on another page."""
    page, following = row.get_parent(), row.get_next_sibling()
    while following is None and page is not None:
        page = page.get_next_sibling()
        following = page.get_first_child() if page is not None else None
    return following
