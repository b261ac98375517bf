# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers with OpenAI's interface: llama.cpp, vLLM, LM Studio and many more."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ...tools.base import Picture
from ..messages import Message, Role, ServerFields, ToolSpec
from . import base, convert
from .client import Client, EventReader, LineReader
from .errors import answer_lost, not_a_model_server
from .json_reader import inside, list_value, number_value, read_json, text_value
from .mask import KeyMask
from .remote import RemoteModel, RemoteServer
from .think import TextSplitter

_MOST_CALLS = 128
_THINKING_FIELDS = ("reasoning_content", "reasoning")
# Other fields of a message that its server may expect back.
_MESSAGE_FIELDS = ("extra_content", "provider_specific_fields", "thinking_blocks")
# Several servers send the name of what they filtered instead of OpenAI's word.
_FILTERED = (
    *("content_filter", "safety", "prohibited_content", "blocklist", "spii", "recitation"),
    *("refusal", "sensitive"),
)


@dataclass
class _Call:
    """A call that is still arriving."""

    index: int | None
    id: str = ""
    name: str = ""
    text: str = ""
    # Some servers send the arguments as an object instead of text.
    whole: Mapping[str, object] | None = None
    fields: Mapping[str, object] = field(default_factory=dict)


class _Details:
    """Puts the pieces of OpenRouter's `reasoning_details` together, which are to be returned whole
    and in order."""

    def __init__(self) -> None:
        self._found: list[tuple[dict[str, object], dict[str, list[str]]]] = []

    def add(self, given: object) -> None:
        if not isinstance(given, Mapping):
            return
        texts = {name: text_value(given.get(name)) for name in ("text", "summary")}
        others = {k: v for k, v in given.items() if v is not None and k not in texts}
        last = self._found[-1] if self._found else None
        same = last and all(last[0].get(key) == given.get(key) for key in ("type", "index"))
        if last is None or not same or (not any(texts.values()) and "data" in others):
            if len(self._found) >= 10_000:
                return
            last = ({}, {})
            self._found.append(last)
        last[0].update(others)
        for name, text in texts.items():
            if text:
                last[1].setdefault(name, []).append(text)

    def whole(self) -> list[dict[str, object]]:
        return [
            {**others, **{name: "".join(parts) for name, parts in texts.items()}}
            for others, texts in self._found
        ]


class OpenAIStream:
    """Turns the events of one answer into pieces."""

    def __init__(self, mask: KeyMask, tools: Sequence[ToolSpec] = (), origin: str = "") -> None:
        self._mask = mask
        self._origin = origin
        self._splitter = TextSplitter(mask)
        self._tools = tools
        self._calls: list[_Call] = []
        self._thinking_field = ""
        self._fields: dict[str, object] = {}
        self._details = _Details()
        self._finish = ""
        # The answer is complete, whether or not the server closes the connection.
        self.is_done = False
        # At least one event had the right format.
        self.understood = False
        self.error: str | None = None
        self.usage: base.Usage | None = None

    @property
    def is_complete(self) -> bool:
        return self.is_done or bool(self._finish)

    @property
    def finish(self) -> base.FinishPiece:
        reason = self._finish.partition(":")[0].lower()
        return base.FinishPiece(cut_off=reason == "length", filtered=reason in _FILTERED)

    def read(self, event: str) -> list[base.Piece]:
        if event.strip() == "[DONE]":
            self.is_done = self.understood = True
            return []
        try:
            return self._take(read_json(event))
        except ValueError:
            pass
        # Some servers leave out the empty line between events.
        pieces: list[base.Piece] = []
        for line in event.split("\n") if "\n" in event else []:
            pieces += self.read(line)
        return pieces

    def end(self) -> list[base.Piece]:
        pieces = self._splitter.end()
        if self.is_complete and not self.finish.filtered:
            for call in self._calls:
                if call.name:
                    given = call.text if call.whole is None else call.whole
                    made = convert.read_call(
                        call.id, call.name, given, call.fields, self._mask, self._tools
                    )
                    pieces.append(base.CallPiece(made))
            fields = convert.masked_fields(
                {**self._fields, "reasoning_details": self._details.whole()}, self._mask
            )
            if self._thinking_field or fields or self._calls:
                pieces.append(ServerFields(self._origin, self._thinking_field, fields))
        return pieces

    def _take(self, found: object) -> list[base.Piece]:
        if not isinstance(found, Mapping):
            return []
        choices = list_value(found.get("choices"))
        if found.get("error") or (not choices and found.get("object") == "error"):
            self.error = json.dumps(found)
            return []
        self.understood = self.understood or "choices" in found
        self._count(found.get("usage"))
        choice = choices[0] if choices else None
        # A server that does not stream sends a message instead of a delta.
        delta = inside(choice, "delta") or inside(choice, "message")
        pieces: list[base.Piece] = []
        for name in _THINKING_FIELDS:
            thought = inside(delta, name)
            if isinstance(thought, str):
                # Empty thinking is expected back, too.
                self._thinking_field = self._thinking_field or name
                pieces += self._splitter.thinking(thought)
                break
        for detail in list_value(inside(delta, "reasoning_details")):
            self._details.add(detail)
        for name in _MESSAGE_FIELDS:
            if value := inside(delta, name):
                self._fields[name] = value
        pieces += self._splitter.text(_content(inside(delta, "content")))
        pieces += self._splitter.text(text_value(inside(delta, "refusal")))
        for given in list_value(inside(delta, "tool_calls")):
            self._add(given)
        if reason := text_value(inside(choice, "finish_reason")):
            self._finish = reason
        return pieces

    def _count(self, given: object) -> None:
        prompt = number_value(inside(given, "prompt_tokens"))
        said = number_value(inside(given, "completion_tokens"))
        if prompt is not None or said is not None:
            self.usage = base.Usage(prompt or 0, said or 0)

    def _add(self, given: object) -> None:
        call = self._which(given)
        if call is None:
            return
        call.id = call.id or text_value(inside(given, "id"))
        call.name = call.name or text_value(inside(given, "function", "name"))
        call.fields = {**call.fields, **convert.call_fields(given, self._mask)}
        arguments = inside(given, "function", "arguments")
        if isinstance(arguments, Mapping):
            call.whole = arguments
        else:
            call.text += text_value(arguments)

    def _which(self, given: object) -> _Call | None:
        """Return the call that a piece belongs to: by its index, else by its id, else the last."""
        index = number_value(inside(given, "index"))
        id_ = text_value(inside(given, "id"))
        name = text_value(inside(given, "function", "name"))
        found: _Call | None = None
        if index is not None:
            found = next((c for c in reversed(self._calls) if c.index == index), None)
        elif id_:
            found = next((c for c in self._calls if c.id == id_), None)
        elif not name and self._calls:
            found = self._calls[-1]
        # Some servers give every call the index 0, and different ids.
        if found and name and id_ and found.id and id_ != found.id:
            found = None
        if found is None and len(self._calls) < _MOST_CALLS:
            found = _Call(index)
            self._calls.append(found)
        return found


def _content(given: object) -> str:
    """Return the text of a message's content, which may be a list of parts."""
    if isinstance(given, list):
        return "".join(text_value(inside(part, "text")) for part in given)
    return text_value(given)


_LENGTHS = (
    ("max_model_len",),  # vLLM
    ("loaded_context_length",),  # LM Studio
    ("meta", "n_ctx"),  # llama.cpp
    ("meta", "n_ctx_train"),
    ("context_length",),  # several commercial services
    ("context_window",),
    ("max_context_length",),
)
_ABOUT_PICTURES = re.compile(r"image|picture|vision|multimodal|mmproj", re.IGNORECASE)
_ABOUT_ORDER = re.compile(r"roles must alternate|role .?user.? after role .?tool", re.IGNORECASE)
_DEPLOYMENT = re.compile(r"(?P<root>.*)/deployments/(?P<name>[^/]+)")


class OpenAIServer(RemoteServer):
    async def models(self) -> list[base.ModelInfo]:
        if deployment := _DEPLOYMENT.fullmatch(self._client.root):
            # Azure lists what could be deployed; the address names what is.
            await self._client.ask("/models", root=deployment["root"])
            return [base.ModelInfo(deployment["name"])]
        found = await self._client.ask("/models")
        entries = found.get("data")
        if not isinstance(entries, list):
            raise not_a_model_server(self.address)
        named = [(text_value(inside(entry, "id")), entry) for entry in entries]
        return [base.ModelInfo(name, _length(entry)) for name, entry in named if name]

    def model(self, name: str) -> OpenAIModel:
        return OpenAIModel(name, self._client)


def _length(entry: object) -> int | None:
    return next((n for path in _LENGTHS if (n := number_value(inside(entry, *path)))), None)


def _sees(entry: object) -> bool | None:
    """Return whether a model accepts pictures; None if its server does not say."""
    for path in (("architecture", "input_modalities"), ("input_modalities",), ("modalities",)):
        if isinstance(kinds := inside(entry, *path), list):
            return "image" in kinds
    can = inside(entry, "capabilities")
    if isinstance(can, list):
        return "multimodal" in can or "vision" in can
    # An object of Mistral, or of llama.cpp.
    for said in (inside(can, "vision"), inside(entry, "modalities", "vision")):
        if isinstance(said, bool):
            return said
    return None


class OpenAIModel(RemoteModel):
    def __init__(self, name: str, client: Client) -> None:
        super().__init__(name, client)
        self._length = self._settings.room
        # Newer models of OpenAI insist on another name.
        self._answer_field = "max_tokens"
        # Not every server supports the option.
        self._wants_usage = True
        # Mistral's servers and templates accept a message of the user only after an answer.
        self._answers_first = False
        self._was_described = False
        # DeepSeek refuses requests without any of its thinking.
        host = urlsplit(client.root).hostname or ""
        is_deepseek = host == "deepseek.com" or host.endswith(".deepseek.com")
        if is_deepseek:
            self._thinking = convert.ReturnThinking.ALWAYS

    async def context_length(self) -> int | None:
        has_list = not _DEPLOYMENT.fullmatch(self._client.root)
        if has_list and (self._length is None or not self._was_described):
            try:
                await self._read_description()
            except base.ProviderError:
                if self._length is None:
                    raise
        return self._length

    async def _read_description(self) -> None:
        found = await self._client.ask("/models")
        entries = list_value(found.get("data"))
        mine = next((e for e in entries if inside(e, "id") == self.name), None)
        length, sees = _length(mine), _sees(mine)
        if inside(mine, "meta") is not None:
            started = await self._started_with()
            context = number_value(inside(started, "default_generation_settings", "n_ctx"))
            length = min((number for number in (length, context) if number), default=None)
            sees = _sees(started) if sees is None else sees
        self._length = self._settings.room or length
        self._sees = sees if self._sees is None else self._sees
        self._was_described = True

    async def _started_with(self) -> object:
        """Return what llama.cpp was started with: its context is often smaller than the model's
        maximum, and a model sees only with a second file."""
        try:
            return await self._client.ask("/props", root=self._client.root.removesuffix("/v1"))
        except base.ProviderError:
            return None

    async def _reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[base.Piece, None]:
        always = self._thinking is convert.ReturnThinking.ALWAYS
        body: dict[str, object] = {
            "model": self.name,
            "messages": to_openai(
                self.sent(messages), always_thinking=always, answers_first=self._answers_first
            ),
            "stream": True,
        }
        if tools:
            body["tools"] = convert.tool_list(tools)
        if self._settings.answer is not None:
            body[self._answer_field] = self._settings.answer
        if self._settings.effort is not None:
            body["reasoning_effort"] = self._settings.effort.value
        if self._settings.temperature is not None:
            body["temperature"] = self._settings.temperature
        if self._wants_usage:
            body["stream_options"] = {"include_usage": True}
        try:
            async with self._client.stream("/chat/completions", body, self.name) as exchange:
                answer = OpenAIStream(self._client.mask, tools, self._origin)
                if "application/json" in exchange.headers.get("content-type", ""):
                    # The answer of a server that does not stream.
                    whole = (await exchange.read_all(64 << 20)).decode("utf-8", "replace")
                    for piece in self._read(answer, whole):
                        yield piece
                else:
                    reader = EventReader(LineReader(exchange.read))
                    while not answer.is_done and (event := await reader.next()) is not None:
                        for piece in self._read(answer, event):
                            yield piece
        except base.ProviderError as error:
            had_pictures = any(message.pictures for message in messages)
            if not self._learn(error, had_pictures=had_pictures):
                raise
            raise base.ProviderError(
                error.message, error.remedy, retries=base.MOST_RETRIES, again_after=0.0
            ) from None
        for piece in answer.end():
            yield piece
        if not answer.is_complete:
            raise answer_lost(self._client.root, was_understood=answer.understood)
        if answer.usage is not None:
            yield self._settings.usage(answer.usage.prompt, answer.usage.reply)
        yield answer.finish

    def _learn(self, error: base.ProviderError, *, had_pictures: bool) -> bool:
        """Learn from a refusal what the server wants or does not know. Return whether the request
        is worth repeating."""
        said = error.said
        if had_pictures and self.sees_pictures and _ABOUT_PICTURES.search(said):
            # It would refuse every further message, too.
            self._sees = False
            return True
        if not self._answers_first and _ABOUT_ORDER.search(said):
            self._answers_first = True
            return True
        # Servers also say 500 to the two above.
        if error.can_retry:
            return False
        if self._wants_usage and "stream_options" in said:
            self._wants_usage = False
            return True
        if self._answer_field == "max_tokens" and "max_completion_tokens" in said:
            self._answer_field = "max_completion_tokens"
            return True
        names = (*_THINKING_FIELDS, "reasoning_details", *_MESSAGE_FIELDS)
        if not re.search(rf"\b({'|'.join(names)})\b", said):
            return False
        is_missing = re.search(r"must be|missing|required|passed back", said, re.IGNORECASE)
        wanted = convert.ReturnThinking.ALWAYS if is_missing else convert.ReturnThinking.NEVER
        if self._thinking in (wanted, convert.ReturnThinking.NEVER):
            return False
        self._thinking = wanted
        return True

    def _read(self, answer: OpenAIStream, event: str) -> list[base.Piece]:
        pieces = answer.read(event)
        if answer.error is not None:
            raise self._client.failed(answer.error, self.name)
        return pieces


def _part(picture: Picture) -> dict[str, object]:
    url = f"data:{picture.media_type};base64,{picture.in_base64}"
    return {"type": "image_url", "image_url": {"url": url}}


def to_openai(
    messages: Sequence[Message], *, always_thinking: bool = False, answers_first: bool = False
) -> list[dict[str, object]]:
    """Return the messages in OpenAI's format. `always_thinking` adds empty thinking to replies that
    have none, `answers_first` a reply between a result and a message of the user."""
    sent: list[dict[str, object]] = []
    # The ids of the calls before, as they are sent.
    ids: dict[str, object] = {}
    found = convert.with_pictures(convert.pair_calls(messages))
    for message in convert.with_answers(found) if answers_first else found:
        entry: dict[str, object] = {"role": message.role.value, "content": message.text}
        if message.pictures:
            text = [{"type": "text", "text": message.text}] if message.text else []
            entry["content"] = [*text, *map(_part, message.pictures)]
        if always_thinking and message.role is Role.ASSISTANT:
            entry["reasoning_content"] = ""
        if message.fields is not None:
            entry.update(message.fields.others)
            if message.fields.thinking:
                entry[message.fields.thinking] = message.thinking
        if message.calls:
            entries = entry["tool_calls"] = [
                {
                    **call.fields,
                    "id": call.id if message.fields else convert.valid_id(call.id),
                    "type": "function",
                    "function": {
                        "name": convert.valid_name(call.name),
                        "arguments": json.dumps(convert.arguments_object(call), ensure_ascii=False),
                    },
                }
                for call in message.calls
            ]
            ids.update((c.id, one["id"]) for c, one in zip(message.calls, entries, strict=True))
        if message.role is Role.TOOL:
            entry["tool_call_id"] = ids[message.call_id]
        sent.append(entry)
    return sent
