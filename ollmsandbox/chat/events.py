# SPDX-License-Identifier: GPL-3.0-or-later
"""The events of a conversation, and the list of those who listen to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from ..permission.request import PermissionRequest, Verdict
from ..project.change import Report
from ..sandbox.monitor import FileEvent
from ..sandbox.network.publish import CommandPorts
from ..sandbox.plan.plan import Plan
from ..tools.base import Outcome, Stream, UserQuestion
from .instructions import InstructionFile
from .messages import Message, ToolCall
from .turn_end import TurnEnd


class ConversationState(Enum):
    IDLE = "idle"
    # For the first word of the reply.
    WAITING = "waiting"
    STREAMING = "streaming"
    ASKING = "asking"
    RUNNING = "running"


@dataclass(frozen=True)
class StateChanged:
    state: ConversationState


@dataclass(frozen=True)
class MessageAdded:
    """A message was added: the user's, or a finished or partial answer."""

    message: Message


@dataclass(frozen=True)
class QueueChanged:
    """The messages that wait for the next step of the model, the oldest first."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class TextGrew:
    text: str


@dataclass(frozen=True)
class ThinkingGrew:
    text: str


@dataclass(frozen=True)
class ReplyWithdrawn:
    """The text since the last message is dropped; the model is asked again."""


@dataclass(frozen=True)
class CallQueued:
    """The call waits for its turn. CallBegan follows."""

    call: ToolCall
    description: str
    own: bool = False


@dataclass(frozen=True)
class CallBegan:
    call: ToolCall
    # In one line, for the user.
    description: str
    # The user's own command, not the model's.
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
class QuestionAsked:
    """The model asks the user something; this is no permission question."""

    call_id: str
    question: UserQuestion


@dataclass(frozen=True)
class QuestionAnswered:
    call_id: str
    # None if nobody answered.
    answer: str | None


@dataclass(frozen=True)
class CommandStarted:
    call_id: str
    pid: int
    plan: Plan | None
    # The ports it listens on, if they can be published.
    ports: CommandPorts | None = None


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
    """The changes of a call that was stopped are known; that may take a while."""

    call_id: str
    report: Report


@dataclass(frozen=True)
class Notice:
    """Something to tell the user: old output was left out, a rule file was broken, ..."""

    text: str


@dataclass(frozen=True)
class InstructionsRead:
    """The model reads these files of the project from now on."""

    files: tuple[InstructionFile, ...]


@dataclass(frozen=True)
class Retrying:
    """The server failed, and is asked again after some seconds."""

    seconds: float
    why: str


@dataclass(frozen=True)
class TokensUsed:
    """The tokens of the last answer, and the size of the model's context."""

    prompt: int
    reply: int
    room: int | None
    # By the price that the user has set; None without one.
    cost: float | None = None


@dataclass(frozen=True)
class TurnEnded:
    end: TurnEnd
    # What went wrong and what to do about it, if anything.
    why: str = ""


ChatEvent = (
    StateChanged
    | MessageAdded
    | QueueChanged
    | TextGrew
    | ThinkingGrew
    | ReplyWithdrawn
    | CallQueued
    | CallBegan
    | PermissionAsked
    | PermissionAnswered
    | QuestionAsked
    | QuestionAnswered
    | CommandStarted
    | CommandOutput
    | FilesChanged
    | CallEnded
    | CallSettled
    | Notice
    | InstructionsRead
    | Retrying
    | TokensUsed
    | TurnEnded
)


Listener = Callable[[ChatEvent], None]


class Listeners:
    def __init__(self) -> None:
        # By an object of its own: a listener may be added twice.
        self._listeners: dict[object, Listener] = {}

    def add(self, listener: Listener) -> Callable[[], None]:
        """Return a function that removes the listener; calling it twice does no harm."""
        key = object()
        self._listeners[key] = listener

        def remove() -> None:
            self._listeners.pop(key, None)

        return remove

    def tell(self, event: ChatEvent) -> None:
        for listener in tuple(self._listeners.values()):
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - a front end's bug must not end a turn
                report(error)


def report(error: Exception) -> None:
    """Report a bug to the event loop's exception handler."""
    asyncio.get_running_loop().call_exception_handler(
        {"message": "Internal error", "exception": error}
    )
