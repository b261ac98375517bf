# SPDX-License-Identifier: GPL-3.0-or-later
"""The side pane: projects and their sessions."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gi.repository import Gdk, Gio, GLib, Gtk

from .sidebar_rows import ProjectItem, ProjectRow, SessionItem, SessionRow
from .signals import signals
from .template import template
from .weakly import weakly


@Gtk.Template(filename=template("sidebar"))
class Sidebar(Gtk.Box):
    __gtype_name__ = "OllmSidebar"

    __gsignals__ = signals(
        {
            "open-session": (str,),
            # Paths are objects: GLib's strings have to be UTF-8.
            "new-session": (object,),
            "add-project": (),
            "remove-project": (object,),
            # It is missing, and where it is now is asked for.
            "locate-project": (object,),
            # Its new name is asked for by who hears it.
            "rename-session": (str,),
            "delete-session": (str,),
            "search": (str,),
        }
    )

    search: Gtk.SearchEntry = Gtk.Template.Child()
    pages: Gtk.Stack = Gtk.Template.Child()
    listbox: Gtk.ListBox = Gtk.Template.Child()
    add_button: Gtk.Button = Gtk.Template.Child()

    def __init__(self) -> None:
        super().__init__()
        self._items: tuple[ProjectItem, ...] = ()
        self._selected = ""
        actions = Gio.SimpleActionGroup()
        for name, target in (
            ("new-session", "ay"),
            ("remove-project", "ay"),
            ("locate-project", "ay"),
            ("rename-session", "s"),
            ("delete-session", "s"),
        ):
            action = Gio.SimpleAction.new(name, GLib.VariantType.new(target))
            action.connect("activate", weakly(self._on_action))
            actions.add_action(action)
        self.insert_action_group("sidebar", actions)
        self.search.connect("search-changed", weakly(self._on_search))
        self.listbox.connect("row-activated", weakly(self._on_activated))
        self.add_button.connect("clicked", weakly(self._on_add))
        keys = Gtk.EventControllerKey()
        keys.connect("key-pressed", weakly(self._on_key))
        self.listbox.add_controller(keys)
        self._fill()

    @property
    def searched(self) -> str:
        return self.search.get_text().strip()

    def show(self, projects: Sequence[ProjectItem]) -> None:  # type: ignore[override]
        """What is the same as before stays as it is: a menu may be open there."""
        if tuple(projects) == self._items:
            return
        self._items = tuple(projects)
        self._fill()

    def select(self, session_id: str) -> None:
        self._selected = session_id
        for row in self._rows():
            if isinstance(row, SessionRow) and row.item.id == session_id:
                self.listbox.select_row(row)
                return
        self.listbox.unselect_all()

    def focus(self) -> None:
        """For the keyboard: to the session that is shown, or to what stands first."""
        row = self.listbox.get_selected_row() or self.listbox.get_row_at_index(0)
        (row or self.add_button).grab_focus()

    def _rows(self) -> Sequence[ProjectRow | SessionRow]:
        rows: list[ProjectRow | SessionRow] = []
        while (row := self.listbox.get_row_at_index(len(rows))) is not None:
            assert isinstance(row, ProjectRow | SessionRow)
            rows.append(row)
        return rows

    def _focused_row(self) -> Gtk.ListBoxRow | None:
        window = self.get_root()
        focus = window.get_focus() if isinstance(window, Gtk.Window) else None
        row = focus.get_ancestor(Gtk.ListBoxRow) if focus is not None else None
        is_here = isinstance(row, Gtk.ListBoxRow) and row.get_parent() is self.listbox
        return row if is_here else None

    def _fill(self) -> None:
        focused = self._focused_row()
        place = focused.get_index() if focused is not None else 0
        self._show_rows()
        empty = "nothing" if self.searched else "empty"
        self.pages.set_visible_child_name("list" if self._items else empty)
        self.search.set_visible(bool(self._items) or bool(self.searched))
        self.select(self._selected)
        if focused is not None and self._focused_row() is not focused:
            # It was moved, or is gone.
            rows = self._rows()
            if focused not in rows and rows:
                focused = rows[min(place, len(rows) - 1)]
            focused.grab_focus()

    def _show_rows(self) -> None:
        """Those that stay are the same ones: the keyboard may be there, or a menu open."""
        wanted: list[ProjectItem | SessionItem] = []
        for project in self._items:
            wanted += (project, *project.sessions)
        there = {row.item.key: row for row in self._rows()}
        for key in there.keys() - {item.key for item in wanted}:
            self.listbox.remove(there.pop(key))
        for place, item in enumerate(wanted):
            row = there.get(item.key)
            if row is None:
                row = ProjectRow(item) if isinstance(item, ProjectItem) else SessionRow(item)
                self.listbox.insert(row, place)
            elif row.get_index() != place:
                self.listbox.remove(row)
                self.listbox.insert(row, place)
            if isinstance(item, SessionItem) and isinstance(row, SessionRow) and item != row.item:
                row.show_item(item)

    def _on_action(self, action: Gio.SimpleAction, target: GLib.Variant) -> None:
        is_path = target.is_of_type(GLib.VariantType.new("ay"))
        value = os.fsdecode(target.get_bytestring()) if is_path else target.get_string()
        self.emit(action.get_name(), value)

    def _on_activated(self, _list: Gtk.ListBox, row: Gtk.ListBoxRow) -> None:
        if isinstance(row, SessionRow):
            self.emit("open-session", row.item.id)
        elif isinstance(row, ProjectRow) and row.item.path:
            wish = "locate-project" if row.item.is_missing else "new-session"
            self.emit(wish, row.item.path)

    def _on_key(self, _keys: Gtk.EventControllerKey, key: int, *_more: object) -> bool:
        """What its menu offers, for the session that has the keyboard."""
        wish = {Gdk.KEY_F2: "rename-session", Gdk.KEY_Delete: "delete-session"}.get(key)
        row = self.listbox.get_focus_child()
        if wish is None or not isinstance(row, SessionRow):
            return Gdk.EVENT_PROPAGATE
        self.emit(wish, row.item.id)
        return Gdk.EVENT_STOP

    def _on_search(self, _entry: Gtk.SearchEntry) -> None:
        self.emit("search", self.searched)

    def _on_add(self, _button: Gtk.Button) -> None:
        self.emit("add-project")
