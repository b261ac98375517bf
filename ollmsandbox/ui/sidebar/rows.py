# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of the sidebar: a project, and below it its sessions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from gi.repository import Gio, GLib, Gtk

from ...i18n import _
from ...text.visible import visible_line
from ..sessions.items import Day, ProjectItem, SessionItem
from ..widgets.boxes import hbox, icon_button, vbox
from ..widgets.keyboard import TAB_DIRECTIONS
from ..widgets.labels import (
    add_classes,
    decorative_icon,
    in_sentences,
    one_line,
    set_accessible_name,
    set_class,
    set_expanded,
    show_text,
)


class OlderItem(NamedTuple):
    """A button for the sessions of a project that are not listed."""

    path: str
    name: str


class DayItem(NamedTuple):
    """A heading above the sessions of a day."""

    path: str
    day: Day


Item = ProjectItem | SessionItem | DayItem | OlderItem


def row_key(item: Item) -> tuple[object, ...]:
    """Return what identifies a row: it stays as long as that does."""
    match item:
        case SessionItem():
            return ("session", item.id)
        case ProjectItem():
            return ("project", item.path, item.name, item.is_missing, item.uses_alpine)
        case _:
            return (type(item), *item)


class _TabRow(Gtk.ListBoxRow):
    """A row that the Tab key enters once; the arrow keys lead to its buttons."""

    def do_focus(self, direction: Gtk.DirectionType) -> bool:
        if direction in TAB_DIRECTIONS:
            is_inside = self.has_focus() or self.get_focus_child() is not None
            return not is_inside and self.grab_focus()
        return bool(Gtk.ListBoxRow.do_focus(self, direction))


class ProjectRow(_TabRow):
    def __init__(self, item: ProjectItem) -> None:
        super().__init__(selectable=False)
        self.item = item
        self.set_tooltip_text(visible_line(item.path))
        self._icon = decorative_icon("dialog-warning-symbolic")
        missing = _("Folder not found") if item.is_missing else ""
        text = _text(one_line(item.name, "heading"))
        if missing:
            text.append(one_line(missing, "caption", "warning"))
        box = hbox(self._icon, text, spacing=6)
        if item.path and not item.is_missing:
            words = _("New Session in {}").format(item.name)
            new = icon_button("list-add-symbolic", words, "flat", "row-action")
            new.set_action_name("sidebar.new-session")
            new.set_action_target_value(path_target(item.path))
            box.append(new)
        if item.path:
            wishes = [(_("_Remove From List"), "sidebar.remove-project")]
            if item.is_missing:
                wishes.insert(0, (_("_Locate…"), "sidebar.locate-project"))
            else:
                wishes.insert(0, (_("Opened _Folders…"), "sidebar.show-folders"))
                system = _("_Use This Computer's Programs") if item.uses_alpine else ""
                wishes.insert(0, (system or _("_Use Alpine Linux"), "sidebar.switch-system"))
            menu = _menu(wishes, path_target(item.path))
            box.append(_menu_button(menu, _("Menu for {}").format(item.name)))
        self.set_child(box)
        set_accessible_name(self, in_sentences(item.name, missing))
        self.show_collapsed(False)

    def show_collapsed(self, is_collapsed: bool) -> None:
        if not self.item.is_missing:
            icon = "pan-end-symbolic" if is_collapsed else "pan-down-symbolic"
            self._icon.set_from_icon_name(icon)
        set_expanded(self, not is_collapsed)


class SessionRow(_TabRow):
    def __init__(self, item: SessionItem) -> None:
        super().__init__()
        self._title = one_line()
        self._found = one_line("", "caption", "dim-label")
        self._asks = decorative_icon("media-record-symbolic", "accent", "asks-dot")
        self._asks.set_tooltip_text(_("Needs your answer"))
        self._works = Gtk.Spinner(tooltip_text=_("Working"))
        self._menu = _menu_button(None, "")
        # Filled when it opens: it takes as long as the rest of the row, and few are ever opened.
        target = GLib.Variant.new_string(item.id)
        self._menu.set_create_popup_func(lambda button: _add_menu(button, target))
        text = _text(self._title, self._found)
        row = (text, self._asks, self._works, self._menu)
        self.set_child(hbox(*row, spacing=6, margin_start=18))
        self.show_item(item)

    def show_item(self, item: SessionItem) -> None:
        """Update the row in place: it may have the focus, or its menu may be open."""
        self.item = item
        self._title.set_label(item.title)
        found = item.found.text if item.found is not None else ""
        show_text(self._found, found)
        works = item.is_busy and not item.is_asking
        self._asks.set_visible(item.is_asking)
        self._works.set_visible(works)
        self._works.set_spinning(works)
        _name_button(self._menu, _("Menu for {}").format(item.title))
        self.set_tooltip_text("\n".join(filter(None, (item.title, found, item.spent))))
        set_class(self._title, "unread", item.is_unread)
        name = item.title
        # Translators: the title of a session, and its state.
        if item.is_asking:
            name = _("{title}, needs your answer").format(title=item.title)
        elif item.is_unread:
            name = _("{title}, finished").format(title=item.title)
        self.update_property([Gtk.AccessibleProperty.LABEL], [in_sentences(name, found)])


class DayRow(Gtk.ListBoxRow):
    def __init__(self, item: DayItem) -> None:
        super().__init__(selectable=False, activatable=False, focusable=False)
        self.item = item
        self.add_css_class("day-row")
        self.set_child(one_line(_(item.day.value), "caption", "dim-label", margin_start=18))


class OlderRow(Gtk.ListBoxRow):
    def __init__(self, item: OlderItem) -> None:
        super().__init__(selectable=False)
        self.item = item
        self.set_child(one_line(_("Show Older"), "dim-label", margin_start=18))
        name = _("Show older sessions of {}").format(item.name)
        self.set_tooltip_text(name)
        self.update_property([Gtk.AccessibleProperty.LABEL], [name])


Row = ProjectRow | SessionRow | DayRow | OlderRow


def _text(*lines: Gtk.Label) -> Gtk.Box:
    return vbox(*lines, hexpand=True, valign=Gtk.Align.CENTER)


def _menu(wishes: Sequence[tuple[str, str]], target: GLib.Variant) -> Gio.Menu:
    """Return a menu of labels and the actions that they are for."""
    menu = Gio.Menu()
    for label, action in wishes:
        entry = Gio.MenuItem.new(label, None)
        entry.set_action_and_target_value(action, target)
        menu.append_item(entry)
    return menu


def path_target(path: str) -> GLib.Variant:
    """Return the path as UTF-8, which GLib needs and a file name need not be."""
    return GLib.Variant.new_bytestring(os.fsencode(path))


def _add_menu(button: Gtk.MenuButton, target: GLib.Variant) -> None:
    if button.get_popover() is None:
        wishes = (
            (_("Re_name…"), "sidebar.rename-session"),
            (_("_Delete"), "sidebar.delete-session"),
        )
        button.set_menu_model(_menu(wishes, target))


def _menu_button(menu: Gio.Menu | None, name: str) -> Gtk.MenuButton:
    button = Gtk.MenuButton(
        icon_name="view-more-symbolic", menu_model=menu, valign=Gtk.Align.CENTER
    )
    add_classes(button, "flat", "row-action")
    _name_button(button, name)
    return button


def _name_button(button: Gtk.MenuButton, name: str) -> None:
    button.set_tooltip_text(name)
    button.update_property([Gtk.AccessibleProperty.LABEL], [name])
