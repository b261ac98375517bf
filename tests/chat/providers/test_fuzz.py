# SPDX-License-Identifier: GPL-3.0-or-later
"""Random server replies end in pieces or a ProviderError, never in another exception."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.provider import TOOL, ask, ollama, openai
from support.servers.http import Replay, Reply, Seen, document, in_pieces
from support.servers.strict import ollama_faults, openai_faults

from ollmsandbox.chat.conversation import with_unique_ids
from ollmsandbox.chat.messages import Message, Role
from ollmsandbox.chat.providers.base import (
    CallPiece,
    Piece,
    ProviderError,
    TextPiece,
    ThinkingPiece,
)
from ollmsandbox.chat.providers.client import EventReader, LineReader
from ollmsandbox.chat.providers.convert import ReturnThinking, returned
from ollmsandbox.chat.providers.json_reader import read_arguments
from ollmsandbox.chat.providers.mask import INSTEAD, KeyMask
from ollmsandbox.chat.providers.ollama import to_ollama
from ollmsandbox.chat.providers.openai import OpenAIStream, to_openai
from ollmsandbox.chat.providers.think import TextSplitter
from ollmsandbox.chat.reply import StreamedReply

pytestmark = pytest.mark.anybody

QUICK = settings(max_examples=80, deadline=None, database=None, derandomize=True)
WITH_A_SERVER = settings(
    max_examples=20,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = (
    "choices", "delta", "message", "content", "tool_calls", "function", "name", "arguments",
    "index", "id", "finish_reason", "error", "usage", "done", "thinking", "prompt_tokens",
    "model_info", "capabilities", "data", "models", "reasoning", "reasoning_content",
    "reasoning_details", "extra_content", "refusal", "type", "text", "summary",
)  # fmt: skip
shaped = st.recursive(
    anything,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=25,
)
junk = st.binary(max_size=40) | st.sampled_from(
    [b"", b": ping", b"data: [DONE]", b"data:", b"event: x", b"error: 1", b"{", b"\xf0\x9f", b"\r"]
)


@st.composite
def bodies(draw: st.DrawFn) -> list[bytes]:
    """Lines that are nearly right, cut anywhere."""
    lines = draw(
        st.lists(
            junk
            | shaped.map(lambda one: json.dumps(one).encode())
            | shaped.map(lambda one: b"data: " + json.dumps(one).encode() + b"\n"),
            max_size=8,
        )
    )
    data = draw(st.sampled_from([b"\n", b"\r\n", b"\n\n"])).join(lines)
    return in_pieces(data, draw(st.integers(1, 50)))


def assert_sound(pieces: list[Piece]) -> None:
    for piece in pieces:
        if isinstance(piece, TextPiece | ThinkingPiece):
            assert piece.text
            piece.text.encode("utf-8")
        if isinstance(piece, CallPiece):
            assert piece.call.id
            assert piece.call.name
            json.dumps(piece.call.arguments).encode("utf-8")


class Fuzzed:
    """One server for all examples; each example sets its next reply."""

    def __init__(self) -> None:
        self.reply = Reply()
        self.server = Replay({"/api/show": document({}), "*": self._answer})

    def _answer(self, _seen: Seen) -> Reply:
        return self.reply


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Fuzzed]:
    found = Fuzzed()
    with found.server:
        yield found


@WITH_A_SERVER
@given(
    parts=bodies(), chunked=st.booleans(), broken=st.booleans(), status=st.sampled_from([200, 400])
)
def test_any_stream_is_an_answer_or_a_sentence(
    fuzzed: Fuzzed, parts: list[bytes], chunked: bool, broken: bool, status: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ollmsandbox.chat.providers.client.RETRY_DELAYS", ())
        fuzzed.reply = Reply(parts, status, chunked=chunked, broken=broken)
        for model in (openai(fuzzed.server.address), ollama(fuzzed.server.address)):
            try:
                assert_sound(ask(model))
            except ProviderError as error:
                assert error.message


def reader(parts: list[bytes]) -> Callable[[], Awaitable[bytes]]:
    left = [part for part in parts if part]

    async def read() -> bytes:
        return left.pop(0) if left else b""

    return read


@QUICK
@given(st.lists(st.binary(max_size=20) | st.sampled_from([b"\r", b"\n", b"\r\n"]), max_size=12))
def test_lines_do_not_depend_on_how_they_were_split(parts: list[bytes]) -> None:
    async def read(pieces: list[bytes]) -> list[str]:
        lines, found = LineReader(reader(pieces)), []
        while (line := await lines.next()) is not None:
            found.append(line)
        return found

    whole = b"".join(parts)
    expected = [line.decode("utf-8", "replace") for line in whole.splitlines()]
    assert asyncio.run(read(parts)) == expected
    assert asyncio.run(read(in_pieces(whole, 1))) == expected


@QUICK
@given(bodies())
def test_events_of_any_kind_are_read(parts: list[bytes]) -> None:
    async def read() -> list[Piece]:
        events = EventReader(LineReader(reader(parts)))
        answer = OpenAIStream(KeyMask())
        pieces: list[Piece] = []
        while (event := await events.next()) is not None:
            pieces += answer.read(event)
        return pieces + answer.end()

    assert_sound(asyncio.run(read()))


names = st.sampled_from(["run_command", "functions.run_command:0", "run_command<|x|>"]) | st.text()
calls = st.fixed_dictionaries(
    {
        "function": st.fixed_dictionaries({"name": names, "arguments": anything | st.text()}),
        "id": st.text(max_size=70) | st.sampled_from(["a", "call_1", "functions.x:0"]),
    },
    optional={"index": st.integers(0, 3), "extra_content": anything, "type": anything},
)
deltas = st.fixed_dictionaries(
    {},
    optional={
        "content": st.text() | anything,
        "reasoning_content": st.text() | anything,
        "reasoning": st.text() | anything,
        "reasoning_details": st.lists(
            st.dictionaries(st.sampled_from(KEYS), anything | st.text(), max_size=4) | anything,
            max_size=4,
        ),
        "refusal": st.text() | anything,
        "extra_content": anything,
        "tool_calls": st.lists(calls | anything, max_size=3),
    },
)
OWN = ("reasoning_content", "reasoning", "reasoning_details", "extra_content")


async def collected(pieces: list[Piece]) -> Message:
    async def stream() -> AsyncIterator[Piece]:
        for piece in pieces:
            yield piece

    reply = StreamedReply("m", lambda _event: None, lambda _message: None)
    await reply.read(stream())
    return reply.message()


@QUICK
@given(st.lists(deltas, max_size=6), st.booleans())
def test_whatever_was_received_can_be_sent_back(given_: list[object], same: bool) -> None:
    answer = OpenAIStream(KeyMask(), (TOOL,), "here")
    pieces = [p for one in given_ for p in answer.read(json.dumps({"choices": [{"delta": one}]}))]
    pieces += answer.read("[DONE]") + answer.end()
    message = with_unique_ids(asyncio.run(collected(pieces)), ())
    # An empty answer is not kept.
    assume(message.calls or message.text.strip())
    results = [Message(Role.TOOL, "done", call_id=call.id) for call in message.calls]
    conversation = [Message(Role.USER, "go"), message, *results, Message(Role.USER, "go on")]
    sent = returned(conversation, "here" if same else "there", ReturnThinking.ALWAYS)
    for body, faults in (
        ({"messages": to_openai(sent)}, partial(openai_faults, own=OWN if same else ())),
        ({"messages": to_ollama(sent)}, ollama_faults),
    ):
        text = json.dumps(body, ensure_ascii=False, allow_nan=False)
        text.encode("utf-8")
        assert faults(json.loads(text)) == []


@QUICK
@given(anything | st.text())
def test_arguments_of_any_kind_are_read(given_: object) -> None:
    found = read_arguments(given_)
    assert isinstance(found, dict | str)


@QUICK
@given(st.lists(st.text("ab<think>/ \n", max_size=9), max_size=9))
def test_words_are_neither_lost_nor_doubled(texts: list[str]) -> None:
    def all_of(texts: list[str]) -> tuple[str, str]:
        words = TextSplitter(KeyMask())
        pieces = [piece for text in texts for piece in words.text(text)] + words.end()
        thoughts = "".join(p.text for p in pieces if isinstance(p, ThinkingPiece))
        return thoughts, "".join(p.text for p in pieces if isinstance(p, TextPiece))

    whole = "".join(texts)
    found = all_of(texts)
    assert found == all_of(list(whole))
    if not whole.lstrip().startswith("<think>"):
        assert found == ("", whole)


@QUICK
@given(st.lists(st.text("abc", max_size=6), max_size=20), st.text("abc", min_size=8, max_size=10))
def test_a_key_in_pieces_is_hidden_as_one_in_whole(texts: list[str], key: str) -> None:
    texts = [*texts, key[:4], key[4:], *texts]
    stream = KeyMask(key).stream()
    found = "".join(map(stream.feed, texts)) + stream.end()
    assert key not in found
    assert INSTEAD in found
    assert found.replace(INSTEAD, key) == "".join(texts)
