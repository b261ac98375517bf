# SPDX-License-Identifier: GPL-3.0-or-later
"""Bars above the composer: a question is out of view, or the project folder is missing."""

from __future__ import annotations

from gi.repository import Gtk, Pango

from ...i18n import _, ngettext
from ...text.visible import visible_line
from ..widgets.boxes import hbox, vbox
from ..widgets.labels import decorative_icon, name_buttons
from ..widgets.signals import forward, signals
from ..widgets.wrap_box import WrapBox


class MissingFolderBar(Gtk.Revealer):
    __gtype_name__ = "OllmMissingFolderBar"

    __gsignals__ = signals({"open-other": (), "remove": (), "locate": ()})

    def __init__(self) -> None:
        super().__init__()
        self._label = Gtk.Label(
            xalign=0, hexpand=True, wrap=True, wrap_mode=Pango.WrapMode.WORD_CHAR
        )
        icon = decorative_icon("dialog-warning-symbolic", "warning")
        buttons = WrapBox()
        for label, name in (
            (_("_Remove From List"), "remove"),
            (_("_Open a Project"), "open-other"),
            (_("_Locate…"), "locate"),
        ):
            button = Gtk.Button(label=label, use_underline=True)
            forward(button, "clicked", self, name)
            buttons.add_group([button])
        content = vbox(hbox(icon, self._label, spacing=9), buttons, spacing=9)
        content.add_css_class("missing-bar")
        name_buttons(content)
        self.set_child(content)

    def show_folder(self, folder: str) -> None:
        """Show which folder is missing; hide the bar if `folder` is empty."""
        if folder:
            words = _("The folder {} is missing. Commands cannot run until it is back.")
            self._label.set_label(words.format(visible_line(folder)))
        self.set_reveal_child(bool(folder))


class QuestionBar(Gtk.Revealer):
    __gtype_name__ = "OllmQuestionBar"

    __gsignals__ = signals({"show-question": ()})

    def __init__(self) -> None:
        super().__init__()
        self._label = Gtk.Label(xalign=0, hexpand=True, wrap=True)
        self._arrow = decorative_icon("go-up-symbolic")
        icon = decorative_icon("security-medium-symbolic")
        self._button = Gtk.Button(child=hbox(icon, self._label, self._arrow, spacing=9))
        self._button.add_css_class("waiting-bar")
        forward(self._button, "clicked", self, "show-question")
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
