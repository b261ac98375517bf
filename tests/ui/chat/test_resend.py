# SPDX-License-Identifier: GPL-3.0-or-later
"""Copy an answer, try it again, and edit the last message."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gi.repository import Gtk
from support.person import Person
from support.screen import Screen, all_of
from support.scripted import ScriptedModel
from support.window import (
    buttons,
    finish,
    in_project,
    open_session,
    press,
    program,
    wait_until,
    window_of,
)

from ollmsandbox.chat.messages import Role
from ollmsandbox.ui.chat.row import MessageRow
from ollmsandbox.ui.sessions.entries import MessageEntry
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.window.window import Window

pytestmark = pytest.mark.anybody


@pytest.fixture
def talk(screen: Screen, person: Person) -> Iterator[tuple[Window, OpenSession, ScriptedModel]]:
    """A session with two turns."""
    with in_project(person) as (window, session):
        model = ScriptedModel(["One."], ["*Two.*"], ["Three."])
        session.conversation.use_model(model)
        window.chat.set_can_send("")
        say(window, session, "first")
        say(window, session, "second")
        wait_until(lambda: len(all_of(window.chat, MessageRow)) == 4)
        yield window, session, model


def say(window: Window, session: OpenSession, text: str) -> None:
    count = len(list(session))
    window.chat.composer.text = text
    window.chat.composer.send_button.emit("clicked")
    wait_until(lambda: len(list(session)) >= count + 2 and not session.is_busy)


def said(session: OpenSession) -> list[str]:
    return [one.text for one in session if isinstance(one, MessageEntry)]


def actions(window: Window) -> list[list[str | None]]:
    return [
        [one.get_tooltip_text() for one in all_of(row, Gtk.Button) if one.get_mapped()]
        for row in all_of(window.chat, MessageRow)
    ]


def test_only_the_last_turn_can_be_changed(
    talk: tuple[Window, OpenSession, ScriptedModel],
) -> None:
    window, _session, _model = talk
    restore = "Restore Files to This Point"
    expected = [
        [restore],
        ["Copy Answer"],
        ["Edit and Send Again", restore],
        ["Copy Answer", "Try Again"],
    ]
    wait_until(lambda: actions(window) == expected)


def test_an_answer_is_copied_as_it_was_written(
    talk: tuple[Window, OpenSession, ScriptedModel],
) -> None:
    window, _session, _model = talk
    row = all_of(window.chat, MessageRow)[3]
    press(row, "Copy Answer")
    clipboard = window.get_clipboard()
    found: list[str | None] = []
    clipboard.read_text_async(
        None, lambda _clipboard, result: found.append(clipboard.read_text_finish(result))
    )
    wait_until(lambda: found == ["*Two.*"])


def test_an_answer_is_tried_again(talk: tuple[Window, OpenSession, ScriptedModel]) -> None:
    window, session, model = talk
    press(window.chat, "Try Again")
    wait_until(lambda: said(session) == ["first", "One.", "second", "Three."])
    # The model does not see the answer that was replaced.
    assert [m.text for m in model.seen[-1] if m.role is not Role.SYSTEM] == [
        "first",
        "One.",
        "second",
    ]


def test_the_last_message_is_edited_and_sent_again(
    talk: tuple[Window, OpenSession, ScriptedModel],
) -> None:
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


def test_what_was_replaced_is_not_stored(screen: Screen, person: Person) -> None:
    with program(person) as application:
        window = window_of(application)
        session = open_session(window, person.project)
        model = ScriptedModel(["One."], ["Two."])
        session.conversation.use_model(model)
        window.chat.set_can_send("")
        say(window, session, "first")
        wait_until(lambda: "Try Again" in buttons(window.chat))
        press(window.chat, "Try Again")
        wait_until(lambda: said(session) == ["first", "Two."] and not session.is_busy)
        finish(session.conversation.is_written())
        stored = application.factory.history.load(session.id)
        assert [one.message.text for one in stored.entries] == ["first", "Two."]
