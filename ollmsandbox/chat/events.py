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


class ChatEvent:
    """Something that happens in a conversation."""


@dataclass(frozen=True)
class StateChanged(ChatEvent):
    state: ConversationState


@dataclass(frozen=True)
class MessageAdded(ChatEvent):
    """A message was added: the user's, or a finished or partial answer."""

    message: Message


@dataclass(frozen=True)
class QueueChanged(ChatEvent):
    """The messages that wait for the next step of the model, the oldest first."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class TextGrew(ChatEvent):
    text: str


@dataclass(frozen=True)
class ThinkingGrew(ChatEvent):
    text: str


@dataclass(frozen=True)
class ReplyWithdrawn(ChatEvent):
    """The text since the last message is dropped; the model is asked again."""


@dataclass(frozen=True)
class CallQueued(ChatEvent):
    """The call waits for its turn. CallBegan follows."""

    call: ToolCall
    description: str
    own: bool = False


@dataclass(frozen=True)
class CallBegan(ChatEvent):
    call: ToolCall
    # In one line, for the user.
    description: str
    # The user's own command, not the model's.
    own: bool = False


@dataclass(frozen=True)
class PermissionAsked(ChatEvent):
    call_id: str
    request: PermissionRequest


@dataclass(frozen=True)
class PermissionAnswered(ChatEvent):
    call_id: str
    verdict: Verdict


@dataclass(frozen=True)
class QuestionAsked(ChatEvent):
    """The model asks the user something; this is no permission question."""

    call_id: str
    question: UserQuestion


@dataclass(frozen=True)
class QuestionAnswered(ChatEvent):
    call_id: str
    # None if nobody answered.
    answer: str | None


@dataclass(frozen=True)
class CommandStarted(ChatEvent):
    call_id: str
    pid: int
    plan: Plan | None
    # The ports it listens on, if they can be published.
    ports: CommandPorts | None = None


@dataclass(frozen=True)
class CommandOutput(ChatEvent):
    call_id: str
    stream: Stream
    data: bytes


@dataclass(frozen=True)
class FilesChanged(ChatEvent):
    call_id: str
    event: FileEvent


@dataclass(frozen=True)
class CallEnded(ChatEvent):
    call: ToolCall
    outcome: Outcome


@dataclass(frozen=True)
class CallSettled(ChatEvent):
    """The changes of a call that was stopped are known; that may take a while."""

    call_id: str
    report: Report


@dataclass(frozen=True)
class Notice(ChatEvent):
    """Something to tell the user: old output was left out, a rule file was broken, ..."""

    text: str


@dataclass(frozen=True)
class InstructionsRead(ChatEvent):
    """The model reads these files of the project from now on."""

    files: tuple[InstructionFile, ...]


@dataclass(frozen=True)
class Retrying(ChatEvent):
    """The server failed, and is asked again after some seconds."""

    seconds: float
    why: str


@dataclass(frozen=True)
class TokensUsed(ChatEvent):
    """The tokens of the last answer, and the size of the model's context."""

    prompt: int
    reply: int
    room: int | None
    # By the price that the user has set; None without one.
    cost: float | None = None


@dataclass(frozen=True)
class TurnEnded(ChatEvent):
    end: TurnEnd
    # What went wrong and what to do about it, if anything.
    why: str = ""


Listener = Callable[[ChatEvent], None]


def report(error: Exception) -> None:
    """Report a bug to the event loop's exception handler."""
    asyncio.get_running_loop().call_exception_handler(
        {"message": "Internal error", "exception": error}
    )
