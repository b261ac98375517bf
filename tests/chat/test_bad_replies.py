# SPDX-License-Identifier: GPL-3.0-or-later
"""Replies that end a turn early: empty, broken off, or endless."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from support.scripted import FakeTool, Listening, ScriptedModel, call
from support.turn import echo, roles, run, talk

from ollmsandbox.chat.conversation import Conversation, TurnLimits
from ollmsandbox.chat.events import (
    CallBegan,
    MessageAdded,
    Notice,
    ReplyWithdrawn,
    TokensUsed,
    TurnEnded,
)
from ollmsandbox.chat.messages import Message, Role, ToolSpec
from ollmsandbox.chat.providers.base import (
    FinishPiece,
    Piece,
    ProviderError,
    TextPiece,
    ThinkingPiece,
    Usage,
)
from ollmsandbox.chat.turn_end import TurnEnd

pytestmark = pytest.mark.anybody


def test_an_empty_reply_is_asked_for_once_more() -> None:
    conversation, listening, ended = talk(ScriptedModel([ThinkingPiece("hm")], ["There."]))
    assert ended.end is TurnEnd.DONE
    assert len(listening.of(ReplyWithdrawn)) == 1
    assert [message.text for message in conversation.messages] == ["Hello", "There."]


def test_two_empty_replies_end_the_turn_with_a_sentence() -> None:
    conversation, _, ended = talk(ScriptedModel([], ["  "]))
    assert ended.end is TurnEnd.EMPTY
    assert ended.why
    assert roles(conversation) == [Role.USER]
    conversation.model = ScriptedModel(["Back."])
    assert run(conversation.say("Again")).end is TurnEnd.DONE


def test_a_disconnect_keeps_the_text_so_far() -> None:
    error = ProviderError("The connection broke off.", "Try again.")
    conversation, listening, ended = talk(ScriptedModel(["Half a sen", error]))
    assert ended == TurnEnded(TurnEnd.FAILED, "The connection broke off.\nTry again.")
    assert conversation.messages[-1].text == "Half a sen"
    assert conversation.messages[-1].partial
    assert listening.of(MessageAdded)[-1].message.partial


def test_calls_of_an_answer_that_broke_off_are_not_carried_out() -> None:
    tool = FakeTool("echo", echo)
    model = ScriptedModel(["Now I", call("echo"), ProviderError("Gone.")])
    conversation, _, ended = talk(model, tool)
    assert ended.end is TurnEnd.FAILED
    assert tool.count == 0
    assert not conversation.messages[-1].calls


class BrokenAtOnce(ScriptedModel):
    async def context_length(self) -> int | None:
        raise ZeroDivisionError("oops")


class BrokenInTheMiddle(ScriptedModel):
    async def reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncIterator[Piece]:
        yield TextPiece("Half a sen")
        raise ZeroDivisionError("oops")


@pytest.mark.parametrize("broken", [BrokenAtOnce, BrokenInTheMiddle])
def test_an_exception_in_a_provider_is_reported_and_the_session_continues(
    broken: type[ScriptedModel],
) -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        conversation = Conversation(model=broken())
        ended = await conversation.say("Hello")
        assert ended.end is TurnEnd.FAILED
        assert "oops" in ended.why
        if broken is BrokenInTheMiddle:
            last = conversation.messages[-1]
            assert (last.text, last.partial) == ("Half a sen", True)
        conversation.use_model(ScriptedModel())
        assert (await conversation.say("Hello")).end is TurnEnd.DONE

    run(main())


def test_each_command_of_the_user_has_an_id_of_its_own() -> None:
    async def main() -> list[str]:
        tool = FakeTool("run_command", lambda *_: "done")
        conversation = Conversation(model=None, tools=[tool])
        listening = Listening()
        conversation.listen(listening)
        for command in ("make", "make test", "make"):
            await conversation.run(command)
        return [began.call.id for began in listening.of(CallBegan)]

    assert len(set(run(main()))) == 3


def test_an_answer_without_end_is_cut_off() -> None:
    _, _, ended = talk(ScriptedModel(["x" * 1_000_000] * 5))
    assert ended.end is TurnEnd.FAILED
    assert "too long" in ended.why


def test_a_reply_that_the_server_cut_off_is_reported() -> None:
    _, listening, ended = talk(ScriptedModel(["Half", FinishPiece(cut_off=True)]))
    assert ended.end is TurnEnd.DONE
    assert [notice for notice in listening.of(Notice) if "cut off" in notice.text]


def test_the_limit_of_turns() -> None:
    model = ScriptedModel(*[[call("echo", str(n), n=n)] for n in range(10)])
    _, _, ended = talk(model, FakeTool("echo", echo), limits=TurnLimits(turns=4))
    assert ended.end is TurnEnd.TURNS
    assert len(model.seen) == 4


def test_the_limit_of_tokens_is_reached_before_more_is_done() -> None:
    tool = FakeTool("echo", echo)
    model = ScriptedModel(*[(call("echo", str(n), n=n), Usage(60, 20)) for n in range(9)])
    _, listening, ended = talk(model, tool, limits=TurnLimits(tokens=200))
    assert ended.end is TurnEnd.TOKENS
    assert tool.count == 2
    assert listening.of(TokensUsed)[0] == TokensUsed(60, 20, None)


def test_tokens_that_the_server_does_not_count_are_estimated() -> None:
    model = ScriptedModel(*[("word " * 400, call("echo", str(n), n=n)) for n in range(9)])
    _, _, ended = talk(model, FakeTool("echo", echo), limits=TurnLimits(tokens=1500))
    assert ended.end is TurnEnd.TOKENS
    assert len(model.seen) < 5
