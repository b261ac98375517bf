# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages that are typed while the agent works."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from gi.repository import Gtk
from support.chat_screen import Place
from support.person import Person
from support.screen import Screen, all_of, texts
from support.scripted import ScriptedModel
from support.window import in_project, press, wait_until

from ollmsandbox.chat.messages import Role
from ollmsandbox.ui.sessions.entries import MessageEntry
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.window.window import Window

pytestmark = pytest.mark.anybody


@pytest.fixture
def working(screen: Screen, person: Person) -> Iterator[tuple[Window, OpenSession, asyncio.Event]]:
    """A window whose model answers the first message after the event."""
    with in_project(person) as (window, session):
        end = asyncio.Event()
        model = ScriptedModel([end, "First answer."], ["Second answer."], ["Third answer."])
        session.conversation.use_model(model)
        window.chat.set_can_send("")
        say(window, "first")
        wait_until(lambda: session.is_busy)
        yield window, session, end
        end.set()
        wait_until(lambda: not session.is_busy)


def say(window: Window, text: str) -> None:
    window.chat.composer.text = text
    window.chat.composer.send_button.emit("clicked")


def said(session: OpenSession, role: Role = Role.USER) -> list[str]:
    return [one.text for one in session if isinstance(one, MessageEntry) and one.role is role]


def test_queued_messages_are_sent_one_after_the_other(
    working: tuple[Window, OpenSession, asyncio.Event],
) -> None:
    window, session, end = working
    say(window, "second")
    say(window, "third")
    assert texts(window.chat.queue) == ["Sends when it is done", "second", "third"]
    assert said(session) == ["first"]
    end.set()
    wait_until(lambda: said(session, Role.ASSISTANT)[2:] == ["Third answer."])
    assert said(session) == ["first", "second", "third"]
    assert not window.chat.queue.get_visible()


def test_they_are_sent_although_another_session_is_shown(
    working: tuple[Window, OpenSession, asyncio.Event],
) -> None:
    window, session, end = working
    say(window, "second")
    window.chat.show(None)
    end.set()
    wait_until(lambda: said(session) == ["first", "second"])


def test_a_cross_takes_a_message_back(working: tuple[Window, OpenSession, asyncio.Event]) -> None:
    window, session, end = working
    say(window, "second")
    say(window, "third")
    all_of(window.chat.queue, Gtk.Button)[0].emit("clicked")
    assert session.queued == ("third",)
    assert window.chat.composer.text == "second"
    end.set()
    wait_until(lambda: said(session) == ["first", "third"])


def test_what_was_queued_comes_back_when_the_user_stops(
    working: tuple[Window, OpenSession, asyncio.Event],
) -> None:
    window, session, _end = working
    say(window, "second")
    press(window, "Stop")
    wait_until(lambda: not session.is_busy and not session.queued)
    assert window.chat.composer.text == "second"
    assert said(session) == ["first"]


def test_the_queue_belongs_to_its_session(screen: Screen, tmp_path: Path) -> None:
    place = Place(screen, tmp_path)
    place.chat.session.queue("later")
    assert place.view.queue.get_visible()
    place.view.show(None)
    assert not place.view.queue.get_visible()
    place.view.show(place.chat.session)
    assert texts(place.view.queue)[1:] == ["later"]
