# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of the side pane: a project, and below it its sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from gettext import gettext as _

from gi.repository import Gio, GLib, Gtk, Pango


@dataclass(frozen=True)
class SessionItem:
    id: str
    title: str
    is_busy: bool = False
    is_asking: bool = False


@dataclass(frozen=True)
class ProjectItem:
    # Empty for sessions without a project.
    path: str
    name: str
    is_missing: bool = False
    sessions: Sequence[SessionItem] = ()


class ProjectRow(Gtk.ListBoxRow):
    __gtype_name__ = "OllmProjectRow"

    def __init__(self, item: ProjectItem) -> None:
        super().__init__(selectable=False)
        self.item = item
        self.set_tooltip_text(item.path)
        box = Gtk.Box(spacing=6)
        icon = "dialog-warning-symbolic" if item.is_missing else "folder-symbolic"
        box.append(Gtk.Image.new_from_icon_name(icon))
        text = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, hexpand=True, valign=Gtk.Align.CENTER)
        name = _line(item.name)
        name.add_css_class("heading")
        text.append(name)
        if item.is_missing:
            note = _line(_("The folder is not there"))
            note.add_css_class("caption")
            note.add_css_class("warning")
            text.append(note)
        box.append(text)
        if item.path and not item.is_missing:
            new = Gtk.Button(icon_name="list-add-symbolic", valign=Gtk.Align.CENTER)
            words = _("New Session in {}").format(item.name)
            new.set_tooltip_text(words)
            new.update_property([Gtk.AccessibleProperty.LABEL], [words])
            new.add_css_class("flat")
            new.set_action_name("sidebar.new-session")
            new.set_action_target_value(_text(item.path))
            box.append(new)
        if item.path:
            wishes = [(_("_Remove From List"), "sidebar.remove-project")]
            if item.is_missing:
                wishes.insert(0, (_("_Locate…"), "sidebar.locate-project"))
            menu = Gio.Menu()
            for label, action in wishes:
                entry = Gio.MenuItem.new(label, None)
                entry.set_action_and_target_value(action, _text(item.path))
                menu.append_item(entry)
            box.append(_menu_button(menu, _("Menu of {}").format(item.name)))
        self.set_child(box)
        self.update_property([Gtk.AccessibleProperty.LABEL], [item.name])


class SessionRow(Gtk.ListBoxRow):
    __gtype_name__ = "OllmSessionRow"

    def __init__(self, item: SessionItem) -> None:
        super().__init__()
        self.item = item
        box = Gtk.Box(spacing=6, margin_start=18)
        title = _line(item.title)
        title.set_hexpand(True)
        box.append(title)
        if item.is_asking:
            mark = Gtk.Image.new_from_icon_name("dialog-question-symbolic")
            mark.set_tooltip_text(_("Waits for your answer"))
            mark.add_css_class("warning")
            box.append(mark)
        elif item.is_busy:
            spinner = Gtk.Spinner(spinning=True)
            spinner.set_tooltip_text(_("Working"))
            box.append(spinner)
        menu = Gio.Menu()
        for label, action in (
            (_("Re_name…"), "sidebar.rename-session"),
            (_("_Delete"), "sidebar.delete-session"),
        ):
            entry = Gio.MenuItem.new(label, None)
            entry.set_action_and_target_value(action, _text(item.id))
            menu.append_item(entry)
        box.append(_menu_button(menu, _("Menu of {}").format(item.title)))
        self.set_child(box)
        self.set_tooltip_text(item.title)
        self.update_property([Gtk.AccessibleProperty.LABEL], [item.title])


def _line(text: str) -> Gtk.Label:
    return Gtk.Label(label=text, xalign=0, ellipsize=Pango.EllipsizeMode.END)


def _text(value: str) -> GLib.Variant:
    return GLib.Variant.new_string(value)


def _menu_button(menu: Gio.Menu, name: str) -> Gtk.MenuButton:
    button = Gtk.MenuButton(
        icon_name="view-more-symbolic", menu_model=menu, valign=Gtk.Align.CENTER
    )
    button.add_css_class("flat")
    button.set_tooltip_text(name)
    button.update_property([Gtk.AccessibleProperty.LABEL], [name])
    return button
