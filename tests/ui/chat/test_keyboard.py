# SPDX-License-Identifier: GPL-3.0-or-later
"""Moving from one command of the chat to the next with the keyboard."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from gi.repository import Gtk
from support.chat import Chat, done
from support.chat_screen import Place
from support.screen import Screen, all_of, draw_frames, spin_until

from ollmsandbox.paths import Paths
from ollmsandbox.permission.request import Answer
from ollmsandbox.ui.chat.tool_card import ToolCard
from ollmsandbox.ui.chat.view import ChatView, row_name
from ollmsandbox.ui.sessions.entries import CallEntry
from ollmsandbox.ui.settings import Settings

pytestmark = pytest.mark.anybody


def step(view: ChatView, key: str) -> bool:
    """Move the focus as GTK does when the key is pressed there."""
    for controller in view.observe_controllers():
        if not isinstance(controller, Gtk.ShortcutController):
            continue
        for shortcut in controller:
            assert isinstance(shortcut, Gtk.Shortcut)
            trigger, action = shortcut.get_trigger(), shortcut.get_action()
            assert trigger is not None and action is not None
            if trigger.to_string() == key:
                return bool(action.activate(Gtk.ShortcutActionFlags(0), view, None))
    raise AssertionError(f"no {key}")


def is_at(view: ChatView, entry: CallEntry) -> bool:
    window = view.get_root()
    focus = window.get_focus() if isinstance(window, Gtk.Window) else None
    cards = [card for card in all_of(view, ToolCard) if card.entry is entry]
    return bool(cards) and focus is cards[0].header and view.column.is_in_view(entry)


def test_a_key_leads_from_command_to_command_and_back_to_where_one_writes(
    screen: Screen, tmp_path: Path
) -> None:
    view = ChatView(Settings(Paths.from_environ({"HOME": str(tmp_path)})))
    window = screen.show(view, 700, 600)
    chat = Chat()
    view.show(chat.session)
    calls = []
    for number in range(3):
        calls.append(chat.call(f"make {number}"))
        chat.end(calls[-1], done())
        chat.agent("Much is said.\n\n" * 20)
    draw_frames(view, 4)
    view.focus_composer()
    for entry in reversed(calls):
        assert step(view, "<Alt>Up")
        spin_until(partial(is_at, view, entry))
    assert not step(view, "<Alt>Up")
    for entry in calls[1:]:
        assert step(view, "<Alt>Down")
        spin_until(partial(is_at, view, entry))
    assert step(view, "<Alt>Down")
    assert window.get_focus() is view.composer.view


def test_at_a_question_it_is_the_no_that_has_the_keyboard(screen: Screen, tmp_path: Path) -> None:
    view = ChatView(Settings(Paths.from_environ({"HOME": str(tmp_path)})))
    window = screen.show(view, 700, 600)
    chat = Chat()
    view.show(chat.session)
    view.composer.text = "I am wri"
    view.focus_composer()
    entry = chat.call("make install")
    chat.ask(entry)
    spin_until(lambda: all_of(view, ToolCard))
    (card,) = all_of(view, ToolCard)
    draw_frames(view, 4)
    assert step(view, "<Alt>Up")
    assert card.question is not None
    assert window.get_focus() is card.question.button_for(Answer.DENY)


def test_tab_stops_once_at_each_row_and_arrows_move_inside(screen: Screen, tmp_path: Path) -> None:
    place = Place(screen, tmp_path)
    first, second = place.chat.call("make"), place.chat.call("make test")
    for entry in (first, second):
        place.chat.start(entry)
        place.chat.output(entry, b"out\n")
        place.chat.end(entry, done(1, "", "a.txt"))
    place.settle()
    cards = [place.card(entry) for entry in (first, second)]
    cards[0].header.grab_focus()
    place.view.column.child_focus(Gtk.DirectionType.TAB_FORWARD)
    assert place.has_focus(cards[1].header)
    place.view.column.child_focus(Gtk.DirectionType.TAB_BACKWARD)
    assert place.has_focus(cards[0].header)
    reached = set()
    for _key in range(8):
        place.view.column.child_focus(Gtk.DirectionType.DOWN)
        reached.add(place.focus)
    assert cards[0].show_button in reached


def test_tab_stops_at_each_answer_of_a_question(screen: Screen, tmp_path: Path) -> None:
    place = Place(screen, tmp_path)
    entry = place.ask()
    question = place.question(entry)
    place.settle()
    spin_until(lambda: question.button_for(Answer.ALLOW).get_sensitive())
    question.button_for(Answer.DENY).grab_focus()
    place.view.column.child_focus(Gtk.DirectionType.TAB_FORWARD)
    assert place.has_focus(question.button_for(Answer.ALLOW))


def test_rows_have_names() -> None:
    chat = Chat()
    chat.person("Hello, how are you?")
    chat.agent("Fine.")
    chat.call("make")
    chat.session.add_notice("The server is gone.")
    names = [row_name(entry) for entry in chat.session]
    assert names == [
        "You: Hello, how are you?",
        "qwen3:14b: Fine.",
        "$ make",
        "The server is gone.",
    ]
