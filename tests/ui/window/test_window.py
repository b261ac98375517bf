# SPDX-License-Identifier: GPL-3.0-or-later
"""The window as a whole: the tour from the first page until a change is undone."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from gi.repository import Gtk
from support.person import Person
from support.probe import look
from support.screen import Screen, texts
from support.timing import PATIENCE
from support.window import (
    allow_once,
    buttons,
    card_that,
    controller_of,
    finish,
    in_project,
    press,
    program,
    says,
    session_of,
    wait_until,
    window_of,
)

from ollmsandbox.ui.badge.badge import SandboxBadge, SandboxState
from ollmsandbox.ui.sessions.entries import Stage
from ollmsandbox.ui.window.welcome import Welcome
from ollmsandbox.ui.window.window import Window


def test_the_first_start_says_that_it_is_safe_and_what_to_do(
    screen: Screen, person: Person
) -> None:
    with program(person) as application:
        window = window_of(application)
        for text in ("Take the Tour", "Open a Project", "Connect a Model"):
            assert says(window.welcome, text)
        wait_until(lambda: window.welcome.verdict.has_css_class("success"))
        wait_until(lambda: window.badge.state is SandboxState.SANDBOXED)


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


def test_a_tour_is_taken_and_its_change_undone(screen: Screen, person: Person) -> None:
    with program(person) as application:
        window = window_of(application)
        press(window.welcome, "Take the Tour")
        asks = card_that(window, lambda card: card.entry.stage is Stage.ASKING)
        assert asks.question is not None
        press(asks.question, "Deny")
        wait_until(lambda: not session_of(window).is_busy)
        assert says(asks, "Denied")
        sample = Path(session_of(window).project or "")
        edited = card_that(window, lambda card: card.entry.call.name == "edit_file")
        changed = (sample / "basket.py").read_bytes()
        assert says(edited, "basket.py")
        wait_until(lambda: says(window.chat.turn, "changed"))
        press(window.chat.turn, "Undo")
        wait_until(lambda: (sample / "basket.py").read_bytes() != changed)


def test_a_command_of_the_user_needs_no_model(screen: Screen, person: Person) -> None:
    (person.project / "here").write_text("old")
    with in_project(person) as (window, _session):
        wait_until(lambda: says(window.chat, "without one"))
        wait_until(lambda: says(window.chat, "sandbox"))
        window.chat.composer.text = "!echo new > here; echo done"
        window.chat.composer.send_button.emit("clicked")
        card_that(window, lambda card: card.entry.stage is Stage.DONE)
        assert (person.project / "here").read_text() == "new\n"
        wait_until(lambda: says(window.chat.turn, "1 file changed"))


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
        window.sidebar.emit("delete-session", session_of(window).id)
        wait_until(lambda: _popover_says(window.badge, "Open a project to see"))
        assert not _popover_says(window.badge, "90 seconds")
        # Nor has a session without a project anything of the one that was shown before.
        controller_of(window).open_project(str(person.project))
        wait_until(lambda: _popover_says(window.badge, "90 seconds"))
        window.sidebar.emit("new-session", None)
        wait_until(lambda: _popover_says(window.badge, "Open a project to see"))
        application.settings.set("time-limit", 0)


def test_the_badge_says_while_a_command_has_the_network(screen: Screen, person: Person) -> None:
    person.share_playground()
    with in_project(person) as (window, session):
        waiting = "until [ -e ~/playground/go ]; do sleep 0.05; done"
        talk = session.conversation
        running = asyncio.get_event_loop().create_task(talk.run(waiting, network=True))
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


def test_the_shortcuts_are_listed(screen: Screen, person: Person) -> None:
    with program(person) as application:
        window = window_of(application)
        window.activate_action("win.show-help-overlay", None)
        wait_until(_shortcuts)
        for overlay in _shortcuts():
            assert overlay.get_transient_for() is window
            overlay.destroy()


def _shortcuts() -> list[Gtk.ShortcutsWindow]:
    return [one for one in Gtk.Window.list_toplevels() if isinstance(one, Gtk.ShortcutsWindow)]


def _popover_says(badge: SandboxBadge, part: str) -> bool:
    popover = badge.get_popover()
    return popover is not None and any(part in text for text in texts(popover))
