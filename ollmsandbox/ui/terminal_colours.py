# SPDX-License-Identifier: GPL-3.0-or-later
"""A terminal's colours on a light or a dark ground, always so that they can be read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from .terminal_style import Colour, Style

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
    # As the guidelines for web pages count it; 7 for those who asked for high contrast.
    contrast: float = 4.5


LIGHT = Theme((0x2E, 0x2E, 0x2E), (0xFF, 0xFF, 0xFF))
DARK = Theme((0xEE, 0xEE, 0xEE), (0x1E, 0x1E, 0x1E))


def theme(*, dark: bool, high_contrast: bool) -> Theme:
    chosen = DARK if dark else LIGHT
    return Theme(chosen.text, chosen.ground, 7.0) if high_contrast else chosen


@lru_cache(maxsize=4096)
def colours(style: Style, theme: Theme) -> tuple[Rgb | None, Rgb | None]:
    """Text and ground; None where they are the theme's own."""
    text = theme.text if style.foreground is None else rgb(style.foreground)
    ground = theme.ground if style.background is None else rgb(style.background)
    if style.reverse:
        text, ground = ground, text
    if style.dim:
        text = _mix(text, ground, 0.35)
    shown_text = None if text == theme.text else readable(text, ground, theme.contrast)
    if ground == theme.ground:
        return shown_text, None
    return readable(text, ground, theme.contrast), ground


def rgb(colour: Colour) -> Rgb:
    if isinstance(colour, tuple):
        # In steps: the number of different ones in a view has a bound.
        red, green, blue = (min(255, (value + 25) // 51 * 51) for value in colour)
        return red, green, blue
    if colour < 16:
        return _SIXTEEN[colour]
    if colour < 232:
        rest = colour - 16
        return _STEPS[rest // 36], _STEPS[rest // 6 % 6], _STEPS[rest % 6]
    grey = 8 + 10 * (colour - 232)
    return grey, grey, grey


def readable(text: Rgb, ground: Rgb, least: float) -> Rgb:
    """The same hue, as much darker or lighter as needed."""
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
