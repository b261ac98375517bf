# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said in a conversation, by whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Role(Enum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True)
class ToolCall:
    """What a model asks for. Arguments that are no JSON object are kept as the text they are."""

    id: str
    name: str
    arguments: Mapping[str, object] | str


@dataclass(frozen=True)
class Message:
    role: Role
    text: str
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    # Of a tool's answer: which call it answers.
    call_id: str = ""
    model: str = ""
    at: float = 0.0
    # An answer that broke off.
    partial: bool = False


@dataclass(frozen=True)
class ToolSpec:
    """A tool as a model is told of it."""

    name: str
    description: str
    parameters: Mapping[str, object] = field(default_factory=dict)
