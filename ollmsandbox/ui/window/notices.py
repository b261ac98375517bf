# SPDX-License-Identifier: GPL-3.0-or-later
"""The bar below the header for what stays as it is until somebody does something about it."""

from __future__ import annotations

from gi.repository import Gtk

from ...i18n import _, localized
from ...text.visible import visible_words
from ..widgets.labels import decorative_icon, name_buttons, set_accessible_name, wrapped
from ..widgets.weak import weakly


class NoticeBar(Gtk.Revealer):
    """Shows one text after the other, each until the user dismisses it."""

    __gtype_name__ = "OllmNoticeBar"

    def __init__(self) -> None:
        super().__init__()
        self._texts: list[str] = []
        self._label = wrapped()
        self._label.set_hexpand(True)
        self._label.set_selectable(True)
        icon = decorative_icon("dialog-warning-symbolic", "warning")
        button = Gtk.Button(label=_("_Dismiss"), use_underline=True, valign=Gtk.Align.CENTER)
        button.connect("clicked", weakly(self._on_dismissed))
        self._content = content = Gtk.Box(
            spacing=12,
            css_classes=["notice-bar"],
            accessible_role=Gtk.AccessibleRole.ALERT,
        )
        for part in (icon, self._label, button):
            content.append(part)
        name_buttons(content)
        self.set_child(content)

    def tell(self, text: str) -> None:
        """Show a text, unless it is shown or waits already."""
        # It may contain a file name, which may contain anything.
        shown = visible_words(localized(text).replace("\n", " "))
        if shown not in self._texts:
            self._texts.append(shown)
            self._show()

    def on_text(self, _source: object, text: str) -> None:
        """Show the text that comes with a signal."""
        self.tell(text)

    def _show(self) -> None:
        # While the bar slides away, it keeps its text.
        if self._texts:
            self._label.set_label(self._texts[0])
            set_accessible_name(self._content, self._texts[0])
        self.set_reveal_child(bool(self._texts))

    def _on_dismissed(self, _button: Gtk.Button) -> None:
        del self._texts[:1]
        self._show()
