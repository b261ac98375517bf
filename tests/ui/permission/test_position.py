# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions that move on the screen: clicks, focus and visibility."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from gi.repository import Gtk
from support.chat import Chat
from support.screen import Screen, all_of, draw_frames, spin_until

from ollmsandbox.paths import Paths
from ollmsandbox.permission.request import Answer
from ollmsandbox.ui.chat.tool_card import ToolCard
from ollmsandbox.ui.chat.view import ChatView
from ollmsandbox.ui.permission import card as permission_card
from ollmsandbox.ui.permission.card import ChatPermission
from ollmsandbox.ui.permission.visibility import edges_in_sight
from ollmsandbox.ui.sessions.entries import CallEntry
from ollmsandbox.ui.settings import Settings
from ollmsandbox.ui.widgets.focus import FocusKeeper

pytestmark = pytest.mark.anybody

_HOUR = 3_600_000


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause, except where a test begins one that does not end."""
    monkeypatch.setattr(permission_card, "_PAUSE", 0)
    monkeypatch.setattr(permission_card, "_LOOK", 5)


class Asking:
    """A chat that is longer than its window, and what was answered in it."""

    def __init__(self, screen: Screen, folder: Path) -> None:
        self.screen = screen
        self.view = ChatView(Settings(Paths.from_environ({"HOME": str(folder)})))
        answers = self.answers = list[tuple[str, Answer]]()
        self.view.connect("answer", lambda _view, *answer: answers.append(answer))
        self.window = screen.show(self.view, 900, 1000)
        self.chat = Chat()
        self.view.show(self.chat.session)
        for number in range(20):
            self.chat.agent(f"Answer {number}.\n\nWith a second paragraph.")
        self.view.focus_composer()
        self.settle()

    def ask(self, command: str = "curl 1") -> CallEntry:
        entry = self.chat.call(command)
        self.chat.ask(entry, one_time_only=True)
        return entry

    def question(self, entry: CallEntry) -> ChatPermission:
        def find() -> list[ChatPermission]:
            cards = [card for card in all_of(self.view, ToolCard) if card.entry is entry]
            return [card.question for card in cards if card.question is not None]

        spin_until(find)
        return find()[0]

    def deny(self, entry: CallEntry) -> Gtk.Button:
        return self.question(entry).button_for(Answer.DENY)

    def allow(self, entry: CallEntry) -> Gtk.Button:
        """Click as soon as the button is sensitive."""
        button = self.question(entry).button_for(Answer.ALLOW)
        spin_until(button.get_sensitive)
        return button

    def settle(self) -> None:
        draw_frames(self.view, 4)

    def has_focus(self, widget: Gtk.Widget) -> Callable[[], bool]:
        return lambda: self.window.get_focus() is widget


@pytest.fixture
def place(screen: Screen, tmp_path: Path) -> Asking:
    return Asking(screen, tmp_path)


def top_of(widget: Gtk.Widget, window: Gtk.Window) -> float:
    known, bounds = widget.compute_bounds(window)
    assert known
    return bounds.get_y()


# --- what is pressed -----------------------------------------------------------------------------


def test_a_question_that_stays_where_it_is_can_be_allowed(
    place: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = place.ask()
    button = place.allow(entry)
    place.settle()
    monkeypatch.setattr(permission_card, "_PAUSE", _HOUR)
    button.emit("clicked")
    assert place.answers == [(f"ask-{entry.call.id}", Answer.ALLOW)]


def test_a_click_on_what_the_output_of_another_call_has_just_moved_allows_nothing(
    place: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = place.ask("curl 1"), place.ask("curl 2")
    running = place.chat.call("make")
    place.chat.start(running)
    buttons = [place.allow(first), place.allow(second)]
    place.settle()
    monkeypatch.setattr(permission_card, "_PAUSE", _HOUR)
    before = top_of(buttons[0], place.window)
    place.chat.output(running, b"line\n" * 12)
    spin_until(lambda: top_of(buttons[0], place.window) < before)
    for button in buttons:
        # Not switched off, which would flicker with each line.
        assert button.get_sensitive()
        button.emit("clicked")
    assert place.answers == []
    place.deny(second).emit("clicked")
    assert place.answers == [(f"ask-{second.call.id}", Answer.DENY)]


def test_a_click_on_what_a_further_question_has_just_moved_allows_nothing(
    place: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = place.ask("curl 1"), place.chat.call("curl 2")
    button = place.allow(first)
    place.settle()
    monkeypatch.setattr(permission_card, "_PAUSE", _HOUR)
    before = top_of(button, place.window)
    place.chat.ask(last)
    spin_until(lambda: top_of(button, place.window) < before)
    button.emit("clicked")
    assert place.answers == []


# --- the keyboard --------------------------------------------------------------------------------


def test_a_yes_that_has_the_keyboard_has_it_still_when_the_window_comes_back(
    place: Asking,
) -> None:
    keeper = FocusKeeper(place.window)
    spin_until(place.window.is_active)
    entry = place.ask()
    button = place.allow(entry)
    spin_until(place.has_focus(place.deny(entry)))
    button.grab_focus()
    other = place.screen.show(Gtk.Label(label="elsewhere"))
    spin_until(lambda: not place.window.is_active())
    place.settle()
    other.destroy()
    place.window.present()
    spin_until(place.window.is_active)
    place.settle()
    assert place.window.get_focus() is button
    assert keeper is not None


def test_a_question_takes_no_focus_from_an_input_method_at_work(
    place: Asking,
) -> None:
    composer = place.view.composer
    composer.view.emit("preedit-changed", "ni")
    place.allow(place.ask())
    place.settle()
    assert place.window.get_focus() is composer.view


def test_a_draft_behind_the_history_counts_as_typing() -> None:
    composer = ChatView(Settings(Paths.from_environ({"HOME": "/nowhere"}))).composer
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
    place: Asking,
) -> None:
    entry = place.ask()
    place.ask("curl 2")
    place.question(entry)
    place.screen.resize(place.window, 400, 330)
    place.settle()
    place.view.focus_composer()
    place.view.column.get_vadjustment().set_value(0)
    place.settle()
    place.view.show_call(entry.call.id)
    deny = place.deny(entry)
    assert place.window.get_focus() is deny
    spin_until(lambda: all(edges_in_sight(deny)))
    place.settle()
    assert all(edges_in_sight(deny))


def test_the_chat_scrolls_to_its_end_if_the_next_question_may_not_have_the_focus(
    place: Asking,
) -> None:
    place.screen.resize(place.window, 700, 600)
    place.settle()
    entries = [place.ask(f"curl {number}") for number in range(4)]
    spin_until(place.has_focus(place.deny(entries[0])))
    # It is kept in sight.
    spin_until(lambda: not place.view.column.at_end)
    place.settle()
    place.view.focus_composer()
    place.view.composer.text = "I am wri"
    place.chat.answer(entries[0], Answer.DENY)
    spin_until(lambda: place.view.column.at_end)
    assert place.window.get_focus() is place.view.composer.view
