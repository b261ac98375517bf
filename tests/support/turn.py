# SPDX-License-Identifier: GPL-3.0-or-later
"""One turn of a conversation, and the invariants that hold after each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from support.scripted import FakeTool, Listening, ScriptedModel

from ollmsandbox import loop
from ollmsandbox.chat.conversation import STANDARD_LIMITS, Conversation, TurnLimits
from ollmsandbox.chat.events import TextGrew, TurnEnded
from ollmsandbox.chat.messages import Message, Role
from ollmsandbox.tools.base import Watcher


def run(work: Coroutine[object, object, Any]) -> Any:
    return loop.run(work)


def echo(arguments: Mapping[str, object], _watcher: Watcher) -> str:
    return f"echo: {arguments.get('text', '')}"


def talk(
    model: ScriptedModel, *tools: FakeTool, limits: TurnLimits = STANDARD_LIMITS
) -> tuple[Conversation, Listening, TurnEnded]:
    """Run one turn."""
    listening = Listening()
    conversation = Conversation(model=model, tools=tools, limits=limits, prompt="Be kind.")
    conversation.listen(listening)
    ended = run(conversation.say("Hello"))
    check_pairs(conversation.messages)
    return conversation, listening, ended


async def begun(
    conversation: Conversation, is_time: Callable[[Listening], object], text: str = "Hello"
) -> tuple[asyncio.Future[TurnEnded], Listening]:
    """Begin a turn; return it, and what is heard of it, once the condition is true."""
    listening = Listening()
    conversation.listen(listening)
    turn = asyncio.ensure_future(conversation.say(text))
    await listening.until(lambda: is_time(listening))
    return turn, listening


def has_words(listening: Listening) -> bool:
    return bool(listening.of(TextGrew))


def check_pairs(messages: list[Message]) -> None:
    """Assert that each call is directly followed by its answer, as servers demand."""
    waiting: list[str] = []
    for message in messages:
        if message.role is Role.TOOL:
            assert message.call_id in waiting
            waiting.remove(message.call_id)
        else:
            assert not waiting
            waiting = [call.id for call in message.calls]
            assert len(set(waiting)) == len(waiting)
    assert not waiting


def roles(conversation: Conversation) -> list[Role]:
    return [message.role for message in conversation.messages]
