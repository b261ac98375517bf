# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that fails is asked again, and so it is when the user wants it."""

from __future__ import annotations

import asyncio

import pytest
from support.provider import messages_sent, openai
from support.scripted import FOREVER, FakeTool, Listening, ScriptedModel, call
from support.servers.http import Replay, Reset, delta, document, events, finish, sse, stream
from support.timing import PATIENCE
from support.turn import echo

from ollmsandbox import loop
from ollmsandbox.chat.conversation import Conversation
from ollmsandbox.chat.events import MessageAdded, Retrying
from ollmsandbox.chat.messages import Role
from ollmsandbox.chat.providers import client
from ollmsandbox.chat.providers.base import ProviderError
from ollmsandbox.chat.turn_end import TurnEnd
from ollmsandbox.errors import OllmSandboxError

pytestmark = pytest.mark.anybody

CHAT = "/v1/chat/completions"
BUSY = document({"error": {"message": "Loading model"}}, 503)
FINE = sse(delta(content="Fine."), finish())


def test_a_delay_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRY_DELAYS", (FOREVER,))

    async def stopped(conversation: Conversation, listening: Listening) -> TurnEnd:
        turn = asyncio.ensure_future(conversation.say("Hello"))
        await listening.until(lambda: listening.of(Retrying))
        await asyncio.wait_for(conversation.stop(), PATIENCE)
        return (await turn).end

    with Replay({CHAT: [BUSY, FINE]}) as server:
        conversation = Conversation(model=openai(server.address), prompt="Be kind.")
        listening = Listening()
        conversation.listen(listening)
        assert loop.run(stopped(conversation, listening)) is TurnEnd.STOPPED
        [wait] = listening.of(Retrying)
        assert wait.seconds == FOREVER and "Loading model" in wait.why
        # The turn is not lost.
        assert conversation.owes_reply
        assert loop.run(conversation.retry()).end is TurnEnd.DONE
    assert [message.role for message in conversation.messages] == [Role.USER, Role.ASSISTANT]


def test_a_turn_that_failed_goes_on_where_it_was() -> None:
    model = ScriptedModel(
        [call("echo", "1", text="a")], [ProviderError("The server is gone.")], ["Done."]
    )
    conversation = Conversation(model=model, tools=[FakeTool("echo", echo)], prompt="Be kind.")
    assert loop.run(conversation.say("go")).end is TurnEnd.FAILED
    assert loop.run(conversation.retry()).end is TurnEnd.DONE
    roles = [message.role for message in conversation.messages]
    assert roles == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert not conversation.owes_reply
    with pytest.raises(OllmSandboxError, match="already answered"):
        loop.run(conversation.retry())


def test_half_an_answer_stays_in_the_session_and_is_written_anew() -> None:
    half = stream([*events(delta(content="Half an"), done=False), Reset()])
    with Replay({CHAT: [half, FINE]}) as server:
        conversation = Conversation(model=openai(server.address), prompt="Be kind.")
        listening = Listening()
        conversation.listen(listening)
        assert loop.run(conversation.say("Hello")).end is TurnEnd.FAILED
        assert loop.run(conversation.retry()).end is TurnEnd.DONE
        sent = messages_sent(server.seen[-1].json)
    assert [message["role"] for message in sent] == ["system", "user"]
    assert [message.text for message in conversation.messages] == ["Hello", "Half an", "Fine."]
    assert [m.message.partial for m in listening.of(MessageAdded)] == [False, True, False]
