# SPDX-License-Identifier: GPL-3.0-or-later
"""A conversation as servers want it: every call answered, every answer to a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..messages import Message, Role, ToolCall, ToolSpec


def answered(messages: Sequence[Message]) -> list[Message]:
    """Without calls that were never carried out, answers to none of them, and empty words: a
    session may have been stopped or cut off anywhere, and servers refuse all of these."""
    results = {message.call_id for message in messages if message.role is Role.TOOL}
    open_calls: set[str] = set()
    kept: list[Message] = []
    for message in messages:
        if message.role is Role.TOOL:
            if message.call_id not in open_calls:
                continue
            open_calls.discard(message.call_id)
        elif message.role is Role.ASSISTANT:
            calls = tuple(call for call in message.calls if call.id in results)
            open_calls.update(call.id for call in calls)
            message = replace(message, calls=calls)
            if not calls and not message.text.strip():
                continue
        kept.append(message)
    return kept


def names_of_calls(messages: Sequence[Message]) -> dict[str, str]:
    return {call.id: call.name for message in messages for call in message.calls}


def arguments_object(call: ToolCall) -> Mapping[str, object]:
    """What was no object is shown to the model inside one: servers read it as JSON again."""
    return call.arguments if isinstance(call.arguments, Mapping) else {"not_json": call.arguments}


def tool_list(tools: Sequence[ToolSpec]) -> list[dict[str, object]]:
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters or {"type": "object", "properties": {}},
            },
        }
        for tool in tools
    ]
