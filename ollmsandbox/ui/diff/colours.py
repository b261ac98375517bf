# SPDX-License-Identifier: GPL-3.0-or-later
"""Tints of added and removed lines, pale enough to read every syntax colour on them, whether the
ground below is light or dark."""

from __future__ import annotations

from gi.repository import Adw, GtkSource, Pango


class DiffTags:
    def __init__(self, buffer: GtkSource.Buffer) -> None:
        self._buffer = buffer
        make = buffer.create_tag
        self.added = make(None, paragraph_background="rgba(38,162,105,0.12)")
        self.removed = make(None, paragraph_background="rgba(224,27,36,0.10)")
        self.blank = make(None, paragraph_background="rgba(128,128,128,0.06)")
        self.header = make(
            None,
            paragraph_background="rgba(128,128,128,0.12)",
            pixels_above_lines=2,
            pixels_below_lines=2,
        )
        self.note = make(None, style=Pango.Style.ITALIC)
        self.added_words = make(None, background="rgba(38,162,105,0.25)")
        self.removed_words = make(None, background="rgba(224,27,36,0.18)")
        # They change nothing. GTK 4.8 takes a line without a tag's beginning or end for one of the
        # look of the line that it has laid out before, wherever that is.
        self.stripes = (make(None), make(None))
        # Of line numbers, and the signs beside them.
        self.margin = ""
        self.repaint()

    def repaint(self) -> None:
        style = Adw.StyleManager.get_default()
        self.margin = quiet_colour(dark=style.get_dark(), high_contrast=style.get_high_contrast())
        self.note.props.foreground = self.margin
        set_scheme(self._buffer)


def set_scheme(buffer: GtkSource.Buffer) -> None:
    name = "Adwaita-dark" if Adw.StyleManager.get_default().get_dark() else "Adwaita"
    scheme = GtkSource.StyleSchemeManager.get_default().get_scheme(name)
    if scheme is not None:
        buffer.set_style_scheme(scheme)


def quiet_colour(*, dark: bool, high_contrast: bool) -> str:
    """Return the colour of line numbers and notes: with high contrast, that of the text."""
    if high_contrast:
        return "#f6f5f4" if dark else "#241f31"
    return "#b0afac" if dark else "#5e5c64"
