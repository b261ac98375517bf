# SPDX-License-Identifier: GPL-3.0-or-later
"""Shortening a conversation that no longer fits into the model's context."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.scripted import ScriptedModel

from ollmsandbox import loop
from ollmsandbox.chat.context import EARLIER, FIRST_STEPS, ContextWindow
from ollmsandbox.chat.conversation import Conversation
from ollmsandbox.chat.messages import Message, Role, ServerFields, ToolCall
from ollmsandbox.chat.providers.base import TooLongError
from ollmsandbox.chat.turn_end import TurnEnd

pytestmark = pytest.mark.anybody

PROMPT = Message(Role.SYSTEM, "Be kind. " * 20)


def said(text: str) -> Message:
    return Message(Role.USER, text)


def step(id: str, output: str, text: str = "") -> list[Message]:
    calls = (ToolCall(id, "run_command", {"command": "make"}),)
    return [Message(Role.ASSISTANT, text, calls=calls), Message(Role.TOOL, output, call_id=id)]


def turn(number: int, output: str = "x" * 8000) -> list[Message]:
    return [
        said(f"question {number}"),
        *step(f"call-{number}", output),
        Message(Role.ASSISTANT, f"answer {number}"),
    ]


def check(kept: tuple[Message, ...], messages: list[Message]) -> None:
    """Assert that nothing essential is lost."""
    assert kept[0] == PROMPT
    last = [message for message in messages if message.role is Role.USER][-1]
    assert any(last.text in message.text for message in kept if message.role is Role.USER)
    calls = [c.id for message in kept for c in message.calls]
    answers = [message.call_id for message in kept if message.role is Role.TOOL]
    assert calls == answers


def test_a_conversation_that_fits_is_sent_unchanged() -> None:
    messages = [*turn(1), said("and now?")]
    fitted = ContextWindow().fit(PROMPT, messages, (), 100_000)
    assert fitted.messages == (PROMPT, *messages)
    assert not fitted.notice
    # As is any other, if the length is unknown.
    messages = [*turn(1, "x" * 10_000_000), said("and now?")]
    assert len(ContextWindow().fit(PROMPT, messages, (), None).messages) == 1 + len(messages)


def test_old_output_is_shortened_first_and_says_so() -> None:
    messages = [m for n in range(6) for m in turn(n)] + [said("and now?")]
    fitted = ContextWindow().fit(PROMPT, messages, (), 7000)
    check(fitted.messages, messages)
    texts = [message.text for message in fitted.messages]
    assert all(f"question {n}" in texts for n in range(6))
    outputs = [message.text for message in fitted.messages if message.role is Role.TOOL]
    assert "left out to make room" in outputs[0]
    assert outputs[0].startswith("x" * 400)
    assert len(outputs[-1]) > 3 * len(outputs[0])
    assert "shortened" in fitted.notice


def test_then_the_oldest_turns_go_whole() -> None:
    messages = [m for n in range(40) for m in turn(n, "short output " * 40)] + [said("and now?")]
    fitted = ContextWindow().fit(PROMPT, messages, (), 3000)
    check(fitted.messages, messages)
    assert fitted.messages[1].role is Role.USER
    assert fitted.messages[1].text.startswith(EARLIER)
    assert fitted.messages[-1].text == "and now?"
    assert "left out" in fitted.notice


def test_the_newest_output_is_shortened_only_if_nothing_else_helps() -> None:
    messages = [said("go"), *step("a", "y" * 40_000)]
    fitted = ContextWindow().fit(PROMPT, messages, (), 4000)
    check(fitted.messages, messages)
    assert "left out to make room" in fitted.messages[-1].text


def test_a_turn_that_became_very_long_loses_its_first_steps_in_pairs() -> None:
    messages = [said("go")]
    for number in range(100):
        messages += step(f"call-{number}", "some output " * 60, "Now the next. " * 10)
    context = ContextWindow()
    fitted = context.fit(PROMPT, messages, (), 4000)
    check(fitted.messages, messages)
    assert fitted.messages[-1] == messages[-1]
    assert fitted.messages[1].text == f"go\n\n{FIRST_STEPS}"
    assert context.estimate(fitted.messages) <= 4000


def test_old_steps_go_before_the_newest_output_is_cut() -> None:
    messages = [said("go")]
    for number in range(20):
        messages += step(f"call-{number}", "some output " * 60)
    newest = "z" * 2900
    messages += step("newest", newest)
    fitted = ContextWindow().fit(PROMPT, messages, (), 4000)
    check(fitted.messages, messages)
    assert fitted.messages[-1].text == newest
    assert len(fitted.messages) < len(messages)
    # What is left out is what a summary has to cover: the task, too.
    assert fitted.dropped[0] == messages[0]
    assert fitted.keeps == len(messages) - len(fitted.dropped)


def test_output_is_cut_to_what_fits_and_not_to_a_fixed_size() -> None:
    for length in (4000, 16_000, 64_000):
        context = ContextWindow()
        messages = [said("go"), *step("a", "y" * 400_000)]
        fitted = context.fit(PROMPT, messages, (), length)
        assert length / 2 < len(fitted.messages[-1].text) < length * 4
        calls = tuple(ToolCall(f"c{n}", "look", {}) for n in range(9))
        outputs = [Message(Role.TOOL, "y" * 400_000, call_id=call.id) for call in calls]
        many = [said("go"), Message(Role.ASSISTANT, "", calls=calls), *outputs]
        fitted = context.fit(PROMPT, many, (), length)
        assert length * 0.6 < context.estimate(fitted.messages) <= length * 0.9


def test_only_thinking_that_is_sent_is_counted() -> None:
    thoughtful = Message(Role.ASSISTANT, "Fine.", thinking="x" * 100_000)
    messages = [said("one"), thoughtful, said("two")]
    sent = ScriptedModel().sent(messages)
    fitted = ContextWindow().fit(PROMPT, sent, (), 4000)
    assert len(fitted.messages) == 4
    assert not fitted.notice
    returned = replace(thoughtful, fields=ServerFields("here", "reasoning_content"))
    assert ContextWindow().fit(PROMPT, [said("one"), returned, said("two")], (), 4000).dropped


def test_a_server_that_says_how_much_it_takes_is_believed() -> None:
    words = "This model's maximum context length is 8,192 tokens. However, you requested 20000."
    context = ContextWindow()
    messages = [m for n in range(40) for m in turn(n, "short output " * 150)] + [said("and now?")]
    assert not context.fit(PROMPT, messages, (), None).notice
    context.was_too_long(words)
    fitted = context.fit(PROMPT, messages, (), None)
    check(fitted.messages, messages)
    assert 2000 < context.estimate(fitted.messages) < 8192


def test_messages_that_were_left_out_stay_left_out() -> None:
    """A context whose front changes each time has to be read anew by the model each time."""
    messages = [*turn(1), *turn(2), *turn(3), said("and now?")]
    context = ContextWindow()
    first = context.fit(PROMPT, messages, (), 7000)
    longer = [*messages, Message(Role.ASSISTANT, "Well."), said("go on")]
    second = context.fit(PROMPT, longer, (), 7000)
    assert second.messages[: len(first.messages)] == first.messages
    assert not second.notice


def test_the_servers_own_count_corrects_the_estimate() -> None:
    messages = [said("word " * 400)]
    context = ContextWindow()
    context.fit(PROMPT, messages, (), None)
    before = context.estimate(messages)
    context.learn(3 * before)
    assert context.estimate(messages) > 2 * before
    context.learn(1)  # a server that counts only what is new
    assert context.estimate(messages) > before / 2


def test_a_server_that_says_it_is_too_long_is_sent_less() -> None:
    model = ScriptedModel(["First."], [TooLongError("Too long.")], ["Now it fits."])
    conversation = Conversation(model=model, prompt="Be kind.", messages=turn(1, "x" * 50_000))
    loop.run(conversation.say("one"))
    assert loop.run(conversation.say("two")).end is TurnEnd.DONE
    sizes = [sum(len(m.text) for m in seen) for seen in model.seen]
    assert sizes[-1] < sizes[0]
    assert conversation.messages[-1].text == "Now it fits."


def test_a_server_that_never_takes_it_ends_the_turn_with_its_sentence() -> None:
    model = ScriptedModel(*[[TooLongError("Too long.")]] * 50)
    conversation = Conversation(model=model, prompt="Be kind.")
    ended = loop.run(conversation.say("hello"))
    assert ended.end is TurnEnd.FAILED
    assert ended.why == "Too long."
