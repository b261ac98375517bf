# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls that a model writes as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scripted import FakeTool, ScriptedModel
from support.turn import echo, talk

from ollmsandbox.chat.events import Notice
from ollmsandbox.chat.messages import Role
from ollmsandbox.chat.providers.convert import tool_name, valid_id, valid_name
from ollmsandbox.chat.text_calls import find_written_calls, looks_like_calls

pytestmark = pytest.mark.anybody

TOOLS = ("echo", "run_command")
ONE = '{"name": "echo", "arguments": {"text": "a"}}'


@pytest.mark.parametrize(
    "text",
    [
        ONE,
        f"```json\n{ONE}\n```",
        f"<tool_call>\n{ONE}\n</tool_call>",
        f"<tool_call>\n{ONE}",
        f"<tool_call>{ONE}</tool_call>\n<tool_call>{ONE}</tool_call>",
        f"I will look.\n\n<tool_call>\n{ONE}\n</tool_call>\n",
        f"[TOOL_CALLS] [{ONE}, {ONE}]",
        '<|python_tag|>{"name": "echo", "parameters": {"text": "a"}}',
        '<function=echo>{"text": "a"}</function>',
        "<tool_call>\n<function=echo>\n<parameter=text>\na\n</parameter>\n</function>\n</tool_call>",
        '{"type": "function", "function": {"name": "echo", "arguments": "{\\"text\\": \\"a\\"}"}}',
        '<tool_call>{"name": "functions.echo:0", "arguments": {"text": "a"}}</tool_call>',
    ],
)
def test_an_unmistakable_call_is_made(text: str) -> None:
    model = ScriptedModel([text])
    conversation, listening, _ended = talk(model, FakeTool("echo", echo))
    results = [message.text for message in conversation.messages if message.role is Role.TOOL]
    assert results == ["echo: a"] * (2 if text.count('"name": "echo"') == 2 else 1)
    assert not listening.of(Notice)
    said = conversation.messages[1].text
    assert said == ("I will look." if text.startswith("I will") else "")


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{ONE}</tool_call>\nThis is how one calls a tool.",
        f"Write it like this:\n```\n<tool_call>{ONE}</tool_call>\n```",
        f"For example {ONE}",
        f"The file says `<tool_call>{ONE}</tool_call>`",
        '<tool_call>{"name": "echo", "arguments": {"text": "a"</tool_call>',
        '<tool_call>{"name": "echo"}</tool_call>',
        '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
        "<tool_call>",
    ],
)
def test_anything_else_is_only_text_and_says_so(text: str) -> None:
    conversation, listening, _ended = talk(ScriptedModel([text]), FakeTool("echo", echo))
    assert [message.role for message in conversation.messages] == [Role.USER, Role.ASSISTANT]
    assert any("cannot call tools" in notice.text for notice in listening.of(Notice))
    assert conversation.messages[-1].text == text


@pytest.mark.parametrize("text", ["Done.", '{"name": "Ada", "age": 3}', "```json\n[1, 2]\n```", ""])
def test_ordinary_answers_are_left_alone(text: str) -> None:
    assert find_written_calls(text, TOOLS) is None
    assert not looks_like_calls(text, TOOLS)


BITS = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<function=echo>", "</function>", "<parameter=text>", ONE,
     "[TOOL_CALLS]", "[", "]", "{", "}", ",", "\n", "```", "text", '"name": "echo"', "\\ud800"]
)  # fmt: skip


@given(st.lists(BITS, max_size=12).map("".join) | st.text())
def test_any_text_is_read(text: str) -> None:
    looks_like_calls(text, TOOLS)
    found = find_written_calls(text, TOOLS)
    if found is not None:
        assert found.calls
        assert all(call.name in TOOLS for call in found.calls)
        assert text.startswith(found.text)


@given(st.text(max_size=200))
def test_any_name_and_id_is_made_valid(text: str) -> None:
    for found in (valid_name(text), valid_id(text), tool_name(text, TOOLS)):
        assert found.replace("_", "a").replace("-", "a").isalnum()
        assert found.isascii()
        assert 1 <= len(found) <= 64
