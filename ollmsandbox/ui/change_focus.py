# SPDX-License-Identifier: GPL-3.0-or-later
"""The keyboard in the list of changes: rows are made anew while it is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from gi.repository import GLib, Gtk

from .change_items import RunItem
from .change_list import ChangeList
from .change_rows import FileRow, RunRow

R = TypeVar("R", FileRow, RunRow)


def focus_once(row: RunRow, pane: type[Gtk.Widget], verbs: bool) -> None:
    """When it is there, unless the person went elsewhere than the pane meanwhile."""
    row.disconnect_by_func(focus_once)
    window = row.get_root()
    focus = window.get_focus() if isinstance(window, Gtk.Window) else None
    if focus is None or focus.is_ancestor(row.get_ancestor(pane) or row):
        # Later: the list is being laid out, and would scroll meanwhile.
        GLib.timeout_add(0, _focus_on, row, verbs)


def _focus_on(row: RunRow, verbs: bool) -> bool:
    if row.get_mapped():
        row.focus(verbs=verbs)
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
