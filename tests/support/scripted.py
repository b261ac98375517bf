# SPDX-License-Identifier: GPL-3.0-or-later
"""A model that sends scripted replies, and tools with scripted results."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from support.timing import PATIENCE

from ollmsandbox.chat.events import ChatEvent
from ollmsandbox.chat.messages import Message, ToolCall, ToolSpec
from ollmsandbox.chat.providers.base import (
    CallPiece,
    FinishPiece,
    Model,
    Piece,
    ProviderError,
    TextPiece,
    ThinkingPiece,
    Usage,
)
from ollmsandbox.tools.base import Outcome, RequestBase, Stream, Tool, ToolError, Watcher

T = TypeVar("T")

# What a reply is made of: pieces, an error to raise, an event to wait for.
Part = Piece | ProviderError | asyncio.Event | str
Reply = Sequence[Part]

# Ends a wait that a stop should have ended.
FOREVER = 3600.0


def call(name: str = "run_command", id: str = "1", **arguments: object) -> CallPiece:
    return CallPiece(ToolCall(id, name, arguments))


class ScriptedModel(Model):
    """Sends each reply once, in order; after the last one it sends `Done.`"""

    def __init__(
        self,
        *replies: Reply,
        length: int | None = None,
        name: str = "scripted",
        sees: bool = False,
    ) -> None:
        self.name = name
        self._sees = sees
        self._replies = list(replies)
        self._length = length
        self.seen: list[tuple[Message, ...]] = []
        self.tools: list[tuple[ToolSpec, ...]] = []
        self.open = 0

    async def context_length(self) -> int | None:
        return self._length

    @property
    def sees_pictures(self) -> bool:
        return self._sees

    def sent(self, messages: Sequence[Message]) -> list[Message]:
        return [replace(message, thinking="") for message in messages]

    async def reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncIterator[Piece]:
        self.seen.append(tuple(messages))
        self.tools.append(tuple(tools))
        parts = self._replies.pop(0) if self._replies else ("Done.",)
        self.open += 1
        try:
            for part in parts:
                # As a server's words come: not all in one moment.
                await asyncio.sleep(0)
                if isinstance(part, asyncio.Event):
                    await part.wait()
                elif isinstance(part, ProviderError):
                    raise part
                elif isinstance(part, str):
                    yield TextPiece(part)
                else:
                    yield part
            yield FinishPiece()
        finally:
            self.open -= 1


class SlowModel(ScriptedModel):
    """Never finishes its reply."""

    def __init__(self, *begin: Part) -> None:
        super().__init__([*begin, asyncio.Event()])


@dataclass
class Listening:
    """Records events, and can wait for one."""

    heard: list[ChatEvent] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, event: ChatEvent) -> None:
        self.heard.append(event)
        self._news.set()

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.heard if isinstance(event, kind)]

    async def until(self, found: Callable[[], object], seconds: float = PATIENCE) -> None:
        """Wait for a condition, which is checked at each event and now and then besides."""
        async with asyncio.timeout(seconds):
            while not found():
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), 0.05)


class FakeTool(Tool):
    """A tool that calls the test's function."""

    def __init__(
        self,
        name: str,
        does: Callable[[Mapping[str, object], Watcher], object],
        *,
        can_write: bool = True,
    ) -> None:
        self.name = name
        self.does = does
        self.can_write = can_write
        self.running = 0
        self.most_at_once = 0
        # How often it was called.
        self.count = 0

    @property
    def description(self) -> str:
        return f"{self.name}, for tests"

    @property
    def parameters(self) -> Mapping[str, object]:
        return {"type": "object", "properties": {}}

    def read(self, arguments: Mapping[str, object] | str, call_id: str = "") -> RequestBase:
        if isinstance(arguments, str):
            raise ToolError("The arguments are no JSON object.")
        return FakeRequest(self, arguments)


class FakeRequest(RequestBase):
    def __init__(self, tool: FakeTool, arguments: Mapping[str, object]) -> None:
        self._tool = tool
        self._arguments = arguments

    def describe(self) -> str:
        return f"{self._tool.name} {dict(self._arguments)}"

    async def perform(self, watcher: Watcher) -> Outcome:
        tool = self._tool
        tool.count += 1
        tool.running += 1
        tool.most_at_once = max(tool.most_at_once, tool.running)
        try:
            watcher.started(0, None)
            watcher.output(Stream.STDOUT, b"working\n")
            result = tool.does(self._arguments, watcher)
            if asyncio.iscoroutine(result):
                result = await result
            return result if isinstance(result, Outcome) else Outcome(str(result), ok=True)
        finally:
            tool.running -= 1


__all__ = [
    "FOREVER",
    "CallPiece",
    "FakeTool",
    "FinishPiece",
    "Listening",
    "Reply",
    "ScriptedModel",
    "SlowModel",
    "TextPiece",
    "ThinkingPiece",
    "Usage",
    "call",
]
