# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from gi.repository import Gdk, Gtk
from support.chat import allow, asked, press_key, scroll_to_end, with_network
from support.screen import Screen, all_of, draw_frames, one_of, popover_of, spin, spin_until, texts

from ollmsandbox.permission.request import REACH_HOST, Answer, Fact, PermissionRequest
from ollmsandbox.ui.permission import card as permission_card
from ollmsandbox.ui.permission.asker import WindowAsker
from ollmsandbox.ui.permission.card import ChatPermission
from ollmsandbox.ui.permission.text import (
    button_label,
    duration_text,
    notification_text,
    spoken_question,
)

pytestmark = pytest.mark.usefixtures("quick")

LONG = "\n".join(f"echo step {number}" for number in range(60))


class Shown:
    """A card in a window, and what was answered."""

    def __init__(self, screen: Screen, request: PermissionRequest, width: int = 600) -> None:
        self.card = ChatPermission(request)
        answers = self.answers = list[Answer]()
        self.card.connect("answered", lambda _card, answer: answers.append(answer))
        self.view = Gtk.Viewport(child=self.card, vscroll_policy=Gtk.ScrollablePolicy.NATURAL)
        self.scroller = Gtk.ScrolledWindow(child=self.view)
        self.window = screen.show(self.scroller, width, 600)

    @property
    def subject(self) -> str:
        buffer = self.card.subject.get_buffer()
        return buffer.get_text(*buffer.get_bounds(), True)

    def click(self, answer: Answer) -> None:
        self.card.button_for(answer).emit("clicked")

    def can_allow(self) -> bool:
        return self.card.button_for(Answer.ALLOW).get_sensitive()

    def wait_for_hint(self) -> None:
        """The time for a click that was meant for something else is over."""
        spin_until(lambda: self.card.notes.get_visible_child_name() == "unseen")


def counted_looks(card: ChatPermission, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record each check whether the card is in view."""
    looks: list[bool] = []
    look = card._look

    def count(*_args: object) -> None:
        look()
        looks.append(True)

    monkeypatch.setattr(card, "_look", count)
    return looks


def names(card: ChatPermission) -> list[str]:
    """Return what can be seen without opening the menu."""
    return [
        text
        for button in all_of(card.buttons, Gtk.Button)
        if button.get_mapped()
        for text in texts(button)
    ]


# --- answers -------------------------------------------------------------------------------------


def test_a_question_that_is_asked_again_says_why(screen: Screen) -> None:
    notice = "Something else happened meanwhile."
    assert notice not in texts(Shown(screen, with_network()).card)
    assert notice in texts(Shown(screen, with_network(notice=notice)).card)


def test_the_network_question_contains_the_command_where_the_card_is_not_seen() -> None:
    whole, heading = "May {command} run?", "May it run?"
    request = with_network("pip\tlist", translated=whole, heading=heading)
    assert spoken_question(request) == "May pip⟨TAB⟩list run?"
    assert notification_text(request)[1] == spoken_question(request)
    _title, body = notification_text(replace(request, subject="x" * 1000))
    assert body == f"May {'x' * 119}… run?"


def test_a_host_can_be_allowed_for_the_session_if_that_is_offered(screen: Screen) -> None:
    once = with_network(tool=REACH_HOST)
    assert once.answers == (Answer.DENY, Answer.ALLOW)
    request = replace(once, one_time_only=False, for_session=True, target_path="www.example:443")
    assert request.answers == (Answer.DENY, Answer.ALLOW, Answer.ALLOW_SESSION)
    shown = Shown(screen, request)
    label = "Allow www.example:443 in This Session"
    assert texts(shown.card.button_for(Answer.ALLOW_SESSION)) == [label]


def test_a_one_time_request_has_two_answers_and_escape_denies(screen: Screen) -> None:
    shown = Shown(screen, with_network())
    # It fits, so nothing has to be scrolled.
    spin_until(shown.can_allow)
    assert shown.card.notes.get_visible_child_name() == "lasting"
    assert names(shown.card) == ["Deny", "Allow Once"]
    assert shown.card.request.is_once_only
    assert duration_text(shown.card.request) in texts(shown.card)
    shown.card.take_focus()
    assert shown.window.get_focus() is shown.card.button_for(Answer.DENY)
    assert press_key(shown.card, Gdk.KEY_Escape)
    assert shown.answers == [Answer.DENY]


def test_answers_that_last_are_behind_an_arrow_and_name_their_scope(screen: Screen) -> None:
    shown = Shown(screen, asked("make install"))
    assert names(shown.card) == ["Deny", "Allow Once"]
    menu = one_of(shown.card, Gtk.MenuButton)
    popover = popover_of(menu)
    assert [text for one in all_of(popover, Gtk.Button) for text in texts(one)] == [
        "Allow This Command in This Session",
        "Always Allow This Command in This Project",
        "Always Deny This Command in This Project",
    ]
    host = asked("https://example.org/a", tool="web_fetch", target_path="example.org")
    file = asked("/home/ada/a_b.txt", tool="edit_file", target_path="/home/ada/a_b.txt")
    assert button_label(Answer.ALLOW_SESSION, host) == "Allow example.org in This Session"
    assert button_label(Answer.DENY_ALWAYS, file) == "Always Deny a_b.txt in This Project"


def test_a_command_that_no_rule_can_hold_cannot_be_allowed_for_long(screen: Screen) -> None:
    shown = Shown(screen, asked("make && make install"))
    spin_until(shown.can_allow)
    popover = popover_of(one_of(shown.card, Gtk.MenuButton))
    assert texts(one_of(popover, Gtk.Button)) == ["Always Deny This Command in This Project"]
    assert any("cannot always be allowed" in text for text in texts(shown.card))


def test_a_command_whose_end_was_not_seen_can_only_be_denied(screen: Screen) -> None:
    shown = Shown(screen, asked(LONG.replace("\n", " ").replace("&", "")))
    shown.wait_for_hint()
    lasting = (Answer.ALLOW_SESSION, Answer.ALLOW_ALWAYS, Answer.DENY_ALWAYS)
    known = [answer for answer in lasting if answer in shown.card.request.answers]
    assert [shown.card.button_for(a).get_sensitive() for a in known] == [
        not answer.allows for answer in known
    ]
    shown.click(Answer.DENY)
    assert shown.answers == [Answer.DENY]


@pytest.mark.parametrize("answer", asked("make install").answers)
def test_a_click_answers_once(screen: Screen, answer: Answer) -> None:
    shown = Shown(screen, asked("make install"))
    allow(shown.card, answer)
    assert shown.answers == [answer]
    for other in shown.card.request.answers:
        shown.click(other)
    assert not press_key(shown.card, Gdk.KEY_Escape)
    assert shown.answers == [answer]


def test_the_letter_of_a_button_answers(screen: Screen) -> None:
    shown = Shown(screen, with_network())
    spin_until(shown.can_allow)
    shown.card.button_for(Answer.ALLOW).mnemonic_activate(False)
    spin_until(lambda: shown.answers)
    assert shown.answers == [Answer.ALLOW]


# --- all of it was seen --------------------------------------------------------------------------


def test_a_long_command_is_allowed_only_after_its_end_was_seen(screen: Screen) -> None:
    shown = Shown(screen, with_network(LONG))
    shown.wait_for_hint()
    shown.click(Answer.ALLOW)
    button = shown.card.button_for(Answer.ALLOW)
    button.activate()
    # GTK presses it a quarter of a second later, when the end may have been seen.
    assert button.has_css_class("keyboard-activating")
    spin_until(lambda: not button.has_css_class("keyboard-activating"))
    assert not shown.can_allow()
    assert not shown.answers
    adjustment = shown.card.subject_frame.get_vadjustment()
    adjustment.set_value(adjustment.get_upper() / 2)
    draw_frames(shown.card, 3)
    assert not shown.can_allow()
    scroll_to_end(shown.card.subject_frame)
    spin_until(shown.can_allow)
    shown.click(Answer.ALLOW)
    assert shown.answers == [Answer.ALLOW]


def test_a_long_command_does_not_block_the_window(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permission_card, "_LINES", 100)
    shown = Shown(screen, with_network("\n".join(f"echo {number}" for number in range(1000))))
    card = shown.card
    looked_at: list[int] = []
    look, ask = card._look, card.subject.get_line_yrange
    lines: list[Gtk.TextIter] = []

    def count_look() -> None:
        lines.clear()
        look()
        looked_at.append(len(lines))

    def count_line(place: Gtk.TextIter) -> tuple[int, int]:
        lines.append(place)
        return ask(place)

    monkeypatch.setattr(card, "_look", count_look)
    monkeypatch.setattr(card.subject, "get_line_yrange", count_line)
    shown.wait_for_hint()
    scroll_to_end(card.subject_frame)
    spin_until(shown.can_allow)
    assert max(looked_at) <= 100


def test_a_larger_window_may_show_all_of_it(screen: Screen) -> None:
    words = " ".join(["word"] * 90)
    shown = Shown(screen, with_network(f"echo {words}"), width=360)
    shown.wait_for_hint()
    assert not shown.can_allow()
    screen.resize(shown.window, 1200, 600)
    spin_until(shown.can_allow)


def test_a_click_at_once_allows_nothing(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permission_card, "_PAUSE", 3_600_000)
    shown = Shown(screen, with_network())
    draw_frames(shown.window, 3)
    shown.click(Answer.ALLOW)
    assert not shown.answers
    assert not shown.can_allow()
    shown.click(Answer.DENY)
    assert shown.answers == [Answer.DENY]


@pytest.mark.parametrize("how", ["another page", "another window"])
def test_a_click_that_comes_at_once_after_coming_back_allows_nothing(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    shown = Shown(screen, with_network())
    spin_until(shown.can_allow)
    monkeypatch.setattr(permission_card, "_PAUSE", 3_600_000)
    if how == "another page":
        shown.scroller.set_visible(False)
        spin_until(lambda: not shown.card.get_mapped())
        shown.scroller.set_visible(True)
        spin_until(shown.card.get_mapped)
    else:
        spin_until(shown.window.is_active)
        other = screen.show(Gtk.Label(label="elsewhere"))
        spin_until(lambda: not shown.window.is_active())
        other.destroy()
        shown.window.present()
        spin_until(shown.window.is_active)
    shown.click(Answer.ALLOW)
    assert not shown.answers


def test_a_card_out_of_sight_looks_seldom_and_can_be_allowed_when_it_is_in_sight(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permission_card, "_LOOK_AWAY", 500)
    card = ChatPermission(with_network())
    looks = counted_looks(card, monkeypatch)
    box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL)
    box.append(Gtk.Label(height_request=3000))
    box.append(card)
    scroller = Gtk.ScrolledWindow(child=box)
    screen.show(scroller, 600, 400)
    spin_until(lambda: card.notes.get_visible_child_name() == "unseen")
    draw_frames(scroller, 3)
    before = len(looks)
    spin(0.3)
    assert len(looks) < before + 10
    scroll_to_end(scroller)
    spin_until(card.button_for(Answer.ALLOW).get_sensitive)


def test_a_widget_over_a_card_hides_it(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    card = ChatPermission(with_network())
    looks = counted_looks(card, monkeypatch)
    scroller = Gtk.ScrolledWindow(child=card)
    overlay = Gtk.Overlay(child=scroller)
    over = Gtk.Box(hexpand=True, vexpand=True)
    overlay.add_overlay(over)
    window = screen.show(overlay, 600, 600)
    draw_frames(window, 3)
    before = len(looks)
    spin_until(lambda: len(looks) > before + 5)
    allow = card.button_for(Answer.ALLOW)
    assert not allow.get_sensitive()
    over.set_visible(False)
    spin_until(allow.get_sensitive)


def test_a_card_that_was_never_shown_allows_nothing() -> None:
    card = ChatPermission(with_network())
    answers: list[Answer] = []
    card.connect("answered", lambda _card, answer: answers.append(answer))
    card.button_for(Answer.ALLOW).emit("clicked")
    assert not answers


def test_a_letter_allows_nothing_that_is_out_of_sight(screen: Screen) -> None:
    shown = Shown(screen, with_network())
    spin_until(shown.can_allow)
    box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL)
    shown.view.set_child(None)
    box.append(Gtk.Label(height_request=3000))
    box.append(shown.card)
    shown.view.set_child(box)
    draw_frames(shown.window, 3)
    shown.click(Answer.ALLOW)
    assert not shown.answers
    assert shown.window.get_focus() is shown.card.button_for(Answer.DENY)


def test_a_card_whose_command_is_above_the_edge_cannot_be_allowed_yet(screen: Screen) -> None:
    card = ChatPermission(with_network())
    box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL)
    box.append(Gtk.Label(height_request=400))
    box.append(card)
    view = Gtk.Viewport(child=box, vscroll_policy=Gtk.ScrollablePolicy.NATURAL)
    scroller = Gtk.ScrolledWindow(child=view)
    screen.show(scroller, 600, 100)
    scroll_to_end(scroller)
    spin_until(lambda: card.notes.get_visible_child_name() == "unseen")
    assert not card.button_for(Answer.ALLOW).get_sensitive()
    scroller.get_vadjustment().set_value(430)
    spin_until(card.button_for(Answer.ALLOW).get_sensitive)


# --- what tries to fool the user ---------------------------------------------------------------


def test_markup_is_shown_as_plain_text(screen: Screen) -> None:
    trick = '<span size="1">rm -rf ~</span>&amp;<b>'
    shown = Shown(
        screen,
        asked(trick, question=trick, facts=(Fact(trick, trick),), one_time_only=True),
    )
    assert shown.subject == trick
    assert [text for text in texts(shown.card) if trick in text] == [trick] * 4
    assert not any(label.get_use_markup() for label in all_of(shown.card, Gtk.Label))


def test_a_second_command_behind_many_newlines_or_blanks_is_not_hidden(screen: Screen) -> None:
    shown = Shown(screen, with_network("ls" + "\n" * 400 + "rm -rf ~"))
    assert shown.subject.splitlines() == ["ls⟨400 newlines⟩", "rm -rf ~"]
    shown = Shown(screen, with_network("ls" + "\n " * 400 + "\nrm -rf ~"))
    shown.wait_for_hint()
    assert not shown.can_allow()
    shown = Shown(screen, with_network("ls" + " " * 5000 + "; rm -rf ~"))
    assert shown.subject == "ls⟨5000 spaces⟩; rm -rf ~"


def test_terminal_escapes_and_marks_of_direction_are_named(screen: Screen) -> None:
    trick = "ls\x1b[2K\r\u202eevil\u202c\u200b"
    shown = Shown(screen, with_network(trick, facts=(Fact("in", trick),)))
    told = [shown.subject, *texts(shown.card)]
    for text in told:
        assert not set(text) & set("\x1b\r\u202e\u202c\u200b")
    assert shown.subject.startswith("ls⟨ESC⟩[2K⟨CR⟩⟨U+202E⟩evil")


def test_full_width_marks_are_named_in_a_path_and_left_in_a_sentence(screen: Screen) -> None:
    said, trick = "不可写入\uff0c可读取\uff1f", "~/src\uff1bx"
    facts = (Fact(said, said, is_wording=True), Fact("位置", trick))
    shown = Shown(screen, with_network(trick, translated=said, facts=facts))
    assert [text for text in texts(shown.card) if text == said] == [said] * 3
    assert [text for text in texts(shown.card) if "src" in text] == ["~/src⟨U+FF1B⟩x"] * 2


def test_a_very_long_line_is_there_to_its_end(screen: Screen) -> None:
    shown = Shown(screen, with_network(f"echo {'x' * 20_000}; rm -rf ~"))
    shown.wait_for_hint()
    assert shown.subject.endswith("; rm -rf ~")
    assert not shown.can_allow()
    scroll_to_end(shown.card.subject_frame)
    spin_until(shown.can_allow)


def test_a_command_or_a_path_gets_no_hyphen_and_does_not_make_the_card_wide(screen: Screen) -> None:
    shown = Shown(screen, with_network("x" * 300, facts=(Fact("in", "/" + "y" * 300),)), width=360)
    buffer = shown.card.subject.get_buffer()
    last = buffer.get_end_iter()
    last.backward_char()
    for place in (buffer.get_start_iter(), last):
        assert [tag.props.insert_hyphens for tag in place.get_tags()] == [False]
    fact = next(label for label in all_of(shown.card, Gtk.Label) if "yyy" in label.get_text())
    attributes = fact.get_attributes()
    assert attributes is not None
    assert "insert-hyphens" in attributes.to_string()
    draw_frames(shown.window)
    assert shown.card.measure(Gtk.Orientation.HORIZONTAL, -1)[0] <= 336
    assert shown.card.get_width() == 360


def test_buttons_stand_in_one_line_or_below_each_other(screen: Screen) -> None:
    card = ChatPermission(asked("make install"))
    counts = [len(card.buttons.lines_for(width)) for width in (800, 150)]
    assert counts == [1, 2]


def test_an_asker_takes_only_answers_that_the_card_offers() -> None:
    request = with_network()

    async def ask() -> Answer:
        asker = WindowAsker()
        settled: list[PermissionRequest] = []
        asker.connect("settled", lambda _asker, which: settled.append(which))
        waiting = asyncio.ensure_future(asker.ask(request))
        await asyncio.sleep(0)
        asker.answer("another", Answer.ALLOW)
        with pytest.raises(ValueError, match="cannot be given"):
            asker.answer(request.id, Answer.ALLOW_ALWAYS)
        assert asker.waiting == [request]
        asker.deny_all()
        answer = await waiting
        assert settled == [request]
        asker.answer(request.id, Answer.ALLOW)
        return answer

    assert asyncio.run(ask()) is Answer.DENY
