# SPDX-License-Identifier: GPL-3.0-or-later
"""A stored session as what stands in a chat."""

from __future__ import annotations

from ..chat.messages import Role, ToolCall
from ..chat.storage.stored import StoredSession
from .entries import CallEntry, Entry, MessageEntry


def entries_of(session: StoredSession) -> list[Entry]:
    found: list[Entry] = []
    calls: dict[str, ToolCall] = {}
    for stored in session.entries:
        message = stored.message
        if message.role is Role.TOOL:
            call = calls.pop(message.call_id, None)
            if call is not None:
                found.append(CallEntry.stored(call, message.text, stored.record))
            continue
        if stored.record is not None and stored.record.own:
            command = ToolCall(f"stored-{stored.number}", "run_command", {})
            # The model is told whose command it was; the card says so itself.
            text = message.text.partition(f"\n$ {stored.record.description}\n")[2] or message.text
            found.append(CallEntry.stored(command, text, stored.record))
            continue
        calls.update((call.id, call) for call in message.calls)
        if message.role in (Role.USER, Role.ASSISTANT) and (message.text or message.thinking):
            found.extend(MessageEntry.of(message))
    return found
