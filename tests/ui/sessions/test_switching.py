# SPDX-License-Identifier: GPL-3.0-or-later
"""Switching between sessions: the last choice wins, and the session that was left is released."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from gi.repository import Gdk, Gtk
from support.chat import press_key
from support.person import Person
from support.screen import Screen, texts
from support.window import controller_of, in_sidebar, open_session, program, wait_until, window_of

from ollmsandbox.chat.messages import Message, Role
from ollmsandbox.chat.storage.history import new_session_id
from ollmsandbox.chat.storage.stored import SessionInfo, StoredMessage
from ollmsandbox.ui.application import Application
from ollmsandbox.ui.chat import controller
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.sessions.sessions import Sessions
from ollmsandbox.ui.window.window import Window


class Gate:
    """Sessions open when it does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = asyncio.Event()
        self.slow = ""
        self.waits = False
        really_open = Sessions._open_stored

        async def open_stored(sessions: Sessions, session_id: str) -> OpenSession:
            session = await really_open(sessions, session_id)
            if session_id == self.slow:
                self.waits = True
                await self.open.wait()
            return session

        monkeypatch.setattr(Sessions, "_open_stored", open_stored)


@pytest.fixture
def application(screen: Screen, person: Person) -> Iterator[Application]:
    with program(person) as application:
        yield application


@pytest.fixture
def window(application: Application) -> Window:
    return window_of(application)


def stored(application: Application, title: str) -> str:
    id_, history = new_session_id(), application.factory.history
    history.create(SessionInfo(id_, title, "", "model", "server", 1.0, 1.0))
    history.write(id_, StoredMessage(0, Message(Role.USER, "Hello", at=1.0)))
    return id_


def click(window: Window, session_id: str) -> None:
    in_sidebar(window, "open-session", session_id)


def shown(window: Window) -> str:
    return window.chat.session.id if window.chat.session else ""


def is_open(application: Application, session_id: str) -> bool:
    return session_id in [one.id for one in application.sessions.open_ones]


def test_a_session_that_comes_in_late_is_not_shown_over_a_later_one(
    application: Application, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    big, small = stored(application, "big"), stored(application, "small")
    gate.slow = big
    click(window, big)
    wait_until(lambda: gate.waits)
    click(window, small)
    wait_until(lambda: shown(window) == small)
    opening = application.sessions._opening[big]
    gate.open.set()
    wait_until(lambda: opening.done() and controller_of(window).tasks.is_idle)
    assert shown(window) == small
    # Clicked again, it is.
    click(window, big)
    wait_until(lambda: shown(window) == big)


def test_a_session_that_is_deleted_while_it_opens_is_not_shown(
    application: Application, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    gate.slow = big = stored(application, "big")
    click(window, big)
    wait_until(lambda: gate.waits)
    in_sidebar(window, "delete-session", big)
    gate.open.set()
    wait_until(lambda: "Session deleted" in texts(window))
    assert shown(window) == ""
    assert not is_open(application, big)


def test_typed_text_opens_a_new_session_the_first_time(window: Window, person: Person) -> None:
    controller_of(window).open_project(str(person.project))
    wait_until(lambda: shown(window))
    first = shown(window)
    window.chat.composer.text = "half a thought"
    window.activate_action("win.new-session", None)
    wait_until(lambda: shown(window) != first)
    assert window.chat.composer.text == ""
    wait_until(lambda: "half a thought" in texts(window.sidebar))
    # With nothing in it, it is new enough.
    second = shown(window)
    window.activate_action("win.new-session", None)
    wait_until(lambda: controller_of(window).tasks.is_idle)
    assert shown(window) == second
    click(window, first)
    wait_until(lambda: shown(window) == first)
    assert window.chat.composer.text == "half a thought"


def test_a_draft_is_stored_after_a_pause_and_when_the_session_is_left(
    application: Application, window: Window, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept() -> str:
        return application.factory.history.load(session.id).draft

    monkeypatch.setattr(controller, "REST", 10)
    session, composer = open_session(window, person.project), window.chat.composer
    for text in ("half a letter", "half a letter, and more"):
        composer.text = text
        wait_until(lambda text=text: session.kept_draft == text)  # type: ignore[misc]
        assert kept() == text
    monkeypatch.setattr(controller, "REST", 3_600_000)
    composer.text = "the whole letter"
    composer.set_history(["an old message"])
    assert press_key(composer.view, Gdk.KEY_Up, phase=Gtk.PropagationPhase.CAPTURE)
    assert composer.text == "an old message"
    assert session.draft == "the whole letter"
    window.activate_action("win.new-session", None)
    wait_until(lambda: window.chat.session is not session)
    wait_until(lambda: session.kept_draft == "the whole letter")
    assert kept() == "the whole letter"
