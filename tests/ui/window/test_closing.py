# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable

import pytest
from gi.repository import Gio
from support.person import Person
from support.screen import Screen
from support.scripted import ScriptedModel
from support.window import (
    controller_of,
    dialog,
    dialogs,
    finish,
    open_session,
    program,
    says,
    session_of,
    wait_until,
    window_of,
)

from ollmsandbox.errors import OllmSandboxError, UnsavedError
from ollmsandbox.ui.application import Application
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.sessions.sessions import Sessions
from ollmsandbox.ui.window.controller import WindowController

FULL = "The disk is full."


def fail(*_args: object) -> None:
    raise OllmSandboxError(FULL)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database cannot be written."""
    monkeypatch.setattr("ollmsandbox.chat.storage.history.History.keep_draft", fail)
    monkeypatch.setattr("ollmsandbox.chat.storage.history.History.create", fail)


def close_twice(application: Application, part: str) -> None:
    """Close the window, read why not, and keep it open; then close it all the same."""
    window = window_of(application)
    for answer in ("cancel", "confirm"):
        window.close()
        asked = dialog()
        assert says(asked, part)
        assert not controller_of(window).is_closing
        asked.response(answer)
        wait_until(lambda: not dialogs())
    wait_until(lambda: application.window is None)


@pytest.mark.usefixtures("screen", "broken")
def test_a_draft_that_cannot_be_kept_is_a_question(person: Person) -> None:
    with program(person) as application:
        open_session(window_of(application), person.project)
        window_of(application).chat.composer.text = "a long letter"
        close_twice(application, FULL)


@pytest.mark.usefixtures("screen", "broken")
def test_asked_by_the_system_it_closes_without_a_question(
    person: Person, capfd: pytest.CaptureFixture[str]
) -> None:
    with program(person) as application:
        window = window_of(application)
        open_session(window, person.project)
        window.chat.composer.text = "a long letter"
        controller_of(window).close_at_once()
        wait_until(lambda: application.window is None)
    assert FULL in capfd.readouterr().err


def test_messages_that_cannot_be_written_are_a_question(
    screen: Screen,
    person: Person,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with program(person) as application:
        session = open_session(window_of(application), person.project)
        session.conversation.use_model(ScriptedModel(["An answer."]))
        monkeypatch.setattr("ollmsandbox.chat.storage.history.History.write", fail)
        finish(session.conversation.say("a question"))
        close_twice(application, "would be lost")
    assert str(UnsavedError()) in capfd.readouterr().err


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


def test_work_on_changes_is_a_question(screen: Screen, person: Person) -> None:
    with program(person) as application:
        window = window_of(application)
        open_session(window, person.project)
        with window.changes.progress.working():
            close_twice(application, "While Changes Are Being Made")


@pytest.fixture
def slow_end(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Sessions close when the event is set."""
    may_end = asyncio.Event()
    close_all = Sessions.close_all

    async def slow(sessions: Sessions) -> None:
        await may_end.wait()
        await close_all(sessions)

    monkeypatch.setattr(Sessions, "close_all", slow)
    return may_end


@pytest.mark.parametrize("how", ["open", "activate"])
def test_a_project_opened_while_the_window_closes_opens_in_the_next_one(
    screen: Screen, person: Person, slow_end: asyncio.Event, how: str
) -> None:
    with program(person) as application:
        first = window_of(application)
        open_session(first, person.project)
        first.close()
        wait_until(lambda: controller_of(first).is_closing)
        other = person.home / "other"
        other.mkdir()
        if how == "open":
            application.open([Gio.File.new_for_path(str(other))], "")
        else:
            application.activate()
        slow_end.set()
        wait_until(lambda: application.window not in (None, first))
        second = window_of(application)
        if how == "open":
            wait_until(lambda: second.chat.session is not None)
            assert session_of(second).project == str(other)
        wait_until(lambda: second.is_ready)


def test_the_first_frame_of_a_window_that_has_closed_does_not_begin_the_next_one(
    screen: Screen, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Callable[[], object]] = []
    begun: list[WindowController] = []
    with program(person) as application:
        monkeypatch.setattr(
            "ollmsandbox.ui.application.after_first_frame", lambda _window, do: drawn.append(do)
        )
        monkeypatch.setattr(WindowController, "begin", lambda controller: begun.append(controller))
        for _time in range(2):
            before = window_of(application)
            before.close()
            wait_until(lambda: application.window is None)
            application.activate()
        first, second = drawn
        first()
        assert not begun
        second()
        assert begun == [application.controller]


def test_a_request_after_a_signal_opens_no_window(
    screen: Screen, person: Person, slow_end: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It would end the tests, too.
    monkeypatch.setattr("ollmsandbox.ui.window.closing.exit_in_time", lambda *_args: None)
    with program(person) as application:
        first = window_of(application)
        open_session(first, person.project)
        application._on_signal(signal.SIGTERM)
        wait_until(lambda: controller_of(first).is_closing)
        application.activate()
        slow_end.set()
        wait_until(lambda: application.window is not first)
        assert application.window is None


def test_a_disk_that_does_not_answer_is_a_question(
    screen: Screen, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()
    monkeypatch.setattr("ollmsandbox.ui.window.closing.PATIENCE", 0.1)
    with program(person) as application:
        window = window_of(application)
        open_session(window, person.project)
        monkeypatch.setattr(
            "ollmsandbox.chat.storage.history.History.keep_draft", lambda *_args: may_go_on.wait()
        )
        window.chat.composer.text = "a long letter"
        try:
            window.close()
            asked = dialog()
            assert says(asked, "not responding")
            asked.response("cancel")
            wait_until(lambda: not dialogs())
            assert not controller_of(window).is_closing
        finally:
            may_go_on.set()
