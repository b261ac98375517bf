# SPDX-License-Identifier: GPL-3.0-or-later
"""The bar above the composer that leads to a question out of view."""

from __future__ import annotations

from gettext import ngettext

from gi.repository import Gtk

from .signals import signals
from .weakly import weakly


class WaitingBar(Gtk.Revealer):
    __gtype_name__ = "OllmWaitingBar"

    __gsignals__ = signals({"show-question": ()})

    def __init__(self) -> None:
        super().__init__()
        self._label = Gtk.Label(xalign=0, hexpand=True, wrap=True)
        content = Gtk.Box(spacing=9)
        content.append(Gtk.Image.new_from_icon_name("security-medium-symbolic"))
        content.append(self._label)
        self._arrow = Gtk.Image.new_from_icon_name("go-up-symbolic")
        content.append(self._arrow)
        self._button = Gtk.Button(child=content)
        self._button.add_css_class("waiting-bar")
        self._button.connect("clicked", weakly(self._on_clicked))
        self.set_child(self._button)
        self.show_count(0)

    def show_count(self, count: int, *, is_below: bool = False) -> None:
        """How many questions wait where they cannot be seen, and where the first of them is."""
        text = ngettext(
            "A question waits for your answer", "{} questions wait for your answer", count
        ).format(count)
        # While it moves out of sight it says what it said.
        if count or not self._label.get_label():
            self._label.set_label(text)
            self._arrow.set_from_icon_name("go-down-symbolic" if is_below else "go-up-symbolic")
            self._button.update_property([Gtk.AccessibleProperty.LABEL], [text])
        self.set_reveal_child(count > 0)

    def _on_clicked(self, _button: Gtk.Button) -> None:
        self.emit("show-question")
