# SPDX-License-Identifier: GPL-3.0-or-later
"""A sentence between messages."""

from __future__ import annotations

from gi.repository import Gtk, Pango

from ..text.visible import visible_words
from .entries import NoticeEntry
from .plain_text import without_hyphens


class NoticeRow(Gtk.Box):
    __gtype_name__ = "OllmNoticeRow"

    def __init__(self, entry: NoticeEntry) -> None:
        super().__init__(spacing=9)
        self.add_css_class("notice")
        icon = "dialog-error-symbolic" if entry.is_error else "dialog-information-symbolic"
        image = Gtk.Image.new_from_icon_name(icon)
        image.set_valign(Gtk.Align.START)
        # There may be the name of a file in it, which is not always a text.
        text = "\n".join(map(visible_words, entry.text.split("\n")))
        label = Gtk.Label(label=text, xalign=0, wrap=True, selectable=True, hexpand=True)
        label.set_wrap_mode(Pango.WrapMode.WORD_CHAR)
        without_hyphens(label)
        if entry.is_error:
            image.add_css_class("error")
        else:
            label.add_css_class("dim-label")
        self.append(image)
        self.append(label)
