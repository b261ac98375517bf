# SPDX-License-Identifier: GPL-3.0-or-later
"""The preferences window."""

from __future__ import annotations

from gi.repository import Adw, Gdk, Gtk

from ...chat.sessions import SessionFactory
from ...i18n import _
from ..settings import Settings
from ..widgets.weak import weakly
from . import rows
from .connections import ConnectionsPage
from .safety import SafetyPage
from .storage import StoragePage
from .system import SystemPage


class GeneralPage(Adw.PreferencesPage):
    """The page about the chat and how changes are shown."""

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
        subtitle = _("Even when they share the window with the chat")
        switch = ("side-by-side", _("Show Changes Side by Side"), subtitle)
        rows.add_switches(changes, settings, switch)
        self.add(changes)


class Preferences(rows.SettingsWindow):
    def __init__(self, parent: Gtk.Window, factory: SessionFactory, settings: Settings) -> None:
        super().__init__(parent)
        # Wide enough for the names of all pages.
        self.set_default_size(700, 640)
        self.set_title(_("Preferences"))
        tasks = self._tasks
        self.general = GeneralPage(settings)
        self.connections = ConnectionsPage(factory.connections, tasks)
        self.safety = SafetyPage(factory, settings, tasks)
        self.system = SystemPage(factory.paths, factory.environ, tasks)
        self.storage = StoragePage(factory.manager, tasks)
        for page in (self.general, self.connections, self.safety, self.system, self.storage):
            self.add(page)
        self.connect("close-request", weakly(self._on_close))

    @property
    def is_idle(self) -> bool:
        return self._tasks.is_idle

    def show_connections(self) -> None:
        self.set_visible_page(self.connections)

    def connect_model(self) -> None:
        """Show the connections, and the dialog for a new one above them."""
        self.show_connections()
        self.connections.add_connection()

    def _on_close(self, _window: Gtk.Window) -> bool:
        """Take over a number that was typed without Enter."""
        focus = self.get_focus()
        spin = focus.get_ancestor(Gtk.SpinButton) if focus is not None else None
        if isinstance(spin, Gtk.SpinButton):
            spin.update()
        return Gdk.EVENT_PROPAGATE
