# SPDX-License-Identifier: GPL-3.0-or-later
"""Handles what the user does in the sidebar, and what it shows."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING

from gi.repository import Adw, GLib, Gtk

from ...i18n import _
from ...text.visible import visible_line
from ..sessions.dialogs import may_delete, may_remove
from ..sessions.sessions import Sessions
from ..widgets.actions import add_action
from ..widgets.dialogs import ask_for_name, choose_folder
from ..widgets.keyboard import add_shortcut
from ..widgets.tasks import LatestOnly, Tasks, as_task
from ..widgets.toasts import dismiss_when_shown
from ..widgets.weak import weakly
from .sidebar import Sidebar

if TYPE_CHECKING:
    from ...chat.storage.history import FoundLine
    from ..sessions.open_session import OpenSession

# Seconds that a toast with "Undo" is shown.
_TIME_TO_UNDO = 10

Undo = Callable[[], Coroutine[object, object, None]]


class SidebarController:
    """Opens, renames, deletes and removes. `show` shows a session in the window, or none; `go_to`
    scrolls to a line of it that a search has found."""

    def __init__(
        self,
        window: Gtk.ApplicationWindow,
        sidebar: Sidebar,
        sessions: Sessions,
        toasts: Adw.ToastOverlay,
        tasks: Tasks,
        show: Callable[[OpenSession | None], None],
        go_to: Callable[[FoundLine], object],
    ) -> None:
        self._window = window
        self._sidebar = sidebar
        self._sessions = sessions
        self._toasts = toasts
        self._tasks = tasks
        self._show = show
        self._go_to = go_to
        self._shown: OpenSession | None = None
        # What to show as soon as it is open: a session, or a new one.
        self._requested = ""
        self._newest = LatestOnly()
        # What can be undone, as long as its toast is shown.
        self._removals: dict[Adw.Toast, Undo] = {}
        add_shortcut(window, "<Control>z", self._on_undo_key)
        sidebar.search.connect("search-changed", weakly(self.refresh))
        add_action(sidebar.actions, "open-session", self._on_open_session, "s")
        add_action(sidebar.actions, "rename-session", self._on_rename_session, "s")
        add_action(sidebar.actions, "delete-session", self._on_delete_session, "s")
        add_action(sidebar.actions, "new-session", self._on_new_session, "ay")
        add_action(sidebar.actions, "remove-project", self._on_remove_project, "ay")
        add_action(sidebar.actions, "locate-project", self._on_locate_project, "ay")

    @property
    def has_request(self) -> bool:
        return bool(self._requested)

    def note_shown(self, session: OpenSession | None) -> None:
        self._shown = session
        if session is not None:
            self._requested = session.id
        self._select()

    @as_task
    async def refresh(self, *_args: object) -> None:
        read = self._sessions.lister(self._sidebar.searched)
        self._sidebar.show(await self._newest.run(read))
        self._select()

    async def open_session(self, session_id: str) -> None:
        await self._show_when_open(session_id, self._sessions.open(session_id))

    async def new_session(self, project: str | None) -> None:
        try:
            await self._show_when_open(f"new in {project}", self._sessions.new(project))
        finally:
            # The folder may be gone, which the sidebar then shows.
            await asyncio.wait({self.refresh()})

    async def _show_when_open(
        self, request: str, opening: Coroutine[object, object, OpenSession]
    ) -> None:
        """Show a session as soon as it is loaded. Only the last request counts."""
        self._requested = request
        session = await opening
        if self._requested == request:
            self._show(session)

    def _select(self) -> None:
        self._sidebar.select(self._shown.id if self._shown else "")

    async def open_project(self) -> None:
        path = await choose_folder(self._window, _("Open a Project"))
        if path is not None:
            await self.new_session(path)

    @as_task
    async def _on_open_session(self, session_id: str) -> None:
        found = self._sidebar.found_in(session_id)
        await self.open_session(session_id)
        if found is not None and self._shown is not None and self._shown.id == session_id:
            self._go_to(found)

    def _on_new_session(self, project: str) -> None:
        self._tasks.start(self.new_session(project))

    def remove_shown(self, *_args: object) -> None:
        if self._shown is not None and self._shown.project is not None:
            self._on_remove_project(self._shown.project)

    def locate_shown(self, *_args: object) -> None:
        if self._shown is not None and self._shown.project is not None:
            self._on_locate_project(self._shown.project)

    @as_task
    async def _on_locate_project(self, path: str) -> None:
        title = _("Where Is {} Now?").format(visible_line(os.path.basename(path)))
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
            # Whether or not it was moved.
            if shown is not None and has_talk:
                await self.open_session(shown.id)
        if not has_talk:
            await self.new_session(moved)

    @as_task
    async def _on_remove_project(self, path: str) -> None:
        name = visible_line(os.path.basename(path) or path)
        if not await may_remove(self._window, self._sessions, path, name):
            return
        if self._shown is not None and self._shown.project == path:
            self._show(None)
        await self._sessions.remove_project(path)
        self._offer_undo(
            _("Removed {} from the list").format(name),
            partial(self._sessions.list_project, path, is_listed=True),
        )

    @as_task
    async def _on_rename_session(self, session_id: str) -> None:
        before = await self._sessions.title(session_id)
        heading, label, action = _("Rename Session"), _("Session name"), _("_Rename")
        title = await ask_for_name(self._window, heading, "", label, action, name=before)
        if title:
            await self._sessions.rename(session_id, title)

    @as_task
    async def _on_delete_session(self, session_id: str) -> None:
        if not await may_delete(self._window, self._sessions, session_id):
            return
        if self._shown is not None and self._shown.id == session_id:
            self._show(None)
        if self._requested == session_id:
            self._requested = ""
        await self._sessions.delete(session_id)
        self._offer_undo(_("Session deleted"), partial(self._undelete, session_id))

    async def _undelete(self, session_id: str) -> None:
        await self._sessions.undelete(session_id)
        await self.open_session(session_id)

    # --- what can be taken back ------------------------------------------------------------------

    def _offer_undo(self, words: str, undo: Undo) -> None:
        # Also by a shortcut: reaching the button with Tab takes longer than it is shown.
        toast = Adw.Toast(
            title=GLib.markup_escape_text(words),
            button_label=_("_Undo"),
            timeout=_TIME_TO_UNDO,
        )
        toast.connect("button-clicked", weakly(self._undo_removal))
        toast.connect("dismissed", weakly(self._on_dismissed))
        self._removals[toast] = undo
        self._toasts.add_toast(toast)

    def _on_dismissed(self, toast: Adw.Toast) -> None:
        self._removals.pop(toast, None)

    def _on_undo_key(self) -> bool:
        """Undo the last removal. In a text field, the shortcut belongs to the text."""
        focus = self._window.get_focus()
        is_text = isinstance(focus, Gtk.Editable | Gtk.TextView) and focus.get_editable()
        if is_text or not self._removals:
            return False
        toast = next(reversed(self._removals))
        self._undo_removal(toast)
        dismiss_when_shown(self._toasts, toast)
        return True

    def _undo_removal(self, toast: Adw.Toast) -> None:
        # Not twice: the button can be pressed while the toast disappears.
        if (undo := self._removals.pop(toast, None)) is not None:
            self._tasks.start(undo())
