# SPDX-License-Identifier: GPL-3.0-or-later
"""The messages of a conversation."""

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
    """A model's request to use a tool. Arguments that are not a JSON object stay text."""

    id: str
    name: str
    arguments: Mapping[str, object] | str


@dataclass(frozen=True)
class Message:
    role: Role
    text: str
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    # In the result of a tool: the call it belongs to, and whether permission for it was denied.
    call_id: str = ""
    was_denied: bool = False
    model: str = ""
    at: float = 0.0
    # An answer that was interrupted.
    partial: bool = False


@dataclass(frozen=True)
class ToolSpec:
    """A tool as it is described to a model."""

    name: str
    description: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    is_sandboxed: bool = True
