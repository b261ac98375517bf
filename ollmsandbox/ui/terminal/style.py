# SPDX-License-Identifier: GPL-3.0-or-later
"""Colours and weights of terminal text: the sequences that choose them, colours that are readable
on a light or a dark background, and the tags that show them in a text buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from gi.repository import Gdk, Gtk, Pango

# An index into the 256 colours, or red, green and blue.
Colour = int | tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class TextStyle:
    foreground: Colour | None = None
    background: Colour | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    strike: bool = False
    reverse: bool = False


class StyledText(NamedTuple):
    """Text of one style."""

    text: str
    style: TextStyle


PLAIN = TextStyle()
_SWITCHES: dict[int, dict[str, bool]] = {
    1: {"bold": True},
    2: {"dim": True},
    3: {"italic": True},
    4: {"underline": True},
    7: {"reverse": True},
    9: {"strike": True},
    21: {"underline": True},
    22: {"bold": False, "dim": False},
    23: {"italic": False},
    24: {"underline": False},
    27: {"reverse": False},
    29: {"strike": False},
}


@lru_cache(maxsize=1024)
def restyled(style: TextStyle, parameters: str) -> TextStyle:
    """Return the style after `ESC [ parameters m`. Ignore unknown codes."""
    codes = _codes(parameters)
    for code, details in codes:
        if code == 0:
            style = PLAIN
        elif code == 4 and details[:1] == (0,):
            style = replace(style, underline=False)
        elif code in _SWITCHES:
            style = replace(style, **_SWITCHES[code])
        elif code in (38, 48):
            colour = _long_colour(details or tuple(_rest_of_colour(codes)))
            if colour is not None and code == 38:
                style = replace(style, foreground=colour)
            elif colour is not None:
                style = replace(style, background=colour)
        elif code == 39:
            style = replace(style, foreground=None)
        elif code == 49:
            style = replace(style, background=None)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            style = replace(style, foreground=code - 30 if code < 40 else code - 82)
        elif 40 <= code <= 47 or 100 <= code <= 107:
            style = replace(style, background=code - 40 if code < 50 else code - 92)
    return style


def _codes(parameters: str) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Split `1;38:5:9` into 1, and 38 with its details."""
    for part in parameters.split(";"):
        first, *details = (_number(field) for field in part.split(":"))
        yield first, tuple(details)


def _rest_of_colour(codes: Iterator[tuple[int, tuple[int, ...]]]) -> Iterator[int]:
    """Read the older spelling, `38;2;R;G;B`, which does not mark where it ends."""
    way = next(codes, (0, ()))[0]
    yield way
    for _ in range({5: 1, 2: 3}.get(way, 0)):
        yield next(codes, (0, ()))[0]


def _long_colour(details: tuple[int, ...]) -> Colour | None:
    if details[:1] == (5,) and len(details) >= 2:
        return min(details[1], 255)
    if details[:1] == (2,) and len(details) >= 4:
        # With colons, the three may follow the number of a colour space.
        red, green, blue = (min(value, 255) for value in details[-3:])
        return red, green, blue
    return None


def _number(field: str) -> int:
    return int(field) if field.isdecimal() and field.isascii() and len(field) < 6 else 0


Rgb = tuple[int, int, int]

_SIXTEEN: tuple[Rgb, ...] = (
    (0x24, 0x1F, 0x31),
    (0xC0, 0x1C, 0x28),
    (0x2E, 0xC2, 0x7E),
    (0xE5, 0xA5, 0x0A),
    (0x35, 0x84, 0xE4),
    (0x91, 0x41, 0xAC),
    (0x2A, 0xA1, 0xB3),
    (0xC0, 0xBF, 0xBC),
    (0x77, 0x76, 0x7B),
    (0xED, 0x33, 0x3B),
    (0x57, 0xE3, 0x89),
    (0xF8, 0xE4, 0x5C),
    (0x62, 0xA0, 0xEA),
    (0xC0, 0x61, 0xCB),
    (0x5B, 0xC8, 0xD7),
    (0xF6, 0xF5, 0xF4),
)
_STEPS = (0, 95, 135, 175, 215, 255)


@dataclass(frozen=True)
class Theme:
    text: Rgb
    ground: Rgb
    # The contrast ratio of the WCAG; 7 for high contrast.
    contrast: float = 4.5


LIGHT = Theme((0x2E, 0x2E, 0x2E), (0xFF, 0xFF, 0xFF))
DARK = Theme((0xEE, 0xEE, 0xEE), (0x1E, 0x1E, 0x1E))


def theme(*, dark: bool, high_contrast: bool) -> Theme:
    chosen = DARK if dark else LIGHT
    return Theme(chosen.text, chosen.ground, 7.0) if high_contrast else chosen


@lru_cache(maxsize=4096)
def colours(style: TextStyle, theme: Theme) -> tuple[Rgb | None, Rgb | None]:
    """Return the text and background colours; None stands for the theme's own."""
    text = theme.text if style.foreground is None else rgb(style.foreground)
    ground = theme.ground if style.background is None else rgb(style.background)
    if style.reverse:
        text, ground = ground, text
    if style.dim:
        text = _mix(text, ground, 0.35)
    shown_text = None if text == theme.text else readable_colour(text, ground, theme.contrast)
    if ground == theme.ground:
        return shown_text, None
    return readable_colour(text, ground, theme.contrast), ground


def rgb(colour: Colour) -> Rgb:
    if isinstance(colour, tuple):
        # In steps, to bound the number of different colours in a view.
        red, green, blue = (min(255, (value + 25) // 51 * 51) for value in colour)
        return red, green, blue
    if colour < 16:
        return _SIXTEEN[colour]
    if colour < 232:
        rest = colour - 16
        return _STEPS[rest // 36], _STEPS[rest // 6 % 6], _STEPS[rest % 6]
    grey = 8 + 10 * (colour - 232)
    return grey, grey, grey


def readable_colour(text: Rgb, ground: Rgb, least: float) -> Rgb:
    """Return a colour of the same hue, as dark or light as the contrast needs."""
    black, white = (0, 0, 0), (255, 255, 255)
    goal = white if contrast(white, ground) > contrast(black, ground) else black
    for step in range(11):
        mixed = _mix(text, goal, step / 10)
        if contrast(mixed, ground) >= least:
            return mixed
    return goal


def contrast(one: Rgb, other: Rgb) -> float:
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Rgb) -> float:
    red, green, blue = (
        value / 3294.6 if value <= 10 else ((value / 255 + 0.055) / 1.055) ** 2.4
        for value in colour
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _mix(one: Rgb, other: Rgb, share: float) -> Rgb:
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(one, other, strict=True))
    return red, green, blue


# A rainbow has many colours, and a view with too many tags becomes slow.
_MOST_COLOURS = 400


class Tags:
    def __init__(self, buffer: Gtk.TextBuffer) -> None:
        self._buffer = buffer
        self._theme = LIGHT
        self._coloured: dict[TextStyle, Gtk.TextTag] = {}
        self._found: dict[TextStyle, tuple[Gtk.TextTag, ...]] = {}
        # A hyphen where a long line wraps would look like output.
        self.base = buffer.create_tag(None, insert_hyphens=False)
        self._bold = buffer.create_tag(None, weight=Pango.Weight.BOLD)
        self._italic = buffer.create_tag(None, style=Pango.Style.ITALIC)
        self._underline = buffer.create_tag(None, underline=Pango.Underline.SINGLE)
        self._strike = buffer.create_tag(None, strikethrough=True)

    def of(self, style: TextStyle) -> tuple[Gtk.TextTag, ...]:
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

    def _make(self, style: TextStyle) -> tuple[Gtk.TextTag, ...]:
        tags = []
        colour = TextStyle(style.foreground, style.background, dim=style.dim, reverse=style.reverse)
        if colour != TextStyle():
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

    def _paint(self, tag: Gtk.TextTag, style: TextStyle) -> None:
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
