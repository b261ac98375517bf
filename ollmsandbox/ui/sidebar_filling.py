# SPDX-License-Identifier: GPL-3.0-or-later
"""Which rows the side pane has, and their coming and going, a few in each turn of the main loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gi.repository import Gtk

from .sidebar_rows import (
    Item,
    OlderItem,
    OlderRow,
    ProjectItem,
    ProjectRow,
    Row,
    SessionItem,
    SessionRow,
)

# Sessions of one project, and as many again with each wish for more.
NEWEST = 30


def wanted(
    projects: Sequence[ProjectItem], most: Mapping[str, int], selected: str
) -> tuple[Item, ...]:
    """The newest ones. Where something goes on is seen, and what is shown, however old it is."""
    found: list[Item] = []
    for project in projects:
        limit = most.get(project.path, NEWEST)
        newest, older = project.sessions[:limit], project.sessions[limit:]
        listed = [one for one in older if one.is_busy or one.is_asking or one.id == selected]
        found += (project, *newest, *listed)
        if len(listed) < len(older):
            found.append(OlderItem(project.path, project.name))
    return tuple(found)


def rows_of(listbox: Gtk.ListBox) -> list[Row]:
    rows: list[Row] = []
    while (row := listbox.get_row_at_index(len(rows))) is not None:
        assert isinstance(row, Row)
        rows.append(row)
    return rows


def fill(listbox: Gtk.ListBox, items: Sequence[Item]) -> Iterator[None]:
    """Stops after each row that took time. Those that stay are the same ones: the keyboard may be
    there, or a menu open."""
    there = {row.item.key: row for row in rows_of(listbox)}
    for key in there.keys() - {item.key for item in items}:
        listbox.remove(there.pop(key))
        yield
    for place, item in enumerate(items):
        row = there.get(item.key)
        is_in_place = row is not None and row.get_index() == place
        if isinstance(row, SessionRow) and isinstance(item, SessionItem) and item != row.item:
            row.show_item(item)
        if not is_in_place:
            if row is None:
                row = _row(item)
            else:
                listbox.remove(row)
            listbox.insert(row, place)
            yield


def _row(item: Item) -> Row:
    if isinstance(item, ProjectItem):
        return ProjectRow(item)
    return SessionRow(item) if isinstance(item, SessionItem) else OlderRow(item)
