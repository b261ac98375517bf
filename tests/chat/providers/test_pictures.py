# SPDX-License-Identifier: GPL-3.0-or-later
"""Pictures go to models that can see, in the way their servers accept, and to no others."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from support.agent import opened
from support.person import Person
from support.provider import ask, ollama, openai
from support.scripted import ScriptedModel, call
from support.servers.http import Replay, Reply, document
from support.servers.strict import ollama_faults, openai_faults
from support.turn import run

from ollmsandbox.chat.messages import Message, Role, ToolCall
from ollmsandbox.chat.providers.convert import with_pictures
from ollmsandbox.chat.providers.ollama import to_ollama
from ollmsandbox.chat.providers.openai import to_openai
from ollmsandbox.tools.base import Picture

pytestmark = pytest.mark.ordinary

PNG = Picture("image/png", b"\x89PNG\r\n\x1a\n" + bytes(100))
DATA = base64.b64encode(PNG.data).decode()
CALLS = (ToolCall("1", "read_file", {"path": "a"}), ToolCall("2", "read_file", {"path": "b"}))


def messages(*after: Message) -> list[Message]:
    return [
        Message(Role.USER, "Look"),
        Message(Role.ASSISTANT, "", calls=CALLS),
        Message(Role.TOOL, "a is a picture.", call_id="1", pictures=(PNG,)),
        Message(Role.TOOL, "b is text.", call_id="2"),
        *after,
    ]


AFTER = [
    [],
    [Message(Role.USER, "And?")],
    [Message(Role.ASSISTANT, "I see."), Message(Role.USER, "Good")],
]


@pytest.mark.parametrize("after", AFTER)
def test_strict_servers_accept_pictures(after: list[Message]) -> None:
    sent = to_openai(messages(*after))
    assert openai_faults({"model": "m", "messages": sent}) == []
    [parts] = [entry["content"] for entry in sent if isinstance(entry["content"], list)]
    assert parts[1] == {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}
    assert sent[4]["content"] is parts
    others = to_ollama(messages(*after))
    assert ollama_faults({"model": "m", "messages": others}) == []
    assert others[4]["images"] == [DATA]
    if len(after) == 1:
        assert "And?" in str(others[4]["content"])


def test_only_the_last_pictures_are_sent() -> None:
    pictures = [Picture("image/png", bytes([number])) for number in range(10)]
    said = [
        message
        for number, picture in enumerate(pictures)
        for message in (
            Message(Role.ASSISTANT, "", calls=(ToolCall(str(number), "read_file", {}),)),
            Message(Role.TOOL, "x", call_id=str(number), pictures=(picture,)),
        )
    ]
    sent = [picture for message in with_pictures(said) for picture in message.pictures]
    assert sent == pictures[-4:]


def test_the_users_own_pictures_stay_in_their_message() -> None:
    mine = Picture("image/png", PNG.data, "mine.png")
    said = messages(
        Message(Role.USER, "And this?", pictures=(mine,)),
        Message(Role.ASSISTANT, "I see."),
        Message(Role.USER, "", pictures=(PNG,)),
    )
    assert [one.pictures for one in with_pictures(said) if one.role is Role.USER] == [
        (),
        (PNG, mine),
        (PNG,),
    ]
    # Servers refuse an empty text.
    content = to_openai(said)[-1]["content"]
    assert isinstance(content, list) and len(content) == 1


# That a model has such a name says nothing.
MODEL = "llama3.2-vision"


def listing(**more: object) -> Reply:
    return document({"data": [{"id": MODEL, "context_length": 9000, **more}]})


@pytest.mark.parametrize(
    ("entry", "sees"),
    [
        ({"architecture": {"input_modalities": ["text", "image"]}}, True),
        ({"architecture": {"input_modalities": ["text"]}}, False),
        ({"capabilities": {"vision": True}}, True),
        ({"capabilities": ["completion", "multimodal"]}, True),
        ({"capabilities": ["completion"]}, False),
        ({"capabilities": "vision"}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("settings", [{}, {"room": 5000}, {"seeing": (MODEL,)}])
def test_the_server_says_who_sees_or_else_the_user(
    entry: dict[str, Any], sees: bool | None, settings: dict[str, Any]
) -> None:
    with Replay({"/v1/models": listing(**entry)}) as server:
        model = openai(server.address, MODEL, **settings)
        run(model.context_length())
    assert model.is_sight_known is (sees is not None)
    by_user = "seeing" in settings
    assert model.sees_pictures is (by_user if sees is None else sees)


@pytest.mark.parametrize("sees", [True, False])
def test_llama_cpp_sees_if_it_was_started_so(sees: bool) -> None:
    props = document({"modalities": {"vision": sees, "audio": False}})
    with Replay({"/v1/models": listing(meta={}), "/props": props}) as server:
        model = openai(server.address, MODEL)
        run(model.context_length())
    assert model.sees_pictures is sees and model.is_sight_known


@pytest.mark.parametrize("sees", [True, False])
def test_ollama_says_who_sees(sees: bool) -> None:
    shown = {"model_info": {}, "capabilities": ["tools", *(["vision"] if sees else [])]}
    done = b'{"message": {"content": "I see."}, "done": true}\n'
    with Replay({"/api/show": document(shown), "/api/chat": Reply([done])}) as server:
        model = ollama(server.address)
        ask(model, messages())
        assert model.sees_pictures is sees
        assert (DATA in server.seen[-1].body.decode()) is sees


@pytest.mark.parametrize("status", [400, 500])
def test_a_server_that_refuses_pictures_is_asked_again_without(status: int) -> None:
    refusal = document({"error": {"message": "image input is not supported"}}, status)
    answer = document({"choices": [{"message": {"content": "Hm."}, "finish_reason": "stop"}]})
    with Replay({"/v1/chat/completions": [refusal, answer, answer]}) as server:
        model = openai(server.address, seeing=("m",))
        ask(model, messages())
        ask(model, messages())
        bodies = [seen.body.decode() for seen in server.seen]
    assert [DATA in body for body in bodies] == [True, False, False]
    assert not model.sees_pictures


@pytest.mark.parametrize("sees", [True, False])
def test_a_picture_of_the_project_reaches_the_model(person: Person, sees: bool) -> None:
    (person.project / "a.png").write_bytes(PNG.data)
    model = ScriptedModel([call("read_file", "1", path="a.png")], sees=sees)

    resumed = ScriptedModel(["Again."])

    async def talk() -> None:
        async with opened(person, model) as scene:
            await scene.conversation.say("Look")
        # It is still there when the session is opened again, although the file is not.
        (person.project / "a.png").unlink()
        id_ = scene.conversation.session_id
        async with opened(person, resumed, session_id=id_) as scene:
            await scene.conversation.say("And now?")

    run(talk())
    for result in (model.seen[-1][-1], resumed.seen[-1][-3]):
        assert result.pictures == ((PNG,) if sees else ())
        assert ("cannot see it" in result.text) is not sees
