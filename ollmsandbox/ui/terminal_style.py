# SPDX-License-Identifier: GPL-3.0-or-later
"""Colours and weights of text in a terminal, and the sequences that choose them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

# A number of the usual 256 colours, or red, green and blue.
Colour = int | tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Style:
    foreground: Colour | None = None
    background: Colour | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    strike: bool = False
    reverse: bool = False


class Run(NamedTuple):
    """Text of one style."""

    text: str
    style: Style


PLAIN = Style()
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
def restyled(style: Style, parameters: str) -> Style:
    """After `ESC [ parameters m`. What is not understood changes nothing."""
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
    """`1;38:5:9` is 1, and 38 with its details."""
    for part in parameters.split(";"):
        first, *details = (_number(field) for field in part.split(":"))
        yield first, tuple(details)


def _rest_of_colour(codes: Iterator[tuple[int, tuple[int, ...]]]) -> Iterator[int]:
    """The older spelling, `38;2;R;G;B`, has no sign of where it ends."""
    way = next(codes, (0, ()))[0]
    yield way
    for _ in range({5: 1, 2: 3}.get(way, 0)):
        yield next(codes, (0, ()))[0]


def _long_colour(details: tuple[int, ...]) -> Colour | None:
    if details[:1] == (5,) and len(details) >= 2:
        return min(details[1], 255)
    if details[:1] == (2,) and len(details) >= 4:
        # With colons there may be the number of a colour space before the three.
        red, green, blue = (min(value, 255) for value in details[-3:])
        return red, green, blue
    return None


def _number(field: str) -> int:
    return int(field) if field.isdecimal() and field.isascii() and len(field) < 6 else 0
