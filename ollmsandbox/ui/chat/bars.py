# SPDX-License-Identifier: GPL-3.0-or-later
"""Bars above the composer: a question is out of view, or the project folder is missing."""

from __future__ import annotations

from gi.repository import Gtk, Pango

from ...i18n import _, ngettext
from ...text.visible import visible_line
from ..widgets.labels import decorative_icon, name_buttons
from ..widgets.signals import signals
from ..widgets.weak import weakly
from ..widgets.wrap_box import WrapBox


class MissingFolderBar(Gtk.Revealer):
    __gtype_name__ = "OllmMissingFolderBar"

    __gsignals__ = signals({"open-other": (), "remove": (), "locate": ()})

    def __init__(self) -> None:
        super().__init__()
        self._label = Gtk.Label(xalign=0, wrap=True, wrap_mode=Pango.WrapMode.WORD_CHAR)
        self._label.set_hexpand(True)
        icon = decorative_icon("dialog-warning-symbolic")
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
        """Show which folder is missing; hide the bar if `folder` is empty."""
        if folder:
            words = _("The folder {} is missing. Commands cannot run until it is back.")
            self._label.set_label(words.format(visible_line(folder)))
        self.set_reveal_child(bool(folder))

    def _on_clicked(self, _button: Gtk.Button, name: str) -> None:
        self.emit(name)


class QuestionBar(Gtk.Revealer):
    __gtype_name__ = "OllmQuestionBar"

    __gsignals__ = signals({"show-question": ()})

    def __init__(self) -> None:
        super().__init__()
        self._label = Gtk.Label(xalign=0, hexpand=True, wrap=True)
        content = Gtk.Box(spacing=9)
        content.append(decorative_icon("security-medium-symbolic"))
        content.append(self._label)
        self._arrow = decorative_icon("go-up-symbolic")
        content.append(self._arrow)
        self._button = Gtk.Button(child=content)
        self._button.add_css_class("waiting-bar")
        self._button.connect("clicked", weakly(self._on_clicked))
        self.set_child(self._button)
        self.show_count(0)

    def show_count(self, count: int, *, is_below: bool = False) -> None:
        """Show how many questions are out of view, and in which direction the first one is."""
        text = ngettext(
            "A question needs your answer", "{} questions need your answer", count
        ).format(count)
        # While the bar slides away, it keeps its text.
        if count or not self._label.get_label():
            self._label.set_label(text)
            self._arrow.set_from_icon_name("go-down-symbolic" if is_below else "go-up-symbolic")
            self._button.update_property([Gtk.AccessibleProperty.LABEL], [text])
        self.set_reveal_child(count > 0)

    def _on_clicked(self, _button: Gtk.Button) -> None:
        self.emit("show-question")
