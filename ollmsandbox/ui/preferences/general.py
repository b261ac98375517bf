# SPDX-License-Identifier: GPL-3.0-or-later
"""Preferences: writing and being told."""

from __future__ import annotations

from gi.repository import Adw

from ...i18n import _
from . import rows
from .settings import Settings


class GeneralPage(Adw.PreferencesPage):
    __gtype_name__ = "OllmGeneralPage"

    def __init__(self, settings: Settings) -> None:
        super().__init__(title=_("General"), icon_name="preferences-system-symbolic")
        chat = Adw.PreferencesGroup(title=_("Chat"))
        chat.add(
            rows.switch(
                settings,
                "send-with-enter",
                _("Send With Enter"),
                _("If not, Ctrl+Enter sends and Enter begins a new line."),
            )
        )
        chat.add(
            rows.switch(
                settings,
                "notifications",
                _("Announce Questions"),
                _("The desktop tells of a question while you look elsewhere."),
            )
        )
        self.add(chat)
        changes = Adw.PreferencesGroup(title=_("Changes"))
        changes.add(
            rows.switch(
                settings,
                "side-by-side",
                _("Side by Side"),
                _("Old and new text beside each other, where there is room."),
            )
        )
        self.add(changes)
