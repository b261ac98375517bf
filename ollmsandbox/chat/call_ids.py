# SPDX-License-Identifier: GPL-3.0-or-later
"""Each call of a session has an id of its own, whatever a model sends: answers and runs are found
by it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import replace

from .messages import Message, ToolCall

OWN = "own"


def with_own_ids(reply: Message, earlier: Iterable[Message]) -> tuple[Message, frozenset[str]]:
    """Some servers begin to count anew with each answer; that is no mistake of the model's. The ids
    that came twice in this one are returned, as they are now called."""
    used = _used(earlier)
    here: set[str] = set()
    repeated: set[str] = set()
    calls: list[ToolCall] = []
    for call in reply.calls:
        new = call.id if call.id and call.id not in used else _unused(call.id or "call", used)
        if call.id and call.id in here:
            repeated.add(new)
        here.add(call.id)
        used.add(new)
        calls.append(replace(call, id=new))
    return replace(reply, calls=tuple(calls)), frozenset(repeated)


def new_call_id(earlier: Iterable[Message]) -> str:
    """For a command of the person's own. Drawn, not counted: no message keeps the id of such a
    command, and those of before have their runs."""
    used = _used(earlier)
    while (drawn := f"{OWN}-{secrets.token_hex(4)}") in used:
        continue
    return drawn


def _used(messages: Iterable[Message]) -> set[str]:
    used: set[str] = set()
    for message in messages:
        used.update(call.id for call in message.calls)
        used.add(message.call_id)
    return used


def _unused(name: str, used: set[str]) -> str:
    number = 2
    while f"{name}-{number}" in used:
        number += 1
    return f"{name}-{number}"
