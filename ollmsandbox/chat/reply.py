# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks a model for a reply, and collects it while it arrives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import replace

from .. import N_
from ..errors import Sentence
from ..tools.base import Tool
from .context import ContextWindow, since_summary
from .events import ChatEvent, Notice, Retrying, TextGrew, ThinkingGrew, TokensUsed
from .messages import Message, Role, ServerFields, ToolCall, ToolSpec
from .providers import base

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
        self.usage: base.Usage | None = None
        self.finish = base.FinishPiece()
        self._fields: ServerFields | None = None
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
            fields=self._fields,
        )

    async def read(self, pieces: AsyncIterator[base.Piece]) -> None:
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

    def _take(self, piece: base.Piece) -> None:
        if isinstance(piece, base.TextPiece | base.ThinkingPiece):
            if not piece.text:
                return
            self._size += len(piece.text)
            if self._size > _MOST_CHARACTERS:
                raise base.ProviderError(N_("The model's answer was too long and was cut off."))
            is_text = isinstance(piece, base.TextPiece)
            (self._text if is_text else self._thinking).append(piece.text)
            self._emit(TextGrew(piece.text) if is_text else ThinkingGrew(piece.text))
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(1, self._save_now)
        elif isinstance(piece, base.CallPiece):
            if len(self.calls) >= _MOST_CALLS:
                raise base.ProviderError(N_("The model requested too many tools at once."))
            self.calls.append(piece.call)
        elif isinstance(piece, base.Usage):
            self.usage = piece
        elif isinstance(piece, ServerFields):
            self._fields = piece
        elif isinstance(piece, base.RetryPiece):
            self._emit(Retrying(piece.seconds, piece.why.message))
        else:
            self.finish = base.FinishPiece(
                cut_off=self.finish.cut_off or piece.cut_off,
                filtered=self.finish.filtered or piece.filtered,
            )

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
        self._spent_on_summary = 0
        # The size of the model's context, as far as known.
        self.length: int | None = None

    async def read(
        self,
        model: base.Model,
        reply: StreamedReply,
        messages: Sequence[Message],
        summarised: Callable[[Message], None],
    ) -> None:
        """Read a reply to the messages. If some have to be left out, let the model write a summary
        first; `summarised` adds it to the messages."""
        # In a thread: to describe themselves, tools examine the machine. The user may have chosen
        # another system for the project since the last reply.
        specs = await asyncio.to_thread(_describe, self._tools)
        text = self._prompt
        if not isinstance(text, str):
            text = await asyncio.to_thread(text)
        prompt = Message(Role.SYSTEM, text)
        self.length = await self._context_length(model)
        was_too_long = has_summary = False
        self._spent_on_summary = 0
        while True:
            fitted = self._context.fit(
                prompt, model.sent(messages), specs, self.length, model.longest_answer
            )
            if fitted.dropped and not has_summary:
                has_summary = True
                summary = await self._summarise(model, fitted.dropped)
                # Not if it was stopped: then it is asked for again.
                self._context.needs_summary = False
                if summary is not None:
                    summarised(replace(summary, keeps=fitted.keeps))
                    continue
            if fitted.notice:
                self._emit(Notice(fitted.notice))
            try:
                await reply.read(model.reply(fitted.messages, specs))
                break
            except base.TooLongError as error:
                # Once: a server may only seem to say that.
                if reply.has_begun or was_too_long:
                    raise
                was_too_long = True
                self._context.was_too_long(error.said)
        if reply.usage is not None:
            self._context.learn(reply.usage.prompt)
            self._count(reply.usage)

    async def summarise(self, model: base.Model, messages: Sequence[Message]) -> Message | None:
        """Return the model's summary of everything so far, or None if it writes none."""
        self.length = await self._context_length(model)
        return await self._summarise(model, since_summary(model.sent(messages)))

    def spent(self, reply: StreamedReply, messages: Sequence[Message]) -> int:
        """Return the number of tokens used, as counted by the server, or else estimated."""
        if reply.usage is not None:
            return self._spent_on_summary + reply.usage.prompt + reply.usage.reply
        return self._spent_on_summary + self._context.estimate([*messages, reply.message()])

    async def _context_length(self, model: base.Model) -> int | None:
        try:
            return await model.context_length()
        except base.ProviderError:
            return None  # the request itself will say what is wrong, and is tried again

    async def _summarise(self, model: base.Model, dropped: Sequence[Message]) -> Message | None:
        """Return the model's summary of what is left out, or None if it writes none."""
        request = self._context.summary_request(dropped, self.length)
        summary = StreamedReply(model.name, self._pass_on_retry, lambda _message: None)
        try:
            await summary.read(model.reply(request, ()))
        except base.ProviderError as error:
            why = Sentence(
                N_("The earlier conversation could not be summarized: {why}"), why=str(error)
            )
            self._emit(Notice(why))
            return None
        message = summary.message()
        self._spent_on_summary += self.spent(summary, request)
        if summary.usage is not None:
            self._count(summary.usage)
        text = self._context.shorten_summary(message.text, self.length)
        return Message(Role.SUMMARY, text, model=model.name, at=message.at) if text else None

    def _count(self, usage: base.Usage) -> None:
        self._emit(TokensUsed(usage.prompt, usage.reply, self.length, usage.cost))

    def _pass_on_retry(self, event: ChatEvent) -> None:
        if isinstance(event, Retrying):
            self._emit(event)


def _describe(tools: Sequence[Tool]) -> list[ToolSpec]:
    return [
        ToolSpec(tool.name, tool.description, tool.parameters, tool.is_sandboxed) for tool in tools
    ]
