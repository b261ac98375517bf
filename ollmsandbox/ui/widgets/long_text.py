# SPDX-License-Identifier: GPL-3.0-or-later
"""A text that is long or grows."""

from __future__ import annotations

from gi.repository import GLib, Gtk

from .labels import has_long_word, set_plain
from .weak import weakly


class LongText(Gtk.TextView):
    """Shows text that is long or grows: GTK lays it out little by little."""

    def __init__(self, text: str = "") -> None:
        super().__init__(editable=False, cursor_visible=False, accepts_tab=False)
        self.add_css_class("long-text")
        # The text, until it is shown.
        self._text: str | None = text

    def do_size_allocate(self, width: int, height: int, baseline: int) -> None:
        Gtk.TextView.do_size_allocate(self, width, height, baseline)
        if self._text is not None:
            # Only now: before it has a width, each character would be a line.
            GLib.timeout_add(0, weakly(self._fill))

    def append(self, text: str) -> None:
        if self._text is not None:
            self._text += text
            return
        buffer = self.get_buffer()
        end = buffer.get_end_iter()
        begin = end.copy()
        begin.backward_chars(1_000)
        if has_long_word(buffer.get_text(begin, end, True) + text):
            self.set_wrap_mode(Gtk.WrapMode.CHAR)
        buffer.insert(end, text)

    def _fill(self) -> bool:
        if self._text is not None:
            set_plain(self, self._text)
            self._text = None
        return GLib.SOURCE_REMOVE
