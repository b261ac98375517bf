# SPDX-License-Identifier: GPL-3.0-or-later
"""Ollama, through its own interface, which lets the client set the size of the context."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence

from ..messages import Message, Role, ServerFields, ToolSpec
from . import base, convert
from .client import Client, LineReader
from .errors import answer_lost, not_a_model_server
from .json_reader import inside, list_value, number_value, read_object, text_value
from .remote import RemoteModel, RemoteServer
from .think import TextSplitter

_AT_ONCE = 4


class OllamaServer(RemoteServer):
    async def models(self) -> list[base.ModelInfo]:
        names = await ollama_names(self._client)
        loaded = await loaded_models(self._client)
        turn = asyncio.Semaphore(_AT_ONCE)

        async def look(name: str) -> base.ModelInfo:
            async with turn:
                try:
                    info = await show(self._client, name)
                except base.ProviderError:
                    info = base.ModelInfo(name)  # can be chosen even if its details are unknown
            return info._replace(is_loaded=None if loaded is None else name in loaded)

        return list(await asyncio.gather(*map(look, names)))

    def model(self, name: str) -> OllamaModel:
        return OllamaModel(name, self._client)


async def ollama_names(client: Client) -> list[str]:
    """Return the names of all models of a server. Raise ProviderError if it is not Ollama."""
    entries = (await client.ask("/api/tags")).get("models")
    if not isinstance(entries, list):
        raise not_a_model_server(client.root)
    names = (text_value(inside(entry, "name") or inside(entry, "model")) for entry in entries)
    return [name for name in names if name]


async def loaded_models(client: Client) -> set[str] | None:
    """Return the names of the models in the server's memory, or None if it does not say."""
    try:
        found = await client.ask("/api/ps")
    except base.ProviderError:
        return None  # older versions do not report it
    return {text_value(inside(entry, "name")) for entry in list_value(found.get("models"))}


async def show(client: Client, name: str) -> base.ModelInfo:
    found = await client.ask("/api/show", {"model": name}, model=name)
    facts = found.get("model_info")
    length = None
    if isinstance(facts, Mapping):
        # The key begins with the model family: llama.context_length.
        lengths = [number_value(v) for k, v in facts.items() if str(k).endswith(".context_length")]
        length = next((number for number in lengths if number), None)
    can = found.get("capabilities")
    if not isinstance(can, list):
        return base.ModelInfo(name, length)
    return base.ModelInfo(name, length, "tools" in can, can_see="vision" in can)


class OllamaModel(RemoteModel):
    def __init__(self, name: str, client: Client) -> None:
        super().__init__(name, client)
        self._room = self._settings.room or base.DEFAULT_CONTEXT
        self._used: int | None = None

    async def context_length(self) -> int | None:
        """Return the size that will be requested, not the model's maximum."""
        if self._used is None:
            found = await show(self._client, self.name)
            self._sees = found.can_see
            self._used = min(found.context_length or self._room, self._room)
        return self._used

    async def is_loaded(self) -> bool | None:
        loaded = await loaded_models(self._client)
        # Ollama adds the tag to a name without one.
        names = {self.name, f"{self.name}:latest"}
        return None if loaded is None else not names.isdisjoint(loaded)

    async def _body(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> dict[str, object]:
        """Return what the server is asked."""
        # First: it finds out whether the model can see.
        options = {
            "num_ctx": await self.context_length(),
            "num_predict": self._settings.answer,
            "temperature": self._settings.temperature,
        }
        body: dict[str, object] = {
            "model": self.name,
            "messages": to_ollama(self.sent(messages)),
            "stream": True,
            "options": {name: value for name, value in options.items() if value is not None},
        }
        if self._settings.effort is not None:
            effort = self._settings.effort
            body["think"] = False if effort is base.Effort.NONE else effort.value
        if tools:
            body["tools"] = convert.tool_list(tools)
        return body

    async def _reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[base.Piece, None]:
        body = await self._body(messages, tools)
        async with self._client.stream("/api/chat", body, self.name) as exchange:
            mask = self._client.mask
            words = TextSplitter(mask)
            lines = LineReader(exchange.read)
            understood = has_calls = False
            field = ""
            while (line := await lines.next()) is not None:
                found = read_object(line)
                if found.get("error"):
                    raise self._client.failed(line, self.name)
                understood = understood or "message" in found or "done" in found
                message = found.get("message")
                if thought := text_value(inside(message, "thinking")):
                    field = "thinking"
                for piece in words.thinking(thought):
                    yield piece
                for piece in words.text(text_value(inside(message, "content"))):
                    yield piece
                for given in list_value(inside(message, "tool_calls")):
                    if name := text_value(inside(given, "function", "name")):
                        arguments = inside(given, "function", "arguments")
                        has_calls = True
                        id_, fields = inside(given, "id"), convert.call_fields(given, mask)
                        yield base.CallPiece(
                            convert.read_call(text_value(id_), name, arguments, fields, mask, tools)
                        )
                if found.get("done") is True:
                    for piece in words.end():
                        yield piece
                    if field or has_calls:
                        yield ServerFields(self._origin, field)
                    prompt, said = (
                        number_value(found.get(key)) for key in ("prompt_eval_count", "eval_count")
                    )
                    if prompt is not None or said is not None:
                        yield self._settings.usage(prompt or 0, said or 0)
                    yield base.FinishPiece(cut_off=found.get("done_reason") == "length")
                    return
        for piece in words.end():
            yield piece
        raise answer_lost(self._client.root, was_understood=understood)


def to_ollama(messages: Sequence[Message]) -> list[dict[str, object]]:
    names = {call.id: call.name for message in messages for call in message.calls}
    sent: list[dict[str, object]] = []
    for message in convert.with_pictures(convert.pair_calls(messages)):
        entry: dict[str, object] = {"role": message.role.value, "content": message.text}
        if message.pictures:
            entry["images"] = [picture.in_base64 for picture in message.pictures]
        if message.calls:
            entry["tool_calls"] = [
                {
                    **call.fields,
                    "function": {
                        "name": convert.valid_name(call.name),
                        "arguments": convert.arguments_object(call),
                    },
                }
                for call in message.calls
            ]
        if message.thinking and message.fields and message.fields.thinking:
            entry["thinking"] = message.thinking
        if message.role is Role.TOOL:
            entry["tool_name"] = convert.valid_name(names[message.call_id])
        sent.append(entry)
    return sent
