# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks a model for the title of a session, with a short request of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from .messages import Message, Role
from .providers.base import Model, ProviderError
from .reply import StreamedReply

_TASK = (
    "Write a title of three to six words for this conversation, in the language of the user. "
    "Reply with the title only: no quotes, no full stop."
)
# Characters of each message that are sent, and of the title.
_MOST_SENT, _MOST_KEPT = 1000, 60
_SECONDS = 30.0


async def suggest_title(model: Model, messages: Sequence[Message]) -> str:
    """Return a title, or "" if the model does not send a usable one in time."""
    said = [
        Message(one.role, one.text[:_MOST_SENT])
        for one in messages
        if one.role in (Role.USER, Role.ASSISTANT) and one.text.strip()
    ]
    if not said:
        return ""
    request = [*said[:1], *said[1:][-1:], Message(Role.USER, _TASK)]
    reply = StreamedReply(model.name, lambda _event: None, lambda _message: None)
    try:
        await asyncio.wait_for(reply.read(model.reply(request, ())), _SECONDS)
    except (TimeoutError, ProviderError):
        return ""  # the first words stay
    return clean_title(reply.message().text)


def clean_title(text: str) -> str:
    """Return the first line without decoration; "" if it is no title."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    for prefix in ("Title:", "**", "#", '"', "“", "„", "'"):
        line = line.removeprefix(prefix).strip()
    line = line.rstrip(".*\"”“'# ").strip()
    return line if 0 < len(line) <= _MOST_KEPT else ""
