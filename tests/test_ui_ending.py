# SPDX-License-Identifier: GPL-3.0-or-later
"""The window closes whatever goes wrong meanwhile, and says what that was."""

from __future__ import annotations

import asyncio

import pytest
from conftest import Person
from gi.repository import Adw, Gtk
from ui_helper import Screen, texts
from window_helper import open_session, program, wait_until, window_of

from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.ui.open_session import OpenSession

pytestmark = pytest.mark.anybody

FULL = "The disk is full."


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The database cannot be written."""

    def fail(*_args: object) -> None:
        raise OllmSandboxError(FULL)

    monkeypatch.setattr("ollmsandbox.chat.history.History.keep_draft", fail)
    monkeypatch.setattr("ollmsandbox.chat.history.History.create", fail)
    return monkeypatch


def test_a_draft_that_cannot_be_kept_is_a_question(
    screen: Screen, person: Person, broken: pytest.MonkeyPatch
) -> None:
    with program(person) as application:
        window = window_of(application)
        open_session(window, person.project)
        window.chat.composer.text = "a long letter"
        for answer in ("cancel", "close"):
            window.close()
            wait_until(_questions)
            assert any(FULL in text for text in texts(_questions()[0]))
            assert window.chat.composer.text == "a long letter"
            _questions()[0].response(answer)
            wait_until(lambda: not _questions())
        wait_until(lambda: application.window is None)


def test_asked_by_the_system_it_closes_without_a_question(
    screen: Screen,
    person: Person,
    broken: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with program(person) as application:
        window = window_of(application)
        open_session(window, person.project)
        window.chat.composer.text = "a long letter"
        window.close_at_once()
        wait_until(lambda: application.window is None)
    assert FULL in capfd.readouterr().err


def test_settings_and_sessions_that_fail_keep_no_window_open(
    screen: Screen, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[OpenSession] = []

    async def close(session: OpenSession) -> None:
        closed.append(session)
        await really_close(session)
        raise OllmSandboxError(FULL)

    def set_(_settings: object, _key: str, _value: object) -> None:
        raise OSError(28, "No space left on device")

    really_close = OpenSession.close
    with program(person) as application:
        session = open_session(window_of(application), person.project)
        monkeypatch.setattr("ollmsandbox.ui.settings.Settings.set", set_)
        monkeypatch.setattr(OpenSession, "close", close)
        window_of(application).close()
        wait_until(lambda: application.window is None)
    assert closed == [session]
    screen.expect_trouble("No space left on device")


def test_closing_twice_is_closing_once(screen: Screen, person: Person) -> None:
    with program(person) as application:
        open_session(window_of(application), person.project)
        window = window_of(application)
        closed: list[object] = []
        window.connect("closed", closed.append)
        window.close()
        window.close_at_once()
        window.close()
        wait_until(lambda: application.window is None)
        asyncio.get_event_loop().run_until_complete(asyncio.sleep(0.05))
        assert len(closed) == 1


def _questions() -> list[Adw.MessageDialog]:
    return [one for one in Gtk.Window.list_toplevels() if isinstance(one, Adw.MessageDialog)]
