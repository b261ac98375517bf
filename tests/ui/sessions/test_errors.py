# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from gi.repository import Gtk
from support.person import Person
from support.screen import Screen, all_of, one_of, texts
from support.scripted import ScriptedModel
from support.window import (
    buttons,
    in_project,
    press,
    program,
    say,
    session_of,
    wait_until,
    window_of,
)

from ollmsandbox.chat.messages import Message, Role, ToolCall
from ollmsandbox.chat.providers.base import ProviderError
from ollmsandbox.chat.storage.stored import SessionInfo, StoredMessage, StoredSession, repair
from ollmsandbox.ui.chat import row
from ollmsandbox.ui.chat.row import MessageRow, NoticeRow
from ollmsandbox.ui.sessions.entries import CallEntry, MessageEntry, NoticeEntry, entries_of
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.window.window import Window

Talk = tuple[Window, OpenSession]


@pytest.fixture
def talk(screen: Screen, person: Person) -> Iterator[Talk]:
    with in_project(person) as (window, session):
        window.chat.set_can_send("")
        yield window, session


def said(session: OpenSession) -> list[str]:
    return [one.text for one in session if isinstance(one, MessageEntry)]


def test_a_failure_offers_to_try_again_until_the_talk_goes_on(talk: Talk) -> None:
    window, session = talk
    failure = ProviderError("The server is overloaded.", "See its log.")
    session.conversation.use_model(ScriptedModel(["Half", failure], [failure], ["Good day."]))
    say(window, "Hello")
    wait_until(lambda: all_of(window.chat, NoticeRow) and not session.is_busy)
    first = one_of(window.chat, NoticeRow)
    assert any("The server is overloaded." in text for text in texts(first))
    assert buttons(first) == ["Preferences", "Try Again"]
    press(first, "Try Again")
    wait_until(lambda: len(all_of(window.chat, NoticeRow)) == 2 and not session.is_busy)
    say(window, "Again")
    # What came of the first answer is kept.
    wait_until(lambda: said(session) == ["Hello", "Half", "Again", "Good day."])
    wait_until(lambda: not any(map(buttons, all_of(window.chat, NoticeRow))))


def test_a_failure_can_be_tried_again_after_a_restart(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, session):
        session.conversation.use_model(ScriptedModel([ProviderError("The server is down.")]))
        window.chat.set_can_send("")
        say(window, "Hello?")
        wait_until(lambda: all_of(window.chat, NoticeRow))
    with program(person) as application:
        window = window_of(application)
        wait_until(lambda: all_of(window.chat, NoticeRow))
        assert texts(one_of(window.chat, NoticeRow))[0] == "The server is down."
        session = session_of(window)
        session.conversation.use_model(ScriptedModel(["Here I am."]))
        press(one_of(window.chat, NoticeRow), "Try Again")
        wait_until(lambda: said(session) == ["Hello?", "Here I am."])


def test_a_failure_fits_a_narrow_window(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    # As long as in German.
    monkeypatch.setattr(row, "_", lambda text: f"{text} and more")
    shown = NoticeRow(NoticeEntry("The server is down.", is_error=True))
    screen.show(shown)
    shown.entry.mark(is_last=True)
    assert shown.measure(Gtk.Orientation.HORIZONTAL, -1)[0] < 300


def test_a_message_that_is_refused_says_why_in_its_session(talk: Talk) -> None:
    window, session = talk
    assert session.conversation.model is None
    say(window, "Hello")
    wait_until(lambda: all_of(window.chat, NoticeRow))
    assert any("No model is selected" in text for text in texts(one_of(window.chat, NoticeRow)))
    assert window.chat.composer.text == "Hello"


def test_the_user_who_stops_an_answer_reads_that(talk: Talk) -> None:
    window, session = talk
    session.conversation.use_model(
        ScriptedModel(["Half", asyncio.Event()], [asyncio.Event(), "Never."])
    )
    say(window, "Hello")
    wait_until(lambda: "Half" in texts(window.chat))
    press(window.chat, "Stop")
    wait_until(lambda: not session.is_busy)
    row = all_of(window.chat, MessageRow)[-1]
    assert row.entry.is_stopped
    # Before its first word, too.
    say(window, "Once more")
    wait_until(lambda: session.is_busy)
    press(window.chat, "Stop")
    wait_until(lambda: all_of(window.chat, NoticeRow))
    assert not one_of(window.chat, NoticeRow).entry.is_error


def test_a_command_that_a_crash_interrupted_is_in_its_chat() -> None:
    calls = tuple(ToolCall(name, "run_command", {"command": f"make {name}"}) for name in "ab")
    messages = [
        Message(Role.USER, "go", at=1.0),
        Message(Role.ASSISTANT, "I build both.", calls=calls, at=2.0),
        Message(Role.TOOL, "done", call_id="a", at=3.0),
    ]
    info = SessionInfo("id", "go", "", "", "", 1.0, 3.0)
    stored = [StoredMessage(number, message) for number, message in enumerate(messages)]
    for after in ([], [StoredMessage(3, Message(Role.USER, "and?", at=4.0))]):
        # As it is when the session is loaded.
        entries = entries_of(StoredSession(info, tuple(repair([*stored, *after]))))
        left = [one for one in entries if isinstance(one, CallEntry)][-1]
        assert left.description == "make b"
        assert left.is_interrupted and not left.shown_text
