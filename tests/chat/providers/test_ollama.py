# SPDX-License-Identifier: GPL-3.0-or-later
"""Replies in Ollama's format."""

from __future__ import annotations

import json
import threading

import pytest
from support.provider import (
    HELLO,
    ask,
    called,
    fails,
    messages_sent,
    ollama,
    ollama_server,
    said,
    thought,
)
from support.servers.http import Answer, Replay, Reply, Reset, document, in_pieces, ndjson

from ollmsandbox import loop
from ollmsandbox.chat.messages import Message, Role, ToolCall
from ollmsandbox.chat.providers.base import (
    FinishPiece,
    ModelInfo,
    ProviderError,
    Usage,
)

pytestmark = pytest.mark.anybody

CHAT = "/api/chat"
SHOW = document(
    {
        "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40960},
        "capabilities": ["completion", "tools", "thinking"],
    }
)


def line(done: bool = False, **message: object) -> dict[str, object]:
    return {
        "model": "qwen3",
        "created_at": "2025-05-27T22:54:57.641643Z",
        "message": {"role": "assistant", "content": "", **message},
        "done": done,
    }


LAST = {
    **line(done=True),
    "done_reason": "stop",
    "total_duration": 182242375,
    "prompt_eval_count": 169,
    "eval_count": 15,
}


def replies(*lines: object, **named: object) -> Replay:
    return Replay({CHAT: ndjson(*lines, **named), "/api/show": SHOW})


def test_an_answer_with_thoughts_and_tokens() -> None:
    with replies(
        line(thinking="The person "), line(thinking="greets."), line(content="Hal"),
        line(content="lo"), LAST,
    ) as server:  # fmt: skip
        pieces = ask(ollama(server.address))
    assert thought(pieces) == "The person greets."
    assert said(pieces) == "Hallo"
    assert pieces[-2:] == [Usage(169, 15), FinishPiece()]


@pytest.mark.parametrize("size", [1, 5, 33])
def test_bytes_may_be_split_anywhere(size: int) -> None:
    lines = [line(content="Grüße, 世界! 👋🏽"), LAST]
    data = b"".join(json.dumps(one, ensure_ascii=False).encode() + b"\n" for one in lines)
    parts = Reply(in_pieces(data, size))
    with Replay({CHAT: parts, "/api/show": SHOW}) as server:
        assert said(ask(ollama(server.address))) == "Grüße, 世界! 👋🏽"


def test_several_calls_keep_their_ids() -> None:
    calls = [
        {"function": {"name": "run_command", "arguments": {"command": "ls"}}},
        {"id": "call_7", "function": {"index": 1, "name": "read_file", "arguments": '{"p": 1}'}},
        {"function": {"name": "", "arguments": {}}},
        {"function": None},
        "nonsense",
    ]
    with replies(line(tool_calls=calls[:1]), line(tool_calls=calls[1:]), LAST) as server:
        found = called(ask(ollama(server.address)))
    assert [(call.name, call.arguments) for call in found] == [
        ("run_command", {"command": "ls"}),
        ("read_file", {"p": 1}),
    ]
    assert [call.id for call in found] == ["", "call_7"]


@pytest.mark.parametrize(("room", "asked"), [(32768, 32768), (65536, 40960), (8192, 8192)])
def test_the_model_is_given_the_room_that_it_can_use(room: int, asked: int) -> None:
    with replies(LAST) as server:
        model = ollama(server.address, room=room)
        ask(model)
        assert loop.run(model.context_length()) == asked
        chat = next(seen for seen in server.seen if seen.path == CHAT)
    assert chat.json["options"] == {"num_ctx": asked}
    assert server.paths().count("/api/show") == 1


def test_a_conversation_is_sent_as_ollama_wants_it() -> None:
    call = ToolCall("a", "run_command", {"command": "ls"})
    broken = ToolCall("b", "run_command", "{oh")
    conversation = [
        Message(Role.SYSTEM, "be good"),
        *HELLO,
        Message(Role.ASSISTANT, "I look.", calls=(call, broken)),
        Message(Role.TOOL, "a.txt", call_id="a"),
        Message(Role.TOOL, "no", call_id="b"),
    ]
    with replies(LAST) as server:
        ask(ollama(server.address), conversation)
        chat = next(seen for seen in server.seen if seen.path == CHAT)
    sent = messages_sent(chat.json)
    assert sent[2]["tool_calls"] == [
        {"function": {"name": "run_command", "arguments": {"command": "ls"}}},
        {"function": {"name": "run_command", "arguments": {"not_json": "{oh"}}},
    ]
    assert sent[3] == {"role": "tool", "content": "a.txt", "tool_name": "run_command"}
    assert chat.json["stream"] is True


def test_models_are_listed_with_what_they_can_do() -> None:
    tags = document({"models": [{"name": "qwen3:8b"}, {"model": "old"}, {}, None]})

    loaded = document({"models": [{"name": "qwen3:8b"}]})
    missing = document({"error": "model 'old' not found"}, 404)
    shows = {"qwen3:8b": SHOW, "old": missing}
    routes: dict[str, Answer] = {
        "/api/tags": tags,
        "/api/ps": loaded,
        "/api/show": lambda seen: shows[str(seen.json["model"])],
    }
    with Replay(routes) as server:
        found = loop.run(ollama_server(server.address).models())
    assert found == [
        ModelInfo("qwen3:8b", 40960, True, True, False),
        ModelInfo("old", is_loaded=False),
    ]


def test_whether_a_model_is_in_memory_is_known() -> None:
    loaded = document({"models": [{"name": "qwen3:8b"}, {"name": "phi:latest"}]})
    with Replay({"/api/ps": loaded}) as server:
        models = [ollama_server(server.address).model(name) for name in ("qwen3:8b", "phi", "old")]
        assert [loop.run(model.is_loaded()) for model in models] == [True, True, False]
    with Replay({"/api/ps": document({}, 404)}) as server:
        assert loop.run(ollama_server(server.address).model("old").is_loaded()) is None


def test_a_missing_model_is_reported() -> None:
    missing = document({"error": "model 'm' not found"}, 404)
    with Replay({"/api/show": missing, CHAT: missing}) as server:
        error = fails(ollama(server.address))
    assert "has no model 'm'" in error.message


def test_a_model_without_tools_is_reported() -> None:
    refused = document({"error": "registry.ollama.ai/library/gemma:2b does not support tools"}, 400)
    with Replay({"/api/show": SHOW, CHAT: refused}) as server:
        error = fails(ollama(server.address))
    assert "Choose a model that supports tools" in error.remedy


def test_an_error_in_the_middle_is_reported() -> None:
    with replies(line(content="so"), {"error": "llama runner process has terminated"}) as server:
        error = fails(ollama(server.address))
    assert "llama runner process has terminated" in error.message


@pytest.mark.parametrize("how", ["end", "reset", "broken"])
def test_a_reply_that_breaks_off_is_reported_and_not_repeated(how: str) -> None:
    data = json.dumps(line(content="so")).encode() + b"\n"
    shown = threading.Event()
    reply = {
        "end": Reply([data, shown]),
        "reset": Reply([data, shown, Reset()]),
        "broken": Reply([data, shown], broken=True),
    }[how]

    async def read() -> None:
        async for _ in ollama(server.address).reply(HELLO, ()):
            shown.set()

    with Replay({"/api/show": SHOW, CHAT: reply}) as server:
        with pytest.raises(ProviderError, match="was lost") as caught:
            loop.run(read())
        assert server.paths().count(CHAT) == 1
    assert caught.value.can_retry


def test_no_room_for_more_is_cut_off() -> None:
    with replies({**LAST, "done_reason": "length"}) as server:
        assert ask(ollama(server.address))[-1] == FinishPiece(cut_off=True)


def test_a_server_that_is_not_ollama_is_reported() -> None:
    page = Reply([b"<html>Router</html>"], headers={"Content-Type": "text/html"})
    with Replay({"*": page}) as server:
        assert "not a model server" in fails(ollama(server.address)).message
