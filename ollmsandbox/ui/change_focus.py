# SPDX-License-Identifier: GPL-3.0-or-later
"""The keyboard in the list of changes: rows are made anew while it is there."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeVar

from gi.repository import GLib, Gtk

from .change_items import RunItem
from .change_list import ChangeList
from .change_rows import FileRow, RunRow
from .weakly import weakly

R = TypeVar("R", FileRow, RunRow)


class RunFocus:
    """Gives the row of a run the keyboard. The list may make the row anew several times before
    anybody sees it, so a wish lasts until it is met."""

    def __init__(self, pane: type[Gtk.Widget]) -> None:
        self._pane = pane
        # Whose row, and whether its verbs get it.
        self._wish: tuple[str, bool] | None = None

    def want(self, run_id: str, *, verbs: bool = False) -> None:
        """Wish for it at the row of this run that is made next."""
        self._wish = (run_id, verbs)

    def forget_missing(self, listed: Collection[str]) -> None:
        """Drop the wish for a run that is not listed, lest it gets the keyboard later."""
        if self._wish is not None and self._wish[0] not in listed:
            self._wish = None

    def watch(self, row: RunRow, run_id: str) -> None:
        """Give a new row the keyboard once it is seen, if that is wished."""
        if self._wish is not None and self._wish[0] == run_id:
            row.connect("map", weakly(self._on_map), self._wish)

    def _on_map(self, row: RunRow, wish: tuple[str, bool]) -> None:
        if self._wish is not wish:
            return
        window = row.get_root()
        focus = window.get_focus() if isinstance(window, Gtk.Window) else None
        # GTK takes it from a row that is gone only with the next frame.
        is_gone = focus is not None and focus.get_root() is not window
        if focus is None or is_gone or focus.is_ancestor(row.get_ancestor(self._pane) or row):
            # Later: the list is being laid out, and would scroll meanwhile.
            GLib.timeout_add(0, weakly(self._meet), row, wish)
        else:
            # The person went elsewhere meanwhile.
            self._wish = None

    def _meet(self, row: RunRow, wish: tuple[str, bool]) -> bool:
        if self._wish is wish and row.get_mapped():
            self._wish = None
            row.focus(verbs=wish[1])
        return GLib.SOURCE_REMOVE


def focus_file(view: Gtk.ListView, changes: ChangeList, run_id: str, number: int) -> None:
    """The row of a file. What GTK puts around it takes the keyboard, once it is scrolled to."""
    place = _place_of(changes, run_id, number)
    if place is None:
        return
    view.activate_action("list.scroll-to-item", GLib.Variant.new_uint32(place))

    def focus() -> bool:
        for row in rows_of(view, FileRow):
            around = row.get_parent()
            is_it = (row.item.run.id, row.item.recorded.number) == (run_id, number)
            if is_it and around is not None and view.get_mapped():
                around.grab_focus()
        return GLib.SOURCE_REMOVE

    GLib.timeout_add(0, focus)


def _place_of(changes: ChangeList, run_id: str, number: int) -> int | None:
    """Its run may be folded by now, or gone."""
    start = changes.place_of(run_id)
    item = changes.get_item(start) if start is not None else None
    if start is None or not isinstance(item, RunItem) or not item.is_open:
        return start
    numbers = [one.number for one in item.data.items]
    return start + 1 + numbers.index(number) if number in numbers else start


def rows_of(view: Gtk.ListView, kind: type[R]) -> Iterator[R]:
    """Of this kind, those that are made."""
    around = view.get_first_child()
    while around is not None:
        row = around.get_first_child()
        if isinstance(row, kind):
            yield row
        around = around.get_next_sibling()


def name_around(row: RunRow | FileRow) -> None:
    """What the keyboard goes through is not the row itself, but what GTK puts around it."""
    around = row.get_parent()
    assert around is not None
    around.update_property([Gtk.AccessibleProperty.LABEL], [row.name])
