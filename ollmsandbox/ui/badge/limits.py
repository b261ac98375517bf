# SPDX-License-Identifier: GPL-3.0-or-later
"""The limits that users set in place of the profile's, and limits as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gi.repository import GLib

from ...i18n import _, ngettext
from ...sandbox.profile.profile import Limits
from ..preferences.settings import Settings

_MIB = 1 << 20
_MOST_MIB = 999_999
_DAY = 86400


@dataclass(frozen=True)
class LimitSetting:
    """A setting that replaces a profile's limit `name`, in units of `unit`.

    0 means the profile's limit. With less than `least`, no command would work.
    """

    key: str
    name: str
    unit: int
    least: int
    most: int
    step: int

    def fitting(self, value: int) -> int:
        """Return the nearest allowed value: users may edit the file."""
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
    """Return the limits that the user has set; the others are None."""
    chosen = {setting.name: setting.chosen(settings) * setting.unit for setting in LIMITS}
    return Limits(**{name: value for name, value in chosen.items() if value})


def sentences(limits: Limits, *, is_sandboxed: bool = True) -> list[str]:
    found = (in_words(setting.name, limits, is_sandboxed=is_sandboxed) for setting in LIMITS)
    return [text for text in found if text]


def in_words(name: str, limits: Limits, *, is_sandboxed: bool = True) -> str:
    """Return a limit as text, or "" if it is not set.

    Without a sandbox, only what a command writes to the project is counted.
    """
    value: float | None = vars(limits)[name]
    if value is None:
        return ""
    if name == "time":
        return _duration(round(value))
    if name == "processes":
        return _("{} processes").format(value)
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
