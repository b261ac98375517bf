# SPDX-License-Identifier: GPL-3.0-or-later
"""The preferences window."""

from __future__ import annotations

from gi.repository import Adw, Gdk, Gtk

from ...chat.sessions import SessionFactory
from ...i18n import _
from ..settings import Settings
from ..widgets.focus import FocusKeeper
from ..widgets.signals import signals
from ..widgets.tasks import Tasks
from ..widgets.toasts import Toasts
from ..widgets.weak import weakly
from .connections import ConnectionsPage
from .folders import FoldersGroup
from .general import GeneralPage
from .safety import SafetyPage
from .storage import StoragePage
from .system import SystemPage


class Preferences(Adw.PreferencesWindow):
    __gtype_name__ = "OllmPreferences"

    __gsignals__ = signals(
        {
            "connections-changed": (),
            "connection-renamed": (str, str),
            "folders-changed": (),
        }
    )

    def __init__(self, parent: Gtk.Window, factory: SessionFactory, settings: Settings) -> None:
        super().__init__(transient_for=parent, modal=True, search_enabled=False)
        # Wide enough for the names of all pages.
        self.set_default_size(700, 640)
        self.set_title(_("Preferences"))
        self._toasts = Toasts(weakly(self._add_toast))
        tasks = self._tasks = Tasks(weakly(self.tell))
        self.general = GeneralPage(settings)
        self.connections = ConnectionsPage(factory.connections, tasks)
        self.connections.connect("changed", weakly(self._on_connections))
        self.connections.connect("renamed", weakly(self._on_renamed))
        self.safety = SafetyPage(factory.paths, factory.rules, factory.manager, settings, tasks)
        self.safety.folders.connect("changed", weakly(self._on_folders))
        self.system = SystemPage(factory.paths, factory.environ, tasks)
        self.storage = StoragePage(factory.paths, factory.manager, tasks)
        for page in (self.general, self.connections, self.safety, self.system, self.storage):
            self.add(page)
        self.set_destroy_with_parent(True)
        self.connect("close-request", weakly(self._on_close))
        self.connect("unmap", weakly(self._on_closed))
        self._focus_keeper = FocusKeeper(self)

    @property
    def is_idle(self) -> bool:
        return self._tasks.is_idle

    def tell(self, text: str) -> None:
        self._toasts.tell(text)

    def _add_toast(self, toast: Adw.Toast) -> None:
        self.add_toast(toast)

    def show_connections(self) -> None:
        self.set_visible_page(self.connections)

    def connect_model(self) -> None:
        """Show the connections, and the dialog for a new one above them."""
        self.show_connections()
        self.connections.add_connection()

    def _on_connections(self, _page: ConnectionsPage) -> None:
        self.emit("connections-changed")

    def _on_renamed(self, _page: ConnectionsPage, before: str, now: str) -> None:
        self.emit("connection-renamed", before, now)

    def _on_folders(self, _group: FoldersGroup) -> None:
        self.emit("folders-changed")

    def _on_close(self, _window: Gtk.Window) -> bool:
        """Take over a number that was typed without Enter."""
        focus = self.get_focus()
        spin = focus.get_ancestor(Gtk.SpinButton) if focus is not None else None
        if isinstance(spin, Gtk.SpinButton):
            spin.update()
        return Gdk.EVENT_PROPAGATE

    def _on_closed(self, _window: Gtk.Widget) -> None:
        self._tasks.cancel()
