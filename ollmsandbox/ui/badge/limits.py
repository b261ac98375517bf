# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gi.repository import GLib

from ...i18n import _, ngettext
from ..settings import LIMITS
from ..widgets.readable import number

if TYPE_CHECKING:
    from ...sandbox.profile.profile import Limits


def sentences(limits: Limits, *, is_sandboxed: bool = True) -> list[str]:
    found = (in_words(setting.name, limits, is_sandboxed=is_sandboxed) for setting in LIMITS)
    return [text for text in found if text]


def in_words(name: str, limits: Limits, *, is_sandboxed: bool = True) -> str:
    """Return a limit as text, or "" if it is not set.

    Without a sandbox, only what a command writes to the project is counted.
    """
    value: float | None = getattr(limits, name)
    if value is None:
        return ""
    if name == "time":
        return _duration(round(value))
    if name == "processes":
        return _("{} processes").format(number(round(value)))
    templates: dict[str, Callable[[], str]] = {
        "memory": lambda: _("{} of memory"),
        "disk": lambda: _("{} written to disk") if is_sandboxed else _("{} written to the project"),
        "free": lambda: _("{} left free on the disk"),
        "tmp": lambda: _("{} in each folder for temporary files"),
    }
    # In the units in which users and profiles set them.
    size = GLib.format_size_full(round(value), GLib.FormatSizeFlags.IEC_UNITS)
    return templates[name]().format(size)


def _duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    if rest or not minutes:
        return ngettext("{} second", "{} seconds", seconds).format(seconds)
    return ngettext("{} minute", "{} minutes", minutes).format(minutes)
