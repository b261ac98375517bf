# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done in a terminal appears in the window; the model names a session."""

from __future__ import annotations

import asyncio
import time

import pytest
from support.person import Person
from support.screen import Screen
from support.scripted import ScriptedModel
from support.window import controller_of, in_project, says, wait_until

from ollmsandbox.chat.storage.history import History
from ollmsandbox.chat.storage.stored import SessionInfo
from ollmsandbox.project.projects import ProjectManager

pytestmark = pytest.mark.anybody


def test_sessions_and_connections_of_a_terminal_appear(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, _session):
        now = time.time()
        manager = ProjectManager(person.paths)
        History(manager).create(
            SessionInfo("other", "from a terminal", str(person.project), "", "", now, now)
        )
        History(manager).keep_draft("other", "so that it is listed")
        manager.close()
        wait_until(lambda: says(window.sidebar, "from a terminal"))
        done = person.cli("connections", "add", "shed", "http://127.0.0.1:9", "--kind", "ollama")
        assert done.returncode == 0, done.stderr
        popover = controller_of(window).model_chooser.get_popover()
        assert popover is not None
        wait_until(lambda: says(popover, "shed"))


@pytest.mark.parametrize("renamed", [False, True])
def test_the_model_names_a_session_after_its_first_turn(
    screen: Screen, person: Person, renamed: bool
) -> None:
    with in_project(person) as (window, session):
        window._settings.set("name-sessions", value=True)
        may_answer = asyncio.Event()
        model = ScriptedModel([may_answer, "Good day."], ["A greeting"], ["Again."])
        session.conversation.use_model(model)
        window.chat.set_can_send("")
        window.chat.composer.text = "hello"
        window.chat.composer.send_button.emit("clicked")
        if renamed:
            wait_until(lambda: says(window.sidebar, "hello"))
            controller_of(window).tasks.start(
                controller_of(window).sessions.rename(session.id, "mine")
            )
            wait_until(lambda: says(window.sidebar, "mine"))
        may_answer.set()
        title = "mine" if renamed else "A greeting"
        wait_until(lambda: window.title.get_title() == title)
        window.chat.composer.text = "more"
        window.chat.composer.send_button.emit("clicked")
        wait_until(lambda: not session.is_busy and len(model.seen) >= 2)
        assert window.title.get_title() == title
