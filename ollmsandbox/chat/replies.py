# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks a model, with the prompt, the tools, and as much of the conversation as it can hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ..tools.base import Tool
from .context import Context
from .events import Event, Notice, Spent
from .growing import Growing
from .messages import Message, Role, ToolSpec
from .providers.base import Model, TooLongError


class Replies:
    def __init__(
        self,
        tools: Sequence[Tool],
        prompt: str | Callable[[], str],
        emit: Callable[[Event], None],
    ) -> None:
        self._tools = tools
        self._prompt = prompt
        self._emit = emit
        self._context = Context()
        self._specs: list[ToolSpec] | None = None

    async def read(self, model: Model, growing: Growing, messages: Sequence[Message]) -> None:
        if self._specs is None:
            # What the tools have to say about this machine is found out by trying.
            self._specs = await asyncio.to_thread(_describe, self._tools)
        prompt = Message(Role.SYSTEM, await self._say_prompt())
        length = await model.context_length()
        while True:
            fitted = self._context.fit(prompt, messages, self._specs, length)
            if fitted.notice:
                self._emit(Notice(fitted.notice))
            try:
                await growing.read(model.reply(fitted.messages, self._specs))
                break
            except TooLongError:
                if growing.has_begun or not self._context.was_too_long():
                    raise
        if growing.usage is not None:
            self._context.learn(growing.usage.prompt)
            self._emit(Spent(growing.usage.prompt, growing.usage.reply, length))

    def spent(self, reply: Growing, messages: Sequence[Message]) -> int:
        """Tokens: as the server counted them, else about."""
        if reply.usage is not None:
            return reply.usage.prompt + reply.usage.reply
        return self._context.estimate([*messages, reply.message()])

    async def _say_prompt(self) -> str:
        prompt = self._prompt
        return prompt if isinstance(prompt, str) else await asyncio.to_thread(prompt)


def _describe(tools: Sequence[Tool]) -> list[ToolSpec]:
    return [ToolSpec(tool.name, tool.description, tool.parameters) for tool in tools]
