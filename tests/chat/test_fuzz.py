# SPDX-License-Identifier: GPL-3.0-or-later
"""Random model output never raises or hangs, and every call gets its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scripted import FakeTool, Part, ScriptedModel
from support.timing import PATIENCE
from support.turn import check_pairs

from ollmsandbox import loop
from ollmsandbox.chat.conversation import Conversation, TurnLimits
from ollmsandbox.chat.messages import ToolCall
from ollmsandbox.chat.providers.base import (
    CallPiece,
    FinishPiece,
    ProviderError,
    TextPiece,
    ThinkingPiece,
    Usage,
)
from ollmsandbox.tools.base import Outcome, Watcher

pytestmark = pytest.mark.anybody

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
calls = st.builds(
    ToolCall,
    st.sampled_from(["", "1", "1", "2", "own-2"]) | st.text(max_size=5),
    st.sampled_from(["beside", "after", "broken"]) | st.text(max_size=5),
    st.dictionaries(st.text(max_size=5), values, max_size=3) | st.text(max_size=10),
)
parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(TextPiece, st.text(max_size=20)),
    st.builds(ThinkingPiece, st.text(max_size=20)),
    st.builds(CallPiece, calls),
    st.builds(Usage, st.integers(-5, 10**9), st.integers(-5, 10**9)),
    st.builds(FinishPiece, st.booleans(), st.booleans()),
    st.builds(ProviderError, st.just("Gone.")),
)


def after(arguments: Mapping[str, object], _watcher: Watcher) -> Outcome:
    return Outcome(str(arguments), ok=len(arguments) > 1)


def broken(_arguments: Mapping[str, object], _watcher: Watcher) -> Outcome:
    raise ArithmeticError("in the tool")


@settings(max_examples=30, deadline=None)
@given(
    replies=st.lists(st.lists(parts, max_size=6), max_size=5), length=st.sampled_from([None, 99])
)
def test_any_output_of_a_model_is_handled(replies: list[list[Part]], length: int | None) -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        tools = [
            FakeTool("beside", after, can_write=False),
            FakeTool("after", after),
            FakeTool("broken", broken),
        ]
        model = ScriptedModel(*replies, length=length)
        conversation = Conversation(model=model, tools=tools, limits=TurnLimits(turns=8))
        async with asyncio.timeout(PATIENCE):
            for text in ("first", "second"):
                ended = await conversation.say(text)
                assert "went wrong in this program" not in ended.why
                check_pairs(conversation.messages)
        assert model.open == 0

    loop.run(main())
