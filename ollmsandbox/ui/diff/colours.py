# SPDX-License-Identifier: GPL-3.0-or-later
"""Background colours of added and removed lines, pale enough to read every syntax colour on
them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gi.repository import Adw, GtkSource, Pango

from ..terminal.style import Rgb, rgba


@dataclass(frozen=True)
class DiffColours:
    added: Rgb
    removed: Rgb
    added_words: Rgb
    removed_words: Rgb
    header: Rgb
    blank: Rgb
    note: Rgb
    # Line numbers, and the signs beside them.
    margin: Rgb
    scheme: str


_LIGHT = DiffColours(
    (0xE6, 0xF8, 0xEB),
    (0xFD, 0xEC, 0xEC),
    (0xB5, 0xEB, 0xC4),
    (0xF9, 0xC9, 0xC9),
    (0xF0, 0xF0, 0xF2),
    (0xF7, 0xF7, 0xF8),
    (0x5E, 0x5C, 0x64),
    (0x6C, 0x6B, 0x70),
    "Adwaita",
)
_DARK = DiffColours(
    (0x1B, 0x33, 0x24),
    (0x3D, 0x22, 0x25),
    (0x1F, 0x56, 0x35),
    (0x6E, 0x2B, 0x31),
    (0x2E, 0x2E, 0x32),
    (0x25, 0x25, 0x27),
    (0xB0, 0xAF, 0xAC),
    (0x9A, 0x99, 0x96),
    "Adwaita-dark",
)
# High contrast: numbers and notes are as dark as the text.
_LIGHT_HIGH = replace(_LIGHT, note=(0x24, 0x1F, 0x31), margin=(0x24, 0x1F, 0x31))
_DARK_HIGH = replace(_DARK, note=(0xF6, 0xF5, 0xF4), margin=(0xF6, 0xF5, 0xF4))


class DiffTags:
    def __init__(self, buffer: GtkSource.Buffer) -> None:
        self._buffer = buffer
        make = buffer.create_tag
        self.added = make(None)
        self.removed = make(None)
        self.blank = make(None)
        self.header = make(None, pixels_above_lines=2, pixels_below_lines=2)
        self.note = make(None, style=Pango.Style.ITALIC)
        self.added_words = make(None)
        self.removed_words = make(None)
        # They change nothing. GTK 4.8 takes a line without a tag's beginning or end for one of the
        # look of the line that it has laid out before, wherever that is.
        self.stripes = (make(None), make(None))
        self.margin = ""
        self.repaint()

    def repaint(self) -> None:
        grounds = _grounds()
        for tag, colour in (
            (self.added, grounds.added),
            (self.removed, grounds.removed),
            (self.blank, grounds.blank),
            (self.header, grounds.header),
        ):
            tag.props.paragraph_background_rgba = rgba(colour)
        self.added_words.props.background_rgba = rgba(grounds.added_words)
        self.removed_words.props.background_rgba = rgba(grounds.removed_words)
        self.note.props.foreground_rgba = rgba(grounds.note)
        self.margin = "#{:02x}{:02x}{:02x}".format(*grounds.margin)
        set_scheme(self._buffer)


def set_scheme(buffer: GtkSource.Buffer) -> None:
    scheme = GtkSource.StyleSchemeManager.get_default().get_scheme(_grounds().scheme)
    if scheme is not None:
        buffer.set_style_scheme(scheme)


def diff_colours(*, dark: bool, high_contrast: bool) -> DiffColours:
    if high_contrast:
        return _DARK_HIGH if dark else _LIGHT_HIGH
    return _DARK if dark else _LIGHT


def _grounds() -> DiffColours:
    style = Adw.StyleManager.get_default()
    return diff_colours(dark=style.get_dark(), high_contrast=style.get_high_contrast())
