# SPDX-License-Identifier: GPL-3.0-or-later
"""Find and show pending permission questions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gi.repository import Gtk

from ...permission.request import PermissionRequest
from ...tools.base import UserQuestion
from ..chat.view import ChatView
from ..permission.asker import WindowAsker
from .panes import Panes


class QuestionFinder:
    def __init__(
        self,
        window: Gtk.Window,
        asker: WindowAsker,
        chat: ChatView,
        panes: Panes,
        open_session: Callable[[str], Awaitable[object]],
    ) -> None:
        self._window = window
        self._asker = asker
        self._chat = chat
        self._panes = panes
        self._open_session = open_session

    def is_shown(self, request: PermissionRequest | UserQuestion) -> bool:
        """Return whether the user sees the chat with the question."""
        session = self._chat.session
        return (
            session is not None
            and session.id == request.session_id
            and self._window.is_active()
            and self._chat.get_mapped()
            and not self._panes.is_chat_covered
        )

    def next(self) -> PermissionRequest | UserQuestion | None:
        """Return the question after the focused one, else the oldest."""
        waiting = self._asker.waiting
        focused = self._chat.focused_call
        session = self._chat.session.id if self._chat.session is not None and focused else ""
        for place, request in enumerate(waiting, 1):
            if (request.session_id, request.call_id) == (session, focused):
                return waiting[place % len(waiting)]
        return waiting[0] if waiting else None

    async def show(self, session_id: str, call_id: str) -> None:
        await self._open_session(session_id)
        if self._chat.session is not None and self._chat.session.id == session_id:
            # The card gets the focus, so it must be visible.
            self._panes.uncover_chat()
            self._chat.show_call(call_id)
