# SPDX-License-Identifier: GPL-3.0-or-later
"""Which model the session that is shown talks to, and why none if it cannot."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gi.repository import GObject

from ..chat.view import ChatView
from ..sessions.sessions import Sessions
from ..widgets.tasks import Tasks
from ..widgets.weak import weakly
from .choice import ModelChoice
from .chooser import ModelChooser

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
        # What was chosen last is remembered last.
        self._remembering = asyncio.Lock()
        chooser.connect("chosen", weakly(self._on_chosen))
        chooser.connect("refresh", weakly(self._on_refresh))
        self.handlers: list[tuple[GObject.Object, int]] = [
            (choice, choice.connect("changed", weakly(self._on_changed)))
        ]

    def show_session(self, session: OpenSession | None) -> None:
        self._session = session
        self._show()

    def look_again(self, *_args: object) -> None:
        """At the connections there are, and what their servers offer; with the keys that are
        stored now."""
        self._choice.forget_servers()
        self._tasks.start(self._look())

    def _on_refresh(self, _chooser: ModelChooser) -> None:
        """With the keys that are known: a keyring may ask for a password each time."""
        self._tasks.start(self._look())

    async def _look(self) -> None:
        self._sessions.renew_models()
        self._show()
        await self._choice.refresh()

    def note_name(self, _source: object, before: str, now: str) -> None:
        """A connection has another one."""
        self._tasks.start(self._sessions.rename_connection(before, now))

    def _show(self) -> None:
        session = self._session
        current = (session.connection, session.model_name) if session else self._choice.default()
        self._chooser.show(self._choice.items, current)
        if session is not None:
            self._chat.set_can_send("" if session.conversation.model else self._choice.why_none())

    def _on_chosen(self, _chooser: ModelChooser, connection: str, model: str) -> None:
        if self._session is not None:
            self._sessions.use_model(self._session, connection, model)
            self._show()
        self._tasks.start(self._remember(connection, model))

    async def _remember(self, connection: str, model: str) -> None:
        """For the next session; not in the main loop, as it waits for the disk."""
        async with self._remembering:
            await asyncio.to_thread(self._choice.remember, connection, model)
        self._show()

    def _on_changed(self, _choice: ModelChoice) -> None:
        session = self._session
        if session is not None and not session.model_name:
            self._sessions.use_model(session, *self._choice.default())
        self._show()
