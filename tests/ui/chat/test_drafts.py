# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from gi.repository import Gdk, Gtk
from support.chat import press_key
from support.person import Person
from support.screen import Screen
from support.scripted import SlowModel
from support.window import controller_of, finish, in_project, says, wait_until

from ollmsandbox.chat.storage.stored import StoredSession
from ollmsandbox.ui.chat import controller
from ollmsandbox.ui.sessions.entries import MessageEntry
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.window.window import Window


def key(window: Window, key: int) -> bool:
    nothing = Gdk.ModifierType(0)
    return press_key(window.chat.composer.view, key, nothing, Gtk.PropagationPhase.CAPTURE)


def stored(window: Window, session: OpenSession) -> StoredSession:
    return controller_of(window).factory.history.load(session.id)


def test_a_draft_is_stored_after_a_pause_and_when_the_session_is_left(
    screen: Screen, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "REST", 10)
    with in_project(person) as (window, session):
        composer = window.chat.composer
        for text in ("half a letter", "half a letter, and more"):
            composer.text = text
            wait_until(lambda text=text: session.kept_draft == text)  # type: ignore[misc]
            assert stored(window, session).draft == text
        monkeypatch.setattr(controller, "REST", 3_600_000)
        composer.text = "the whole letter"
        composer.set_history(["an old message"])
        assert key(window, Gdk.KEY_Up)
        assert composer.text == "an old message"
        assert session.draft == "the whole letter"
        window.activate_action("win.new-session", None)
        wait_until(lambda: window.chat.session is not session)
        wait_until(lambda: session.kept_draft == "the whole letter")
        assert stored(window, session).draft == "the whole letter"


def test_a_message_sent_while_a_turn_begins_is_not_lost(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, session):
        composer = window.chat.composer
        session.conversation.use_model(SlowModel("Well, "))
        composer.set_can_send("")
        # Two in one turn of the main loop, as a window that was busy gets them.
        for text in ("first", "!second"):
            composer.text = text
            assert key(window, Gdk.KEY_Return)
        wait_until(lambda: says(window.toasts, "still working"))
        assert composer.text == "!second"
        assert next(one.text for one in session if isinstance(one, MessageEntry)) == "first"
        finish(session.conversation.stop())
