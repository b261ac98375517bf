# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of the sidebar: a project, and below it its sessions."""

from __future__ import annotations

import os
from typing import NamedTuple

from gi.repository import Gio, GLib, Gtk, Pango

from ...i18n import _
from ...text.visible import visible_line
from ..sessions.items import Day, Key, ProjectItem, SessionItem
from ..widgets.keyboard import TAB_DIRECTIONS
from ..widgets.labels import decorative_icon, in_sentences, set_class


class OlderItem(NamedTuple):
    """A button for the sessions of a project that are not listed."""

    path: str
    name: str

    @property
    def key(self) -> Key:
        return ("older", self.path, self.name)


class DayItem(NamedTuple):
    """A heading above the sessions of a day."""

    path: str
    day: Day

    @property
    def key(self) -> Key:
        return ("day", self.path, self.day)


class _TabRow(Gtk.ListBoxRow):
    """A row that the Tab key enters once; the arrow keys lead to its buttons."""

    __gtype_name__ = "OllmTabRow"

    def do_focus(self, direction: Gtk.DirectionType) -> bool:
        if direction in TAB_DIRECTIONS:
            is_inside = self.has_focus() or self.get_focus_child() is not None
            return not is_inside and self.grab_focus()
        return bool(Gtk.ListBoxRow.do_focus(self, direction))


class ProjectRow(_TabRow):
    __gtype_name__ = "OllmProjectRow"

    def __init__(self, item: ProjectItem) -> None:
        super().__init__(selectable=False)
        self.item = item
        self.set_tooltip_text(visible_line(item.path))
        box = Gtk.Box(spacing=6)
        self._icon = decorative_icon("dialog-warning-symbolic")
        box.append(self._icon)
        text = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, hexpand=True, valign=Gtk.Align.CENTER)
        name = _line(item.name)
        name.add_css_class("heading")
        text.append(name)
        if item.is_missing:
            note = _line(_("Folder not found"))
            note.add_css_class("caption")
            note.add_css_class("warning")
            text.append(note)
        box.append(text)
        if item.path and not item.is_missing:
            new = Gtk.Button(icon_name="list-add-symbolic", valign=Gtk.Align.CENTER)
            words = _("New Session in {}").format(item.name)
            new.set_tooltip_text(words)
            new.update_property([Gtk.AccessibleProperty.LABEL], [words])
            for style in ("flat", "row-action"):
                new.add_css_class(style)
            new.set_action_name("sidebar.new-session")
            new.set_action_target_value(_path(item.path))
            box.append(new)
        if item.path:
            wishes = [(_("_Remove From List"), "sidebar.remove-project")]
            if item.is_missing:
                wishes.insert(0, (_("_Locate…"), "sidebar.locate-project"))
            else:
                wishes.insert(0, (_("Opened _Folders…"), "sidebar.show-folders"))
                system = _("_Use This Computer's Programs") if item.uses_alpine else ""
                wishes.insert(0, (system or _("_Use Alpine Linux"), "sidebar.switch-system"))
            menu = Gio.Menu()
            for label, action in wishes:
                entry = Gio.MenuItem.new(label, None)
                entry.set_action_and_target_value(action, _path(item.path))
                menu.append_item(entry)
            box.append(_menu_button(menu, _("Menu for {}").format(item.name)))
        self.set_child(box)
        missing = _("Folder not found") if item.is_missing else ""
        said = in_sentences(item.name, missing)
        self.update_property([Gtk.AccessibleProperty.LABEL], [said])
        self.show_collapsed(False)

    def show_collapsed(self, is_collapsed: bool) -> None:
        if not self.item.is_missing:
            icon = "pan-end-symbolic" if is_collapsed else "pan-down-symbolic"
            self._icon.set_from_icon_name(icon)
        # An integer: this state has a third value, so GTK does not take a boolean.
        self.update_state([Gtk.AccessibleState.EXPANDED], [int(not is_collapsed)])


class SessionRow(_TabRow):
    __gtype_name__ = "OllmSessionRow"

    def __init__(self, item: SessionItem) -> None:
        super().__init__()
        box = Gtk.Box(spacing=6, margin_start=18)
        self._title = _line("")
        self._found = _line("")
        for style in ("caption", "dim-label"):
            self._found.add_css_class(style)
        text = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, hexpand=True, valign=Gtk.Align.CENTER)
        text.append(self._title)
        text.append(self._found)
        box.append(text)
        self._asks = decorative_icon("media-record-symbolic")
        self._asks.set_tooltip_text(_("Needs your answer"))
        for style in ("accent", "asks-dot"):
            self._asks.add_css_class(style)
        box.append(self._asks)
        self._works = Gtk.Spinner()
        self._works.set_tooltip_text(_("Working"))
        box.append(self._works)
        self._menu = _menu_button(None, "")
        # Filled when it opens: it takes as long as the rest of the row, and few are ever opened.
        target = GLib.Variant.new_string(item.id)
        self._menu.set_create_popup_func(lambda button: _add_menu(button, target))
        box.append(self._menu)
        self.set_child(box)
        self.show_item(item)

    def show_item(self, item: SessionItem) -> None:
        """Update the row in place: it may have the focus, or its menu may be open."""
        self.item = item
        self._title.set_label(item.title)
        found = item.found.text if item.found is not None else ""
        self._found.set_label(found)
        self._found.set_visible(bool(found))
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
    __gtype_name__ = "OllmDayRow"

    def __init__(self, item: DayItem) -> None:
        super().__init__(selectable=False, activatable=False, focusable=False)
        self.item = item
        words = _line(_(item.day.value))
        words.set_margin_start(18)
        for style in ("caption", "dim-label"):
            words.add_css_class(style)
        self.add_css_class("day-row")
        self.set_child(words)


class OlderRow(Gtk.ListBoxRow):
    __gtype_name__ = "OllmOlderRow"

    def __init__(self, item: OlderItem) -> None:
        super().__init__(selectable=False)
        self.item = item
        words = _line(_("Show Older"))
        words.set_margin_start(18)
        words.add_css_class("dim-label")
        self.set_child(words)
        name = _("Show older sessions of {}").format(item.name)
        self.set_tooltip_text(name)
        self.update_property([Gtk.AccessibleProperty.LABEL], [name])


Item = ProjectItem | SessionItem | DayItem | OlderItem
Row = ProjectRow | SessionRow | DayRow | OlderRow


def _line(text: str) -> Gtk.Label:
    return Gtk.Label(label=text, xalign=0, ellipsize=Pango.EllipsizeMode.END)


def _path(path: str) -> GLib.Variant:
    """Return the path as UTF-8, which GLib needs and a file name need not be."""
    return GLib.Variant.new_bytestring(os.fsencode(path))


def _add_menu(button: Gtk.MenuButton, target: GLib.Variant) -> None:
    if button.get_popover() is None:
        menu = Gio.Menu()
        for label, action in (
            (_("Re_name…"), "sidebar.rename-session"),
            (_("_Delete"), "sidebar.delete-session"),
        ):
            entry = Gio.MenuItem.new(label, None)
            entry.set_action_and_target_value(action, target)
            menu.append_item(entry)
        button.set_menu_model(menu)


def _menu_button(menu: Gio.Menu | None, name: str) -> Gtk.MenuButton:
    button = Gtk.MenuButton(
        icon_name="view-more-symbolic", menu_model=menu, valign=Gtk.Align.CENTER
    )
    for style in ("flat", "row-action"):
        button.add_css_class(style)
    _name_button(button, name)
    return button


def _name_button(button: Gtk.MenuButton, name: str) -> None:
    button.set_tooltip_text(name)
    button.update_property([Gtk.AccessibleProperty.LABEL], [name])
