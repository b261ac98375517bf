# SPDX-License-Identifier: GPL-3.0-or-later
"""Any server that speaks as OpenAI's does: llama.cpp, vLLM, LM Studio and many more."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence

from ..messages import Message, Role, ToolSpec
from .address import openai_root
from .base import Finished, ModelInfo, Piece, ProviderError
from .client import Client, KeySource, retried
from .failures import broke_off, not_a_model_server
from .http import Exchange
from .lines import EventReader, LineReader
from .openai_stream import Answer
from .outgoing import answered, arguments_object, tool_list
from .reading import a_list, a_number, a_text, inside
from .usual import Timeouts

_LENGTHS = (
    ("max_model_len",),  # vLLM
    ("loaded_context_length",),  # LM Studio
    ("meta", "n_ctx"),  # llama.cpp
    ("meta", "n_ctx_train"),
    ("context_length",),  # several that sell
    ("context_window",),
    ("max_context_length",),
)
_MOST_OF_A_WHOLE = 64 << 20


class OpenAIServer:
    def __init__(
        self, address: str, *, key: KeySource | None = None, timeouts: Timeouts | None = None
    ) -> None:
        self._client = Client(openai_root(address), key=key, timeouts=timeouts)

    @property
    def address(self) -> str:
        return self._client.root

    async def models(self) -> list[ModelInfo]:
        found = await self._client.ask("/models")
        entries = found.get("data")
        if not isinstance(entries, list):
            raise not_a_model_server(self.address)
        named = [(a_text(inside(entry, "id")), entry) for entry in entries]
        return [ModelInfo(name, _length(entry)) for name, entry in named if name]

    def model(self, name: str) -> OpenAIModel:
        return OpenAIModel(name, self._client)


def _length(entry: object) -> int | None:
    return next((n for path in _LENGTHS if (n := a_number(inside(entry, *path)))), None)


class OpenAIModel:
    def __init__(self, name: str, client: Client) -> None:
        self._name = name
        self._client = client
        self._length: int | None = None
        # Not every server knows it.
        self._wants_usage = True

    @property
    def name(self) -> str:
        return self._name

    async def context_length(self) -> int | None:
        if self._length is None:
            found = await self._client.ask("/models")
            entries = a_list(found.get("data"))
            mine = next((e for e in entries if inside(e, "id") == self._name), None)
            self._length = _length(mine)
            if inside(mine, "meta") is not None:
                self._length = _least(self._length, await self._started_with())
        return self._length

    async def _started_with(self) -> int | None:
        """llama.cpp tells beside its interface what it was started with, often less than what the
        model was made for."""
        try:
            found = await self._client.ask("/props", root=self._client.root.removesuffix("/v1"))
        except ProviderError:
            return None
        return a_number(inside(found, "default_generation_settings", "n_ctx"))

    def reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[Piece, None]:
        return retried(lambda: self._reply(messages, tools))

    async def _reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[Piece, None]:
        body: dict[str, object] = {
            "model": self._name,
            "messages": to_openai(messages),
            "stream": True,
        }
        if tools:
            body["tools"] = tool_list(tools)
        if self._wants_usage:
            body["stream_options"] = {"include_usage": True}
        try:
            async with self._client.stream("/chat/completions", body, self._name) as exchange:
                answer = Answer((call.id for m in messages for call in m.calls), self._client.mask)
                if "application/json" in exchange.headers.get("content-type", ""):
                    events = await self._whole(exchange)
                    for text in events:
                        for piece in self._read(answer, text):
                            yield piece
                else:
                    reader = EventReader(LineReader(exchange.read))
                    while not answer.is_done and (event := await reader.next()) is not None:
                        for piece in self._read(answer, event):
                            yield piece
        except ProviderError as error:
            if not self._wants_usage or "stream_options" not in error.message:
                raise
            self._wants_usage = False
            raise ProviderError(error.message, error.remedy, again_after=0.0) from None
        for piece in answer.end():
            yield piece
        if not answer.is_complete:
            known = answer.understood
            raise broke_off(self._client.root) if known else not_a_model_server(self._client.root)
        if answer.usage is not None:
            yield answer.usage
        yield Finished(cut_off=answer.cut_off)

    async def _whole(self, exchange: Exchange) -> list[str]:
        """A server that does not stream."""
        return [(await exchange.read_all(_MOST_OF_A_WHOLE)).decode("utf-8", "replace")]

    def _read(self, answer: Answer, event: str) -> list[Piece]:
        pieces = answer.read(event)
        if answer.error is not None:
            raise self._client.failed(answer.error, self._name)
        return pieces


def _least(one: int | None, two: int | None) -> int | None:
    known = [number for number in (one, two) if number]
    return min(known) if known else None


def to_openai(messages: Sequence[Message]) -> list[dict[str, object]]:
    sent: list[dict[str, object]] = []
    for message in answered(messages):
        entry: dict[str, object] = {"role": message.role.value, "content": message.text}
        if message.calls:
            entry["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {
                        "name": call.name,
                        "arguments": json.dumps(arguments_object(call), ensure_ascii=False),
                    },
                }
                for call in message.calls
            ]
        if message.role is Role.TOOL:
            entry["tool_call_id"] = message.call_id
        sent.append(entry)
    return sent
