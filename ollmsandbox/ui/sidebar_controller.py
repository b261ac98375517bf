# SPDX-License-Identifier: GPL-3.0-or-later
"""What the person does in the side pane, and what it shows."""

from __future__ import annotations

from collections.abc import Callable
from gettext import gettext as _

from gi.repository import Adw, Gtk

from .dialogs import choose_folder
from .open_session import OpenSession
from .session_dialogs import ask_for_title
from .sessions import Sessions
from .sidebar import Sidebar
from .tasks import Tasks
from .weakly import weakly


class SidebarController:
    """`show` brings a session into the window, or none."""

    def __init__(
        self,
        window: Gtk.Window,
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
        wishes: tuple[tuple[str, Callable[..., object]], ...] = (
            ("open-session", self._on_open_session),
            ("new-session", self._on_new_session),
            ("add-project", self._on_add_project),
            ("remove-project", self._on_remove_project),
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
            toast = Adw.Toast(title=_("The session was deleted."), button_label=_("_Undo"))
            toast.connect("button-clicked", lambda _toast: self._tasks.start(undelete()))
            self._toasts.add_toast(toast)

        async def undelete() -> None:
            await self._sessions.undelete(session_id)
            await self.open_session(session_id)

        self._tasks.start(delete())
