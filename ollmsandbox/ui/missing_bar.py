# SPDX-License-Identifier: GPL-3.0-or-later
"""The bar above the composer that says that the project's folder is gone, and what can be done."""

from __future__ import annotations

from gettext import gettext as _

from gi.repository import Gtk, Pango

from ..text.visible import visible_line
from .accessible import name_buttons
from .lines import WrapBox
from .signals import signals
from .weakly import weakly


class MissingBar(Gtk.Revealer):
    __gtype_name__ = "OllmMissingBar"

    __gsignals__ = signals({"open-other": (), "remove": (), "locate": ()})

    def __init__(self) -> None:
        super().__init__()
        self._label = Gtk.Label(xalign=0, wrap=True, wrap_mode=Pango.WrapMode.WORD_CHAR)
        self._label.set_hexpand(True)
        icon = Gtk.Image.new_from_icon_name("dialog-warning-symbolic")
        icon.add_css_class("warning")
        text = Gtk.Box(spacing=9)
        text.append(icon)
        text.append(self._label)
        buttons = WrapBox()
        for label, name in (
            (_("_Remove From List"), "remove"),
            (_("_Open a Project"), "open-other"),
            (_("_Locate…"), "locate"),
        ):
            button = Gtk.Button(label=label, use_underline=True)
            button.connect("clicked", weakly(self._on_clicked), name)
            buttons.add_group([button])
        content = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, spacing=9)
        content.add_css_class("missing-bar")
        content.append(text)
        content.append(buttons)
        name_buttons(content)
        self.set_child(content)

    def show_folder(self, folder: str) -> None:
        """The one that is missing; empty if none is."""
        if folder:
            words = _("The folder {} is not there. Nothing can run in it until it is back.")
            self._label.set_label(words.format(visible_line(folder)))
        self.set_reveal_child(bool(folder))

    def _on_clicked(self, _button: Gtk.Button, name: str) -> None:
        self.emit(name)
