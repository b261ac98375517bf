# SPDX-License-Identifier: GPL-3.0-or-later
"""The sidebar: projects and their sessions. Rows are added a few at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from gi.repository import Gdk, Gio, GLib, Gtk

from ..resources import template
from ..sessions.items import Day, ProjectItem, SessionItem
from ..widgets.focus import focus_around
from ..widgets.keyboard import on_key
from ..widgets.labels import children_of
from ..widgets.scheduling import Timer
from ..widgets.weak import weakly
from .rows import (
    DayItem,
    DayRow,
    Item,
    OlderItem,
    OlderRow,
    ProjectRow,
    Row,
    SessionRow,
    path_target,
    row_key,
)

if TYPE_CHECKING:
    from ...chat.storage.history import FoundLine

# Sessions of a project that are listed at first, and that "Show Older" adds.
LISTED = 30


def items_to_list(
    projects: Sequence[ProjectItem],
    most: Mapping[str, int],
    selected: str,
    collapsed: Collection[str] = (),
) -> tuple[Item, ...]:
    """Return the newest sessions, and those that are selected or active, however old they are. Of a
    collapsed project, return only those that are selected or ask."""
    found: list[Item] = []
    for project in projects:
        found.append(project)
        if project.path in collapsed:
            found += [one for one in project.sessions if one.is_asking or one.id == selected]
            continue
        limit = most.get(project.path, LISTED)
        newest, older = project.sessions[:limit], project.sessions[limit:]
        listed = [one for one in older if one.is_busy or one.is_asking or one.id == selected]
        found += _by_day(project.path, (*newest, *listed))
        if len(listed) < len(older):
            found.append(OlderItem(project.path, project.name))
    return tuple(found)


def _by_day(path: str, sessions: Sequence[SessionItem]) -> Iterator[Item]:
    """Yield the sessions below headings for their days, unless all of them are from today."""
    days = {session.day for session in sessions}
    has_headings = bool(days - {Day.TODAY, None})
    last: Day | None = None
    for session in sessions:
        if has_headings and session.day is not last and session.day is not None:
            last = session.day
            yield DayItem(path, session.day)
        yield session


def listed_rows(listbox: Gtk.ListBox) -> list[Row]:
    return [row for row in children_of(listbox) if isinstance(row, Row)]


def fill(listbox: Gtk.ListBox, items: Sequence[Item]) -> Iterator[None]:
    """Make the list match the items, yielding after each row that took time. Rows that stay are
    kept: one may have the focus, or an open menu."""
    there = {row_key(row.item): row for row in listed_rows(listbox)}
    for key in there.keys() - {row_key(item) for item in items}:
        listbox.remove(there.pop(key))
        yield
    for place, item in enumerate(items):
        row = there.get(row_key(item))
        is_in_place = row is not None and row.get_index() == place
        if isinstance(row, SessionRow) and isinstance(item, SessionItem) and item != row.item:
            row.show_item(item)
        if isinstance(row, ProjectRow) and isinstance(item, ProjectItem):
            row.item = item
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
    if isinstance(item, DayItem):
        return DayRow(item)
    return SessionRow(item) if isinstance(item, SessionItem) else OlderRow(item)


# Rows per step.
_AT_ONCE = 8


@Gtk.Template(filename=template("sidebar/sidebar"))
class Sidebar(Gtk.Box):
    """Activates `actions`, which the controller adds, with an id or a path."""

    __gtype_name__ = "OllmSidebar"

    search: Gtk.SearchEntry = Gtk.Template.Child()
    pages: Gtk.Stack = Gtk.Template.Child()
    listbox: Gtk.ListBox = Gtk.Template.Child()

    def __init__(self) -> None:
        super().__init__()
        self._items: tuple[ProjectItem, ...] = ()
        self._selected = ""
        # The number of listed sessions, for each project where the user asked for more.
        self._most: dict[str, int] = {}
        # The projects whose sessions are hidden.
        self._collapsed: set[str] = set()
        # The steps that are left to fill the list.
        self._filling: Iterator[None] | None = None
        self._next_step = Timer(self._fill_step)
        # From the start: GTK would not find a group that is inserted into a widget with children.
        self.actions = Gio.SimpleActionGroup()
        self.insert_action_group("sidebar", self.actions)
        self.search.connect("search-changed", weakly(self._on_search))
        self.listbox.connect("row-activated", weakly(self._on_activated))
        on_key(self.listbox, self._on_key)
        self._fill()

    @property
    def searched(self) -> str:
        return self.search.get_text().strip()

    def show(self, projects: Sequence[ProjectItem]) -> None:  # type: ignore[override]
        """Show the items. Rows that stay the same are kept: a menu may be open."""
        if tuple(projects) == self._items:
            return
        self._items = tuple(projects)
        self._fill()

    def select(self, session_id: str) -> None:
        if session_id == self._selected:
            # A click selects its row, whatever happens then.
            self._mark_selected()
            return
        self._selected = session_id
        self._fill()

    def found_in(self, session_id: str) -> FoundLine | None:
        """Return the line of a session that the search has found."""
        for project in self._items:
            for item in project.sessions:
                if item.id == session_id:
                    return item.found
        return None

    def focus(self) -> None:
        """Focus the selected session, or the first row."""
        row = self.listbox.get_selected_row() or self.listbox.get_row_at_index(0)
        if row is not None:
            row.grab_focus()

    def _focused_row(self) -> Gtk.ListBoxRow | None:
        focus = focus_around(self)
        row = focus.get_ancestor(Gtk.ListBoxRow) if focus is not None else None
        is_here = isinstance(row, Gtk.ListBoxRow) and row.get_parent() is self.listbox
        return row if is_here else None

    def _fill(self) -> None:
        empty = "nothing" if self.searched else "empty"
        self.pages.set_visible_child_name("list" if self._items else empty)
        self.search.set_visible(bool(self._items) or bool(self.searched))
        # A search shows what it finds.
        collapsed = () if self.searched else self._collapsed
        items = items_to_list(self._items, self._most, self._selected, collapsed)
        self._filling = fill(self.listbox, items)
        self._fill_step()

    def _collapse(self, row: ProjectRow, *, is_collapsed: bool) -> None:
        path = row.item.path
        (self._collapsed.add if is_collapsed else self._collapsed.discard)(path)
        row.show_collapsed(is_collapsed)
        self._fill()

    def _fill_step(self) -> None:
        if self._filling is None:
            return
        focused = self._focused_row()
        place = focused.get_index() if focused is not None else 0
        if len(list(islice(self._filling, _AT_ONCE))) < _AT_ONCE:
            self._filling = None
        else:
            self._next_step.start(10)
        self._mark_selected()
        if focused is not None and self._focused_row() is not focused:
            # It was moved or removed.
            self._focus_row(focused.get_index() if focused.get_parent() else place)

    def _mark_selected(self) -> None:
        chosen = self.listbox.get_selected_row()
        if isinstance(chosen, SessionRow) and chosen.item.id == self._selected:
            return
        # First: a row that was moved counts as selected already, and would not be selected again.
        self.listbox.unselect_all()
        for row in listed_rows(self.listbox):
            if isinstance(row, SessionRow) and row.item.id == self._selected:
                self.listbox.select_row(row)

    def _focus_row(self, place: int) -> None:
        """Focus the row at this position, or the last one."""
        rows = listed_rows(self.listbox)
        if rows:
            rows[min(place, len(rows) - 1)].grab_focus()

    def _on_activated(self, _list: Gtk.ListBox, row: Gtk.ListBoxRow) -> None:
        if isinstance(row, SessionRow):
            self.activate_action("sidebar.open-session", GLib.Variant.new_string(row.item.id))
        elif isinstance(row, ProjectRow) and row.item.is_missing:
            self.activate_action("sidebar.locate-project", path_target(row.item.path))
        elif isinstance(row, ProjectRow) and not row.item.sessions and row.item.path:
            self.activate_action("sidebar.new-session", path_target(row.item.path))
        elif isinstance(row, ProjectRow):
            self._collapse(row, is_collapsed=row.item.path not in self._collapsed)
        elif isinstance(row, OlderRow):
            self._show_older(row)

    def _show_older(self, row: OlderRow) -> None:
        path, place = row.item.path, row.get_index()
        had_focus = self._focused_row() is row
        self._most[path] = self._most.get(path, LISTED) + LISTED
        self._fill()
        if had_focus:
            # Focus the first new row.
            self._focus_row(place)

    def _on_key(self, _keys: Gtk.EventControllerKey, key: int, *_more: object) -> bool:
        """Handle the shortcuts of the menu for the focused session."""
        wish = {Gdk.KEY_F2: "rename-session", Gdk.KEY_Delete: "delete-session"}.get(key)
        row = self.listbox.get_focus_child()
        if isinstance(row, ProjectRow) and row.has_focus():
            is_collapsed = row.item.path in self._collapsed
            # Once it is open, the key leads on to the buttons of the row.
            if key == (Gdk.KEY_Right if is_collapsed else Gdk.KEY_Left):
                self._collapse(row, is_collapsed=not is_collapsed)
                return Gdk.EVENT_STOP
        if wish is None or not isinstance(row, SessionRow):
            return Gdk.EVENT_PROPAGATE
        self.activate_action(f"sidebar.{wish}", GLib.Variant.new_string(row.item.id))
        return Gdk.EVENT_STOP

    def _on_search(self, _entry: Gtk.SearchEntry) -> None:
        self._most.clear()
