# SPDX-License-Identifier: GPL-3.0-or-later
"""A session that another agent leads: the window shows it, asks its questions and can stop it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ... import N_
from ...chat.conversation import Conversation
from ...chat.events import (
    CallBegan,
    ChatEvent,
    ConversationState,
    PermissionAnswered,
    PermissionAsked,
    StateChanged,
    TurnEnded,
)
from ...chat.providers.base import Model
from ...errors import OllmSandboxError
from ...tools.base import Outcome, Picture


class FollowedError(OllmSandboxError):
    """The user cannot talk to this agent here."""

    def __init__(self, agent: str) -> None:
        super().__init__(
            N_("{agent} leads this session."),
            N_("Talk to it where you started it, or start a new session."),
            agent=agent,
        )


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
            case CallBegan(call):
                self._running[call.id] = False
            case PermissionAsked(call_id):
                self._running[call_id] = True
            case PermissionAnswered(call_id):
                self._running[call_id] = False
        self._emit(event)
        self._note_state()

    def note_end(self, call_id: str) -> None:
        self._running.pop(call_id, None)
        self._note_state()

    def _note_state(self) -> None:
        state = ConversationState.RUNNING if self._running else ConversationState.IDLE
        if any(self._running.values()):
            state = ConversationState.ASKING
        if state is not self.state:
            self.state = state
            self._emit(StateChanged(state))

    def use_model(self, model: Model | None, connection: str = "") -> None:
        """Keep the agent's own model."""

    async def say(self, text: str, pictures: Sequence[Picture] = ()) -> TurnEnded:
        raise FollowedError(self.agent)

    async def retry(self) -> TurnEnded:
        raise FollowedError(self.agent)

    async def run(
        self,
        command: str,
        *,
        network: bool = False,
        working_dir: str = "",
        terminal_size: tuple[int, int] | None = None,
    ) -> Outcome:
        raise FollowedError(self.agent)

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
