# SPDX-License-Identifier: GPL-3.0-or-later
"""What a front hears of a conversation while it goes on.

Who hears of a conversation. Their mistakes are told to the loop and change nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from .. import N_
from ..permission.request import PermissionRequest, Verdict
from ..project.changes.change import Report
from ..sandbox.monitor import FileEvent
from ..sandbox.plan.plan import Plan
from ..tools.base import Outcome, Stream
from .messages import Message, ToolCall


class ConversationState(Enum):
    IDLE = "idle"
    # Waiting for the first word.
    WAITING = "waiting"
    STREAMING = "streaming"
    ASKING = "asking"
    RUNNING = "running"


class TurnEnd(Enum):
    """Why a turn was over; the value says it to a person."""

    DONE = ""
    STOPPED = N_("Stopped.")
    TURNS = N_("The limit of turns was reached.")
    TOKENS = N_("The limit of tokens was reached.")
    TIME = N_("The time limit was reached.")
    FAILED = N_("The model's server failed.")
    EMPTY = N_("The model had nothing to say.")


@dataclass(frozen=True)
class StateChanged:
    state: ConversationState


@dataclass(frozen=True)
class MessageAdded:
    """A whole message was added: the person's, or a finished (or partial) answer."""

    message: Message


@dataclass(frozen=True)
class TextGrew:
    text: str


@dataclass(frozen=True)
class ThinkingGrew:
    text: str


@dataclass(frozen=True)
class ReplyWithdrawn:
    """What grew since the last message did not become one: it is asked for anew."""


@dataclass(frozen=True)
class CallBegan:
    call: ToolCall
    # In one line, for a person.
    description: str
    # The person's own command, not the model's.
    own: bool = False


@dataclass(frozen=True)
class PermissionAsked:
    call_id: str
    request: PermissionRequest


@dataclass(frozen=True)
class PermissionAnswered:
    call_id: str
    verdict: Verdict


@dataclass(frozen=True)
class CommandStarted:
    call_id: str
    pid: int
    plan: Plan | None


@dataclass(frozen=True)
class CommandOutput:
    call_id: str
    stream: Stream
    data: bytes


@dataclass(frozen=True)
class FilesChanged:
    call_id: str
    event: FileEvent


@dataclass(frozen=True)
class CallEnded:
    call: ToolCall
    outcome: Outcome


@dataclass(frozen=True)
class CallSettled:
    """What a call had changed that was stopped, once that is known: it may take a while."""

    call_id: str
    report: Report


@dataclass(frozen=True)
class Notice:
    """Something the person should know: old output was left out, a rule file was broken, ..."""

    text: str


@dataclass(frozen=True)
class TokensUsed:
    """Tokens of the last answer, and the room the model has."""

    prompt: int
    reply: int
    room: int | None


@dataclass(frozen=True)
class TurnEnded:
    end: TurnEnd
    # What went wrong and what to do, where something did.
    why: str = ""


ChatEvent = (
    StateChanged
    | MessageAdded
    | TextGrew
    | ThinkingGrew
    | ReplyWithdrawn
    | CallBegan
    | PermissionAsked
    | PermissionAnswered
    | CommandStarted
    | CommandOutput
    | FilesChanged
    | CallEnded
    | CallSettled
    | Notice
    | TokensUsed
    | TurnEnded
)


Listener = Callable[[ChatEvent], None]


class Listeners:
    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> Callable[[], None]:
        """Call what it returns to stop listening; twice does no harm."""
        # One that listens twice is two.
        one = _One(listener)
        self._listeners.append(one)

        def remove() -> None:
            if one in self._listeners:
                self._listeners.remove(one)

        return remove

    def tell(self, event: ChatEvent) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - a front's mistake must not end a turn
                report(error)


class _One:
    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def __call__(self, event: ChatEvent) -> None:
        self._listener(event)


def report(error: Exception) -> None:
    """A mistake in the program: told where the loop tells such things."""
    asyncio.get_running_loop().call_exception_handler(
        {"message": "A mistake in the program", "exception": error}
    )
