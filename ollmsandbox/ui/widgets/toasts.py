# SPDX-License-Identifier: GPL-3.0-or-later
"""Toasts that show long texts completely."""

from __future__ import annotations

from collections.abc import Callable

from gi.repository import Adw, GLib, Gtk, Pango

from ...text.visible import visible_words
from .labels import show_ellipsized_as_tooltip, without_hyphens

# Characters that fit into one line of a narrow window. GTK would cut the end off, which says what
# to do.
_ONE_LINE = 36
# About the width of lines in the chat.
_WIDTH = 64
# Lines that fit into the lowest window.
_MOST_LINES = 10
# Pixels that a toast needs beside its text: padding, button, margins.
_AROUND = 130
# Longer texts stay until the user closes them; shorter ones are hidden after some seconds.
_QUICK, _SECONDS = 80, 4


class Toasts:
    def __init__(self, add: Callable[[Adw.Toast], object]) -> None:
        self._add = add
        # Texts that are shown or queued.
        self._shown: set[str] = set()

    def tell(self, text: str) -> None:
        """Show a text, unless it is shown already."""
        # It may contain a file name, which may contain anything.
        shown = visible_words(text.replace("\n", " "))
        if shown in self._shown:
            return
        self._shown.add(shown)
        toast = Adw.Toast(timeout=0 if len(text) > _QUICK else _SECONDS)
        if len(shown) > _ONE_LINE:
            toast.set_custom_title(_lines(shown))
        else:
            toast.set_title(GLib.markup_escape_text(shown))
        texts = self._shown
        toast.connect("dismissed", lambda _toast: texts.discard(shown))
        self._add(toast)

    def on_text(self, _source: object, text: str) -> None:
        """Show the text that comes with a signal."""
        self.tell(text)


def _lines(text: str) -> Gtk.Widget:
    label = Gtk.Label(label=text, xalign=0, wrap=True, max_width_chars=_WIDTH)
    label.set_wrap_mode(Pango.WrapMode.WORD_CHAR)
    label.add_css_class("heading")
    without_hyphens(label)
    # An error may be very long, and must not enlarge the window.
    label.set_lines(_MOST_LINES)
    label.set_ellipsize(Pango.EllipsizeMode.END)
    show_ellipsized_as_tooltip(label)
    return _Paragraph(label)


class _Paragraph(Adw.Bin):
    """Wraps a label to the width of the overlay. A toast asks for the height without a width, and a
    label would answer for more width than there is."""

    __gtype_name__ = "OllmToastParagraph"

    def __init__(self, label: Gtk.Label) -> None:
        super().__init__(child=label)
        self._label = label
        # A layout manager would be asked instead of do_measure.
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
        # Newer GTKs rely on a minimum height for any width.
        lowest = self._label.measure(Gtk.Orientation.VERTICAL, -1)[0] if for_size < 0 else height
        return min(lowest, height), height, -1, -1

    def do_size_allocate(self, width: int, height: int, baseline: int) -> None:
        self._label.allocate(width, height, baseline, None)
