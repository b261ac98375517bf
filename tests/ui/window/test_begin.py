# SPDX-License-Identifier: GPL-3.0-or-later
"""The program begins where the user was, tells them what has ended, and helps them to begin."""

from __future__ import annotations

import os
import shutil
from functools import partial

import pytest
from gi.repository import GLib, Gtk
from support.person import Person
from support.screen import Screen, all_of
from support.scripted import ScriptedModel, call
from support.window import (
    controller_of,
    finish,
    in_project,
    in_sidebar,
    open_session,
    press,
    program,
    toplevels,
    wait_until,
    window_of,
)

from ollmsandbox.chat.messages import Role
from ollmsandbox.engine.system import System, system_of
from ollmsandbox.ui.application import Application
from ollmsandbox.ui.preferences.connection_dialog import ConnectionDialog
from ollmsandbox.ui.sessions.entries import MessageEntry
from ollmsandbox.ui.sidebar.rows import ProjectRow, SessionRow
from ollmsandbox.ui.window.window import Window


def test_it_begins_in_the_last_project_though_it_was_empty(screen: Screen, person: Person) -> None:
    other = person.home / "other"
    other.mkdir()
    with in_project(person) as (window, _session):
        controller_of(window).open_project(str(other))
        wait_until(lambda: window.chat.session and window.chat.session.project == str(other))
    with program(person) as application:
        window = window_of(application)
        wait_until(lambda: window.chat.session is not None)
        assert window.chat.session is not None and window.chat.session.project == str(other)
        assert not window.welcome.get_mapped()
    shutil.rmtree(other)
    with program(person) as application:
        window = window_of(application)
        wait_until(lambda: window.welcome.get_mapped())


def test_what_is_typed_before_there_is_a_session_is_typed_into_it(
    screen: Screen, person: Person
) -> None:
    with in_project(person) as (window, session):
        window.chat.composer.text = "A draft"
        application = window.get_application()
        assert isinstance(application, Application)
        application.controller.close()
        wait_until(lambda: application.window is None)
        application.activate()
        window = window_of(application)
        focus = window.get_focus()
        assert isinstance(focus, Gtk.Text) and not focus.get_opacity()
        focus.emit("insert-at-cursor", ", and more")
        # Enter does nothing yet.
        focus.activate()
        wait_until(lambda: window.is_ready and window.chat.session is not None)
        shown = window.chat.session
        assert shown is not None and shown.id == session.id and shown is not session
        assert window.chat.composer.text == "A draft, and more"
        assert window.get_focus() is window.chat.composer.view
        # Once.
        controller_of(window).show(shown)
        assert window.chat.composer.text == "A draft, and more"


@pytest.mark.usefixtures("announced")
def test_a_suggestion_is_sent_or_waits_for_a_model(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, session):
        wait_until(lambda: window.chat.connect_button.get_mapped())
        window.chat.composer.text = "typed"
        press(window.chat.suggestions, "Explain this project")
        assert window.chat.composer.text == "Explain this project\n\ntyped"
        assert list(session) == []
        window.chat.connect_button.emit("clicked")
        wait_until(lambda: toplevels(ConnectionDialog))
        [dialog] = toplevels(ConnectionDialog)
        dialog.close()
        window.chat.composer.text = ""
        session.conversation.use_model(ScriptedModel(["All good."]))
        window.chat.set_can_send("")
        press(window.chat.suggestions, "Run the tests")
        wait_until(lambda: not session.is_busy and len(list(session)) == 2)
        first = next(iter(session))
        assert isinstance(first, MessageEntry)
        assert (first.role, first.text) == (Role.USER, "Run the tests")


def _row(window: Window, session_id: str) -> SessionRow | None:
    rows = [row for row in all_of(window.sidebar, SessionRow) if row.item.id == session_id]
    return rows[0] if rows else None


def test_the_end_of_a_turn_is_announced_and_marked_until_it_is_seen(
    screen: Screen, person: Person, announced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_front: list[bool] = []
    monkeypatch.setattr(Window, "is_active", lambda _window: bool(in_front))
    with in_project(person) as (window, session):
        session.conversation.use_model(
            ScriptedModel([call(id="1", command="echo > new")], ["Done."], ["Again."], ["More."])
        )
        finish(session.conversation.say("go"))
        wait_until(lambda: announced == [f"turn-{session.id}"])

        def is_marked(row_id: str = session.id) -> bool:
            row = _row(window, row_id)
            return row is not None and row.item.is_unread

        wait_until(is_marked)
        # The user comes back.
        in_front.append(True)
        window.notify("is-active")
        wait_until(lambda: not is_marked() and not session.is_unread)
        # In front, nothing has to be said about the session that is shown.
        finish(session.conversation.say("again"))
        assert not session.is_unread
        # About another one, the mark is enough.
        other = person.home / "other"
        other.mkdir()
        open_session(window, other)
        wait_until(lambda: window.chat.session is not session)
        finish(session.conversation.say("more"))
        wait_until(is_marked)
        assert len(announced) == 1
        controller_of(window).show_session(session.id)
        wait_until(lambda: window.chat.session is session and not is_marked())


@pytest.mark.usefixtures("announced")
def test_a_search_shows_the_line_it_found_and_leads_to_it(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, session):
        long = "\n\n".join(["A paragraph of the answer."] * 40)
        replies = [[f"The needle is here.\n\n{long}"], [long], [long]]
        session.conversation.use_model(ScriptedModel(*replies))
        for text in ("first", "second", "third"):
            finish(session.conversation.say(text))
        window.sidebar.search.set_text("needle")

        def found() -> str:
            row = _row(window, session.id)
            return row.item.found.text if row is not None and row.item.found else ""

        wait_until(lambda: found() == "The needle is here.")
        entry = list(session)[1]
        window.chat.column.scroll_to_end()
        wait_until(lambda: not window.chat.column.is_in_view(entry))
        in_sidebar(window, "open-session", session.id)
        wait_until(lambda: window.chat.column.is_in_view(entry))


def test_the_menu_of_a_project_chooses_its_system(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, _session):
        target = GLib.Variant.new_bytestring(os.fsencode(person.project))
        for system in (System.ALPINE, System.HOST):
            window.sidebar.activate_action("sidebar.switch-system", target)
            wait_until(partial(_is_listed, window, person, system))


def _is_listed(window: Window, person: Person, system: System) -> bool:
    rows = all_of(window.sidebar, ProjectRow)
    is_shown = [row.item.uses_alpine for row in rows] == [system is System.ALPINE]
    return is_shown and system_of(person.paths, str(person.project)) is system
