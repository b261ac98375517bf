# SPDX-License-Identifier: GPL-3.0-or-later
"""A viewport that never moves what the user reads, and columns in it that are laid out and drawn
only where they are in view."""

from __future__ import annotations

from collections.abc import Callable

from gi.repository import Gtk

from .signals import signals
from .weak import weak_reference

# Pixels. Shadows and focus rings reach out of their widgets.
_AROUND = 50
# Allocations in one layout, besides those for columns that come near the view. The last one may
# still move something.
_MOST_ROUNDS = 4


class _ColumnLayout(Gtk.LayoutManager):
    """Lays out a column like a box; after a change of its width only once it is near the view.

    Until it is near, its height is a guess: wrapping a long chat anew takes most of a second.
    """

    def __init__(self, box_layout: Gtk.LayoutManager) -> None:
        super().__init__()
        self._box_layout = box_layout
        # The size that it was laid out for.
        self._width = self._height = 0
        # The widths for which GTK may have kept a guess of its height.
        self._guessed_widths: set[int] = set()
        self._is_needed = False

    @property
    def has_guess(self) -> bool:
        return bool(self._guessed_widths)

    def need(self) -> None:
        """Have the column laid out at the next layout, wherever it is."""
        self._is_needed = True
        self._guessed_widths.clear()
        self.layout_changed()

    def do_get_request_mode(self, _column: Gtk.Widget) -> Gtk.SizeRequestMode:
        return Gtk.SizeRequestMode.HEIGHT_FOR_WIDTH

    def do_measure(
        self, column: Gtk.Widget, orientation: Gtk.Orientation, for_size: int
    ) -> tuple[int, int, int, int]:
        if orientation == Gtk.Orientation.VERTICAL and for_size > 0:
            if self._may_wait(column, for_size):
                self._guessed_widths.add(for_size)
                height = max(1, self._height * self._width // for_size)
                return height, height, -1, -1
            self._guessed_widths.discard(for_size)
        return self._box_layout.measure(column, orientation, for_size)

    def do_allocate(self, column: Gtk.Widget, width: int, height: int, baseline: int) -> None:
        # GTK may know the height for this width without a measurement.
        if width in self._guessed_widths or self._may_wait(column, width):
            self._guessed_widths.add(width)
            viewport = column.get_ancestor(AnchoredViewport)
            if isinstance(viewport, AnchoredViewport):
                viewport.lay_out_when_near(self)
            return
        self._box_layout.allocate(column, width, height, baseline)
        self._width, self._height = width, height
        self._is_needed = False

    def _may_wait(self, column: Gtk.Widget, width: int) -> bool:
        if self._width in (0, width) or self._is_needed:
            return False
        viewport = column.get_ancestor(AnchoredViewport)
        return isinstance(viewport, AnchoredViewport) and not viewport.is_near(column)


class VisibleColumn(Gtk.Box):
    """A vertical box that draws only those of its children that its viewport shows.

    GTK's software renderer draws all that a window contains, in view or not, at each frame. A long
    chat would take longer than a frame may. If it `waits`, it is also laid out for another width
    only when it is near the view.
    """

    def __init__(
        self,
        spacing: int = 0,
        role: Gtk.AccessibleRole = Gtk.AccessibleRole.GENERIC,
        *,
        waits: bool = False,
    ) -> None:
        vertical = Gtk.Orientation.VERTICAL
        super().__init__(orientation=vertical, spacing=spacing, accessible_role=role)
        box_layout = self.get_layout_manager()
        if waits and box_layout is not None:
            # From here on, the properties of the box must not be used: GTK would look for them in
            # its own layout manager.
            self.set_layout_manager(_ColumnLayout(box_layout))
        # The first child drawn last time, near which the next one is looked for. It may be gone.
        self._first: Callable[[], Gtk.Widget | None] = lambda: None
        # Whether a part of it was left out, and the viewport knows.
        self.is_partly_drawn = False

    def do_snapshot(self, snapshot: Gtk.Snapshot) -> None:
        viewport = self.get_ancestor(AnchoredViewport)
        known, view = viewport.compute_bounds(self) if viewport is not None else (False, None)
        if not isinstance(viewport, AnchoredViewport) or view is None or not known:
            Gtk.Box.do_snapshot(self, snapshot)
            return
        bottom = view.get_y() + view.get_height() + _AROUND
        first = child = self._first_below(view.get_y() - _AROUND)
        if first is not None:
            self._first = weak_reference(first)
        while child is not None and (not child.get_mapped() or self._extent(child)[0] < bottom):
            self.snapshot_child(child, snapshot)
            child = child.get_next_sibling()
        is_whole = child is None and first == self.get_first_child()
        if not is_whole and not self.is_partly_drawn:
            self.is_partly_drawn = True
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
    """A viewport that keeps what is at its upper edge where it is, or stays at the end.

    The rows are in `pages`, a column of columns. The anchor is the row at the upper edge, or a part
    of it if the row is higher than the view. A layout that moves it is corrected before it is
    drawn.
    """

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
        # The anchor, and what is around it if the anchor is gone: each with how many of its pixels
        # are above the upper edge; None shows as much of it as fits.
        self._anchors: list[tuple[Callable[[], Gtk.Widget | None], float | None]] = []
        self._last_value = 0.0
        self._is_laying_out = False
        self._partly_drawn: list[Callable[[], VisibleColumn | None]] = []
        # The layouts of columns that wait; a dictionary, because each may be added at every frame.
        self._waiting: dict[_ColumnLayout, None] = {}

    def follow_end(self) -> None:
        self.following = True
        self._lay_out()

    def hold(self, row: Gtk.Widget, above: float | None = 0.0) -> None:
        """Bring a row to the upper edge; with None, show all of it, or its end if it is higher."""
        self.following = False
        self._anchors = [(weak_reference(row), above)]
        # At once, for those who ask what is in view; the layout may have to correct it.
        self._correct()
        self._lay_out()

    def release(self, row: Gtk.Widget) -> None:
        """Take a neighbour as the anchor before a row is removed."""
        if any(widget() == row for widget, _above in self._anchors):
            neighbour = _next_row(row) or row.get_prev_sibling()
            self._anchors = [(weak_reference(neighbour), 0.0)] if neighbour is not None else []

    def place_of(self, row: Gtk.Widget) -> tuple[float, float]:
        """Return where a widget begins and ends, from the upper edge of what is in view."""
        top, bottom = self._extent(row)
        value = self._adjustment.get_value()
        return top - value, bottom - value

    def _extent(self, widget: Gtk.Widget) -> tuple[float, float]:
        """Return where a widget begins and ends in the content."""
        known, bounds = widget.compute_bounds(self._content)
        # Not get_y(): each call releases the interpreter, and waits for a busy thread to return it.
        # With 70 columns and two such threads, that took 50 ms of a layout.
        return (bounds.origin.y, bounds.origin.y + bounds.size.height) if known else (0.0, 0.0)

    def draw_when_moved(self, column: VisibleColumn) -> None:
        """Draw a column again at the next layout, of which a part was not drawn now."""
        self._partly_drawn.append(weak_reference(column))

    def lay_out_when_near(self, layout: _ColumnLayout) -> None:
        """Lay out a column when it is near the view."""
        self._waiting[layout] = None

    def is_near(self, column: Gtk.Widget) -> bool:
        """Return whether a column is in view, or may be when the user scrolls by a page."""
        first, last = self._near_view()
        top, bottom = self._extent(column)
        return bottom > first and top < last

    def _near_view(self) -> tuple[float, float]:
        adjustment = self._adjustment
        value, page = adjustment.get_value(), adjustment.get_page_size()
        return value - page, value + 2 * page

    def _need_what_is_near(self) -> bool:
        """Have the columns near the view laid out, and return whether there are any."""
        found, self._waiting = self._waiting, {}
        first, last = self._near_view() if found else (0.0, 0.0)
        is_any = False
        for layout in found:
            column = layout.get_widget()
            if column is None or column.get_root() is None or not layout.has_guess:
                continue
            top, bottom = self._extent(column)
            if bottom > first and top < last and _is_placed(column):
                layout.need()
                is_any = True
            else:
                self._waiting[layout] = None
        return is_any

    def do_size_allocate(self, width: int, height: int, baseline: int) -> None:
        adjustment = self._adjustment
        before = adjustment.get_value(), adjustment.get_upper(), adjustment.get_page_size()
        self._is_laying_out = True
        rounds, was_needed = 0, False
        # A text view may ask for another height once it has its width.
        while rounds < _MOST_ROUNDS:
            Gtk.Viewport.do_size_allocate(self, width, height, baseline)
            is_moved = self._correct()
            # Never after the last allocation: GTK does not draw what still asks for one. A column
            # that was needed once does not wait again, so this ends.
            if self._need_what_is_near():
                was_needed = True
                continue
            if not is_moved and not was_needed:
                break
            was_needed = False
            rounds += 1
        self._is_laying_out = False
        for reference in self._partly_drawn:
            if (column := reference()) is not None:
                column.is_partly_drawn = False
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
        else:
            for reference, above in self._anchors:
                anchor = reference()
                if anchor is None or not anchor.get_height() or not anchor.is_ancestor(self):
                    continue
                if self.get_mapped() and not anchor.get_mapped():
                    continue  # it is hidden, and keeps its height
                top, bottom = self.place_of(anchor)
                hidden = max(0.0, bottom - top - adjustment.get_page_size())
                wanted += top + (hidden if above is None else above)
                wanted = max(0.0, min(wanted, self._end))
                break
        if wanted == value:
            return False
        was_laying_out, self._is_laying_out = self._is_laying_out, True
        adjustment.set_value(wanted)
        self._is_laying_out = was_laying_out
        return True

    def _hold_what_is_seen(self) -> None:
        page = self._first_in_view(self._pages)
        part = self._first_in_view(page) if page is not None else None
        if part is None:
            return
        self._anchors.clear()
        while part is not None:
            self._anchors.insert(0, (weak_reference(part), -self.place_of(part)[0]))
            is_high = part.get_height() > self._adjustment.get_page_size()
            part = self._first_in_view(part) if is_high else None
            # What is being written is in one, and moves from there to the blocks above it.
            if isinstance(part, Gtk.TextView):
                part = None

    def _first_in_view(self, column: Gtk.Widget) -> Gtk.Widget | None:
        """Return the first child of which something is in view; empty ones have no height."""
        value = self._adjustment.get_value()
        child = column.get_first_child()
        while child is not None:
            top, bottom = self._extent(child)
            if bottom > max(top, value):
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
        # However little the user scrolls up, the list must not pull them back. Scrolling down, they
        # need not reach the last pixel.
        self.following = value >= self._end - (1 if upwards else 24)
        if not self.following:
            self._hold_what_is_seen()
        self._lay_out()
        self.emit("moved")


def _is_placed(column: Gtk.Widget) -> bool:
    """Return whether a column is where it belongs. In one that waits, it is where it was before."""
    around = column.get_parent()
    layout = around.get_layout_manager() if around is not None else None
    return not (isinstance(layout, _ColumnLayout) and layout.has_guess)


def _next_row(row: Gtk.Widget) -> Gtk.Widget | None:
    """Return the row below, which may be on another page."""
    page, following = row.get_parent(), row.get_next_sibling()
    while following is None and page is not None:
        page = page.get_next_sibling()
        following = page.get_first_child() if page is not None else None
    return following
