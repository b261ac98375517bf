# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gi.repository import Gtk
from support.person import Person
from support.screen import Screen, all_of
from support.scripted import ScriptedModel
from support.window import controller_of, finish, in_project, press, say, wait_until

from ollmsandbox.chat.messages import Role
from ollmsandbox.ui.chat.row import MessageRow
from ollmsandbox.ui.sessions.entries import MessageEntry
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.window.window import Window

Talk = tuple[Window, OpenSession, ScriptedModel]


@pytest.fixture
def talk(screen: Screen, person: Person) -> Iterator[Talk]:
    """A session with two turns."""
    with in_project(person) as (window, session):
        model = ScriptedModel(["One."], ["*Two.*"], ["Three."])
        session.conversation.use_model(model)
        window.chat.set_can_send("")
        talk_once(window, session, "first")
        talk_once(window, session, "second")
        wait_until(lambda: len(all_of(window.chat, MessageRow)) == 4)
        yield window, session, model


def talk_once(window: Window, session: OpenSession, text: str) -> None:
    count = len(list(session))
    say(window, text)
    wait_until(lambda: len(list(session)) >= count + 2 and not session.is_busy)


def said(session: OpenSession) -> list[str]:
    return [one.text for one in session if isinstance(one, MessageEntry)]


def actions(window: Window) -> list[list[str | None]]:
    return [
        [one.get_tooltip_text() for one in all_of(row, Gtk.Button) if one.get_mapped()]
        for row in all_of(window.chat, MessageRow)
    ]


def test_only_the_last_turn_can_be_changed_and_any_answer_copied(talk: Talk) -> None:
    window, _session, _model = talk
    restore = "Restore Files to This Point"
    expected = [
        [restore],
        ["Copy Answer"],
        ["Edit and Send Again", restore],
        ["Copy Answer", "Try Again"],
    ]
    wait_until(lambda: actions(window) == expected)
    press(all_of(window.chat, MessageRow)[3], "Copy Answer")
    clipboard = window.get_clipboard()
    found: list[str | None] = []
    clipboard.read_text_async(
        None, lambda _clipboard, result: found.append(clipboard.read_text_finish(result))
    )
    wait_until(lambda: found == ["*Two.*"])


def test_an_answer_is_tried_again(talk: Talk) -> None:
    window, session, model = talk
    press(window.chat, "Try Again")
    wait_until(lambda: said(session) == ["first", "One.", "second", "Three."])
    # Neither the model nor the file sees the answer that was replaced.
    seen = [message.text for message in model.seen[-1] if message.role is not Role.SYSTEM]
    assert seen == ["first", "One.", "second"]
    wait_until(lambda: not session.is_busy)
    finish(session.conversation.is_written())
    stored = controller_of(window).factory.history.load(session.id)
    assert [one.message.text for one in stored.entries] == ["first", "One.", "second", "Three."]


def test_the_last_message_is_edited_and_sent_again(talk: Talk) -> None:
    window, session, _model = talk
    composer = window.chat.composer
    composer.text = "a draft"
    press(window.chat, "Edit and Send Again")
    assert composer.text == "second"
    assert window.chat.editing.get_visible()
    press(window.chat, "Cancel")
    assert composer.text == "a draft"
    press(window.chat, "Edit and Send Again")
    composer.text = "better"
    composer.send_button.emit("clicked")
    wait_until(lambda: said(session) == ["first", "One.", "better", "Three."])
    assert not window.chat.editing.get_visible()
