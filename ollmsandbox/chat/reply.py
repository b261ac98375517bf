# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks a model for a reply, and collects it while it arrives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

from .. import N_
from ..tools.base import Tool
from .context import ContextWindow
from .events import ChatEvent, Notice, TextGrew, ThinkingGrew, TokensUsed
from .messages import Message, Role, ToolCall, ToolSpec
from .providers.base import (
    CallPiece,
    Model,
    Piece,
    ProviderError,
    TextPiece,
    ThinkingPiece,
    TooLongError,
    Usage,
)

# Seconds between two saves of a reply that is arriving: a crash loses no more than that.
_SAVE_INTERVAL = 1.0
_MOST_CHARACTERS = 4_000_000
_MOST_CALLS = 64


class StreamedReply:
    """Collects the pieces of a reply, passes them on, and has them saved every second."""

    def __init__(
        self, model: str, emit: Callable[[ChatEvent], None], save: Callable[[Message], None]
    ) -> None:
        self._model = model
        self._emit = emit
        self._save = save
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.calls: list[ToolCall] = []
        self.usage: Usage | None = None
        self.cut_off = False
        self.was_saved = False

    @property
    def has_begun(self) -> bool:
        """Something of it was shown to the user."""
        return bool(self._text or self._thinking)

    @property
    def is_empty(self) -> bool:
        return not self.calls and not "".join(self._text).strip()

    def message(self, *, partial: bool = False) -> Message:
        """Return the reply so far. A partial one has no calls: they would never be answered."""
        return Message(
            Role.ASSISTANT,
            "".join(self._text),
            thinking="".join(self._thinking),
            calls=() if partial else tuple(self.calls),
            model=self._model,
            at=time.time(),
            partial=partial,
        )

    async def read(self, pieces: AsyncIterator[Piece]) -> None:
        """Read all pieces. May be called again if it fails before `has_begun`."""
        try:
            async for piece in pieces:
                if self._is_closed:
                    return
                self._take(piece)
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()

    def close(self) -> None:
        """Stop passing on and saving pieces."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _take(self, piece: Piece) -> None:
        if isinstance(piece, TextPiece | ThinkingPiece):
            if not piece.text:
                return
            self._size += len(piece.text)
            if self._size > _MOST_CHARACTERS:
                raise ProviderError(N_("The model's answer was too long and was cut off."))
            is_text = isinstance(piece, TextPiece)
            (self._text if is_text else self._thinking).append(piece.text)
            self._emit(TextGrew(piece.text) if is_text else ThinkingGrew(piece.text))
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(_SAVE_INTERVAL, self._save_now)
        elif isinstance(piece, CallPiece):
            if len(self.calls) >= _MOST_CALLS:
                raise ProviderError(N_("The model requested too many tools at once."))
            self.calls.append(piece.call)
        elif isinstance(piece, Usage):
            self.usage = piece
        else:
            self.cut_off = self.cut_off or piece.cut_off

    def _save_now(self) -> None:
        self._timer = None
        if not self._is_closed:
            self.was_saved = True
            self._save(self.message(partial=True))


class ReplyReader:
    """Sends a model the prompt, the tools, and as much of the conversation as it can hold."""

    def __init__(
        self,
        tools: Sequence[Tool],
        prompt: str | Callable[[], str],
        emit: Callable[[ChatEvent], None],
    ) -> None:
        self._tools = tools
        self._prompt = prompt
        self._emit = emit
        self._context = ContextWindow()

    async def read(self, model: Model, reply: StreamedReply, messages: Sequence[Message]) -> None:
        # In a thread: to describe themselves, tools examine the machine. The user may have chosen
        # another system for the project since the last reply.
        specs = await asyncio.to_thread(_describe, self._tools)
        prompt = Message(Role.SYSTEM, await self._prompt_text())
        length = await model.context_length()
        while True:
            fitted = self._context.fit(prompt, messages, specs, length)
            if fitted.notice:
                self._emit(Notice(fitted.notice))
            try:
                await reply.read(model.reply(fitted.messages, specs))
                break
            except TooLongError:
                if reply.has_begun or not self._context.was_too_long():
                    raise
        if reply.usage is not None:
            self._context.learn(reply.usage.prompt)
            self._emit(TokensUsed(reply.usage.prompt, reply.usage.reply, length))

    def spent(self, reply: StreamedReply, messages: Sequence[Message]) -> int:
        """Return the number of tokens used, as counted by the server, or else estimated."""
        if reply.usage is not None:
            return reply.usage.prompt + reply.usage.reply
        return self._context.estimate([*messages, reply.message()])

    async def _prompt_text(self) -> str:
        prompt = self._prompt
        return prompt if isinstance(prompt, str) else await asyncio.to_thread(prompt)


def _describe(tools: Sequence[Tool]) -> list[ToolSpec]:
    return [
        ToolSpec(tool.name, tool.description, tool.parameters, tool.is_sandboxed) for tool in tools
    ]
