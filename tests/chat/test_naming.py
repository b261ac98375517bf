# SPDX-License-Identifier: GPL-3.0-or-later
"""Titles of sessions that a model suggests."""

from __future__ import annotations

import pytest
from support.scripted import ScriptedModel

from ollmsandbox import loop
from ollmsandbox.chat.messages import Message, Role
from ollmsandbox.chat.naming import clean_title, suggest_title
from ollmsandbox.chat.providers.base import ProviderError

pytestmark = pytest.mark.anybody

TALK = [
    Message(Role.SYSTEM, "You are an agent."),
    Message(Role.USER, "The tests fail. " + "x" * 5000),
    Message(Role.ASSISTANT, "I look."),
    Message(Role.TOOL, "2 failed", call_id="1"),
    Message(Role.ASSISTANT, "Fixed."),
]


def test_the_request_is_short_and_has_no_tools() -> None:
    model = ScriptedModel(["Failing ", "tests\n"])
    assert loop.run(suggest_title(model, TALK)) == "Failing tests"
    [sent] = model.seen
    assert [one.role for one in sent] == [Role.USER, Role.ASSISTANT, Role.USER]
    assert sent[1].text == "Fixed."
    assert sum(len(one.text) for one in sent) < 2000
    assert model.tools == [()]


def test_a_model_that_fails_leaves_the_first_words() -> None:
    assert loop.run(suggest_title(ScriptedModel([ProviderError("No.")]), TALK)) == ""
    assert loop.run(suggest_title(ScriptedModel(["x" * 9000]), TALK)) == ""
    assert loop.run(suggest_title(ScriptedModel(), [])) == ""


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ('"Fix the parser."', "Fix the parser"),
        ("**Title: Fix**", "Title: Fix"),
        ("Title: Fix the parser\nAnd more", "Fix the parser"),
        ("\n\n# Parser\n", "Parser"),
        ("Here is a title for you, which is much longer than any title should ever be", ""),
        ("", ""),
    ],
)
def test_a_title_has_no_decoration(text: str, title: str) -> None:
    assert clean_title(text) == title
