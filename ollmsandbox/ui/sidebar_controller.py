# SPDX-License-Identifier: GPL-3.0-or-later
"""What the person does in the side pane, and what it shows."""

from __future__ import annotations

from collections.abc import Callable
from gettext import gettext as _

from gi.repository import Adw, Gio, GLib, Gtk

from .dialogs import choose_folder
from .open_session import OpenSession
from .session_dialogs import ask_for_title
from .sessions import Sessions
from .sidebar import Sidebar
from .tasks import Tasks
from .weakly import weakly

# Seconds.
_TIME_TO_UNDO = 10


class SidebarController:
    """`show` brings a session into the window, or none."""

    def __init__(
        self,
        window: Gtk.ApplicationWindow,
        sidebar: Sidebar,
        sessions: Sessions,
        toasts: Adw.ToastOverlay,
        tasks: Tasks,
        show: Callable[[OpenSession | None], None],
    ) -> None:
        self._window = window
        self._sidebar = sidebar
        self._sessions = sessions
        self._toasts = toasts
        self._tasks = tasks
        self._show = show
        self._shown: OpenSession | None = None
        self._is_refreshing = self._is_stale = False
        # The sessions that can be brought back, each as long as there is talk of it.
        self._deleted: dict[str, Adw.Toast] = {}
        self._undelete = Gio.SimpleAction.new("undo-delete", GLib.VariantType.new("s"))
        self._undelete.set_enabled(False)
        self._undelete.connect("activate", weakly(self._on_undelete))
        window.add_action(self._undelete)
        keys = Gtk.ShortcutController()
        on_undo_key = weakly(self._on_undo_key)
        undo = Gtk.CallbackAction.new(lambda *_args: bool(on_undo_key()))
        keys.add_shortcut(Gtk.Shortcut.new(Gtk.ShortcutTrigger.parse_string("<Control>z"), undo))
        window.add_controller(keys)
        wishes: tuple[tuple[str, Callable[..., object]], ...] = (
            ("open-session", self._on_open_session),
            ("new-session", self._on_new_session),
            ("add-project", self._on_add_project),
            ("remove-project", self._on_remove_project),
            ("locate-project", self._on_locate_project),
            ("rename-session", self._on_rename_session),
            ("delete-session", self._on_delete_session),
            ("search", self._on_search),
        )
        for name, method in wishes:
            sidebar.connect(name, weakly(method))

    def note_shown(self, session: OpenSession | None) -> None:
        self._shown = session
        self._sidebar.select(session.id if session else "")

    async def refresh(self) -> None:
        """Called again meanwhile, it looks once more."""
        self._is_stale = True
        if self._is_refreshing:
            return
        self._is_refreshing = True
        try:
            while self._is_stale:
                self._is_stale = False
                self._sidebar.show(await self._sessions.listing(self._sidebar.searched))
        finally:
            self._is_refreshing = False
        self.note_shown(self._shown)

    async def open_session(self, session_id: str) -> None:
        self._show(await self._sessions.open(session_id))

    async def new_session(self, project: str | None) -> None:
        try:
            self._show(await self._sessions.new(project))
        finally:
            # Its folder may be gone, which is then to be seen.
            await self.refresh()

    async def open_project(self) -> None:
        path = await choose_folder(self._window, _("Open a Project"))
        if path is not None:
            await self.new_session(path)

    def _on_open_session(self, _sidebar: Sidebar, session_id: str) -> None:
        self._tasks.start(self.open_session(session_id))

    def _on_new_session(self, _sidebar: Sidebar, project: str) -> None:
        self._tasks.start(self.new_session(project))

    def _on_add_project(self, _sidebar: Sidebar) -> None:
        self._tasks.start(self.open_project())

    def _on_search(self, _sidebar: Sidebar, _text: str) -> None:
        self._tasks.start(self.refresh())

    def remove_shown(self, *_args: object) -> None:
        """The project of the session that is shown."""
        if self._shown is not None and self._shown.project is not None:
            self._on_remove_project(self._sidebar, self._shown.project)

    def locate_shown(self, *_args: object) -> None:
        if self._shown is not None and self._shown.project is not None:
            self._on_locate_project(self._sidebar, self._shown.project)

    def _on_locate_project(self, _sidebar: Sidebar, path: str) -> None:
        async def locate() -> None:
            title = _("Where Is {} Now?").format(GLib.path_get_basename(path))
            folder = await choose_folder(self._window, title)
            if folder is None:
                return
            await self._sessions.check_move(path, folder)
            shown = self._shown if self._shown and self._shown.project == path else None
            has_talk = shown is not None and await self._sessions.title(shown.id)
            if shown is not None:
                self._show(None)
            try:
                moved = await self._sessions.move_project(path, folder)
            finally:
                # Moved or not.
                if shown is not None and has_talk:
                    await self.open_session(shown.id)
            if not has_talk:
                await self.new_session(moved)

        self._tasks.start(locate())

    def _on_remove_project(self, _sidebar: Sidebar, path: str) -> None:
        async def remove() -> None:
            if self._shown is not None and self._shown.project == path:
                self._show(None)
            await self._sessions.remove_project(path)

        self._tasks.start(remove())

    def _on_rename_session(self, _sidebar: Sidebar, session_id: str) -> None:
        async def rename() -> None:
            title = await ask_for_title(self._window, await self._sessions.title(session_id))
            if title:
                await self._sessions.rename(session_id, title)

        self._tasks.start(rename())

    def _on_delete_session(self, _sidebar: Sidebar, session_id: str) -> None:
        async def delete() -> None:
            if self._shown is not None and self._shown.id == session_id:
                self._show(None)
            await self._sessions.delete(session_id)
            # With a key as well: to go there with Tab would take longer than it is shown.
            toast = Adw.Toast(title=_("The session was deleted."), button_label=_("_Undo"))
            toast.set_action_name("win.undo-delete")
            toast.set_action_target_value(GLib.Variant.new_string(session_id))
            toast.set_timeout(_TIME_TO_UNDO)
            toast.connect("dismissed", weakly(self._on_dismissed), session_id)
            self._deleted[session_id] = toast
            self._undelete.set_enabled(True)
            self._toasts.add_toast(toast)

        self._tasks.start(delete())

    def _on_dismissed(self, _toast: Adw.Toast, session_id: str) -> None:
        self._deleted.pop(session_id, None)
        self._undelete.set_enabled(bool(self._deleted))

    def _on_undelete(self, _action: Gio.SimpleAction, target: GLib.Variant) -> None:
        self._bring_back(target.get_string())

    def _on_undo_key(self) -> bool:
        """The last one. In a text, the key is for what was typed."""
        focus = self._window.get_focus()
        is_text = isinstance(focus, Gtk.Editable | Gtk.TextView) and focus.get_editable()
        if is_text or not self._deleted:
            return False
        session_id, toast = list(self._deleted.items())[-1]
        self._bring_back(session_id)
        toast.dismiss()
        return True

    def _bring_back(self, session_id: str) -> None:
        async def undelete() -> None:
            await self._sessions.undelete(session_id)
            await self.open_session(session_id)

        # Not twice: its button can be pressed while it goes away.
        if self._deleted.pop(session_id, None) is not None:
            self._tasks.start(undelete())
