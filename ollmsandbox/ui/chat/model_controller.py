# SPDX-License-Identifier: GPL-3.0-or-later
"""Connects the model chooser with the session that is shown."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...chat.messages import Role
from ...i18n import _
from ...text.visible import visible_line
from ..models.choice import ModelChoice
from ..models.chooser import ConnectionState, ModelChooser
from ..sessions.entries import MessageEntry, NoticeEntry
from ..sessions.sessions import Sessions
from ..widgets.signals import SignalHandlers
from ..widgets.tasks import Tasks, as_task
from ..widgets.weak import weakly
from .view import ChatView

if TYPE_CHECKING:
    from ..sessions.open_session import OpenSession


class ModelController:
    def __init__(
        self,
        chooser: ModelChooser,
        choice: ModelChoice,
        chat: ChatView,
        sessions: Sessions,
        tasks: Tasks,
    ) -> None:
        self._chooser = chooser
        self._choice = choice
        self._chat = chat
        self._sessions = sessions
        self._tasks = tasks
        self._session: OpenSession | None = None
        self._of_session = SignalHandlers()
        # Saves run one after the other, so that the last choice wins.
        self._remembering = asyncio.Lock()
        chooser.connect("chosen", weakly(self._on_chosen))
        chooser.connect("refresh", weakly(self._ask_servers))
        SignalHandlers(chat).connect(choice, "changed", self._on_changed)

    def show_session(self, session: OpenSession | None) -> None:
        self._of_session.disconnect()
        self._session = session
        if session is not None:
            self._of_session.connect(session, "state-changed", self._on_state)
        self._show()

    def _on_state(self, session: OpenSession) -> None:
        """Ask the servers again if a turn ended other than the known state promised."""
        last = session.entries[-1] if session.entries else None
        if session.is_busy or not isinstance(last, MessageEntry | NoticeEntry):
            return
        has_failed = isinstance(last, NoticeEntry) and last.is_error
        has_answered = isinstance(last, MessageEntry) and last.role is Role.ASSISTANT
        state = self._choice.state_of(session.connection)
        if (has_failed and state is ConnectionState.READY) or (
            has_answered and state is ConnectionState.FAILED
        ):
            self._tasks.start(self._choice.refresh())

    def reload(self, *_args: object) -> None:
        """Read the connections again and ask their servers, with the keys that are stored now."""
        self._choice.forget_servers()
        self._ask_servers()

    @as_task
    async def look_for_connections(self) -> None:
        """Ask the servers again if a connection was added or removed elsewhere."""
        found = await asyncio.to_thread(self._choice.store.all)
        if {one.name for one in found} != {item.name for item in self._choice.items}:
            self._ask_servers()

    @as_task
    async def _ask_servers(self, *_args: object) -> None:
        """Ask the servers again with the known keys: a keyring may ask for a password each time."""
        self._sessions.renew_models()
        self._show()
        await self._choice.refresh()

    def follow_rename(self, _source: object, before: str, now: str) -> None:
        self._tasks.start(self._sessions.rename_connection(before, now))

    def _show(self) -> None:
        session = self._session
        current = (session.connection, session.model_name) if session else self._choice.default()
        self._chooser.show(self._choice.items, current)
        if session is not None:
            why_not = "" if session.conversation.model else self._choice.missing_model_text()
            if session.leader:
                why_not = _("{agent} leads this session. Talk to it where you started it.")
                why_not = why_not.format(agent=visible_line(session.leader))
            self._chat.set_can_send(why_not)

    def _on_chosen(self, _chooser: ModelChooser, connection: str, model: str) -> None:
        if self._session is not None:
            self._sessions.use_model(self._session, connection, model)
            self._show()
        self._remember(connection, model)

    @as_task
    async def _remember(self, connection: str, model: str) -> None:
        """Save the choice for the next session, in a thread because of the disk."""
        async with self._remembering:
            await asyncio.to_thread(self._choice.remember, connection, model)
        self._show()

    def _on_changed(self, _choice: ModelChoice) -> None:
        session = self._session
        if session is not None and not session.model_name:
            self._sessions.use_model(session, *self._choice.default())
        self._show()
