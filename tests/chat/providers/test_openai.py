# SPDX-License-Identifier: GPL-3.0-or-later
"""Replies in OpenAI's format, as llama.cpp, vLLM and others send them."""

from __future__ import annotations

import json

import pytest
from support.provider import (
    HELLO,
    ask,
    called,
    fails,
    messages_sent,
    openai,
    openai_server,
    said,
    thought,
)
from support.servers.http import (
    Replay,
    Reply,
    Stall,
    delta,
    document,
    events,
    finish,
    in_pieces,
    sse,
    stream,
)

from ollmsandbox import loop
from ollmsandbox.chat.messages import Message, Role, ToolCall
from ollmsandbox.chat.providers.base import (
    FinishPiece,
    Piece,
    ProviderError,
    RetryPiece,
    TextPiece,
    TooLongError,
    Usage,
)
from ollmsandbox.chat.providers.json_reader import read_arguments

pytestmark = pytest.mark.anybody

CHAT = "/v1/chat/completions"
WORDS = "Grüße, 世界! 👋🏽"
# llama.cpp: the role first, content null there; timings and usage at the end.
LLAMA_CPP = [
    {
        "choices": [
            {"finish_reason": None, "index": 0, "delta": {"role": "assistant", "content": None}}
        ],
        "created": 1763200000,
        "id": "chatcmpl-q",
        "model": "m",
        "object": "chat.completion.chunk",
    },
    delta(content="Grüße, "),
    delta(content="世界! 👋🏽"),
    {**finish("stop"), "timings": {"prompt_n": 12, "predicted_per_second": 40.5}},
    {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16}},
]


def test_an_answer_comes_in_pieces_with_its_tokens() -> None:
    with Replay({CHAT: sse(*LLAMA_CPP)}) as server:
        pieces = ask(openai(server.address))
    assert said(pieces) == WORDS
    assert pieces[-2:] == [Usage(12, 4), FinishPiece()]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_bytes_may_be_split_anywhere(size: int, end: bytes) -> None:
    whole = b"".join(
        b"data: " + json.dumps(one, ensure_ascii=False).encode() + b"\n\n" for one in LLAMA_CPP
    )
    data = (b": keep-alive\n\n" + whole + b"data: [DONE]\n\n").replace(b"\n", end)
    with Replay({CHAT: stream(in_pieces(data, size))}) as server:
        assert said(ask(openai(server.address))) == WORDS


def test_comments_other_fields_and_odd_spacing_are_passed_over() -> None:
    parts = [
        b"\n\n: OPENROUTER PROCESSING\n\n",
        b"event: message\nid: 7\nretry: 10\n",
        b"data:" + json.dumps(delta(content="a")).encode() + b"\n\n",
        b'data: {"choices":\ndata: [{"delta": {"content": "b"}}]}\n\n',
        # No empty line between the two.
        b"data: " + json.dumps(delta(content="c")).encode() + b"\n",
        b"data: " + json.dumps(finish()).encode() + b"\n",
        b"data: [DONE]",
    ]
    with Replay({CHAT: stream(parts)}) as server:
        assert said(ask(openai(server.address))) == "abc"


@pytest.mark.parametrize(
    ("reply", "pieces"),
    [
        pytest.param(
            stream([*events(delta(content="x"), finish()), Stall()]),
            [TextPiece("x"), FinishPiece()],
            id="a server that does not close the connection",
        ),
        pytest.param(
            stream(events(delta(content="x"), finish()), chunked=False),
            [TextPiece("x"), FinishPiece()],
            id="without chunks",
        ),
        pytest.param(
            sse(delta(content="<thi"), finish()),
            [TextPiece("<thi"), FinishPiece()],
            id="what only looks like thoughts",
        ),
        pytest.param(
            sse(delta(content="x"), finish("length")),
            [TextPiece("x"), FinishPiece(cut_off=True)],
            id="no room for more",
        ),
        pytest.param(sse(finish()), [FinishPiece()], id="an empty answer"),
    ],
)
def test_the_pieces_of_an_answer(reply: Reply, pieces: list[Piece]) -> None:
    with Replay({CHAT: reply}) as server:
        assert ask(openai(server.address)) == pieces


def test_a_server_that_does_not_stream_is_understood() -> None:
    message = {
        "role": "assistant",
        "content": "done",
        "tool_calls": [{"id": "a", "function": {"name": "run_command", "arguments": "{}"}}],
    }
    whole = {
        "choices": [{"message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    with Replay({CHAT: document(whole)}) as server:
        pieces = ask(openai(server.address))
    assert said(pieces) == "done"
    assert called(pieces) == [ToolCall("a", "run_command", {})]
    assert Usage(3, 2) in pieces


def part(index: int | None = 0, **what: object) -> dict[str, object]:
    given: dict[str, object] = {} if index is None else {"index": index}
    if "id" in what:
        given["id"] = what.pop("id")
    return {**given, "type": "function", "function": what}


def calls_of(*pieces: list[dict[str, object]]) -> list[ToolCall]:
    deltas = [delta(tool_calls=piece) for piece in pieces]
    with Replay({CHAT: sse(*deltas, finish("tool_calls"))}) as server:
        return called(ask(openai(server.address)))


def test_calls_in_pieces_are_put_together_by_their_number() -> None:
    assert calls_of(
        [part(0, id="call_a", name="run_command", arguments="")],
        [part(0, arguments='{"comm')],
        [part(1, id="call_b", name="read_file", arguments='{"path":')],
        [part(0, arguments='and": "ls"}')],
        [part(1, arguments=' "a"}')],
    ) == [
        ToolCall("call_a", "run_command", {"command": "ls"}),
        ToolCall("call_b", "read_file", {"path": "a"}),
    ]


def test_whole_calls_in_one_piece_all_numbered_0_are_separate_calls() -> None:
    assert calls_of(
        [part(0, id="a", name="run_command", arguments='{"command": "ls"}')],
        [part(0, id="b", name="run_command", arguments='{"command": "id"}')],
    ) == [
        ToolCall("a", "run_command", {"command": "ls"}),
        ToolCall("b", "run_command", {"command": "id"}),
    ]


def test_arguments_as_an_object_and_no_id_and_no_number() -> None:
    found = calls_of(
        [part(None, name="run_command", arguments={"command": "ls"})],
        [part(None, name="run_command", arguments={"command": "id"})],
    )
    assert [call.arguments for call in found] == [{"command": "ls"}, {"command": "id"}]
    assert [call.id for call in found] == ["", ""]


def test_pieces_without_a_number_belong_to_the_last_call() -> None:
    found = calls_of(
        [part(None, id="a", name="run_command", arguments='{"command"')],
        [part(None, arguments=': "ls"}')],
    )
    assert found == [ToolCall("a", "run_command", {"command": "ls"})]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (None, {}),
        ("", {}),
        ("  ", {}),
        ("null", "null"),
        ("[1]", "[1]"),
        ('{"a": ', '{"a": '),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('{"a": "\\ud83d"}', {"a": "\ufffd"}),
        ("[" * 50_000, "[" * 50_000),
    ],
)
def test_arguments_that_are_no_object_are_kept_as_they_are(given: object, read: object) -> None:
    (call,) = calls_of([part(0, id="a", name="x", arguments=given)])
    assert call.arguments == read


@pytest.mark.parametrize(("levels", "is_read"), [(100, True), (101, False), (5000, False)])
def test_arguments_that_are_too_deep_to_be_stored_stay_text(levels: int, is_read: bool) -> None:
    text = '{"a":' * levels + "1" + "}" * levels
    found = read_arguments(text)
    assert isinstance(found, dict) is is_read
    assert is_read or found == text


def test_a_call_that_was_cut_off_in_the_middle_is_never_made() -> None:
    half = delta(tool_calls=[part(0, id="a", name="run_command", arguments='{"command": "rm')])
    pieces: list[Piece] = []

    async def read() -> None:
        async for piece in openai(server.address).reply(HELLO, ()):
            pieces.append(piece)

    with (
        Replay({CHAT: sse(half, done=False)}) as server,
        pytest.raises(ProviderError, match="was lost"),
    ):
        loop.run(read())
    assert all(isinstance(piece, RetryPiece) for piece in pieces)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thoughts_have_a_field_of_their_own(name: str) -> None:
    thoughts = [delta(**{name: "let me "}), delta(**{name: "see"}), delta(content="4")]
    with Replay({CHAT: sse(*thoughts, finish())}) as server:
        pieces = ask(openai(server.address))
    assert (thought(pieces), said(pieces)) == ("let me see", "4")


@pytest.mark.parametrize("size", [1, 3, 100])
def test_thoughts_in_tags_at_the_very_beginning_are_thoughts(size: int) -> None:
    text = "\n<think>is 1 < 2? </thin no</think>\n\nYes, <think> is a tag."
    pieces_ = [delta(content=text[at : at + size]) for at in range(0, len(text), size)]
    with Replay({CHAT: sse(*pieces_, finish())}) as server:
        pieces = ask(openai(server.address))
    assert thought(pieces) == "is 1 < 2? </thin no"
    assert said(pieces) == "Yes, <think> is a tag."


def test_missing_and_wrong_fields_are_passed_over() -> None:
    wrong: list[object] = [None, {"delta": None}, {"delta": {"content": 5, "tool_calls": "x"}}]
    wrong += [{"delta": {"tool_calls": [None, {}, {"function": 3}]}}]
    wrong += [{"delta": {"content": [{"type": "text", "text": "ok"}]}}]
    odd: list[object] = [{}, [], None, 7, {"choices": None}, *({"choices": [it]} for it in wrong)]
    odd += [{"choices": [], "usage": {"prompt_tokens": "x", "completion_tokens": -4}}]
    with Replay({CHAT: sse(*odd, finish())}) as server:
        pieces = ask(openai(server.address))
    assert (said(pieces), pieces[-1]) == ("ok", FinishPiece())


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"error": {"code": 500, "message": "out of memory", "type": "server_error"}}\n\n',
        b'error: {"code": 500, "message": "out of memory"}\n\n',
        b'event: error\ndata: {"error": "out of memory"}\n\n',
        b'data: {"object": "error", "message": "out of memory", "code": 500}\n\n',
        b'{"error": {"message": "out of memory"}}\n',
    ],
)
def test_an_error_in_the_middle_is_reported(event: bytes) -> None:
    parts = [*events(delta(content="hal"), done=False), event]
    with Replay({CHAT: stream(parts)}) as server:
        error = fails(openai(server.address))
        assert len(server.seen) == 1  # something was shown: not asked again
    assert "out of memory" in error.message


def test_an_error_with_status_200_is_an_error() -> None:
    with Replay({CHAT: document({"error": {"message": "no such engine"}})}) as server:
        assert "no such engine" in fails(openai(server.address)).message


@pytest.mark.parametrize(
    "words",
    [
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "tools param requires --jinja flag",
        "No endpoints found that support tool use.",
    ],
)
def test_a_model_without_tools_is_reported(words: str) -> None:
    with Replay({CHAT: document({"error": {"message": words}}, 400)}) as server:
        error = fails(openai(server.address))
    assert "Choose a model that supports tools" in error.remedy


@pytest.mark.parametrize(
    "words",
    [
        "the request exceeds the available context size. try increasing it",
        "This model's maximum context length is 4096 tokens. However, you requested 5000",
        "prompt is too long: 208310 tokens > 200000 maximum",
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        "Input is too long for requested model.",
        "Trying to keep the first 5000 tokens when context overflows. The model is loaded with "
        "context length of only 4096 tokens",
        "Please reduce the length of the messages or completion.",
        "Requested tokens (8200) exceed context window of 8192",
        "Your request exceeded model token limit: 262144",
        "max_tokens must be at least 1, got -20: the context is full (limit 4096)",
        "context_length_exceeded",
    ],
)
def test_a_conversation_that_does_not_fit_is_reported(words: str) -> None:
    with Replay({CHAT: document({"error": {"message": words}}, 400)}) as server:
        assert isinstance(fails(openai(server.address)), TooLongError)


def test_a_body_that_is_too_large_is_too_long_whatever_it_says() -> None:
    with Replay({CHAT: Reply([b"<html>413</html>"], 413)}) as server:
        assert isinstance(fails(openai(server.address)), TooLongError)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (
            "max_tokens is too large: 90000. This model supports at most 16384 completion tokens",
            400,
        ),
        ("Invalid value for 'temperature': maximum is 2", 400),
        ("You exceeded your current quota, please check your plan", 400),
        ("Incorrect API key provided; the maximum number of tokens", 401),
        ("Rate limit reached: tokens per minute limit 6000", 429),
    ],
)
def test_other_limits_are_not_taken_for_a_long_conversation(words: str, status: int) -> None:
    with Replay({CHAT: document({"error": {"message": words}}, status)}) as server:
        error = fails(openai(server.address))
    assert not isinstance(error, TooLongError)
    assert words in error.message


def test_a_server_that_does_not_know_how_to_count_is_asked_without() -> None:
    refused = document({"error": {"message": "Unknown field: stream_options"}}, 400)
    with Replay({CHAT: [refused, sse(delta(content="x"), finish())]}) as server:
        assert said(ask(openai(server.address))) == "x"
        assert "stream_options" not in server.seen[1].json


def test_every_sent_call_has_an_answer_and_every_answer_a_call() -> None:
    conversation = [
        Message(Role.SYSTEM, "be good"),
        Message(Role.USER, "go \udcff"),
        Message(
            Role.ASSISTANT,
            "",
            thinking="hm",
            calls=(
                ToolCall("a", "run_command", {"command": "ls"}),
                ToolCall("b", "run_command", "not json"),
                ToolCall("c", "run_command", {"command": "never ran"}),
            ),
        ),
        Message(Role.TOOL, "one", call_id="a"),
        Message(Role.TOOL, "two", call_id="b"),
        Message(Role.TOOL, "to nothing", call_id="z"),
        Message(Role.ASSISTANT, "", partial=True),
    ]
    with Replay({CHAT: sse(finish())}) as server:
        ask(openai(server.address), conversation)
        body = server.seen[0].json
    sent = messages_sent(body)
    assert [m["role"] for m in sent] == ["system", "user", "assistant", "tool", "tool"]
    calls = sent[2]["tool_calls"]
    assert isinstance(calls, list)
    assert [call["id"] for call in calls] == ["a", "b"]
    assert json.loads(calls[1]["function"]["arguments"]) == {"not_json": "not json"}
    assert [m["tool_call_id"] for m in sent[3:]] == ["a", "b"]
    assert body["stream_options"] == {"include_usage": True}
    assert isinstance(body["tools"], list)
    assert body["tools"][0]["function"]["name"] == "run_command"


@pytest.mark.parametrize(
    ("entry", "length"),
    [
        ({"meta": {"n_ctx_train": 8192}}, 8192),
        ({"max_model_len": 4096}, 4096),
        ({"context_length": 128000}, 128000),
        ({"object": "model"}, None),
        ({"max_model_len": "many"}, None),
    ],
)
def test_models_are_listed_with_their_length(entry: dict[str, object], length: int | None) -> None:
    listed = document({"object": "list", "data": [{"id": "m", **entry}, {"no": "id"}, 4]})
    with Replay({"/v1/models": listed}) as server:
        (found,) = loop.run(openai_server(server.address).models())
        assert (found.name, found.context_length) == ("m", length)
        assert loop.run(openai(server.address).context_length()) == length


def test_llama_cpp_may_have_been_started_with_less_room() -> None:
    listed = document({"data": [{"id": "m", "meta": {"n_ctx_train": 8192}}]})
    props = document({"default_generation_settings": {"n_ctx": 2048}})
    with Replay({"/v1/models": listed, "/props": props}) as server:
        assert loop.run(openai(server.address).context_length()) == 2048


def test_a_page_in_place_of_an_answer_is_not_a_model_server() -> None:
    page = Reply([b"<!DOCTYPE html><html>Router</html>"], headers={"Content-Type": "text/html"})
    with Replay({"*": page}) as server:
        assert "not a model server" in fails(openai(server.address)).message
        with pytest.raises(ProviderError, match="not a model server"):
            loop.run(openai_server(server.address).models())
