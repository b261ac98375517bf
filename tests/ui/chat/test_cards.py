# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time

from gi.repository import Gtk
from support.chat_screen import Place
from support.screen import all_of, spin_until

from ollmsandbox.chat.events import ConversationState, StateChanged
from ollmsandbox.tools.base import Outcome
from ollmsandbox.ui.chat.group import CallGroupRow
from ollmsandbox.ui.chat.question import QuestionCard
from ollmsandbox.ui.chat.todo import TodoList
from ollmsandbox.ui.sessions.entries import CallEntry


def question(place: Place, entry: CallEntry) -> QuestionCard:
    card = place.card(entry).open_question
    assert isinstance(card, QuestionCard)
    return card


def rest() -> None:
    """Wait until clicks count."""
    end = time.monotonic() + 0.45
    spin_until(lambda: time.monotonic() > end)


def labels(widget: Gtk.Widget) -> list[str]:
    return [label.get_label() for label in all_of(widget, Gtk.Label)]


def test_the_plan_is_a_list_above_the_composer(place: Place) -> None:
    bar = place.view.todo
    bar.set_expanded(True)
    place.chat.talk.tell(StateChanged(ConversationState.RUNNING))
    assert not bar.get_visible()
    place.chat.plan(("Read", "in_progress"), ("Fix\n\x1b it", "pending"))
    assert bar.get_visible()
    assert labels(bar) == ["Plan: 0 of 2: Read", "Read", "Fix⟨NEWLINE⟩⟨ESC⟩ it"]
    place.chat.plan(("Read", "done"), ("Fix it", "pending"))
    assert labels(bar)[0] == "Plan: 1 of 2 done"
    place.chat.plan(("Read", "done"), ("Fix it", "done"))
    assert bar.get_visible()
    place.chat.idle()
    assert not bar.get_visible()
    spin_until(lambda: bool(all_of(place.view, CallGroupRow)))
    [group] = all_of(place.view, CallGroupRow)
    assert labels(group)[0] == "Updated the plan 3 times"


def test_a_plan_that_failed_is_an_ordinary_call(place: Place) -> None:
    entry = place.chat.call("plan", "plan")
    place.chat.end(entry, Outcome("ERROR: `steps` is missing", ok=False))
    card = place.card(entry)
    assert all_of(card, TodoList) == []
    assert card.output is not None


def test_a_choice_is_an_answer(place: Place) -> None:
    entry = place.chat.question("Tabs or\x1b[2J spaces?", "Tabs", "Spaces")
    card = question(place, entry)
    assert card.question.get_label() == "Tabs or⟨ESC⟩[2J spaces?"
    assert not place.card(entry).header_box.get_visible()
    second = all_of(card.choices, Gtk.Button)[1]
    spin_until(card.get_mapped)
    # Too soon: the click may be meant for what was there before.
    second.emit("clicked")
    assert place.heard == []
    rest()
    second.emit("clicked")
    second.emit("clicked")
    assert place.heard == [("answer", f"question-{entry.call.id}", "Spaces")]
    place.chat.reply(entry, "Spaces")
    assert not card.is_open
    assert card.answer.get_label() == "You answered: Spaces"
    assert place.card(entry).header_box.get_visible()


def test_another_answer_can_be_typed(place: Place) -> None:
    entry = place.chat.question("Which name?")
    card = question(place, entry)
    spin_until(lambda: isinstance(place.focus, Gtk.Text))
    assert place.focus is not None
    assert place.focus.is_ancestor(card.entry)
    card.entry.emit("activate")
    assert place.heard == []
    assert not card.answer_button.get_sensitive()
    card.entry.set_text("  parser ")
    card.entry.emit("activate")
    assert place.heard == [("answer", f"question-{entry.call.id}", "parser")]


def test_a_question_out_of_view_is_announced_and_can_be_left_to_the_model(place: Place) -> None:
    entry = place.chat.question("Which name?", "a", "b")
    card = question(place, entry)
    place.fill()
    assert place.chat.session.asking() == [entry]
    spin_until(place.view.waiting.get_reveal_child)
    rest()
    card.skip_button.emit("clicked")
    assert place.heard == [("answer", f"question-{entry.call.id}", "")]
    place.chat.reply(entry, "")
    assert card.answer.get_label() == "You let the agent decide"


def test_a_question_that_was_withdrawn_is_gone(place: Place) -> None:
    entry = place.chat.question("Which name?")
    assert question(place, entry).is_open
    place.chat.end(entry, Outcome("Stopped by the user.", ok=False))
    assert all_of(place.card(entry), QuestionCard) == []
    assert place.card(entry).status.get_label() == "Question · Failed"
