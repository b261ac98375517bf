# SPDX-License-Identifier: GPL-3.0-or-later
"""The limits of a command: those that the person set instead of the profile's, and all in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from gettext import gettext as _
from gettext import ngettext

from gi.repository import GLib

from ...sandbox.profile.profile import Limits
from ..preferences.settings import Settings

_MIB = 1 << 20
_MOST_MIB = 999_999
_DAY = 86400


@dataclass(frozen=True)
class LimitSetting:
    """A setting, and the limit of that name in a profile. It counts in `unit`; 0 stands for what
    the profile says. With less than `least` no command would get anywhere."""

    key: str
    name: str
    unit: int
    least: int
    most: int
    step: int

    def fitting(self, value: int) -> int:
        """What can be set, and is nearest. A file may be written by anybody."""
        return max(self.least, min(value, self.most)) if value > 0 else 0

    def chosen(self, settings: Settings) -> int:
        return self.fitting(settings.number(self.key))


LIMITS = (
    LimitSetting("time-limit", "time", 1, least=1, most=_DAY, step=10),
    LimitSetting("memory-limit", "memory", _MIB, least=64, most=_MOST_MIB, step=256),
    LimitSetting("process-limit", "processes", 1, least=16, most=_MOST_MIB, step=16),
    LimitSetting("disk-limit", "disk", _MIB, least=1, most=_MOST_MIB, step=256),
    LimitSetting("free-limit", "free", _MIB, least=1, most=_MOST_MIB, step=256),
    LimitSetting("temporary-limit", "tmp", _MIB, least=1, most=_MOST_MIB, step=256),
)


def own_limits(settings: Settings) -> Limits:
    """None where the profile's counts."""
    chosen = {setting.name: setting.chosen(settings) * setting.unit for setting in LIMITS}
    return Limits(**{name: value for name, value in chosen.items() if value})


def sentences(limits: Limits, *, is_held_in: bool = True) -> list[str]:
    found = (in_words(setting.name, limits, is_held_in=is_held_in) for setting in LIMITS)
    return [text for text in found if text]


def in_words(name: str, limits: Limits, *, is_held_in: bool = True) -> str:
    """Empty where there is no such limit. Without a sandbox, nobody sees what a command writes
    elsewhere than in the project."""
    value: float | None = vars(limits)[name]
    if value is None:
        return ""
    if name == "time":
        return _duration(round(value))
    if name == "processes":
        return _("{} processes at once").format(value)
    words: dict[str, Callable[[], str]] = {
        "memory": lambda: _("{} of memory"),
        "disk": lambda: _("{} written to disk") if is_held_in else _("{} written to the project"),
        "free": lambda: _("{} left free on the disk"),
        "tmp": lambda: _("{} in each folder for temporary files"),
    }
    # As they are set, and as a profile names them.
    size = GLib.format_size_full(round(value), GLib.FormatSizeFlags.IEC_UNITS)
    return words[name]().format(size)


def _duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    if rest or not minutes:
        return ngettext("{} second", "{} seconds", seconds).format(seconds)
    return ngettext("{} minute", "{} minutes", minutes).format(minutes)
