# SPDX-License-Identifier: GPL-3.0-or-later
"""The turn loop, with a scripted model and scripted tools."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from support.scripted import FakeTool, ScriptedModel, SlowModel, call
from support.turn import begun, check_pairs, echo, has_words, roles, run, talk

from ollmsandbox.chat.calls import stopped_outcome
from ollmsandbox.chat.conversation import Conversation
from ollmsandbox.chat.events import (
    CallBegan,
    CallEnded,
    ChatEvent,
    ConversationState,
    MessageAdded,
    StateChanged,
    TextGrew,
    ThinkingGrew,
    TurnEnded,
)
from ollmsandbox.chat.messages import Role, ToolCall
from ollmsandbox.chat.providers.base import CallPiece, ThinkingPiece
from ollmsandbox.chat.turn_end import TurnEnd
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.project.change import Change, Kind, Recorded, Report, State, Type
from ollmsandbox.tools.base import Outcome, Watcher

pytestmark = pytest.mark.anybody

STOPPED = stopped_outcome().text


def test_an_answer_comes_in_pieces_and_ends_the_turn() -> None:
    model = ScriptedModel([ThinkingPiece("hm"), "Go", "od day ä€😀"])
    conversation, listening, ended = talk(model)
    assert ended == TurnEnded(TurnEnd.DONE)
    assert [event.text for event in listening.of(TextGrew)] == ["Go", "od day ä€😀"]
    assert [event.text for event in listening.of(ThinkingGrew)] == ["hm"]
    assert conversation.messages[-1].text == "Good day ä€😀"
    assert conversation.messages[-1].thinking == "hm"
    assert [event.message.role for event in listening.of(MessageAdded)] == [
        Role.USER,
        Role.ASSISTANT,
    ]
    assert [message.role for message in model.seen[0]] == [Role.SYSTEM, Role.USER]
    states = [event.state for event in listening.of(StateChanged)]
    assert states == [
        ConversationState.WAITING,
        ConversationState.STREAMING,
        ConversationState.IDLE,
    ]


def test_tools_describe_themselves_anew_for_each_reply() -> None:
    class Growing(FakeTool):
        @property
        def description(self) -> str:
            return str(self.most_at_once)

    model = ScriptedModel([call("echo")])
    talk(model, Growing("echo", echo))
    assert [spec.description for (spec,) in model.tools] == ["0", "1"]


def test_a_call_is_carried_out_and_its_answer_goes_to_the_model() -> None:
    model = ScriptedModel([call("echo", text="a")])
    conversation, listening, ended = talk(model, FakeTool("echo", echo))
    assert ended.end is TurnEnd.DONE
    assert roles(conversation) == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert model.seen[1][-1].text == "echo: a"
    assert listening.of(CallBegan)[0].description == "echo {'text': 'a'}"
    assert listening.of(CallEnded)[0].outcome.ok


def test_calls_that_cannot_write_run_side_by_side_and_are_answered_in_order() -> None:
    gate = asyncio.Event()

    async def together(arguments: Mapping[str, object], _watcher: Watcher) -> str:
        # The first ends last: only if the others run beside it does it end at all.
        if arguments["n"] == 0:
            await gate.wait()
        elif arguments["n"] == 2:
            gate.set()
        return f"was {arguments['n']}"

    tool = FakeTool("together", together, can_write=False)
    model = ScriptedModel([call("together", str(n), n=n) for n in range(3)])
    _, listening, _ = talk(model, tool)
    assert tool.most_at_once > 1
    assert [message.text for message in model.seen[1][-3:]] == ["was 0", "was 1", "was 2"]
    assert listening.of(CallEnded)[-1].call.id == "0"


def test_a_call_that_can_write_runs_after_those_before_it() -> None:
    order: list[str] = []
    beside = FakeTool("beside", lambda given, _: order.append(str(given["n"])), can_write=False)
    after = FakeTool("after", lambda given, _: order.append(str(given["n"])))
    calls = [call("beside", "a", n=1), call("after", "b", n=2), call("beside", "c", n=3)]
    talk(ScriptedModel(calls), beside, after)
    assert order == ["1", "2", "3"]


@pytest.mark.parametrize(
    "bad",
    [
        CallPiece(ToolCall("1", "nonsense", {})),
        CallPiece(ToolCall("1", "echo", '{"text": ')),
        CallPiece(ToolCall("1", "", "")),
        CallPiece(ToolCall("", "nonsense", {})),
    ],
    ids=["unknown tool", "broken arguments", "no name", "no id"],
)
def test_an_impossible_call_is_an_error_for_the_model(bad: CallPiece) -> None:
    model = ScriptedModel([bad])
    _, listening, ended = talk(model, FakeTool("echo", echo))
    assert ended.end is TurnEnd.DONE
    assert model.seen[1][-1].role is Role.TOOL
    assert model.seen[1][-1].text.startswith("ERROR: ")
    # It is told which tools there are.
    assert "'nonsense'" not in model.seen[1][-1].text or "echo" in model.seen[1][-1].text
    assert not listening.of(CallEnded)[0].outcome.ok


@pytest.mark.parametrize("id_", ["x", ""])
def test_each_call_has_an_id_of_its_own(id_: str) -> None:
    calls = [call("echo", id_, text=text) for text in "abc"]
    conversation, _, _ = talk(ScriptedModel(calls[:2], calls[2:]), FakeTool("echo", echo))
    answers = [m for m in conversation.messages if m.role is Role.TOOL]
    assert [answer.text for answer in answers] == ["echo: a", "echo: b", "echo: c"]
    assert len({answer.call_id for answer in answers}) == 3


def test_a_tool_that_breaks_is_an_error_to_the_model_and_not_the_end() -> None:
    def broken(_arguments: Mapping[str, object], _watcher: Watcher) -> str:
        raise ZeroDivisionError("in the tool")

    model = ScriptedModel([call("broken")])
    problems: list[dict[str, Any]] = []

    async def main() -> TurnEnded:
        asyncio.get_running_loop().set_exception_handler(lambda _, found: problems.append(found))
        return await Conversation(model=model, tools=[FakeTool("broken", broken)]).say("Hello")

    assert run(main()).end is TurnEnd.DONE
    assert "in the tool" in model.seen[1][-1].text
    assert isinstance(problems[0]["exception"], ZeroDivisionError)


def failing() -> FakeTool:
    return FakeTool("failing", lambda *_: Outcome("no", ok=False))


def test_a_failing_call_is_refused_and_a_model_that_goes_on_with_it_is_stopped() -> None:
    tool = failing()
    model = ScriptedModel(*([call("failing", str(n))] for n in range(20)))
    _, _, ended = talk(model, tool)
    assert ended.end is TurnEnd.LOOP
    assert len(model.seen) == 6
    assert tool.count == 3
    assert "failed" in model.seen[-1][-1].text


def test_a_call_that_succeeds_with_the_same_result_over_and_over_is_refused() -> None:
    tool = FakeTool("same", lambda *_: "nothing new")
    # Two calls in turn are a loop, too.
    model = ScriptedModel(*([call("same", f"{n}", text=str(n % 2))] for n in range(30)))
    _, _, ended = talk(model, tool)
    assert ended.end is TurnEnd.LOOP
    assert tool.count == 10
    assert "same result 5 times" in model.seen[-1][-1].text


def test_a_call_with_another_result_each_time_is_no_loop() -> None:
    tool = FakeTool("counting", lambda *_: f"line {tool.count}")
    _, _, ended = talk(ScriptedModel(*([call("counting", str(n))] for n in range(12))), tool)
    assert ended.end is TurnEnd.DONE
    assert tool.count == 12


def test_a_test_that_is_run_after_each_change_is_no_loop() -> None:
    change = Change("/p", "a", Kind.MODIFIED, Type.FILE)
    edited = Outcome("ok", ok=True, report=Report("r", (Recorded(0, change, State.APPLIED),)))
    replies = [[call("test", f"t{n}"), call("edit", f"e{n}")] for n in range(12)]
    test = FakeTool("test", lambda *_: "1 failed")
    _, _, ended = talk(ScriptedModel(*replies), test, FakeTool("edit", lambda *_: edited))
    assert ended.end is TurnEnd.DONE
    assert test.count == 12


def test_a_refused_call_may_be_tried_again_after_a_message_of_the_user() -> None:
    tool = failing()
    conversation, _, _ = talk(ScriptedModel(*([call("failing", str(n))] for n in range(4))), tool)
    conversation.use_model(ScriptedModel([call("failing", "again")]))
    run(conversation.say("Once more"))
    assert tool.count == 4


def test_a_failing_call_with_others_in_between_is_not_refused() -> None:
    tool = failing()
    replies = [[call("failing", f"f{n}"), call("echo", f"e{n}")] for n in range(5)]
    talk(ScriptedModel(*replies), tool, FakeTool("echo", echo))
    assert tool.count == 5


def test_a_listener_that_fails_breaks_nothing() -> None:
    problems: list[object] = []
    heard: list[ChatEvent] = []

    def broken(_event: ChatEvent) -> None:
        raise KeyError("front")

    async def main() -> TurnEnded:
        asyncio.get_running_loop().set_exception_handler(lambda _, found: problems.append(found))
        conversation = Conversation(model=ScriptedModel(["Hi"]))
        conversation.listen(broken)
        conversation.listen(heard.append)
        return await conversation.say("Hello")

    assert run(main()).end is TurnEnd.DONE
    assert problems
    assert TurnEnded(TurnEnd.DONE) in heard


def test_a_removed_listener_gets_no_more_events() -> None:
    heard: list[ChatEvent] = []
    conversation = Conversation(model=ScriptedModel())
    silence = conversation.listen(heard.append)
    silence()
    silence()
    run(conversation.say("Hello"))
    assert not heard


def test_without_a_model_nothing_is_sent() -> None:
    conversation = Conversation(model=None)
    with pytest.raises(OllmSandboxError, match="model"):
        run(conversation.say("Hello"))
    assert not conversation.messages


def test_a_turn_during_another_is_refused() -> None:
    async def main() -> None:
        conversation = Conversation(model=SlowModel("Well, "))
        turn, _ = await begun(conversation, has_words)
        with pytest.raises(OllmSandboxError, match="still working"):
            await conversation.say("Again")
        await conversation.stop()
        assert (await turn).end is TurnEnd.STOPPED

    run(main())


def test_messages_after_a_stop_are_sent_as_one() -> None:
    """Many models take nothing but turns."""

    async def main() -> ScriptedModel:
        conversation = Conversation(model=SlowModel())
        turn = asyncio.ensure_future(conversation.say("First"))
        await asyncio.sleep(0)
        await conversation.stop()
        assert (await turn).end is TurnEnd.STOPPED
        model = ScriptedModel()
        conversation.use_model(model)
        await conversation.say("Second")
        return model

    model = run(main())
    assert [message.role for message in model.seen[0]] == [Role.SYSTEM, Role.USER]
    assert model.seen[0][-1].text == "First\n\nSecond"


def test_the_calls_that_never_ran_are_answered_too_when_a_turn_is_stopped() -> None:
    async def forever(_arguments: Mapping[str, object], _watcher: Watcher) -> None:
        await asyncio.Event().wait()

    async def main() -> Conversation:
        tool = FakeTool("forever", forever)
        conversation = Conversation(
            model=ScriptedModel([call("forever", "a"), call("forever", "b")]), tools=[tool]
        )
        turn, listening = await begun(conversation, lambda _: tool.running)
        await conversation.stop()
        assert (await turn).end is TurnEnd.STOPPED
        assert tool.running == 0
        assert [event.call.id for event in listening.of(CallEnded)] == ["a", "b"]
        assert [event.call.id for event in listening.of(CallBegan)] == ["a", "b"]
        return conversation

    conversation = run(main())
    check_pairs(conversation.messages)
    assert [message.text for message in conversation.messages[-2:]] == [
        f"working\n{STOPPED}",
        STOPPED,
    ]


def test_cancelling_the_task_of_a_turn_stops_it() -> None:
    async def main() -> None:
        model = SlowModel("Well, ")
        conversation = Conversation(model=model)
        turn, _ = await begun(conversation, has_words)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert conversation.state is ConversationState.IDLE
        assert model.open == 0

    run(main())


def test_a_model_that_ignores_cancelling_does_not_delay_a_stop() -> None:
    class Clinging(ScriptedModel):
        async def context_length(self) -> int | None:
            while not gate.is_set():
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    continue
            return None

    gate = asyncio.Event()

    async def main() -> None:
        conversation = Conversation(model=Clinging())
        turn = asyncio.ensure_future(conversation.say("Hello"))
        await asyncio.sleep(0.01)
        await conversation.stop()
        assert (await turn).end is TurnEnd.STOPPED
        conversation.use_model(ScriptedModel(["Yes."]))
        assert (await conversation.say("Still there?")).end is TurnEnd.DONE
        gate.set()
        await asyncio.sleep(0.01)
        assert [message.text for message in conversation.messages] == [
            "Hello",
            "Still there?",
            "Yes.",
        ]

    run(main())
