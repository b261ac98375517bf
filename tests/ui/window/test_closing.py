# SPDX-License-Identifier: GPL-3.0-or-later
"""The window closes whatever goes wrong meanwhile, and reports what went wrong."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable

import pytest
from gi.repository import Adw, Gio, Gtk
from support.person import Person
from support.screen import Screen, texts
from support.scripted import ScriptedModel
from support.window import controller_of, finish, open_session, program, wait_until, window_of

from ollmsandbox.errors import OllmSandboxError, UnsavedError
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.sessions.sessions import Sessions
from ollmsandbox.ui.window.controller import WindowController

pytestmark = pytest.mark.anybody

FULL = "The disk is full."


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The database cannot be written."""

    def fail(*_args: object) -> None:
        raise OllmSandboxError(FULL)

    monkeypatch.setattr("ollmsandbox.chat.storage.history.History.keep_draft", fail)
    monkeypatch.setattr("ollmsandbox.chat.storage.history.History.create", fail)
    return monkeypatch


def test_a_draft_that_cannot_be_kept_is_a_question(
    screen: Screen, person: Person, broken: pytest.MonkeyPatch
) -> None:
    with program(person) as application:
        window = window_of(application)
        open_session(window, person.project)
        window.chat.composer.text = "a long letter"
        for answer in ("cancel", "confirm"):
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
        controller_of(window).close_at_once()
        wait_until(lambda: application.window is None)
    assert FULL in capfd.readouterr().err


def test_messages_that_cannot_be_written_are_a_question(
    screen: Screen,
    person: Person,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(*_args: object) -> None:
        raise OllmSandboxError(FULL)

    with program(person) as application:
        window = window_of(application)
        session = open_session(window, person.project)
        session.conversation.use_model(ScriptedModel(["An answer."]))
        monkeypatch.setattr("ollmsandbox.chat.storage.history.History.write", fail)
        finish(session.conversation.say("a question"))
        for answer in ("cancel", "confirm"):
            window.close()
            wait_until(_questions)
            assert any("would be lost" in text for text in texts(_questions()[0]))
            _questions()[0].response(answer)
            wait_until(lambda: not _questions())
        wait_until(lambda: application.window is None)
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
            for answer in ("cancel", "confirm"):
                window.close()
                wait_until(_questions)
                assert any(
                    "While Changes Are Being Made" in text for text in texts(_questions()[0])
                )
                assert not controller_of(window).is_closing
                _questions()[0].response(answer)
                wait_until(lambda: not _questions())
            wait_until(lambda: application.window is None)


@pytest.mark.parametrize("how", ["open", "activate"])
def test_a_project_opened_while_the_window_closes_opens_in_the_next_one(
    screen: Screen, person: Person, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    may_end = asyncio.Event()
    close_all = Sessions.close_all

    async def slow(sessions: Sessions) -> None:
        await may_end.wait()
        await close_all(sessions)

    with program(person) as application:
        first = window_of(application)
        open_session(first, person.project)
        monkeypatch.setattr(Sessions, "close_all", slow)
        first.close()
        wait_until(lambda: controller_of(first).is_closing)
        other = person.home / "other"
        other.mkdir()
        if how == "open":
            application.open([Gio.File.new_for_path(str(other))], "")
        else:
            application.activate()
        may_end.set()
        wait_until(lambda: application.window not in (None, first))
        second = window_of(application)
        if how == "open":
            wait_until(lambda: second.chat.session is not None)
            assert second.chat.session is not None
            assert second.chat.session.project == str(other)
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
    screen: Screen, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = asyncio.Event()
    close_all = Sessions.close_all

    async def slow(sessions: Sessions) -> None:
        await may_end.wait()
        await close_all(sessions)

    # It would end the tests, too.
    monkeypatch.setattr("ollmsandbox.ui.window.closing.exit_in_time", lambda *_args: None)
    with program(person) as application:
        first = window_of(application)
        open_session(first, person.project)
        monkeypatch.setattr(Sessions, "close_all", slow)
        application._on_signal(signal.SIGTERM)
        wait_until(lambda: controller_of(first).is_closing)
        application.activate()
        may_end.set()
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
            wait_until(_questions)
            assert any("not responding" in text for text in texts(_questions()[0]))
            _questions()[0].response("cancel")
            wait_until(lambda: not _questions())
            assert not controller_of(window).is_closing
        finally:
            may_go_on.set()


def _questions() -> list[Adw.MessageDialog]:
    return [one for one in Gtk.Window.list_toplevels() if isinstance(one, Adw.MessageDialog)]
