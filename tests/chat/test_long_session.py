# SPDX-License-Identifier: GPL-3.0-or-later
"""Sessions that are much longer than the model's context. The server checks what it is sent."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field

import pytest
from support.agent import opened
from support.person import Person
from support.provider import ollama, openai
from support.scripted import FakeTool, Listening, ScriptedModel
from support.servers.http import (
    Answer,
    Replay,
    Reply,
    Seen,
    Stall,
    delta,
    document,
    events,
    finish,
    ndjson,
    sse,
    stream,
)
from support.servers.strict import ollama_faults, openai_faults

from ollmsandbox import loop
from ollmsandbox.chat.conversation import Conversation, TurnLimits
from ollmsandbox.chat.events import MessageAdded, Notice
from ollmsandbox.chat.messages import Message, Role
from ollmsandbox.chat.turn_end import TurnEnd

pytestmark = pytest.mark.ordinary

LENGTH = 16_000
TASK = "Port the module cipher_4711 to Rust, and never touch the folder vendor."
WORDS = ("cipher_4711", "vendor")
STEPS = 180


@dataclass
class SmallServer:
    """A model with a small context that does one step after the other, and knows only what the
    request tells it."""

    kind: str
    # The user says "go on" after each of so many steps.
    each: int = STEPS
    done: int = 0
    summaries: int = 0
    faults: list[str] = field(default_factory=list)
    largest: int = 0

    def __call__(self, seen: Seen) -> Reply:
        body = seen.json
        sent = body["messages"]
        assert isinstance(sent, list)
        text = json.dumps([sent, body.get("tools", [])], ensure_ascii=False)
        # Code has more tokens than English.
        tokens = round(len(text) / 3.3)
        self.largest = max(self.largest, tokens)
        check = openai_faults if self.kind == "openai" else ollama_faults
        self.faults += check(body)
        if tokens > LENGTH:
            self.faults.append(f"{tokens} tokens after {self.done} steps")
            return document({"error": {"message": "Please reduce the length of the messages"}}, 400)
        if not all(word in text for word in WORDS):
            self.faults.append(f"the task is forgotten after {self.done} steps")
        usage = {"prompt_tokens": tokens, "completion_tokens": 50}
        if "tools" not in body:
            self.summaries += 1
            words = [word for word in WORDS if word in text]
            return self.answer(f"Task: {words}. {self.done} steps are done.", usage)
        if self.done and self.done % self.each == 0 and sent[-1]["role"] == "tool":
            return self.answer("That was a part of it.", usage)
        self.done += 1
        return self.call(usage)

    def answer(self, text: str, usage: dict[str, int]) -> Reply:
        if self.kind == "openai":
            return sse(delta(content=text), finish(), {"choices": [], "usage": usage})
        count = {"prompt_eval_count": usage["prompt_tokens"], "eval_count": 50}
        return ndjson({"message": {"content": text}}, {"done": True, **count})

    def call(self, usage: dict[str, int]) -> Reply:
        arguments = {"n": self.done}
        if self.kind == "openai":
            asked = {"index": 0, "id": f"c{self.done}", "type": "function"}
            function = {"name": "look", "arguments": json.dumps(arguments)}
            piece = delta(content="Next.", tool_calls=[{**asked, "function": function}])
            return sse(piece, finish("tool_calls"), {"choices": [], "usage": usage})
        count = {"prompt_eval_count": usage["prompt_tokens"], "eval_count": 50}
        calls = [{"function": {"name": "look", "arguments": arguments}}]
        return ndjson(
            {"message": {"content": "Next.", "tool_calls": calls}}, {"done": True, **count}
        )


@pytest.mark.parametrize(("kind", "each"), [("openai", STEPS), ("ollama", 60)])
def test_after_many_steps_a_small_model_still_knows_its_task(kind: str, each: int) -> None:
    server = SmallServer(kind, each)
    chance = random.Random(7)

    def look(*_given: object) -> str:
        return "fn main() { work(); }\n" * chance.choice([1, 5, 20, 100, 400])

    routes: dict[str, Answer] = {
        "/v1/models": document({"data": [{"id": "m", "max_model_len": LENGTH}]}),
        "/api/show": document({"model_info": {"x.context_length": LENGTH}}),
        "*": server,
    }
    with Replay(routes) as replay:
        model = openai(replay.address) if kind == "openai" else ollama(replay.address)
        conversation = Conversation(
            model=model,
            tools=[FakeTool("look", look)],
            limits=TurnLimits(turns=2 * STEPS),
            prompt="Be kind.",
        )
        listening = Listening()
        conversation.listen(listening)
        text = TASK
        while server.done < STEPS:
            ended = loop.run(conversation.say(text))
            assert ended.end is TurnEnd.DONE, ended
            text = "Go on."
    assert server.faults == []
    assert server.done == STEPS
    summaries = [m for m in conversation.messages if m.role is Role.SUMMARY]
    assert len(summaries) == server.summaries > 0
    assert all("cipher_4711" in summary.text for summary in summaries)
    shown = [e.message for e in listening.of(MessageAdded) if e.message.role is Role.SUMMARY]
    assert shown == summaries
    # The context is used, not cut to a small part each time.
    assert server.largest > LENGTH / 2
    # Everything is still there.
    assert sum(message.role is Role.TOOL for message in conversation.messages) == STEPS


def test_a_stored_summary_stands_for_what_it_covers() -> None:
    server = SmallServer("openai")
    old = [Message(Role.USER, f"Old {n} " + "x" * 2000) for n in range(3)]
    summary = Message(Role.SUMMARY, f"Task: {WORDS}", keeps=1)
    messages = [*old, Message(Role.ASSISTANT, "Fine."), Message(Role.USER, "Yes."), summary]
    server.done = STEPS  # answers at once
    with Replay({"/v1/models": document({"data": []}), "*": server}) as replay:
        conversation = Conversation(
            model=openai(replay.address),
            tools=[FakeTool("look", lambda *_: "ok")],
            prompt="Be kind.",
            messages=messages,
        )
        loop.run(conversation.say("Go on."))
        body = replay.seen[-1].body.decode() if replay.seen[-1].method == "POST" else ""
    assert server.faults == []
    assert "Old" not in body
    assert "Yes." in body
    assert "cipher_4711" in body


def test_a_summary_that_was_stopped_is_asked_for_again() -> None:
    asked: list[str] = []

    def answer(seen: Seen) -> Reply:
        if "tools" in seen.json:
            return sse(delta(content="Fine."), finish())
        asked.append(seen.body.decode())
        if len(asked) == 1:
            return stream([*events(delta(content="Task:"), done=False), Stall()])
        return sse(delta(content="Task: the first words."), finish())

    async def stopped(conversation: Conversation) -> None:
        turn = asyncio.ensure_future(conversation.say("Go on."))
        await listening.until(lambda: asked)
        await conversation.stop()
        assert (await turn).end is TurnEnd.STOPPED

    listed = document({"data": [{"id": "m", "max_model_len": 4000}]})
    old = [Message(Role.USER, "the first words"), Message(Role.ASSISTANT, "Well. " * 3000)]
    with Replay({"/v1/models": listed, "*": answer}) as replay:
        tools = [FakeTool("look", lambda *_: "ok")]
        model = openai(replay.address)
        conversation = Conversation(model=model, tools=tools, prompt="Be kind.", messages=old)
        listening = Listening()
        conversation.listen(listening)
        loop.run(stopped(conversation))
        assert loop.run(conversation.say("Please.")).end is TurnEnd.DONE
        last = replay.seen[-1].body.decode()
    assert len(asked) == 2
    assert all("the first words" in text for text in asked)
    assert "Task: the first words." in last


def test_without_a_summary_the_session_goes_on_and_says_so() -> None:
    def failing(seen: Seen) -> Reply:
        if "tools" not in seen.json:
            return document({"error": {"message": "no summaries here"}}, 403)
        return sse(delta(content="Fine."), finish())

    listed = document({"data": [{"id": "m", "max_model_len": 4000}]})
    with Replay({"/v1/models": listed, "*": failing}) as replay:
        conversation = Conversation(
            model=openai(replay.address),
            tools=[FakeTool("look", lambda *_: "ok")],
            prompt="Be kind.",
            messages=[
                message
                for n in range(9)
                for message in (Message(Role.USER, "x" * 2000), Message(Role.ASSISTANT, f"{n}"))
            ],
        )
        listening = Listening()
        conversation.listen(listening)
        assert loop.run(conversation.say("Go on.")).end is TurnEnd.DONE
    texts = [notice.text for notice in listening.of(Notice)]
    assert any("no summaries here" in text for text in texts)
    assert any("left out" in text for text in texts)


def test_the_user_can_have_the_conversation_summarised_at_any_time(person: Person) -> None:
    async def main() -> None:
        model = ScriptedModel(["First."], ["Task: count."], ["Second."])
        async with opened(person, model) as scene:
            await scene.conversation.say("One")
            await scene.conversation.summarise()
            summary = scene.conversation.messages[-1]
            assert (summary.role, summary.text) == (Role.SUMMARY, "Task: count.")
            await scene.conversation.say("Two")
            assert await scene.conversation.is_written()
            stored = scene.factory.history.load(scene.conversation.session_id)
        read = "\n".join(message.text for message in model.seen[-1][1:])
        assert "Task: count." in read and "Two" in read
        assert "First." not in read
        assert [message.role for message in stored.messages] == [
            Role.USER,
            Role.ASSISTANT,
            Role.SUMMARY,
            Role.USER,
            Role.ASSISTANT,
        ]

    loop.run(main())
