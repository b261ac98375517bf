# SPDX-License-Identifier: GPL-3.0-or-later
"""Ollama, through its own interface, which lets the client set the size of the context."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace

from ..messages import Message, Role, ToolSpec
from .base import (
    DEFAULT_CONTEXT,
    CallPiece,
    FinishPiece,
    ModelInfo,
    Piece,
    ProviderError,
    Timeouts,
    Usage,
    ollama_root,
)
from .client import Client, KeySource, LineReader, retried
from .convert import CallBuilder, arguments_object, names_of_calls, pair_calls, tool_list
from .errors import answer_lost, not_a_model_server
from .lenient import inside, list_value, number_value, read_object, text_value
from .think import TextSplitter

_AT_ONCE = 4


class OllamaServer:
    def __init__(
        self,
        address: str,
        *,
        key: KeySource | None = None,
        timeouts: Timeouts | None = None,
        room: int = DEFAULT_CONTEXT,
    ) -> None:
        self._client = Client(ollama_root(address), key=key, timeouts=timeouts)
        self._room = room

    @property
    def address(self) -> str:
        return self._client.root

    async def models(self) -> list[ModelInfo]:
        found = await self._client.ask("/api/tags")
        entries = found.get("models")
        if not isinstance(entries, list):
            raise not_a_model_server(self.address)
        names = [
            name
            for entry in entries
            if (name := text_value(inside(entry, "name") or inside(entry, "model")))
        ]
        loaded = await loaded_models(self._client)
        turn = asyncio.Semaphore(_AT_ONCE)

        async def look(name: str) -> ModelInfo:
            async with turn:
                info = await self._look(name)
            return replace(info, is_loaded=None if loaded is None else name in loaded)

        return list(await asyncio.gather(*map(look, names)))

    def model(self, name: str) -> OllamaModel:
        return OllamaModel(name, self._client, self._room)

    async def _look(self, name: str) -> ModelInfo:
        try:
            return await show(self._client, name)
        except ProviderError:
            return ModelInfo(name)  # can be chosen even if its details are unknown


async def loaded_models(client: Client) -> set[str] | None:
    """Return the names of the models in the server's memory, or None if it does not say."""
    try:
        found = await client.ask("/api/ps")
    except ProviderError:
        return None  # older versions do not report it
    return {text_value(inside(entry, "name")) for entry in list_value(found.get("models"))}


async def show(client: Client, name: str) -> ModelInfo:
    found = await client.ask("/api/show", {"model": name}, model=name)
    facts = found.get("model_info")
    length = None
    if isinstance(facts, Mapping):
        # The key begins with the model family: llama.context_length.
        lengths = [number_value(v) for k, v in facts.items() if str(k).endswith(".context_length")]
        length = next((number for number in lengths if number), None)
    can = found.get("capabilities")
    return ModelInfo(name, length, "tools" in can if isinstance(can, list) else None)


class OllamaModel:
    def __init__(self, name: str, client: Client, room: int) -> None:
        self._name = name
        self._client = client
        self._room = room
        self._used: int | None = None

    @property
    def name(self) -> str:
        return self._name

    async def context_length(self) -> int | None:
        """Return the size that will be requested, not the model's maximum."""
        if self._used is None:
            length = (await show(self._client, self._name)).context_length
            self._used = min(length or self._room, self._room)
        return self._used

    async def is_loaded(self) -> bool | None:
        loaded = await loaded_models(self._client)
        # Ollama adds the tag to a name without one.
        names = {self._name, f"{self._name}:latest"}
        return None if loaded is None else not names.isdisjoint(loaded)

    def reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[Piece, None]:
        return retried(lambda: self._reply(messages, tools))

    async def _reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[Piece, None]:
        body: dict[str, object] = {
            "model": self._name,
            "messages": to_ollama(messages),
            "stream": True,
            "options": {"num_ctx": await self.context_length()},
        }
        if tools:
            body["tools"] = tool_list(tools)
        async with self._client.stream("/api/chat", body, self._name) as exchange:
            mask = self._client.mask
            words = TextSplitter(mask)
            maker = CallBuilder((call.id for m in messages for call in m.calls), mask)
            lines = LineReader(exchange.read)
            understood = False
            while (line := await lines.next()) is not None:
                found = read_object(line)
                if found.get("error"):
                    raise self._client.failed(line, self._name)
                understood = understood or "message" in found or "done" in found
                message = found.get("message")
                for piece in words.thinking(text_value(inside(message, "thinking"))):
                    yield piece
                for piece in words.text(text_value(inside(message, "content"))):
                    yield piece
                for given in list_value(inside(message, "tool_calls")):
                    if name := text_value(inside(given, "function", "name")):
                        arguments = inside(given, "function", "arguments")
                        yield CallPiece(
                            maker.make(text_value(inside(given, "id")), name, arguments)
                        )
                if found.get("done") is True:
                    for piece in words.end():
                        yield piece
                    prompt, said = (
                        number_value(found.get(key)) for key in ("prompt_eval_count", "eval_count")
                    )
                    if prompt is not None or said is not None:
                        yield Usage(prompt or 0, said or 0)
                    yield FinishPiece(cut_off=found.get("done_reason") == "length")
                    return
        for piece in words.end():
            yield piece
        raise (
            answer_lost(self._client.root) if understood else not_a_model_server(self._client.root)
        )


def to_ollama(messages: Sequence[Message]) -> list[dict[str, object]]:
    names = names_of_calls(messages)
    sent: list[dict[str, object]] = []
    for message in pair_calls(messages):
        entry: dict[str, object] = {"role": message.role.value, "content": message.text}
        if message.calls:
            entry["tool_calls"] = [
                {"function": {"name": call.name, "arguments": arguments_object(call)}}
                for call in message.calls
            ]
        if message.role is Role.TOOL:
            entry["tool_name"] = names[message.call_id]
        sent.append(entry)
    return sent
