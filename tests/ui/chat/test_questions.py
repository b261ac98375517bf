# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from functools import partial

import pytest
from gi.repository import Gtk
from support.chat import allow
from support.chat_screen import Place
from support.screen import all_of, one_of, spin_until, texts

from ollmsandbox.permission.request import Answer
from ollmsandbox.ui.permission import card
from ollmsandbox.ui.permission.visibility import edges_in_sight

pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.parametrize("has_card", [False, True])
def test_a_question_gets_the_focus_on_deny(place: Place, has_card: bool) -> None:
    place.view.focus_composer()
    entry = place.chat.call("make")
    if has_card:
        place.card(entry)
        place.settle()
    place.chat.ask(entry)
    deny = place.question(entry).button_for(Answer.DENY)
    spin_until(lambda: place.focus is deny)


def test_a_question_below_a_long_chat_comes_into_sight_whole(place: Place) -> None:
    place.fill()
    place.view.focus_composer()
    # As after a key: then the focus leads to where it is.
    place.window.set_focus_visible(True)
    for command in ("make a", "make b"):
        entry = place.ask(command)
        deny = place.question(entry).button_for(Answer.DENY)
        spin_until(partial(place.has_focus, deny))
        place.settle()
        assert place.view.column.at_end
        assert edges_in_sight(deny) == (True, True)
        place.chat.answer(entry, Answer.DENY)
        place.view.focus_composer()


def test_answers_go_out_with_the_question_they_belong_to(place: Place) -> None:
    first, second = place.ask("make a"), place.ask("make b")
    place.settle()
    place.view.show_call(second.call.id)
    place.settle()
    allow(place.question(second), Answer.ALLOW_SESSION)
    place.question(first).button_for(Answer.DENY).emit("clicked")
    assert place.heard == [
        ("answer", f"ask-{second.call.id}", Answer.ALLOW_SESSION),
        ("answer", f"ask-{first.call.id}", Answer.DENY),
    ]


def test_a_question_that_has_the_keyboard_is_not_pushed_out_of_sight_by_more(place: Place) -> None:
    place.fill()
    place.view.focus_composer()
    entries = [place.ask(f"make {name}") for name in "abcd"]
    for entry in entries:
        spin_until(partial(place.has_focus, place.question(entry).button_for(Answer.DENY)))
        spin_until(partial(_is_whole, place.question(entry)))
        place.chat.answer(entry, Answer.DENY)
        place.view.focus_composer()
    spin_until(lambda: place.view.column.at_end)


def test_after_one_answer_a_click_that_was_meant_for_it_allows_nothing_else(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = place.ask("make a"), place.ask("make b")
    place.settle()
    one = place.question(second).button_for(Answer.ALLOW)
    spin_until(one.get_sensitive)
    monkeypatch.setattr(card, "_PAUSE", 600_000)
    place.chat.answer(first, Answer.ALLOW)
    place.settle()
    one.emit("clicked")
    assert place.heard == []


def _is_whole(widget: Gtk.Widget) -> bool:
    return all(edges_in_sight(widget))


def _arrow(bar: Gtk.Widget) -> str | None:
    return all_of(bar, Gtk.Image)[-1].get_icon_name()


def test_a_question_out_of_view_takes_no_focus_and_a_bar_leads_to_it(place: Place) -> None:
    place.view.focus_composer()
    place.fill()
    place.scroll_up()
    entry = place.ask()
    bar = place.view.waiting
    spin_until(lambda: bar.get_reveal_child() and _arrow(bar) == "go-down-symbolic")
    assert place.view.composer.view.is_focus()
    spin_until(lambda: "A question needs your answer" in texts(bar))
    one_of(bar, Gtk.Button).emit("clicked")
    spin_until(lambda: not bar.get_reveal_child())
    assert place.focus is place.question(entry).button_for(Answer.DENY)
    place.view.focus_composer()
    place.fill()
    place.view.column.scroll_to_end()
    spin_until(lambda: bar.get_reveal_child() and _arrow(bar) == "go-up-symbolic")
    place.chat.answer(entry, Answer.DENY)
    assert not bar.get_reveal_child()


def test_the_rest_of_the_chat_steps_back_while_a_question_is_open(place: Place) -> None:
    place.chat.agent("I will install it.")
    entry = place.ask()
    card = place.card(entry)
    row = card.get_parent()
    assert row is not None
    assert place.view.column.has_css_class("has-question")
    assert row.has_css_class("asks")
    place.chat.answer(entry, Answer.DENY)
    assert not place.view.column.has_css_class("has-question")
    assert not row.has_css_class("asks")
