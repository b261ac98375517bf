# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from gi.repository import Gdk, Gtk
from support.chat import press_key
from support.person import Person
from support.screen import Screen, all_of, texts
from support.scripted import ScriptedModel, SlowModel
from support.window import finish, in_project, press, say, says, wait_until

from ollmsandbox.chat.messages import Role
from ollmsandbox.ui.sessions.entries import CallEntry, MessageEntry
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.window.window import Window

Working = tuple[Window, OpenSession, asyncio.Event]


@pytest.fixture
def working(screen: Screen, person: Person) -> Iterator[Working]:
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


def said(session: OpenSession, role: Role = Role.USER) -> list[str]:
    return [one.text for one in session if isinstance(one, MessageEntry) and one.role is role]


def test_the_model_reads_queued_messages_with_its_next_step(working: Working) -> None:
    window, session, end = working
    say(window, "second")
    say(window, "third")
    waiting = ["Waiting for the agent", "second", "third"]
    assert texts(window.chat.queue) == waiting
    window.chat.show(None)
    window.chat.show(session)
    assert texts(window.chat.queue) == waiting
    assert said(session) == ["first"]
    end.set()
    wait_until(lambda: said(session, Role.ASSISTANT)[1:] == ["Second answer."])
    assert said(session) == ["first", "second", "third"]
    assert not window.chat.queue.get_visible()


def test_a_command_of_the_user_waits_for_the_end_and_all_behind_it_too(working: Working) -> None:
    window, session, end = working
    for text in ("second", "!true", "third"):
        say(window, text)
    end.set()
    wait_until(lambda: said(session, Role.ASSISTANT)[2:] == ["Third answer."])
    order = [
        one.text if isinstance(one, MessageEntry) else one.description
        for one in session
        if isinstance(one, CallEntry) or (isinstance(one, MessageEntry) and one.role is Role.USER)
    ]
    assert order == ["first", "second", "true", "third"]


def test_what_is_typed_while_a_command_runs_is_sent_after_it(
    screen: Screen, person: Person
) -> None:
    person.share_playground()
    with in_project(person) as (window, session):
        session.conversation.use_model(ScriptedModel(["Fine."]))
        window.chat.set_can_send("")
        say(window, "!sleep 1000")
        wait_until(lambda: session.is_busy)
        say(window, "And then?")
        assert [one.text for one in session.conversation.queued] == ["And then?"]
        [call] = [one for one in session if isinstance(one, CallEntry)]
        session.conversation.stop_call(call.call.id)
        wait_until(lambda: not session.is_busy)
        assert window.chat.composer.text == "And then?"
        say(window, "!until [ -e ~/playground/go ]; do sleep 0.02; done")
        wait_until(lambda: session.is_busy)
        say(window, "And now?")
        (person.playground / "go").touch()
        wait_until(lambda: said(session, Role.ASSISTANT) == ["Fine."])


def test_a_cross_takes_a_message_back_from_the_queue_of_a_session(working: Working) -> None:
    window, session, end = working
    say(window, "second")
    say(window, "third")
    all_of(window.chat.queue, Gtk.Button)[0].emit("clicked")
    assert [one.text for one in session.conversation.queued] == ["third"]
    assert window.chat.composer.text == "second"
    assert texts(window.chat.queue)[1:] == ["third"]
    # It is sent although another session is shown.
    window.chat.show(None)
    assert not window.chat.queue.get_visible()
    end.set()
    wait_until(lambda: said(session) == ["first", "third"])


def test_what_was_queued_comes_back_when_the_user_stops(working: Working) -> None:
    window, session, _end = working
    say(window, "second")
    window.chat.composer.text = "unsent"
    press(window, "Stop")
    wait_until(lambda: not session.is_busy and not session.conversation.queued)
    assert window.chat.composer.text == "second\n\nunsent"
    assert said(session) == ["first"]


def test_a_message_sent_while_a_turn_begins_is_not_lost(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, session):
        composer = window.chat.composer
        session.conversation.use_model(SlowModel("Well, "))
        composer.set_can_send("")
        # Two in one turn of the main loop, as a window that was busy gets them.
        for text in ("first", "!second"):
            composer.text = text
            assert press_key(composer.view, Gdk.KEY_Return, phase=Gtk.PropagationPhase.CAPTURE)
        wait_until(lambda: says(window.toasts, "still working"))
        assert composer.text == "!second"
        assert next(one.text for one in session if isinstance(one, MessageEntry)) == "first"
        finish(session.conversation.stop())
