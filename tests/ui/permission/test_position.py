# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions that move on the screen: clicks, focus and visibility."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from gi.repository import Gtk
from support.chat_screen import Place
from support.screen import Screen, spin_until

from ollmsandbox.permission.request import Answer
from ollmsandbox.ui.permission import card as permission_card
from ollmsandbox.ui.permission.visibility import edges_in_sight
from ollmsandbox.ui.sessions.entries import CallEntry

pytestmark = pytest.mark.usefixtures("quick")

_HOUR = 3_600_000


@pytest.fixture
def place(screen: Screen, tmp_path: Path) -> Place:
    """A chat that is longer than its window."""
    place = Place(screen, tmp_path, 900, 1000)
    place.fill(20)
    place.view.focus_composer()
    return place


def ask(place: Place, command: str = "curl 1") -> CallEntry:
    return place.ask(command, one_time_only=True)


def deny(place: Place, entry: CallEntry) -> Gtk.Button:
    return place.question(entry).button_for(Answer.DENY)


def allow(place: Place, entry: CallEntry) -> Gtk.Button:
    """Return the button once it is sensitive."""
    button = place.question(entry).button_for(Answer.ALLOW)
    spin_until(button.get_sensitive)
    return button


def top_of(widget: Gtk.Widget, window: Gtk.Window) -> float:
    known, bounds = widget.compute_bounds(window)
    assert known
    return bounds.get_y()


# --- what is pressed -----------------------------------------------------------------------------


def test_a_question_at_rest_can_be_allowed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = ask(place)
    button = allow(place, entry)
    place.settle()
    monkeypatch.setattr(permission_card, "_PAUSE", _HOUR)
    button.emit("clicked")
    assert place.heard == [("answer", f"ask-{entry.call.id}", Answer.ALLOW)]


@pytest.mark.parametrize("by", ["output", "question"])
def test_a_click_on_what_has_just_been_moved_allows_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    first, second = ask(place, "curl 1"), ask(place, "curl 2")
    other = place.chat.call("make")
    if by == "output":
        place.chat.start(other)
    buttons = [allow(place, first), allow(place, second)]
    place.settle()
    monkeypatch.setattr(permission_card, "_PAUSE", _HOUR)
    before = top_of(buttons[0], place.window)
    if by == "output":
        place.chat.output(other, b"line\n" * 12)
    else:
        place.chat.ask(other)
    spin_until(lambda: top_of(buttons[0], place.window) < before)
    for button in buttons:
        # Not switched off, which would flicker with each line.
        assert button.get_sensitive()
        button.emit("clicked")
    assert place.heard == []
    deny(place, second).emit("clicked")
    assert place.heard == [("answer", f"ask-{second.call.id}", Answer.DENY)]


# --- the keyboard --------------------------------------------------------------------------------


def test_a_yes_that_has_the_keyboard_has_it_still_when_the_window_comes_back(
    place: Place, screen: Screen
) -> None:
    spin_until(place.window.is_active)
    entry = ask(place)
    button = allow(place, entry)
    spin_until(partial(place.has_focus, deny(place, entry)))
    button.grab_focus()
    other = screen.show(Gtk.Label(label="elsewhere"))
    spin_until(lambda: not place.window.is_active())
    place.settle()
    other.destroy()
    place.window.present()
    spin_until(place.window.is_active)
    place.settle()
    assert place.focus is button


@pytest.mark.parametrize("is_typed", [False, True])
def test_a_question_takes_no_focus_from_a_user_who_types(place: Place, is_typed: bool) -> None:
    composer = place.view.composer
    if is_typed:
        composer.text = "I am wri"
    else:
        # An input method is at work.
        composer.view.emit("preedit-changed", "ni")
    allow(place, ask(place))
    place.settle()
    assert place.focus is composer.view


def test_a_draft_behind_the_history_counts_as_typing(place: Place) -> None:
    composer = place.view.composer
    found = [composer.is_untouched]
    composer.set_history(["make"])
    composer.text = "half of it"
    for step in (-1, 1):
        composer._leaf(step)
        composer.text = ""
        found.append(composer.is_untouched)
    assert found == [True, False, True]


# --- what is in sight ----------------------------------------------------------------------------


def test_the_way_to_a_question_shows_what_has_the_keyboard_in_a_small_window(
    place: Place, screen: Screen
) -> None:
    entry = ask(place)
    ask(place, "curl 2")
    place.question(entry)
    screen.resize(place.window, 400, 330)
    place.settle()
    place.view.focus_composer()
    place.view.column.get_vadjustment().set_value(0)
    place.settle()
    place.view.show_call(entry.call.id)
    button = deny(place, entry)
    assert place.focus is button
    spin_until(lambda: all(edges_in_sight(button)))
    place.settle()
    assert all(edges_in_sight(button))


def test_the_chat_scrolls_to_its_end_if_the_next_question_may_not_have_the_focus(
    place: Place, screen: Screen
) -> None:
    screen.resize(place.window, 700, 600)
    place.settle()
    entries = [ask(place, f"curl {number}") for number in range(4)]
    spin_until(partial(place.has_focus, deny(place, entries[0])))
    # It is kept in sight.
    spin_until(lambda: not place.view.column.at_end)
    place.settle()
    place.view.focus_composer()
    place.view.composer.text = "I am wri"
    place.chat.answer(entries[0], Answer.DENY)
    spin_until(lambda: place.view.column.at_end)
    assert place.focus is place.view.composer.view
