# SPDX-License-Identifier: GPL-3.0-or-later
"""The card shows the whole command that will run, and what was approved is what runs."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from support.person import Person
from support.questions import ScriptedUser, VerdictRecorder, command
from support.timing import until

from ollmsandbox import loop
from ollmsandbox.permission.provider import MAX_OPEN_QUESTIONS, Provider
from ollmsandbox.permission.request import Answer, Fact, Source, Verdict
from ollmsandbox.permission.store import RuleStore
from ollmsandbox.text.visible import visible, visible_line

pytestmark = pytest.mark.anybody


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


def test_a_second_command_wiped_out_by_a_carriage_return() -> None:
    assert visible("rm -r x #\rls") == "rm -r x #⟨CR⟩ls"


@pytest.mark.parametrize(
    "attack",
    [
        "\x1b[2J\x1b[H",
        "\x1b[8m",
        "\x1b]0;title\a",
        "\x1b]52;c;cm0=\a",
        "\x1bP+q\x1b\\",
        "\x9b2J",
        "\b\b\b\b",
        "\x7f",
        "\x0e",
        "\x1b[1A\x1b[2K",
    ],
)
def test_terminal_escapes(attack: str) -> None:
    for shown in (visible(f"rm {attack}ls"), visible_line(f"rm {attack}ls")):
        assert shown.isprintable()
        assert shown.startswith("rm ⟨") and shown.endswith("ls")


@pytest.mark.parametrize("attack", [*"\u202a\u202b\u202d\u202e\u2066\u2067\u200e\u200f\u061c"])
def test_right_to_left_marks(attack: str) -> None:
    assert visible(f"rm {attack}x") == f"rm ⟨U+{ord(attack):04X}⟩x"


def test_letters_that_run_from_right_to_left_turn_nothing_around() -> None:
    assert visible("rm א; ls ב") == "rm \u2068א\u2069; ls \u2068ב\u2069"


@pytest.mark.parametrize("attack", ["\u200b", "\u200d", "\u2060", "\u00ad", "\u3164", "\U000e0061"])
def test_characters_that_cannot_be_seen(attack: str) -> None:
    assert visible(f"r{attack}m") == f"r⟨U+{ord(attack):04X}⟩m"


def test_text_that_looks_like_our_own_signs() -> None:
    assert visible("ls ⟨NEWLINE⟩") != visible_line("ls \n") != visible("ls ⟨NEWLINE⟩")
    assert visible("⟨100 spaces⟩") != visible(" " * 100)


@pytest.mark.parametrize("attack", ["<b>ls</b>", "&lt;", "<!-- rm -->", "[red]ls[/red]", "**ls**"])
def test_markup_is_plain_text(attack: str) -> None:
    assert visible(attack) == visible_line(attack) == attack


def test_a_very_long_command_is_shown_whole() -> None:
    text = "echo " + "a" * 100_000 + "; rm x"
    assert visible(text) == text


def test_a_path_with_a_newline_and_an_escape_stays_on_its_line() -> None:
    assert visible_line("/p\n\x1b[2K/q") == "/p⟨NEWLINE⟩⟨ESC⟩[2K/q"


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


def test_a_flood_of_questions(provider: Provider, user: ScriptedUser, person: Person) -> None:
    async def flood() -> list[Verdict]:
        everything = [
            asyncio.ensure_future(provider.decide(command(f"rm {n}", str(person.project))))
            for n in range(1000)
        ]
        await user.cards_shown(MAX_OPEN_QUESTIONS)
        await until(lambda: sum(one.done() for one in everything) == 1000 - MAX_OPEN_QUESTIONS)
        for one in everything:
            one.cancel()
        return [one.result() for one in everything if not one.cancelled() and one.done()]

    denied = loop.run(flood())
    assert len(denied) == 1000 - MAX_OPEN_QUESTIONS
    assert all(v.answer is Answer.DENY and v.source is Source.NOBODY for v in denied)
    assert len(provider.notices) == 1
