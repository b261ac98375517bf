# SPDX-License-Identifier: GPL-3.0-or-later
"""Sentences over the window, of which all can be read."""

from __future__ import annotations

from collections.abc import Callable

from gi.repository import Adw, GLib, Gtk, Pango

from ...text.visible import visible_words
from ..widgets.labels import show_ellipsized_as_tooltip, without_hyphens

# Characters: more have no room in one line of a narrow window, and what comes last is what to do.
_ONE_LINE = 36
# About the width of lines in the chat.
_WIDTH = 64
# As many as have room in the lowest window.
_MOST_LINES = 10
# Pixels that a toast needs beside its text: its edges, its button, what is left free around it.
_AROUND = 130
# Characters that can be read in the seconds that a sentence stays by itself.
_QUICK, _SECONDS = 80, 4


class Toasts:
    """`add` shows a toast."""

    def __init__(self, add: Callable[[Adw.Toast], object]) -> None:
        self._add = add
        # Not gone yet, nor those that wait for their turn.
        self._shown: set[str] = set()

    def tell(self, text: str) -> None:
        """A sentence that stays until it was read, if it is a long one. The same is said once."""
        # There may be the name of a file in it, which is not always a text.
        shown = visible_words(text.replace("\n", " "))
        if shown in self._shown:
            return
        self._shown.add(shown)
        toast = Adw.Toast(timeout=0 if len(text) > _QUICK else _SECONDS)
        if len(shown) > _ONE_LINE:
            toast.set_custom_title(_lines(shown))
        else:
            toast.set_title(GLib.markup_escape_text(shown))
        shown_ones = self._shown
        toast.connect("dismissed", lambda _toast: shown_ones.discard(shown))
        self._add(toast)

    def pass_on(self, _source: object, text: str) -> None:
        """What a signal brings."""
        self.tell(text)


def _lines(text: str) -> Gtk.Widget:
    label = Gtk.Label(label=text, xalign=0, wrap=True, max_width_chars=_WIDTH)
    label.set_wrap_mode(Pango.WrapMode.WORD_CHAR)
    label.add_css_class("heading")
    without_hyphens(label)
    # What tells of an error may be as long as it likes, and the window is to stay as it is.
    label.set_lines(_MOST_LINES)
    label.set_ellipsize(Pango.EllipsizeMode.END)
    show_ellipsized_as_tooltip(label)
    return _Paragraph(label)


class _Paragraph(Adw.Bin):
    """As wide as there is room for, and as high as it is then. What holds a toast asks how high it
    is as if there were room without end, and a label would take more of it than there is."""

    __gtype_name__ = "OllmToastParagraph"

    def __init__(self, label: Gtk.Label) -> None:
        super().__init__(child=label)
        self._label = label
        # It would be asked instead of what is below.
        self.set_layout_manager(None)

    def do_get_request_mode(self) -> Gtk.SizeRequestMode:
        return Gtk.SizeRequestMode.HEIGHT_FOR_WIDTH

    def do_measure(self, orientation: Gtk.Orientation, for_size: int) -> tuple[int, int, int, int]:
        least, natural, *_lines = self._label.measure(Gtk.Orientation.HORIZONTAL, -1)
        overlay = self.get_ancestor(Adw.ToastOverlay)
        room = overlay.get_width() - _AROUND if overlay is not None else 0
        natural = max(least, min(natural, room))
        if orientation is Gtk.Orientation.HORIZONTAL:
            return least, natural, -1, -1
        width = for_size if for_size >= least else natural
        height = self._label.measure(Gtk.Orientation.VERTICAL, width)[1]
        # Asked without a width, it is never less high than that: newer GTKs count on it.
        lowest = self._label.measure(Gtk.Orientation.VERTICAL, -1)[0] if for_size < 0 else height
        return min(lowest, height), height, -1, -1

    def do_size_allocate(self, width: int, height: int, baseline: int) -> None:
        self._label.allocate(width, height, baseline, None)
