# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

import pytest
from support.person import Person
from support.probe import look
from support.screen import Screen, popover_of, texts
from support.scripted import ScriptedModel, call
from support.timing import PATIENCE
from support.window import (
    allow_once,
    buttons,
    card_that,
    controller_of,
    finish,
    in_project,
    in_sidebar,
    press,
    program,
    say,
    says,
    session_of,
    wait_until,
    window_of,
)

from ollmsandbox.chat.providers.tour.model import TourModel
from ollmsandbox.chat.storage.history import History
from ollmsandbox.chat.storage.stored import SessionInfo
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.ui.application import main
from ollmsandbox.ui.badge.badge import SandboxBadge, SandboxState
from ollmsandbox.ui.sessions.entries import Stage
from ollmsandbox.ui.sessions.open_session import OpenSession
from ollmsandbox.ui.settings import SCHEMA
from ollmsandbox.ui.window.welcome import Welcome
from ollmsandbox.ui.window.window import Window


def test_a_missing_part_is_shown_with_its_remedy(screen: Screen, person: Person) -> None:
    person.environ["PATH"] = str(person.playground)
    page = Welcome()
    page.show_capabilities(look(person))
    screen.show(page)
    assert page.verdict.has_css_class("warning")
    assert says(page, "not installed")
    assert says(page, "Install ")
    # With a sign of warning before it, that would be read as its opposite.
    assert not says(page, "Bubblewrap is installed")


def test_a_session_continues_after_a_restart(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, empty):
        controller_of(window).open_project(str(person.project))
        wait_until(lambda: controller_of(window).tasks.is_idle)
        finish(session_of(window).conversation.run("echo hello from before > made"))
        # Where nothing had been said, nothing more was begun.
        assert session_of(window) is empty
        window.chat.composer.text = "not sent yet"
    with program(person) as application:
        window = window_of(application)
        wait_until(lambda: window.chat.session is not None)
        card_that(window, lambda card: says(card, "$ echo hello from before > made"))
        assert window.chat.composer.text == "not sent yet"
        wait_until(lambda: says(window.chat.turn, "1 file changed"))
        press(window.chat.turn, "Undo")
        wait_until(lambda: not (person.project / "made").exists())


def test_the_badge_lists_what_a_command_sees(screen: Screen, person: Person) -> None:
    with program(person) as application:
        window = window_of(application)
        controller_of(window).open_project(str(person.project))
        wait_until(lambda: _popover_says(window.badge, str(person.project)))
        assert _popover_says(window.badge, "network is off")
        assert _popover_says(window.badge, "10 minutes")
        # Once is enough, above them.
        assert _popover_says(window.badge, "Hidden")
        assert not _popover_says(window.badge, "Hidden:")
        application.settings.set("time-limit", 90)
        wait_until(lambda: _popover_says(window.badge, "90 seconds"))
        in_sidebar(window, "delete-session", session_of(window).id)
        wait_until(lambda: _popover_says(window.badge, "Open a project to see"))
        assert not _popover_says(window.badge, "90 seconds")
        # Nor has a session without a project anything of the one that was shown before.
        controller_of(window).open_project(str(person.project))
        wait_until(lambda: _popover_says(window.badge, "90 seconds"))
        finish(controller_of(window).side.new_session(None))
        wait_until(lambda: _popover_says(window.badge, "Open a project to see"))
        application.settings.set("time-limit", 0)


def test_the_badge_says_while_a_command_has_the_network(screen: Screen, person: Person) -> None:
    person.share_playground()
    with in_project(person) as (window, session):
        waiting = "until [ -e ~/playground/go ]; do sleep 0.05; done"
        talk = session.conversation
        talk.use_model(ScriptedModel([call(command=waiting, network=True)]))
        running = asyncio.get_event_loop().create_task(talk.say("Go on"))
        allow_once(window)
        wait_until(lambda: window.badge.state is SandboxState.NETWORK)
        (person.playground / "go").touch()
        finish(asyncio.wait_for(running, PATIENCE))
        wait_until(lambda: window.badge.state is SandboxState.SANDBOXED)


def test_a_wide_window_says_what_the_button_for_changes_is(screen: Screen, person: Person) -> None:
    with in_project(person) as (window, _session):
        for width, is_told in ((1100, True), (700, False), (1100, True)):
            window.set_default_size(width, 600)
            wait_until(partial(_is_told, window, is_told))
        window.flap.set_reveal_flap(True)
        wait_until(lambda: not window.changes_word.get_visible())


def _is_told(window: Window, wanted: bool) -> bool:
    return window.changes_word.get_visible() is wanted


def test_a_project_that_is_gone_says_so(screen: Screen, person: Person) -> None:
    gone = person.home / "gone"
    gone.mkdir()
    with program(person) as application:
        window = window_of(application)
        controller_of(window).open_project(str(gone))
        wait_until(lambda: window.chat.session is not None)
        wait_until(lambda: window.badge.state is SandboxState.SANDBOXED)
        window.chat.composer.text = "!rmdir ../gone"
        gone.rmdir()
        window.chat.composer.send_button.emit("clicked")
        card_that(window, lambda card: card.entry.stage is Stage.DONE)
        controller_of(window).open_project(str(gone))
        wait_until(lambda: says(window.sidebar, "Folder not found"))
        # Where one would write, too, with what can be done about it.
        wait_until(lambda: says(window.chat.missing, str(gone)))
        wait_until(lambda: window.badge.state is SandboxState.BROKEN)
        gone.mkdir()
        finish(session_of(window).conversation.run("true"))
        wait_until(lambda: not window.chat.missing.get_reveal_child())
        wait_until(lambda: window.badge.state is SandboxState.SANDBOXED)
        # A link in its place leads elsewhere.
        gone.rmdir()
        gone.symlink_to(person.project)
        finish(session_of(window).conversation.run("true"))
        wait_until(window.chat.missing.get_reveal_child)
        wait_until(lambda: says(window.sidebar, "Folder not found"))
        # What is being revealed is there a moment later.
        wait_until(lambda: "Remove From List" in buttons(window.chat.missing))
        press(window.chat.missing, "Remove From List")
        wait_until(lambda: window.chat.session is None)
        wait_until(lambda: not says(window.sidebar, "Folder not found"))


def _popover_says(badge: SandboxBadge, part: str) -> bool:
    popover = badge.get_popover()
    return popover is not None and any(part in text for text in texts(popover))


def test_a_damaged_database_that_was_set_aside_is_reported(screen: Screen, person: Person) -> None:
    person.paths.data.mkdir(parents=True)
    person.paths.database.write_bytes(b"no database at all" * 500)
    with program(person) as application:
        window = window_of(application)
        wait_until(lambda: says(window.notices, "The database was damaged"), 60)
        assert window.notices.get_reveal_child()
        press(window.notices, "Dismiss")
        assert not window.notices.get_reveal_child()
        assert not application.factory.manager.store.notices


def test_an_unwritable_home_folder_is_reported_and_nothing_is_started(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "somewhere")
    assert main(["ollmsandbox"], f"{SCHEMA}.Homeless") == 1
    told = capfd.readouterr().err
    assert told.startswith("ollmsandbox: ")
    assert "Traceback" not in told


def _is_at(session: OpenSession, stop: int) -> bool:
    return session.tour_stop == stop


def test_the_tour_stops_five_times_and_its_sample_can_be_removed(
    screen: Screen, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    with program(person) as application:
        monkeypatch.setattr(TourModel, "stops", (2, 5, 6, 7, 8))
        window = window_of(application)
        press(window.welcome, "Take the Tour")
        wait_until(lambda: window.chat.session is not None)
        session = session_of(window)
        for stop in range(1, 6):
            if stop == 4:
                wait_until(lambda: any(e.stage is Stage.ASKING for e in session.asking()))
                allow_once(window)
            wait_until(partial(_is_at, session, stop))
            assert texts(window.chat.tour) == [f"Tour: {stop} of 5", "Next"]
            # It waits for the user, so nothing says that the model works.
            assert not window.chat.activity.get_visible()
            press(window.chat.tour, "Next")
        wait_until(lambda: session.is_tour_over)
        ends = ["Remove the Sample", "Open a Project", "Connect a Model"]
        wait_until(lambda: buttons(window.chat.tour) == ends)
        assert session.project is not None
        folder = Path(session.project)
        assert (folder / "basket.py").exists()
        press(window.chat.tour, "Remove the Sample")
        wait_until(lambda: not folder.exists())
        wait_until(lambda: "No Projects Yet" in texts(window.sidebar))
    visible = [one.name for one in person.home.iterdir() if not one.name.startswith(".")]
    assert visible == [] or visible == [person.project.name]


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
        popover = popover_of(controller_of(window).model_chooser)
        wait_until(lambda: says(popover, "shed"))


@pytest.mark.parametrize("renamed", [False, True])
def test_the_model_names_a_session_once(screen: Screen, person: Person, renamed: bool) -> None:
    with in_project(person) as (window, session):
        window._settings.set("name-sessions", value=True)
        may_answer = asyncio.Event()
        model = ScriptedModel([may_answer, "Good day."], ["A greeting"], ["Again."])
        session.conversation.use_model(model)
        window.chat.set_can_send("")
        say(window, "hello")
        if renamed:
            wait_until(lambda: says(window.sidebar, "hello"))
            controller_of(window).tasks.start(
                controller_of(window).sessions.rename(session.id, "mine")
            )
            wait_until(lambda: says(window.sidebar, "mine"))
        may_answer.set()
        title = "mine" if renamed else "A greeting"
        wait_until(lambda: window.title.get_title() == title)
        say(window, "more")
        wait_until(lambda: not session.is_busy and len(model.seen) >= 2)
        assert window.title.get_title() == title
