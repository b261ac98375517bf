# SPDX-License-Identifier: GPL-3.0-or-later
"""The card shows the whole command that will run, and what was approved is what runs."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from support.person import Person
from support.questions import ScriptedUser, VerdictRecorder, command

from ollmsandbox import loop
from ollmsandbox.permission.provider import Provider
from ollmsandbox.permission.request import Answer, Fact, Verdict
from ollmsandbox.permission.store import RuleStore
from ollmsandbox.text.visible import visible, visible_line

pytestmark = pytest.mark.ordinary


@pytest.fixture
def user() -> ScriptedUser:
    return ScriptedUser()


@pytest.fixture
def provider(person: Person, user: ScriptedUser) -> Provider:
    return Provider(user, RuleStore(person.paths), VerdictRecorder())


def test_a_second_command_hidden_behind_a_newline(person: Person) -> None:
    text = "echo one\n" + "\n" * 300 + "echo two"
    # It is one: both run.
    assert person.run(text).stdout.text == "one\ntwo\n"
    assert visible(text).splitlines() == ["echo one⟨301 newlines⟩", "echo two"]
    assert visible_line(text) == "echo one⟨301 newlines⟩echo two"


def test_a_second_command_hidden_behind_blanks(person: Person) -> None:
    text = "echo one" + " " * 5000 + "; echo two"
    assert person.run(text).stdout.text == "one\ntwo\n"
    assert visible(text) == "echo one⟨5000 spaces⟩; echo two"


def test_a_command_with_markup_or_of_any_length_is_shown_whole() -> None:
    attacks = ("<b>ls</b>", "&lt;", "<!-- rm -->", "[red]ls[/red]", "**ls**")
    for text in (*attacks, "echo " + "a" * 100_000 + "; rm x"):
        assert visible(text) == visible_line(text) == text


def test_a_question_that_changes_after_it_was_shown(
    provider: Provider, user: ScriptedUser, person: Person
) -> None:
    async def change_it() -> Verdict:
        request = command("ls", str(person.project), facts=(Fact("in", "~/src"),))
        deciding = asyncio.ensure_future(provider.decide(request))
        await user.cards_shown(1)
        with pytest.raises(dataclasses.FrozenInstanceError):
            request.subject = "rm x"  # type: ignore[misc]
        with pytest.raises(dataclasses.FrozenInstanceError):
            request.facts[0].value = "/"  # type: ignore[misc]
        user.answer(0, Answer.ALLOW)
        verdict = await deciding
        # The one that was shown, not one that is like it.
        assert verdict.request is request is user.asked[0]
        return verdict

    assert loop.run(change_it()).allowed


def test_an_answer_to_one_question_does_not_count_for_another_with_its_name(
    provider: Provider, user: ScriptedUser, person: Person
) -> None:
    async def ask_both() -> None:
        shown = command("ls", str(person.project), id="same", call_id="same")
        hidden = command("rm x", str(person.project), id="same", call_id="same")
        first = asyncio.ensure_future(provider.decide(shown))
        await user.cards_shown(1)
        second = asyncio.ensure_future(provider.decide(hidden))
        await user.cards_shown(2)
        user.answer(0, Answer.ALLOW_ALWAYS)
        assert (await first).allowed
        await user.cards_shown(1)
        assert not second.done()
        user.answer(0, Answer.DENY)
        assert not (await second).allowed

    loop.run(ask_both())
