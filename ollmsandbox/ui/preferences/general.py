# SPDX-License-Identifier: GPL-3.0-or-later
"""The preferences page about the chat and how changes are shown."""

from __future__ import annotations

from gi.repository import Adw

from ...i18n import _
from ..settings import Settings
from . import rows


class GeneralPage(Adw.PreferencesPage):
    def __init__(self, settings: Settings) -> None:
        super().__init__(title=_("General"), icon_name="preferences-system-symbolic")
        chat = Adw.PreferencesGroup(title=_("Chat"))
        rows.add_switches(
            chat,
            settings,
            (
                "send-with-enter",
                _("Send With Enter"),
                _("When off, Ctrl+Enter sends and Enter starts a new line"),
            ),
            (
                "name-sessions",
                _("Let the Model Name Sessions"),
                _("With a short request after the first answer"),
            ),
            (
                "notifications",
                _("Notifications"),
                _("When the agent asks or is done, and the window is in the background"),
            ),
        )
        self.add(chat)
        changes = Adw.PreferencesGroup(title=_("Changes"))
        title = _("Show Changes Side by Side")
        subtitle = _("Even when they share the window with the chat")
        changes.add(rows.switch(settings, "side-by-side", title, subtitle))
        self.add(changes)
