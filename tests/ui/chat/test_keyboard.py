# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from functools import partial

from gi.repository import Gtk
from support.chat import Chat, done, press_shortcut
from support.chat_screen import Place
from support.screen import all_of, spin_until

from ollmsandbox.permission.request import Answer
from ollmsandbox.ui.chat.tool_card import ToolCard
from ollmsandbox.ui.chat.view import row_name
from ollmsandbox.ui.sessions.entries import CallEntry


def is_at(place: Place, entry: CallEntry) -> bool:
    cards = [card for card in all_of(place.view, ToolCard) if card.entry is entry]
    is_focused = bool(cards) and place.has_focus(cards[0].header)
    return is_focused and place.view.column.is_in_view(entry)


def test_a_key_leads_from_command_to_command_and_back_to_where_one_writes(place: Place) -> None:
    chat, view = place.chat, place.view
    calls = []
    for number in range(3):
        calls.append(chat.call(f"make {number}"))
        chat.end(calls[-1], done())
        chat.agent("Much is said.\n\n" * 20)
    place.settle()
    view.focus_composer()
    for entry in reversed(calls):
        assert press_shortcut(view, "<Alt>Up")
        spin_until(partial(is_at, place, entry))
    assert not press_shortcut(view, "<Alt>Up")
    for entry in calls[1:]:
        assert press_shortcut(view, "<Alt>Down")
        spin_until(partial(is_at, place, entry))
    assert press_shortcut(view, "<Alt>Down")
    assert place.has_focus(view.composer.view)


def test_at_a_question_it_is_the_no_that_has_the_keyboard(place: Place) -> None:
    place.view.composer.text = "I am wri"
    place.view.focus_composer()
    question = place.question(place.ask())
    place.settle()
    assert press_shortcut(place.view, "<Alt>Up")
    assert place.has_focus(question.button_for(Answer.DENY))
    # Tab stops at each answer.
    spin_until(question.button_for(Answer.ALLOW).get_sensitive)
    place.view.column.child_focus(Gtk.DirectionType.TAB_FORWARD)
    assert place.has_focus(question.button_for(Answer.ALLOW))


def test_tab_stops_once_at_each_row_and_arrows_move_inside(place: Place) -> None:
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
