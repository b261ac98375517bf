# SPDX-License-Identifier: GPL-3.0-or-later
"""Preferences: how much a command may use."""

from __future__ import annotations

from gettext import gettext as _

from gi.repository import Adw, GLib, Gtk

from ..sandbox.profile.profile import Limits
from . import preferences_rows as rows
from .command_limits import LIMITS, LimitSetting, in_words, own_limits
from .settings import Settings
from .weakly import weakly


class LimitsGroup(Adw.PreferencesGroup):
    __gtype_name__ = "OllmLimitsGroup"

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            title=_("Limits of a Command"),
            description=_("What a command may use. 0 stands for what the profile says."),
        )
        self._settings = settings
        self._of_profile: Limits | None = Limits()
        self._rows: list[tuple[LimitSetting, Adw.ActionRow]] = []
        titles = {
            "time": _("Time, in Seconds"),
            "memory": _("Memory, in MiB"),
            "processes": _("Processes at Once"),
            "disk": _("Written to Disk, in MiB"),
            "free": _("Left Free on the Disk, in MiB"),
            "tmp": _("Temporary Files, in MiB"),
        }
        for setting in LIMITS:
            row, spin = rows.spinning(titles[setting.name], 0, setting.most, setting.step)
            spin.set_numeric(True)
            spin.set_value(setting.chosen(settings))
            spin.connect("value-changed", weakly(self._on_value), setting)
            self._rows.append((setting, row))
            self.add(row)

    def show_profile(self, limits: Limits | None) -> None:
        """What counts where the person set nothing; None where nobody can tell."""
        self._of_profile = limits
        self._tell()

    def _on_value(self, spin: Gtk.SpinButton, setting: LimitSetting) -> None:
        value = spin.get_value_as_int()
        if (fitting := setting.fitting(value)) != value:
            spin.set_value(fitting)
            return
        self._settings.set(setting.key, value)
        self._tell()

    def _tell(self) -> None:
        own = own_limits(self._settings)
        for setting, row in self._rows:
            said = in_words(setting.name, own)
            if not said and self._of_profile is None:
                said = _("The profile cannot be read")
            elif not said:
                assert self._of_profile is not None
                of_profile = in_words(setting.name, self._of_profile)
                # Translators: {} is a limit, such as "10 minutes" or "2 GiB of memory".
                text = _("{}, as in the profile").format(of_profile)
                said = text if of_profile else _("No limit in the profile")
            elif setting.chosen(self._settings) == setting.least:
                # Translators: {} is a limit, such as "64 MiB of memory".
                said = _("{}, the least that can be set").format(said)
            row.set_subtitle(GLib.markup_escape_text(said))
