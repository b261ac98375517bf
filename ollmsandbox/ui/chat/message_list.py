# SPDX-License-Identifier: GPL-3.0-or-later
"""A scrolled list of the last entries of a chat, with a button that adds earlier ones.

Rows are made a few at a time, the newest first. What the user reads never moves, whatever happens
above it; at its end, the list follows what is added there. `widgets/viewport.py` lays out only rows
that are near.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Generic, TypeVar

from gi.repository import GLib, GObject, Gtk

from ...i18n import _, localized
from ...text.visible import visible_words
from ..widgets.boxes import vbox
from ..widgets.clamp import ClampedBin
from ..widgets.keyboard import TabStop
from ..widgets.labels import add_classes, set_accessible_name, wrapped
from ..widgets.scheduling import FrameByFrame
from ..widgets.signals import signals
from ..widgets.viewport import AnchoredViewport, VisibleColumn
from ..widgets.weak import weakly
from .find import FoundPlace, places_of

T = TypeVar("T")

# The number of entries shown at first, and added by each click on "Show Earlier Messages".
PAGE = 200
_AROUND_FOCUS = 12


class MessageList(Gtk.ScrolledWindow, Generic[T]):
    """Show the last items; `at-end` is true while the list follows its end."""

    # Other rows may be in view.
    __gsignals__ = signals({"scrolled": ()})

    at_end = GObject.Property(type=bool, default=True)

    def __init__(
        self,
        make_row: Callable[[T], Gtk.Widget],
        last: Gtk.Widget | None = None,
        name_row: Callable[[T], str] | None = None,
        has_many_stops: Callable[[T], bool] = lambda _item: False,
    ) -> None:
        """`last` is shown below all items. `name_row` returns what a screen reader calls one, and
        `has_many_stops` whether the Tab key stops at each widget in it."""
        super().__init__(hscrollbar_policy=Gtk.PolicyType.NEVER)
        # A method of the widget that contains this one must not keep that alive.
        self._make_row = weakly(make_row) if inspect.ismethod(make_row) else make_row
        self._name_row = name_row
        self._has_many_stops = has_many_stops
        self._items: list[T] = []
        # The items from here on have rows.
        self._first = 0
        self._rows: dict[T, TabStop] = {}
        # The items whose rows are still empty, in the order in which they are shown.
        self._unmade: list[T] = []
        self.earlier_button = Gtk.Button(
            label=_("Show Earlier Messages"), halign=Gtk.Align.CENTER, visible=False
        )
        add_classes(self.earlier_button, "flat", "earlier-messages")
        self.earlier_button.connect("clicked", weakly(self._on_earlier))
        self._box = VisibleColumn(role=Gtk.AccessibleRole.LIST)
        set_accessible_name(self._box, _("Messages"))
        # GTK looks up the styles of all that follows a widget when it is added. So there is an
        # empty page for earlier messages before they are shown, and an empty row before it is made.
        self._empty_pages: list[VisibleColumn] = []
        whole = vbox(self.earlier_button, self._box)
        if last is not None:
            whole.append(last)
        self._viewport = AnchoredViewport(self._box, ClampedBin(whole))
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
        return self._items

    def set_items(self, items: Iterable[T]) -> None:
        """Replace all items, and go to the end."""
        for item in tuple(self._rows):
            self._drop(item)
        while (page := self._box.get_first_child()) is not None:
            self._box.remove(page)
        self._items = list(items)
        self._first = len(self._items)
        self._empty_pages = [VisibleColumn() for _page in range(self._first // PAGE + 1)]
        for page in self._empty_pages:
            self._box.append(page)
        self._show_from(max(0, self._first - PAGE))
        self.scroll_to_end()

    def append(self, item: T) -> None:
        self.insert(len(self._items), item)

    def insert(self, index: int, item: T) -> None:
        self._items.insert(index, item)
        if index < self._first:
            self._first += 1
            return
        if self._viewport.following:
            self._drop_oldest()
            if index < self._first:
                self._show_from(self._first)
                return
        row = self._new_row(item)
        if index > self._first:
            previous = self._rows[self._items[index - 1]]
            row.insert_after(_parent(previous), previous)
        elif index + 1 < len(self._items):
            following = self._rows[self._items[index + 1]]
            row.insert_before(_parent(following), following)
        else:
            self._take_page().append(row)
        self._unmade.append(item)
        self._show_from(self._first)

    def remove_at(self, index: int) -> None:
        self._drop(self._items.pop(index))
        if index < self._first:
            self._first -= 1
        self._show_from(self._first)

    def row_of(self, item: T) -> Gtk.Widget | None:
        """Return the widget that was made for an item, or None."""
        row = self._rows.get(item)
        return row.get_child() if row is not None else None

    # --- scrolling -------------------------------------------------------------------------------

    def scroll_to_end(self, *_args: object) -> None:
        self._viewport.follow_end()
        self.look_again()

    def scroll_to(self, item: T, text: str = "", which: int = 0) -> FoundPlace | None:
        """Bring an item, or a place in it that has a text, to the upper edge. Return the place."""
        row = self._shown(item)
        self._viewport.hold(row)
        places = list(places_of(row, text)) if text else []
        place = places[min(which, len(places) - 1)] if places else None
        if place is not None:
            self._viewport.hold(place.part, place.top - _AROUND_FOCUS)
        self.look_again()
        return place

    def show_whole(self, item: T) -> None:
        """Show as much of an item as fits; its end, if that is not all."""
        self._viewport.hold(self._shown(item), None)
        self.look_again()

    @property
    def is_settled(self) -> bool:
        """Whether all rows are made."""
        return not self._source

    def is_in_view(self, item: T) -> bool:
        top, bottom = self._place_of(item)
        seen = min(bottom, self._viewport.get_height()) - max(top, 0)
        return bottom > top and seen >= min(40, bottom - top)

    def is_above(self, item: T) -> bool:
        top, bottom = self._place_of(item)
        return top < 0 if bottom > top else self._items.index(item) < self._first

    def is_cut_off(self, item: T) -> bool:
        """Return whether the upper edge hides a part of the item that there would be room for."""
        top, bottom = self._place_of(item)
        return top < 0 and bottom < self._viewport.get_height() - 1

    def _place_of(self, item: T) -> tuple[float, float]:
        """Return where an item begins and ends in the view; nowhere if it has no height yet."""
        row = self._rows.get(item)
        if row is None or not row.get_height():
            return 0.0, 0.0
        return self._viewport.place_of(row)

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
        if first < self._first:
            page, earlier = self._take_page(), self._items[first : self._first]
            for item in earlier:
                page.append(self._new_row(item))
            self._unmade[:0] = earlier
            self._first = first
        if not first and self.earlier_button.has_focus():
            # A hidden button would pass the keyboard on to somewhere else.
            self.child_focus(Gtk.DirectionType.TAB_FORWARD)
        self.earlier_button.set_visible(first > 0)
        self._viewport.is_growing = bool(self._unmade)
        self.look_again()

    def _take_page(self) -> VisibleColumn:
        """Return an empty page above all rows."""
        if self._empty_pages:
            return self._empty_pages.pop()
        page = VisibleColumn()
        self._box.prepend(page)
        return page

    def _new_row(self, item: T) -> TabStop:
        self._rows[item] = row = TabStop(accessible_role=Gtk.AccessibleRole.LIST_ITEM)
        row.has_many_stops = partial(self._has_many_stops, item)
        return row

    def _shown(self, item: T) -> Gtk.Widget:
        index = self._items.index(item)
        if index < self._first:
            self._show_from(index)
        if item in self._unmade:
            self._unmade.remove(item)
            self._make(item)
        return self._rows[item]

    def _look(self) -> bool:
        if self._viewport.is_growing and self._frames.waits(self._viewport):
            return self._look_later()
        try:
            self._viewport.is_growing = self._make_some(time.monotonic() + 0.002)
        finally:
            self._source = 0
        if self._viewport.is_growing:
            self._look_later()
        if self.at_end != self._viewport.following:
            self.at_end = self._viewport.following
        self.emit("scrolled")
        return GLib.SOURCE_REMOVE

    def _look_later(self) -> bool:
        # After a pause in which a frame is drawn.
        self._source = GLib.timeout_add(8, weakly(self._look))
        return GLib.SOURCE_REMOVE

    def _make_some(self, end: float) -> bool:
        """Make rows, the newest first; return whether some are left to make at the `end`."""
        while self._unmade:
            if time.monotonic() >= end:
                return True
            self._make(self._unmade.pop())
        return False

    def _make(self, item: T) -> None:
        try:
            child = self._make_row(item)
        except Exception as error:  # noqa: BLE001 - the other rows are shown nevertheless
            sys.excepthook(type(error), error, error.__traceback__)
            text = visible_words(localized(str(error)))
            child = wrapped(_("Something went wrong: {why}").format(why=text), "dim-label")
        if child is None:  # the widget that makes them is gone
            return
        self._rows[item].set_child(child)
        self.rename(item)

    def rename(self, item: T) -> None:
        """Let a screen reader call an item what it is now."""
        if self._name_row is not None and (row := self._rows.get(item)) is not None:
            row.update_property([Gtk.AccessibleProperty.LABEL], [self._name_row(item)])

    def _drop(self, item: T) -> None:
        row = self._rows.pop(item, None)
        if row is None:
            return
        self._viewport.release(row)
        page = _parent(row)
        page.remove(row)
        if page.get_first_child() is None:
            self._box.remove(page)
        if item in self._unmade:
            self._unmade.remove(item)

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
        if top < 0 and bottom <= page:
            by = max(top, bottom - page)
        # At the end, the next layout follows to what was added there.
        elif bottom > page and top >= 0 and not self._viewport.following:
            by = min(top, bottom - page)
        else:
            return
        # Where it is may be a guess.
        self._viewport.hold(focus, by - top - _AROUND_FOCUS)


def _parent(row: Gtk.Widget) -> VisibleColumn:
    page = row.get_parent()
    assert isinstance(page, VisibleColumn)
    return page
