# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from functools import partial
from unittest.mock import Mock

import pytest
from gi.repository import Gtk
from support.person import Person
from support.window import (
    card_that,
    controller_of,
    finish,
    in_project,
    open_session,
    says,
    wait_until,
)

from ollmsandbox.chat.messages import ToolCall
from ollmsandbox.tools.base import Stream
from ollmsandbox.ui.chat import controller
from ollmsandbox.ui.chat.tool_card import ToolCard
from ollmsandbox.ui.sessions.entries import CallEntry, Stage
from ollmsandbox.ui.window.window import Window

FORWARD = Gtk.DirectionType.TAB_FORWARD


def _printed(card: ToolCard) -> str:
    return card.output.text if card.output is not None else ""


def _run(window: Window, command: str) -> ToolCard:
    window.chat.emit("send", f"!{command}")
    return card_that(window, lambda card: card.entry.description == command)


def _wait_for_end(card: ToolCard) -> None:
    wait_until(lambda: card.entry.record is not None)


def test_programs_behave_as_in_a_terminal_and_the_output_stays_open(person: Person) -> None:
    with in_project(person) as (window, session):
        column = window.chat.column
        for _time in range(6):
            finish(session.conversation.run("seq 30"))
        finish(session.conversation.run("seq 300; exit 1"))
        column.scroll_to(column.items[0])
        wait_until(lambda: window.chat.composer.get_width() > 100 and not column.at_end)
        card = _run(window, "test -t 0 && test -t 1 && tput cols; printf '1%%\\r100%%\\n'")
        _wait_for_end(card)
        assert card.is_open
        columns = window.chat.terminal_size[1]
        wait_until(lambda: _printed(card) == f"{columns}\n100%")
        # The model reads what the user sees.
        assert session.conversation.messages[-1].text.endswith(f"{columns}\n100%")
        assert not card.input.get_visible()
        # It was scrolled to.
        wait_until(lambda: column.at_end)


def test_a_command_that_asks_is_answered_in_its_card(person: Person) -> None:
    with in_project(person) as (window, session):
        card = _run(window, "read -p 'Name? ' name; stty -echo; read word; echo Hello $name $word")
        wait_until(card.input.get_visible)
        wait_until(lambda: "Name?" in _printed(card))
        # With the Tab key alone, past the button that stops it and the output.
        card.header.grab_focus()
        column = window.chat.column
        wait_until(lambda: card.input.get_focus_child() or not column.child_focus(FORWARD))
        assert card.input.get_focus_child() is not None
        card.input.set_text("Ada")
        card.input.emit("activate")
        # A password is not shown.
        wait_until(lambda: not card.input.get_visibility())
        card.input.set_text("secret")
        card.input.emit("activate")
        _wait_for_end(card)
        wait_until(lambda: "Hello Ada secret" in _printed(card))
        assert card.entry.record is not None and card.entry.record.ok
        assert not card.input.get_visible()
        # The keyboard is still where it was of use.
        assert window.get_focus() is card.header
        # There is no box for output before there is output.
        card = _run(window, "read line; echo $line; read line")
        wait_until(card.input.get_visible)
        assert not card.output_place.get_visible() and not card.output_tools.get_visible()
        card.input.set_text("here")
        card.input.emit("activate")
        wait_until(lambda: "here" in _shown(card))
        assert card.copy_button.get_visible()
        window.chat.composer.stop_button.emit("clicked")
        _wait_for_end(card)
        # What is sent while a stopped turn ends goes back to the composer.
        wait_until(lambda: not session.conversation.is_busy)
        silent = _run(window, "sleep 100")
        wait_until(silent.input.get_visible)
        window.chat.composer.stop_button.emit("clicked")
        _wait_for_end(silent)
        wait_until(lambda: silent.entry.stage is Stage.DONE)
        assert not silent.output_place.get_visible() and not silent.output_tools.get_visible()


def test_a_program_that_fills_the_screen_is_offered_a_terminal(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    async def open_terminal(project: str) -> None:
        opened.append(project)

    monkeypatch.setattr(controller, "open_terminal", open_terminal)
    with in_project(person) as (window, _session):
        # To clear it is not to fill it.
        card = _run(window, "printf '\\033[H\\033[2J\\033[?25lstill text\\n'")
        _wait_for_end(card)
        wait_until(lambda: "still text" in _printed(card))
        card = _run(window, "printf '\\033[?1049h\\033[2J~'; sleep 100")
        wait_until(card.terminal_button.get_mapped)
        assert says(card, "This program needs a whole screen.")
        card.terminal_button.emit("clicked")
        _wait_for_end(card)
        wait_until(lambda: bool(opened))
        assert opened == [str(person.project)]
        assert not card.screen_box.get_visible()
        wait_until(lambda: says(card, "The program used the whole screen."))
        assert not card.output_place.get_visible()
        # What `top` begins with, in two pieces as they may come.
        begin, rest = "\\033[?1h\\033=", "\\033[?25l\\033[H\\033[2Jtop -"
        card = _run(window, f"printf '{begin}'; sleep 0.2; printf '{rest}'; sleep 100")
        wait_until(card.terminal_button.get_mapped)
        assert not card.output_tools.get_visible()


@pytest.mark.parametrize("size", range(65_530, 65_542))
def test_a_sequence_is_found_wherever_the_output_is_cut(size: int) -> None:
    begin = b"\x1b[?1049h"
    for cut in range(1, len(begin)):
        entry = CallEntry(ToolCall("1", "run_command", {}), "vi", own=True)
        entry.start(1, None, terminal=Mock())
        entry.add_output(Stream.STDOUT, b"x" * (size - cut) + begin[:cut])
        assert not entry.fills_screen
        entry.add_output(Stream.STDOUT, begin[cut:])
        assert entry.fills_screen


def test_what_was_drawn_on_the_whole_screen_is_not_kept_live_or_reopened(person: Person) -> None:
    drawn = (
        "printf '\\033[?1h\\033=\\033[H\\033[2J'; yes 'top  0.0' | head -n 2000; printf '\\033[?1l'"
    )
    coloured = "printf '\\033[32mafter\\033[m it\\n'"
    commands = {
        f"echo before; {drawn}; echo after": "before\nafter",
        "printf '\\033[?1049hdrawn'; sleep 0.1; printf '\\033[?1049l'": "",
        # Those that are killed do not leave the screen: vi, top and less, as they end.
        f"{_killed('?1049h', '?1h', 'H~', '1;1H', '?25h')}; {coloured}": "after it",
        f"{_killed('?1h', 'H', '2Jtop 0.0', 'K')}; echo after; {coloured}": "after\nafter it",
        f"{_killed('?1049h', '?1hdrawn', 'Edrawn', '7m:', '27m', 'K')}; echo after": "after",
        # Alone, and in the middle of a line.
        _killed("?1049h", "H", "2Jdrawn"): "",
    }
    with in_project(person) as (window, session):
        for command, kept in commands.items():
            card = _run(window, command)
            _wait_for_end(card)
            wait_until(partial(_shows, card, kept))
            assert says(card, "The program used the whole screen.")
            assert "\ndrawn" not in (said := session.conversation.messages[-1].text)
            assert said.count("0.0") <= 1 and "The program used the whole screen." in said
            assert not says(card, "No output")
        open_session(window, person.project)
        controller_of(window).show_session(session.id)
        wait_until(lambda: window.chat.session is not None and window.chat.session.id == session.id)
        for command, kept in commands.items():
            stored = card_that(window, partial(_is_of, command))
            wait_until(partial(_shows, stored, kept))
            assert says(stored, "The program used the whole screen.")


def _killed(*sequences: str) -> str:
    """Return a command that draws this and is killed, by a signal that no shell speaks of."""
    drawn = "".join(f"\\033[{sequence}" for sequence in sequences)
    return f"sh -c 'printf \"{drawn}\"; kill -PIPE $$'"


def _is_of(command: str, card: ToolCard) -> bool:
    return card.entry.description == command


def _shows(card: ToolCard, text: str) -> bool:
    return _shown(card) == text


def _shown(card: ToolCard) -> str:
    """Return what the card shows of the output."""
    return _printed(card) if card.output_place.get_visible() else ""
