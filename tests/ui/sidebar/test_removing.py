# SPDX-License-Identifier: GPL-3.0-or-later
"""Removing a project and deleting a session lose nothing, and ask before they stop anything."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from gi.repository import GLib
from support.person import Person
from support.screen import Screen, all_of
from support.timing import PATIENCE
from support.window import (
    buttons,
    controller_of,
    dialog,
    dialogs,
    finish,
    in_project,
    in_sidebar,
    open_session,
    press,
    press_in_toast,
    program,
    says,
    wait_until,
    window_of,
)

from ollmsandbox.chat.events import ConversationState
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.sandbox.spec import Mode, RunSpec
from ollmsandbox.ui.changes.rows import RunRow
from ollmsandbox.ui.sidebar import controller
from ollmsandbox.ui.sidebar.rows import ProjectRow, SessionRow
from ollmsandbox.ui.window.window import Window

_ENDLESS = "touch ~/playground/runs; while :; do sleep 0.05; done"


@pytest.fixture(autouse=True)
def time_to_undo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the toast for as long as the test takes."""
    monkeypatch.setattr(controller, "_TIME_TO_UNDO", 0)


def test_a_removed_project_comes_back_with_its_changes(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, session):
        finish(session.conversation.run("true"))
        keeper = Recorder(
            RunSpec(str(person.project), mode=Mode.REVIEW, command="make"), person.paths
        )
        finish(person.bubble(keeper=keeper).exec("echo 1 > made"))
        _remove(window, person.project)
        asked = dialog()
        assert "1 pending change" in asked.get_body()
        asked.response("cancel")
        wait_until(lambda: not dialogs())
        assert window.chat.session is session
        _remove(window, person.project)
        dialog().response("confirm")
        wait_until(lambda: not all_of(window.sidebar, ProjectRow))
        open_session(window, person.project)
        wait_until(lambda: len(all_of(window.sidebar, SessionRow)) == 1)
        window.activate_action("win.toggle-changes", None)
        wait_until(lambda: says(window.changes, "1 pending file"))
        wait_until(window.changes.apply_all.get_mapped)
        press(window.changes, "Apply All")
        wait_until((person.project / "made").exists)


def test_a_removal_is_undone_and_a_search_finds_messages(screen: Screen, person: Person) -> None:
    with program(person) as application:
        window = window_of(application)
        finish(open_session(window, person.project).conversation.run("echo needle"))
        # Where nothing waits and nothing runs, there is nothing to ask.
        _remove(window, person.project)
        wait_until(lambda: says(window.toasts, "Removed project from the list"))
        wait_until(lambda: not all_of(window.sidebar, ProjectRow))
        wait_until(lambda: "Undo" in buttons(window.toasts))
        press_in_toast(window, "Undo")
        wait_until(lambda: len(all_of(window.sidebar, SessionRow)) == 1)
        _remove(window, person.project)
        wait_until(lambda: not all_of(window.sidebar, SessionRow))
        window.sidebar.search.set_text("needle")
        wait_until(lambda: len(all_of(window.sidebar, SessionRow)) == 1)
        assert not finish(application.sessions.listing())
        window.sidebar.listbox.emit("row-activated", all_of(window.sidebar, SessionRow)[0])
        wait_until(lambda: window.chat.session is not None)
        # Who opens it wants its project as well.
        assert len(finish(application.sessions.listing())) == 1


def test_running_commands_are_not_stopped_without_asking(screen: Screen, person: Person) -> None:
    person.share_playground()
    with in_project(person) as (window, session):
        running = asyncio.get_event_loop().create_task(session.conversation.run(_ENDLESS))
        wait_until((person.playground / "runs").exists)
        in_sidebar(window, "delete-session", session.id)
        assert "agent is working" in dialog().get_body()
        dialog().response("cancel")
        wait_until(lambda: not dialogs())
        _remove(window, person.project)
        assert "agent is working" in dialog().get_body()
        assert session.state is not ConversationState.IDLE
        dialog().response("cancel")
        wait_until(lambda: not dialogs())
        in_sidebar(window, "delete-session", session.id)
        dialog().response("confirm")
        finish(asyncio.wait_for(asyncio.wait([running]), PATIENCE))
        wait_until(lambda: not all_of(window.sidebar, SessionRow))


def test_a_project_may_have_a_name_that_is_not_utf_8(screen: Screen, person: Person) -> None:
    folder = os.path.join(person.home, os.fsdecode(b"caf\xe9"))
    os.mkdir(folder)
    keeper = Recorder(RunSpec(folder, command="touch a"), person.paths)
    asyncio.run(person.bubble(project=folder, keeper=keeper).exec("touch a"))
    with program(person) as application:
        window = window_of(application)
        wait_until(lambda: all_of(window.sidebar, ProjectRow))
        (row,) = all_of(window.sidebar, ProjectRow)
        window.sidebar.listbox.emit("row-activated", row)
        wait_until(lambda: window.chat.session is not None)
        assert window.chat.session is not None
        assert window.chat.session.project == folder
        wait_until(lambda: window.title.get_subtitle() == "caf⟨byte E9⟩")
        window.activate_action("win.toggle-changes", None)
        window.changes.project_button.set_active(True)
        wait_until(lambda: all_of(window.changes, RunRow))
        finish(window.chat.session.conversation.run("touch b"))
        assert os.path.exists(f"{folder}/b")
        controller_of(window).tell(folder)
        wait_until(lambda: says(window.toasts, "caf⟨byte E9⟩"))
        os.rename(folder, person.home / "elsewhere")
        finish(window.chat.session.conversation.run("true"))
        wait_until(lambda: says(window.chat.missing, "caf⟨byte E9⟩ is missing."))
        _remove(window, Path(folder))
        wait_until(lambda: not all_of(window.sidebar, ProjectRow))


def _remove(window: Window, project: Path) -> None:
    target = GLib.Variant.new_bytestring(os.fsencode(project))
    window.sidebar.activate_action("sidebar.remove-project", target)
