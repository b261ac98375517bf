# SPDX-License-Identifier: GPL-3.0-or-later
"""A session that another agent leads: the window shows it, asks its questions and can stop it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from ... import N_
from ...chat import events
from ...chat.conversation import Conversation
from ...chat.events import ChatEvent
from ...chat.providers.base import Model
from ...errors import OllmSandboxError


class FollowedConversation(Conversation):
    def __init__(self, session_id: str, agent: str, stop: Callable[[str], None]) -> None:
        """`stop` asks the other program to stop a call."""
        super().__init__(model=None)
        self.session_id = session_id
        self.agent = agent
        self._stop_call = stop
        # Its calls that have not ended, and whether each waits for the user.
        self._running: dict[str, bool] = {}

    def hear(self, event: ChatEvent) -> None:
        """Show what the other program reports."""
        match event:
            case events.CallBegan(call):
                self._running[call.id] = False
            case events.PermissionAsked(call_id):
                self._running[call_id] = True
            case events.PermissionAnswered(call_id):
                self._running[call_id] = False
        self._emit(event)
        self._note_state()

    def note_end(self, call_id: str) -> None:
        self._running.pop(call_id, None)
        self._note_state()

    def _note_state(self) -> None:
        state = events.ConversationState.RUNNING if self._running else events.ConversationState.IDLE
        if any(self._running.values()):
            state = events.ConversationState.ASKING
        if state is not self.state:
            self.state = state
            self._emit(events.StateChanged(state))

    def use_model(self, model: Model | None, connection: str = "") -> None:
        """Keep the agent's own model."""

    async def _refuse(self, *_given: object, **_options: object) -> NoReturn:
        raise OllmSandboxError(
            N_("{agent} leads this session."),
            N_("Talk to it where you started it, or start a new session."),
            agent=self.agent,
        )

    say = retry = run = _refuse

    def terminal_of(self, call_id: str) -> None:
        """Return nothing: the agent runs commands without a terminal."""

    async def stop(self) -> None:
        for call_id in self._running:
            self._stop_call(call_id)

    def stop_call(self, call_id: str) -> None:
        self._stop_call(call_id)

    async def close(self) -> bool:
        """Stop following; the agent goes on."""
        return True
