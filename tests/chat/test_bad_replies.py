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
    done: list[int] = []
    tool = FakeTool("echo", lambda *_: done.append(1))
    conversation, _, ended = talk(
        ScriptedModel(["Now I", call("echo"), ProviderError("Gone.")]), tool
    )
    assert ended.end is TurnEnd.FAILED
    assert not done
    assert not conversation.messages[-1].calls


def test_after_a_failure_the_session_continues() -> None:
    conversation, _, _ = talk(ScriptedModel([ProviderError("Gone.")], ["Back."]))
    assert run(conversation.say("Still there?")).end is TurnEnd.DONE
    assert conversation.messages[-1].text == "Back."


def test_an_exception_in_a_provider_is_reported_and_the_session_continues() -> None:
    class Broken(ScriptedModel):
        async def context_length(self) -> int | None:
            raise ZeroDivisionError("oops")

    async def main() -> tuple[TurnEnded, TurnEnded]:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        conversation = Conversation(model=Broken())
        first = await conversation.say("Hello")
        conversation.use_model(ScriptedModel())
        return first, await conversation.say("Hello")

    first, second = run(main())
    assert first.end is TurnEnd.FAILED
    assert "oops" in first.why
    assert second.end is TurnEnd.DONE


def test_an_exception_in_the_middle_of_a_reply_keeps_the_text_so_far() -> None:
    class Broken(ScriptedModel):
        async def reply(
            self, messages: Sequence[Message], tools: Sequence[ToolSpec]
        ) -> AsyncIterator[Piece]:
            yield TextPiece("Half a sen")
            raise ZeroDivisionError("oops")

    async def main() -> Message:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        conversation = Conversation(model=Broken())
        assert (await conversation.say("Hello")).end is TurnEnd.FAILED
        return conversation.messages[-1]

    last = run(main())
    assert (last.text, last.partial) == ("Half a sen", True)


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
    done: list[int] = []
    tool = FakeTool("echo", lambda *_: done.append(1))
    model = ScriptedModel(*[(call("echo", str(n), n=n), Usage(60, 20)) for n in range(9)])
    _, listening, ended = talk(model, tool, limits=TurnLimits(tokens=200))
    assert ended.end is TurnEnd.TOKENS
    assert len(done) == 2
    assert listening.of(TokensUsed)[0] == TokensUsed(60, 20, None)


def test_tokens_that_the_server_does_not_count_are_estimated() -> None:
    model = ScriptedModel(*[("word " * 400, call("echo", str(n), n=n)) for n in range(9)])
    _, _, ended = talk(model, FakeTool("echo", echo), limits=TurnLimits(tokens=1500))
    assert ended.end is TurnEnd.TOKENS
    assert len(model.seen) < 5
