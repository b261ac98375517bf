# SPDX-License-Identifier: GPL-3.0-or-later
"""The messages of a conversation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ..tools.base import Picture


class Role(Enum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    # The model's summary of earlier messages, which are no longer sent.
    SUMMARY = "summary"
    # Tells the user something, such as why a turn ended. It is stored, and no model reads it.
    NOTICE = "notice"


@dataclass(frozen=True)
class ServerFields:
    """Fields of a reply that go back with it to its server, such as signed reasoning."""

    # Identifies the server and the model.
    origin: str
    # The name of the field that the thinking came in; "" if it came in the text.
    thinking: str = ""
    others: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolCall:
    """A model's request to use a tool. Arguments that are not a JSON object stay text."""

    id: str
    name: str
    arguments: Mapping[str, object] | str
    # Fields of the server's own, which it expects back.
    fields: Mapping[str, object] = field(default_factory=dict)

    @property
    def arguments_text(self) -> str:
        """The arguments as text: the same for the same ones."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps({**self.arguments}, sort_keys=True, default=str, ensure_ascii=False)


@dataclass(frozen=True)
class Message:
    """A message of the user or the model, or the result of a call."""

    role: Role
    text: str
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    # In the result of a tool: the call it belongs to, and whether permission for it was denied.
    call_id: str = ""
    was_denied: bool = False
    # In the result of a tool, or attached by the user: shown to models that see.
    pictures: tuple[Picture, ...] = ()
    model: str = ""
    at: float = 0.0
    # An answer that was interrupted.
    partial: bool = False
    fields: ServerFields | None = None
    # In a notice or an interrupted answer: the name of the TurnEnd.
    end: str = ""
    # In a summary: the number of messages just before it that it does not cover.
    keeps: int = 0


@dataclass(frozen=True)
class QueuedMessage:
    """A message that the user sends while the model works."""

    text: str
    pictures: tuple[Picture, ...] = ()
    # A command of the user's own, or anything else that the model does not read.
    waits_for_end: bool = False

    @property
    def title(self) -> str:
        """The text, or else the names of the pictures."""
        return self.text or ", ".join(picture.name for picture in self.pictures)


@dataclass(frozen=True)
class ToolSpec:
    """A tool as it is described to a model."""

    name: str
    description: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    is_sandboxed: bool = True
