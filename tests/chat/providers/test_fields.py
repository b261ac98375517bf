# SPDX-License-Identifier: GPL-3.0-or-later
"""What servers send with a reply and expect back: whole sessions with strict servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.provider import fails, ollama, openai
from support.scripted import FakeTool, Listening
from support.servers.http import (
    Answer,
    Replay,
    Reply,
    Reset,
    Seen,
    delta,
    document,
    events,
    finish,
    ndjson,
    sse,
    stream,
)
from support.servers.strict import OWN_FIELDS, mistral_faults, ollama_faults, openai_faults, strict

from ollmsandbox import loop
from ollmsandbox.chat.conversation import Conversation
from ollmsandbox.chat.messages import Message, Role, ToolCall
from ollmsandbox.chat.providers.base import Model
from ollmsandbox.chat.providers.openai import to_openai
from ollmsandbox.chat.storage.history import History, new_session_id
from ollmsandbox.chat.storage.stored import SessionInfo, StoredMessage
from ollmsandbox.chat.turn_end import TurnEnd
from ollmsandbox.paths import Paths
from ollmsandbox.project.projects import ProjectManager

pytestmark = pytest.mark.anybody

CHAT = "/v1/chat/completions"
NO_MODELS = document({"data": []})


def tool() -> FakeTool:
    return FakeTool("run_command", lambda *_: "done")


def call(name: str = "run_command", id: str = "call_1", **more: object) -> dict[str, object]:
    return {
        "index": 0,
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": "{}"},
        **more,
    }


def replies(body: Mapping[str, Any]) -> int:
    return sum(message["role"] == "assistant" for message in body["messages"])


def talk(model: Model, *texts: str, messages: tuple[Message, ...] = ()) -> Conversation:
    conversation = Conversation(model=model, tools=[tool()], prompt="Be kind.", messages=messages)
    for text in texts:
        ended = loop.run(conversation.say(text))
        assert ended.end is TurnEnd.DONE, ended
    return conversation


# --- servers -------------------------------------------------------------------------------------


def deepseek(seen: Seen) -> Reply:
    """Refuse every reply without its thinking, and thinking that it did not write."""
    for message in seen.json["messages"]:  # type: ignore[attr-defined]
        if message["role"] == "assistant":
            if "reasoning_content" not in message:
                words = (
                    "The `reasoning_content` in the thinking mode must be passed back to the API."
                )
                return document({"error": {"message": words}}, 400)
            assert message["reasoning_content"] in ("", "I think. Well.")
    assert not openai_faults(seen.json, ("reasoning_content",))
    if seen.json["messages"][-1]["role"] == "user":  # type: ignore[index]
        thought = [delta(reasoning_content="I think. "), delta(reasoning_content="Well.")]
        number = len(seen.json["messages"])  # type: ignore[arg-type]
        return sse(*thought, delta(tool_calls=[call(id=f"call_{number}")]), finish("tool_calls"))
    return sse(delta(reasoning_content="", content=None), delta(content="Done."), finish())


def gemini(seen: Seen) -> Reply:
    """Gemini 3, through its OpenAI interface: no index, and a signature that it wants back."""
    body = seen.json
    if faults := openai_faults(body, ("extra_content",)):
        return document({"error": {"message": str(faults)}}, 422)
    signature = {"google": {"thought_signature": "EjQKMgEMOdbH=="}}
    for message in body["messages"]:  # type: ignore[attr-defined]
        for one in message.get("tool_calls", ()):
            if one.get("extra_content") != signature:
                words = "Function call is missing a thought_signature in functionCall parts."
                return document([{"error": {"code": 400, "message": words}}], 400)
    if body["messages"][-1]["role"] == "tool":  # type: ignore[index]
        return sse(delta(content="Done."), finish())
    signed = call(id=f"f{replies(body)}", extra_content=signature)
    del signed["index"]
    return sse(delta(tool_calls=[signed]), finish("tool_calls"))


DETAILS = [
    {"type": "reasoning.text", "text": "I think.", "format": "anthropic-claude-v1", "index": 0,
     "signature": "abc"},
    {"type": "reasoning.encrypted", "data": "secret", "index": 1},
]  # fmt: skip


def openrouter(seen: Seen) -> Reply:
    body = seen.json
    if faults := openai_faults(body, ("reasoning", "reasoning_details")):
        return document({"error": {"message": str(faults)}}, 422)
    for message in body["messages"]:  # type: ignore[attr-defined]
        if message.get("tool_calls") and message.get("reasoning_details") != DETAILS:
            return document({"error": {"message": "reasoning is missing", "code": 400}}, 400)
    if body["messages"][-1]["role"] == "tool":  # type: ignore[index]
        return sse(delta(content="Done."), finish())
    first, second = DETAILS
    begin = {"type": "reasoning.text", "format": first["format"], "index": 0, "signature": None}
    return sse(
        delta(reasoning="I ", reasoning_details=[{**begin, "text": "I "}]),
        delta(reasoning="think.", reasoning_details=[{**begin, "text": "think."}]),
        delta(reasoning_details=[{**begin, "signature": "abc"}]),
        delta(reasoning_details=[second]),
        delta(tool_calls=[call(id=f"toolu_{replies(body)}")]),
        finish("tool_calls"),
    )


def plain(body: Mapping[str, Any]) -> Reply:
    """A server that sends no fields of its own."""
    if body["messages"][-1]["role"] == "tool":
        return sse(delta(content="Done."), finish())
    return sse(delta(tool_calls=[call(id=f"p{replies(body)}")]), finish("tool_calls"))


# --- tests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", [deepseek, gemini, openrouter])
def test_a_server_gets_back_what_it_sent(server: Callable[[Seen], Reply], tmp_path: Path) -> None:
    manager = ProjectManager(Paths.from_environ({"HOME": str(tmp_path)}))
    history = History(manager)
    session = new_session_id()
    history.create(SessionInfo(session, "A talk", "", "m", "server", 1.0, 1.0))
    with Replay({CHAT: server, "/v1/models": NO_MODELS}) as found:
        before = talk(openai(found.address), "one", "two")
        for number, message in enumerate(before.messages):
            history.write(session, StoredMessage(number, message))
        loaded = tuple(history.load(session).messages)
        manager.close()
        talk(openai(found.address), "three", messages=loaded)


@pytest.mark.parametrize("server", [deepseek, gemini, openrouter])
def test_another_server_gets_nothing_of_it(server: Callable[[Seen], Reply]) -> None:
    strict_one = strict(partial(openai_faults, own=()), plain)
    with (
        Replay({CHAT: server, "/v1/models": NO_MODELS}) as first,
        Replay({CHAT: strict_one, "/v1/models": NO_MODELS}) as second,
    ):
        conversation = talk(openai(first.address), "one")
        conversation.use_model(openai(second.address))
        assert loop.run(conversation.say("two")).end is TurnEnd.DONE
        assert not any(name in str(seen.body) for seen in second.seen for name in OWN_FIELDS)
        # Another model of the first server does not get the signatures, either.
        conversation.use_model(openai(first.address, "other"))
        loop.run(conversation.say("three"))
        assert b"EjQK" not in first.seen[-1].body
        assert b"secret" not in first.seen[-1].body


def test_deepseek_continues_a_session_that_another_server_began() -> None:
    with (
        Replay({CHAT: strict(openai_faults, plain), "/v1/models": NO_MODELS}) as first,
        Replay({CHAT: deepseek, "/v1/models": NO_MODELS}) as second,
    ):
        conversation = talk(openai(first.address), "one")
        conversation.use_model(openai(second.address))
        assert loop.run(conversation.say("two")).end is TurnEnd.DONE


def test_a_server_that_refuses_its_own_field_is_asked_without() -> None:
    def refusing(seen: Seen) -> Reply:
        if "reasoning" in str(seen.body):
            words = "'messages.2' : property 'reasoning' is unsupported"
            return document({"error": {"message": words}}, 400)
        if seen.json["messages"][-1]["role"] == "tool":  # type: ignore[index]
            return sse(delta(content="Done."), finish())
        return sse(delta(reasoning="Hm."), delta(tool_calls=[call()]), finish("tool_calls"))

    with Replay({CHAT: refusing, "/v1/models": NO_MODELS}) as server:
        talk(openai(server.address), "one")


@pytest.mark.parametrize("status", [400, 500])
def test_a_strict_server_continues_a_session_that_broke_off_anywhere(status: int) -> None:
    refused: list[list[str]] = []
    cut = [delta(reasoning_content="Hm."), delta(content="Half an")]
    left = iter(
        [
            # A thought, half an answer, and nothing after a result.
            stream([*events(cut[0], done=False), Reset()]),
            sse(delta(tool_calls=[call()]), finish("tool_calls")),
            stream([*events(*cut, done=False), Reset()]),
            stream([*events(cut[1], done=False), Reset()]),
            sse(delta(content="Fine."), finish()),
            sse(delta(tool_calls=[call()]), finish("tool_calls")),
            document({"error": {"message": "Out of order"}}, 403),
            sse(delta(content="Here I am."), finish()),
        ]
    )

    def answer(seen: Seen) -> Reply:
        if faults := mistral_faults(seen.json):
            refused.append(faults)
            # Behind a part of the template, as llama.cpp says it.
            words = "{% if loop.first %} " * 50 + "; ".join(faults)
            return document({"error": {"message": words}}, status)
        return next(left)

    with Replay({CHAT: answer, "/v1/models": NO_MODELS}) as server:
        conversation = Conversation(model=openai(server.address), tools=[tool()], prompt="Be kind.")
        ends = [loop.run(conversation.say(text)).end for text in ("one", "two")]
        ends += [loop.run(conversation.retry()).end for _ in range(2)]
        ends += [loop.run(conversation.say(text)).end for text in ("three", "four")]
    failed, done = TurnEnd.FAILED, TurnEnd.DONE
    assert ends == [failed, failed, failed, done, failed, done]
    # It said once what it wants.
    assert refused == [["Unexpected role 'user' after role 'tool'"]]
    texts = [message.text for message in conversation.messages if message.role is Role.ASSISTANT]
    assert texts == ["", "", "Half an", "Half an", "Fine.", "", "Here I am."]


def test_results_that_come_later_find_their_calls() -> None:
    calls = [ToolCall(f"functions.x:{n}", "run_command", {}) for n in range(2)]
    replies = [Message(Role.ASSISTANT, "", calls=(call,)) for call in calls]
    results = [Message(Role.TOOL, "done", call_id=call.id) for call in calls]
    sent: Any = to_openai([Message(Role.USER, "go"), *replies, *results])
    ids = [message["tool_calls"][0]["id"] for message in sent[1:3]]
    assert [message["tool_call_id"] for message in sent[3:]] == ids
    assert all(id_.isalnum() for id_ in ids)


def test_a_refused_setting_is_not_taken_for_a_refused_field() -> None:
    refused = document({"error": {"message": "reasoning_effort 'max' is not supported"}}, 400)
    with Replay({CHAT: refused, "/v1/models": NO_MODELS}) as server:
        fails(openai(server.address))
        assert len(server.seen) == 1


def test_ollama_gets_the_thinking_of_this_turn_back() -> None:
    def answer(seen: Seen) -> Reply:
        sent: Any = seen.json["messages"]
        last_said = max(n for n, message in enumerate(sent) if message["role"] == "user")
        right = all(
            message.get("thinking") == ("Hm." if number > last_said else None)
            for number, message in enumerate(sent)
            if message.get("tool_calls")
        )
        if not right or ollama_faults(seen.json):
            return document({"error": "wrong"}, 400)
        done = {"done": True, "done_reason": "stop"}
        if sent[-1]["role"] == "tool":
            return ndjson({"message": {"content": "Done."}, **done})
        asked = [{"function": {"name": "run_command", "arguments": {}}}]
        return ndjson({"message": {"thinking": "Hm.", "tool_calls": asked}}, done)

    show = document({"model_info": {"x.context_length": 32768}})
    with Replay({"/api/chat": answer, "/api/show": show}) as server:
        talk(ollama(server.address), "one", "two")


@pytest.mark.parametrize(
    "name",
    [
        "functions.run_command:0",
        "functions.run_command",
        "run_command<|channel|>json",
        "run_command<|channel|>commentary",
        "default_api:run_command",
        " run_command ",
        'run_command{"a": 1}',
        "run_command:12",
    ],
)
def test_a_garbled_name_is_understood_and_never_sent_back(name: str) -> None:
    def answer(body: Mapping[str, Any]) -> Reply:
        if body["messages"][-1]["role"] == "tool":
            if body["messages"][-1]["content"] != "done":
                return document({"error": {"message": "the tool was not found"}}, 400)
            return sse(delta(content="Done."), finish())
        return sse(delta(tool_calls=[call(name)]), finish("tool_calls"))

    with Replay({CHAT: strict(openai_faults, answer), "/v1/models": NO_MODELS}) as server:
        talk(openai(server.address), "one", "two")


@pytest.mark.parametrize("name", ["Run Command!", "x" * 100, "ünïcode", "<|start|>", "a b\nc"])
def test_an_unknown_name_does_not_spoil_the_session(name: str) -> None:
    def answer(body: Mapping[str, Any]) -> Reply:
        if body["messages"][-1]["role"] == "tool":
            return sse(delta(content="Sorry."), finish())
        return sse(delta(tool_calls=[call(name, id="functions.x:0")]), finish("tool_calls"))

    routes: dict[str, Answer] = {CHAT: strict(openai_faults, answer), "/v1/models": NO_MODELS}
    with Replay(routes) as server, Replay(routes) as other:
        conversation = talk(openai(server.address), "one", "two")
        conversation.use_model(openai(other.address))
        assert loop.run(conversation.say("three")).end is TurnEnd.DONE


def test_a_refusal_and_a_content_filter_are_shown() -> None:
    refusal = sse(delta(refusal="I cannot help "), delta(refusal="with that."), finish())
    filtered = sse(delta(content="It is"), finish("content_filter"))
    nothing = sse(finish("content_filter: SAFETY"))
    with Replay({CHAT: [refusal, filtered, nothing], "/v1/models": NO_MODELS}) as server:
        conversation = Conversation(model=openai(server.address), prompt="Be kind.")
        listening = Listening()
        conversation.listen(listening)
        assert loop.run(conversation.say("one")).end is TurnEnd.DONE
        assert conversation.messages[-1].text == "I cannot help with that."
        assert loop.run(conversation.say("two")).end is TurnEnd.FILTERED
        assert conversation.messages[-1].text == "It is"
        assert loop.run(conversation.say("three")).end is TurnEnd.FILTERED
        assert conversation.messages[-1].role is Role.USER
