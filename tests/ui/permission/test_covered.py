# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from gi.repository import GLib
from support.person import Person
from support.screen import Screen
from support.scripted import ScriptedModel, call
from support.window import card_that, controller_of, finish, in_project, wait_until

from ollmsandbox.permission.request import Answer
from ollmsandbox.ui.permission.card import ChatPermission
from ollmsandbox.ui.permission.visibility import is_covered
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.window.window import Window

pytestmark = pytest.mark.usefixtures("quick", "announced")


@contextmanager
def asking(session: OpenSession, count: int = 1) -> Iterator[None]:
    """The agent asks for web pages, so many at once: commands ask one after the other."""
    calls = [call("web_fetch", str(n), url=f"https://{n}.example") for n in range(1, count + 1)]
    session.conversation.model = ScriptedModel(calls)
    turn = asyncio.get_event_loop().create_task(session.conversation.say("go"))
    wait_until(lambda: len(session.asking()) == count)
    try:
        yield
    finally:
        finish(session.conversation.stop())
        wait_until(turn.done)


def question(window: Window, call_id: str = "1") -> ChatPermission:
    card = card_that(window, lambda card: card.question and card.entry.call.id == call_id)
    assert card.question is not None
    return card.question


def cover(window: Window) -> None:
    """Narrow, with the changes on top."""
    window.set_default_size(360, 700)
    wait_until(lambda: window.get_width() < 370)
    window.activate_action("win.toggle-changes", None)
    # They slide in, and where they are while they do so is not what is tested.
    wait_until(lambda: window.flap.get_reveal_progress() == 1 and is_covered(window.chat))


def looks(card: ChatPermission, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait until the card has checked several times whether it is in view."""
    seen: list[bool] = []
    look = card._look

    def count() -> None:
        look()
        seen.append(True)

    monkeypatch.setattr(card, "_look", count)
    wait_until(lambda: len(seen) > 5)


def test_a_question_under_the_changes_is_not_seen_and_its_letter_allows_nothing(
    screen: Screen, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_project(person) as (window, session):
        cover(window)
        with asking(session):
            card = question(window)
            allow = card.button_for(Answer.ALLOW)
            looks(card, monkeypatch)
            assert not allow.get_sensitive()
            assert not window.chat.focused_call
            window.activate_action("win.toggle-changes", None)
            wait_until(allow.get_sensitive)
            # It was seen; but it is not what the user looks at now.
            window.activate_action("win.toggle-changes", None)
            wait_until(lambda: is_covered(window.chat))
            focus = window.get_focus()
            allow.emit("clicked")
            assert session.asking()
            assert window.get_focus() is focus


def test_a_covered_question_is_announced(
    screen: Screen, person: Person, announced: list[str]
) -> None:
    with in_project(person) as (window, session):
        wait_until(window.is_active)
        with asking(session):
            assert not announced
        cover(window)
        with asking(session):
            request = session.asking()[0].request
            assert request is not None
            wait_until(lambda: announced == [request.id])
        assert GLib.get_application_name() == "OLLM Sandbox"


@pytest.mark.parametrize("by_key", [False, True])
def test_the_way_to_a_question_uncovers_it(screen: Screen, person: Person, *, by_key: bool) -> None:
    with in_project(person) as (window, session):
        cover(window)
        with asking(session):
            card = question(window)
            if by_key:
                window.activate_action("win.next-question", None)
            else:
                controller_of(window).show_question(session.id, "1")
            wait_until(lambda: not is_covered(window.chat))
            wait_until(lambda: window.get_focus() is card.button_for(Answer.DENY))
            wait_until(card.button_for(Answer.ALLOW).get_sensitive)


def test_a_question_whose_turn_came_under_the_changes_has_the_keyboard_when_they_are_gone(
    screen: Screen, person: Person
) -> None:
    with in_project(person) as (window, session), asking(session, 2):
        wait_until(lambda: window.chat.focused_call)
        cover(window)
        question(window, session.asking()[0].call.id).button_for(Answer.DENY).emit("clicked")
        wait_until(lambda: len(session.asking()) == 1)
        (left,) = session.asking()
        wait_until(lambda: window.chat.column.is_settled)
        assert not window.chat.focused_call
        window.activate_action("win.toggle-changes", None)
        wait_until(lambda: window.chat.focused_call == left.call.id)


def test_the_key_for_the_next_question_goes_round_them(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, session), asking(session, 3):
        # The first question has it by itself, because the user is not typing.
        wait_until(lambda: window.chat.focused_call)
        seen = [window.chat.focused_call]
        for _press in range(3):
            window.activate_action("win.next-question", None)
            wait_until(lambda: window.chat.focused_call not in ("", seen[-1]))
            seen.append(window.chat.focused_call)
        assert sorted(seen[:3]) == ["1", "2", "3"]
        assert seen[3] == seen[0]
