# SPDX-License-Identifier: GPL-3.0-or-later
"""The tags of a text buffer that show a terminal's styles, in the colours of the current theme."""

from __future__ import annotations

from gi.repository import Gdk, Gtk, Pango

from .terminal_colours import LIGHT, Rgb, Theme, colours
from .terminal_style import Style

# A rainbow has many colours; a view with too many tags becomes slow.
_MOST_COLOURS = 400


class Tags:
    def __init__(self, buffer: Gtk.TextBuffer) -> None:
        self._buffer = buffer
        self._theme = LIGHT
        self._coloured: dict[Style, Gtk.TextTag] = {}
        self._found: dict[Style, tuple[Gtk.TextTag, ...]] = {}
        # A hyphen where a long line is broken would look like one of the output.
        self.base = buffer.create_tag(None, insert_hyphens=False)
        self._bold = buffer.create_tag(None, weight=Pango.Weight.BOLD)
        self._italic = buffer.create_tag(None, style=Pango.Style.ITALIC)
        self._underline = buffer.create_tag(None, underline=Pango.Underline.SINGLE)
        self._strike = buffer.create_tag(None, strikethrough=True)

    def of(self, style: Style) -> tuple[Gtk.TextTag, ...]:
        found = self._found.get(style)
        if found is None:
            found = self._make(style)
            if len(self._found) < 10 * _MOST_COLOURS:
                self._found[style] = found
        return found

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        for style, tag in self._coloured.items():
            self._paint(tag, style)

    def _make(self, style: Style) -> tuple[Gtk.TextTag, ...]:
        tags = []
        colour = Style(style.foreground, style.background, dim=style.dim, reverse=style.reverse)
        if colour != Style():
            tag = self._coloured.get(colour)
            if tag is None and len(self._coloured) < _MOST_COLOURS:
                tag = self._coloured[colour] = self._buffer.create_tag(None)
                self._paint(tag, colour)
            if tag is not None:
                tags.append(tag)
        for wanted, tag in (
            (style.bold, self._bold),
            (style.italic, self._italic),
            (style.underline, self._underline),
            (style.strike, self._strike),
        ):
            if wanted:
                tags.append(tag)
        return tuple(tags)

    def _paint(self, tag: Gtk.TextTag, style: Style) -> None:
        text, ground = colours(style, self._theme)
        if text is not None:
            tag.props.foreground_rgba = rgba(text)
        if ground is not None:
            tag.props.background_rgba = rgba(ground)


def rgba(colour: Rgb) -> Gdk.RGBA:
    red, green, blue = (value / 255 for value in colour)
    result = Gdk.RGBA()
    result.red, result.green, result.blue, result.alpha = red, green, blue, 1.0
    return result
