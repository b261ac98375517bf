# SPDX-License-Identifier: GPL-3.0-or-later
"""Convert our messages and tools for servers, and their tool calls for us."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..messages import Message, Role, ToolCall, ToolSpec
from .lenient import read_arguments
from .mask import KeyMask

_ALPHABET = string.ascii_letters + string.digits


def pair_calls(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without calls that have no result, results without a call, and empty
    messages. A session may have been stopped anywhere, and servers refuse all of these."""
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
    """Return the arguments as an object, because servers parse them again."""
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


class CallBuilder:
    """Gives each call a unique id, because servers leave it out or repeat it in each reply. The id
    has nine letters and digits, as some models' templates require."""

    def __init__(self, used: Iterable[str], mask: KeyMask) -> None:
        self._used = set(used)
        self._mask = mask

    def make(self, id_: str, name: str, arguments: object) -> ToolCall:
        if not 0 < len(id_) <= 64 or not id_.isprintable() or id_ in self._used:
            id_ = "".join(secrets.choice(_ALPHABET) for _ in range(9))
        self._used.add(id_)
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        found = read_arguments(self._mask.whole(text))
        return ToolCall(id_, self._mask.whole(name), found)
