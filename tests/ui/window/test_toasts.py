# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from gi.repository import Adw, Gtk
from support.person import Person
from support.screen import Screen, all_of, draw_frames, spin_until, texts
from support.window import (
    card_that,
    controller_of,
    dialog,
    dialogs,
    in_project,
    press,
    press_in_toast,
    says,
    wait_until,
)

from ollmsandbox.ui.widgets.toasts import ToastRoom, Toasts, dismiss_when_shown

_LONG = (
    "The database is of a newer version of this program, which knows more than this one. "
    "Install the newer version, or give the folder another name <b>&amp; begin anew</b>."
)


def shown(screen: Screen, width: int) -> tuple[Toasts, Adw.ToastOverlay]:
    overlay = Adw.ToastOverlay(child=Gtk.Label(label="chat"))
    screen.show(overlay, width, 600)
    return Toasts(overlay.add_toast), overlay


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (360, _LONG),
        (360, "x" * 200),
        (360, "A sentence that is a little longer than a line."),
        (1000, _LONG),
        (1000, "x" * 200),
    ],
)
def test_a_long_sentence_can_be_read_to_its_end(screen: Screen, width: int, text: str) -> None:
    toasts, overlay = shown(screen, width)
    toasts.tell(text)
    spin_until(lambda: text in texts(overlay))
    draw_frames(overlay, 3)
    (label,) = (one for one in all_of(overlay, Gtk.Label) if one.get_text() == text)
    assert not label.get_layout().is_ellipsized()
    _known, bounds = label.compute_bounds(overlay)
    assert bounds.get_x() >= 0 and bounds.get_x() + bounds.get_width() <= width
    assert label.get_layout().get_pixel_size()[1] <= label.get_height()


@pytest.mark.parametrize("width", [360, 1000])
def test_a_long_sentence_has_room_beside_a_button(screen: Screen, width: int) -> None:
    done: list[bool] = []
    toasts, overlay = shown(screen, width)
    toasts.tell(_LONG, "_Show All", lambda: done.append(True))
    spin_until(lambda: _LONG in texts(overlay))
    draw_frames(overlay, 3)
    (label,) = (one for one in all_of(overlay, Gtk.Label) if one.get_text() == _LONG)
    assert not label.get_layout().is_ellipsized()
    assert label.get_layout().get_pixel_size()[1] <= label.get_height()
    press(overlay, "Show All")
    assert done


def test_a_long_sentence_is_wide_also_in_a_window_that_is_not_drawn_yet(screen: Screen) -> None:
    overlay = Adw.ToastOverlay(child=Gtk.Label(label="chat"))
    toasts = Toasts(overlay.add_toast)
    toasts.tell(_LONG)
    screen.show(overlay, 1000, 600)
    (label,) = (one for one in all_of(overlay, Gtk.Label) if one.get_text() == _LONG)
    spin_until(lambda: label.get_width() > 300)
    assert not label.get_layout().is_ellipsized()


def test_toasts_time_out_do_not_wait_long_and_do_not_come_twice(screen: Screen) -> None:
    _toasts, overlay = shown(screen, 600)
    added: list[Adw.Toast] = []

    def add(toast: Adw.Toast) -> None:
        added.append(toast)
        assert 0 < toast.get_timeout() <= 20
        # So that only the next one can end it.
        toast.set_timeout(0)
        overlay.add_toast(toast)

    toasts = Toasts(add)
    for text in (_LONG, "another", _LONG, "another"):
        toasts.tell(text)
    assert len(added) == 2
    # The next one ends the first, which can come again then.
    spin_until(lambda: len(toasts._queue) == 1)
    toasts.tell(_LONG)
    assert len(added) == 3


def test_a_toast_covers_nothing_of_the_chat_and_nothing_below(screen: Screen) -> None:
    chat = Gtk.Label(label="chat", vexpand=True)
    below = Gtk.Label(label="composer", height_request=120)
    box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL)
    box.append(chat)
    box.append(below)
    overlay = Adw.ToastOverlay(child=box)
    overlay.add_css_class("main-toasts")
    screen.show(overlay, 500, 600)
    toasts = Toasts(overlay.add_toast, ToastRoom(overlay, chat))
    toasts.tell(_LONG)
    spin_until(lambda: chat.get_margin_bottom() > 0)
    draw_frames(overlay, 3)
    (label,) = (one for one in all_of(overlay, Gtk.Label) if one.get_text() == _LONG)

    def is_covered(widget: Gtk.Widget) -> bool:
        _known, toast = label.compute_bounds(overlay)
        _known, bounds = widget.compute_bounds(overlay)
        return bool(toast.intersection(bounds)[0])

    # It slides up from the bottom.
    spin_until(lambda: not is_covered(below) and not is_covered(chat))
    for one in tuple(toasts._queue.values()):
        dismiss_when_shown(overlay, one)
    spin_until(lambda: chat.get_margin_bottom() == 0)


def test_a_toast_does_not_cover_the_button_that_goes_to_the_end(person: Person) -> None:
    with in_project(person) as (window, _session):
        window.chat.emit("send", "!true")
        card_that(window, lambda card: card.entry.record is not None)
        messages = window.chat.messages
        # Hidden while the end is in view.
        assert isinstance(messages.get_last_child(), Gtk.Button)
        controller_of(window).toasts.tell("Hunk undone.")
        wait_until(lambda: messages.get_margin_bottom() > 0)


def test_of_several_problems_one_is_told_and_all_can_be_seen(person: Person) -> None:
    names = ("first", "second", "third")
    with in_project(person) as (window, _session):
        window.chat.emit("send", f"!touch {' '.join(names)}")
        card = card_that(window, lambda card: card.entry.record is not None)
        for name in names:
            (person.project / name).write_text("edited\n")
        window.changes.act_on_runs("undo", [card.entry.run_id])
        wait_until(lambda: says(window.toasts, "2 more problems."))
        press_in_toast(window, "Show All")
        shown = dialog()
        for name in names:
            assert says(shown, f"{name}: It was changed in the meantime.")
        press(shown, "Close")
        wait_until(lambda: not dialogs())
