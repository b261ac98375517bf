# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages that the user sends while the model works."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from support.agent import opened
from support.person import Person
from support.scripted import FakeTool, Listening, ScriptedModel, SlowModel, call
from support.turn import begun, check_pairs, has_words, run

from ollmsandbox.chat.conversation import Conversation, TurnLimits
from ollmsandbox.chat.events import MessageAdded, QueueChanged
from ollmsandbox.chat.messages import QueuedMessage, Role
from ollmsandbox.chat.turn_end import TurnEnd
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.tools.base import Picture, Watcher

pytestmark = pytest.mark.ordinary

PICTURE = Picture("image/png", b"pixels", "shot.png")


def said(conversation: Conversation) -> list[tuple[Role, str]]:
    return [(message.role, message.text) for message in conversation.messages]


def waiting(conversation: Conversation) -> list[str]:
    return [message.text for message in conversation.queued]


def test_a_message_is_read_with_the_next_step() -> None:
    def interrupting(_arguments: Mapping[str, object], _watcher: Watcher) -> str:
        conversation.queue("Use tabs.")
        conversation.queue("And be quick.")
        conversation.queue("", [PICTURE])
        assert waiting(conversation) == ["Use tabs.", "And be quick.", ""]
        return "done"

    model = ScriptedModel([call("work", "1")], ["Fine."])
    conversation = Conversation(model=model, tools=[FakeTool("work", interrupting)])
    listening = Listening()
    conversation.listen(listening)
    ended = run(conversation.say("Go on"))
    assert ended.end is TurnEnd.DONE
    assert said(conversation)[2:] == [
        (Role.TOOL, "done"),
        (Role.USER, "Use tabs."),
        (Role.USER, "And be quick."),
        (Role.USER, ""),
        (Role.ASSISTANT, "Fine."),
    ]
    check_pairs(conversation.messages)
    # A server is sent one message of the user, not several in a row.
    assert model.seen[1][-1].text.rstrip() == "Use tabs.\n\nAnd be quick."
    assert model.seen[1][-1].pictures == (PICTURE,)
    assert [event.texts for event in listening.of(QueueChanged)] == [
        ("Use tabs.",),
        ("Use tabs.", "And be quick."),
        ("Use tabs.", "And be quick.", "shot.png"),
        (),
    ]
    assert len([e for e in listening.of(MessageAdded) if e.message.role is Role.USER]) == 4


def test_a_message_during_the_last_answer_continues_the_turn() -> None:
    async def talk() -> Conversation:
        model = ScriptedModel(["The ", wait, "end."], ["One more thing."])
        conversation = Conversation(model=model)
        turn, _ = await begun(conversation, has_words)
        conversation.queue("Wait!")
        wait.set()
        assert (await turn).end is TurnEnd.DONE
        return conversation

    wait = asyncio.Event()
    assert [text for _, text in said(run(talk()))] == [
        "Hello",
        "The end.",
        "Wait!",
        "One more thing.",
    ]


def test_a_stopped_turn_keeps_the_queue_for_the_user() -> None:
    async def talk() -> None:
        conversation = Conversation(model=SlowModel("Hm"))
        turn, _ = await begun(conversation, has_words)
        conversation.queue("Never mind", [PICTURE])
        await conversation.stop()
        assert (await turn).end is TurnEnd.STOPPED
        assert conversation.take_queued() == [QueuedMessage("Never mind", (PICTURE,))]
        assert conversation.queued == ()
        assert conversation.messages[-1].text == "Hm"

    run(talk())


def test_one_message_can_be_taken_back_and_one_that_waits_for_the_end_stays() -> None:
    def interrupting(_arguments: Mapping[str, object], _watcher: Watcher) -> str:
        for text in ("Same", "Same", "Other"):
            conversation.queue(text)
        conversation.queue("!make", waits_for_end=True)
        conversation.queue("Behind it")
        assert conversation.take_queued(1) == [QueuedMessage("Same")]
        assert conversation.take_queued(9) == []
        assert waiting(conversation) == ["Same", "Other", "!make", "Behind it"]
        return "done"

    model = ScriptedModel([call("work", "1")], ["Fine."])
    conversation = Conversation(model=model, tools=[FakeTool("work", interrupting)])
    assert run(conversation.say("Go on")).end is TurnEnd.DONE
    assert model.seen[1][-1].text == "Same\n\nOther"
    assert waiting(conversation) == ["!make", "Behind it"]


def test_the_limits_of_a_turn_count_from_the_last_message() -> None:
    def interrupting(arguments: Mapping[str, object], _watcher: Watcher) -> str:
        if arguments["n"] == 2:
            conversation.queue("Go on.")
        return "done"

    model = ScriptedModel(*([call("work", str(n), n=n)] for n in range(1, 9)))
    conversation = Conversation(
        model=model, tools=[FakeTool("work", interrupting)], limits=TurnLimits(turns=3)
    )
    assert run(conversation.say("Work")).end is TurnEnd.TURNS
    assert len(model.seen) == 2 + 3


def test_nothing_is_queued_while_the_model_rests() -> None:
    conversation = Conversation(model=ScriptedModel())
    with pytest.raises(OllmSandboxError, match="not working"):
        conversation.queue("Hello")


def test_a_queued_message_is_stored_where_it_was_said(person: Person) -> None:
    async def talk() -> None:
        model = ScriptedModel([call("read_file", "1", path=".")], ["Fine."])
        async with opened(person, model) as scene:
            scene.conversation.listen(
                lambda event: (
                    scene.conversation.queue("Listen!")
                    if isinstance(event, MessageAdded) and event.message.calls
                    else None
                )
            )
            await scene.conversation.say("Go")
            await scene.conversation.is_written()
            stored = scene.factory.history.load(scene.conversation.session_id)
            assert [message.role for message in stored.messages] == [
                *(Role.USER, Role.ASSISTANT, Role.TOOL, Role.USER, Role.ASSISTANT)
            ]
            assert stored.messages[3].text == "Listen!"

    run(talk())
