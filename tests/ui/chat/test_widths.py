# SPDX-License-Identifier: GPL-3.0-or-later
"""A chat of real answers, of which only those near the view are wrapped for another width."""

from __future__ import annotations

import pytest
from gi.repository import Adw, Gtk
from support.screen import Screen, draw_frames, spin_until

from ollmsandbox.ui.chat.message_list import MessageList
from ollmsandbox.ui.markdown.view import MarkdownView

HEIGHT = 500
KINDS = {
    # Nothing is wrapped: a guess of their heights is far too high.
    "short": "Done, {}.",
    "prose": "{} " + "some words that are wrapped " * 20,
    "code": "Number {}:\n\n```\n" + "a line\n" * 8 + "```\n",
}


class Chat:
    def __init__(self, screen: Screen, texts: list[str]) -> None:
        self.views: list[MarkdownView] = []
        self.list = MessageList(self._make)
        self.list.set_hexpand(True)
        self._texts = texts
        self._beside = Gtk.Box(width_request=200, visible=False)
        both = Gtk.Box()
        both.append(self.list)
        both.append(self._beside)
        self.window = screen.show(both, 700, HEIGHT)
        self.list.set_items(list(range(len(texts))))
        spin_until(lambda: len(self.views) == len(texts) and self._is_settled())
        self.rest()

    def _make(self, number: int) -> Gtk.Widget:
        self.views.append(MarkdownView(self._texts[number]))
        return Adw.Bin(child=self.views[-1])

    def _is_settled(self) -> bool:
        return all(view.is_settled for view in self.views)

    def rest(self) -> None:
        draw_frames(self.list, 5)

    def narrow(self, by: int = 200) -> None:
        self._beside.set_size_request(by, -1)
        self._beside.set_visible(True)
        self.rest()

    def scroll_to(self, share: float) -> None:
        adjustment = self.list.get_vadjustment()
        adjustment.set_value(adjustment.get_upper() * share)
        self.rest()

    def place_of(self, widget: Gtk.Widget) -> tuple[float, float]:
        return self.list._viewport.place_of(widget)

    def check(self) -> None:
        """All that is in view is drawn, and has the height that it needs."""
        snapshot = Gtk.Snapshot()
        viewport = self.list._viewport
        self.list.snapshot_child(viewport, snapshot)
        assert snapshot.to_node() is not None
        in_view = 0
        for view in self.views:
            top, bottom = self.place_of(view)
            if bottom > 0 and top < HEIGHT:
                in_view += 1
                wanted = view.measure(Gtk.Orientation.VERTICAL, view.get_width())[1]
                column = view.get_child()
                assert column is not None and column.get_width() == view.get_width()
                assert view.get_height() == wanted
        assert in_view


@pytest.mark.parametrize("kind", KINDS)
def test_all_in_view_is_wrapped_and_drawn_wherever_the_user_goes(screen: Screen, kind: str) -> None:
    chat = Chat(screen, [KINDS[kind].format(n) for n in range(80)])
    for by in (300, 100):
        chat.narrow(by)
        chat.check()
        for share in (0.0, 0.5, 0.25, 0.9):
            chat.scroll_to(share)
            chat.check()


def test_a_column_waits_only_once_however_often_the_width_changes(screen: Screen) -> None:
    chat = Chat(screen, [KINDS["prose"].format(n) for n in range(50)])
    for by in range(200, 208):
        chat.narrow(by)
    assert len(chat.list._viewport._waiting) <= 50


@pytest.mark.parametrize("is_below", [False, True])
def test_what_gets_the_focus_far_away_comes_into_view(screen: Screen, is_below: bool) -> None:
    chat = Chat(screen, [KINDS["short" if n % 2 else "code"].format(n) for n in range(60)])
    chat.narrow(350)
    if is_below:
        chat.scroll_to(0)
    chat.window.set_focus_visible(True)
    row = chat.list._rows[30]
    row.set_focusable(True)
    row.grab_focus()
    chat.rest()
    top, bottom = chat.place_of(row)
    assert top >= 0 and bottom <= HEIGHT
    chat.check()


@pytest.mark.parametrize(
    "written",
    [
        "".join(f"{n + 1}. item {n + 1} of the long list\n" for n in range(60)),
        " ".join(f"word{n}" for n in range(700)),
    ],
)
def test_what_is_read_stays_when_a_block_in_progress_ends(screen: Screen, written: str) -> None:
    chat = Chat(screen, ["hello", ""])
    view = chat.views[0]  # the last row is made first
    view.append(f"An introduction.\n\n{written}")
    spin_until(lambda: view.get_height() > 2 * HEIGHT)
    chat.rest()
    adjustment = chat.list.get_vadjustment()
    adjustment.set_value(adjustment.get_upper() - HEIGHT - 200)
    chat.rest()
    before = adjustment.get_value()
    assert view._tail is not None and view._tail.get_height() > HEIGHT
    view.append("\n\nThe next paragraph begins")
    spin_until(lambda: view._tail is not None and view._tail.get_height() < HEIGHT)
    chat.rest()
    # Labels may be a little higher or lower than the text in progress above them.
    assert abs(adjustment.get_value() - before) < 20
    assert not chat.list.at_end


def test_the_text_in_progress_has_the_right_height_after_another_width(screen: Screen) -> None:
    chat = Chat(screen, [*(KINDS["prose"].format(n) for n in range(20)), ""])
    view = chat.views[0]
    view.append(KINDS["prose"].format("in progress") * 3)
    spin_until(lambda: view.get_height() > 50)
    for by in (300, 50, 200):
        chat.narrow(by)
        assert view._tail is not None
        wanted = view._tail.measure(Gtk.Orientation.VERTICAL, view._tail.get_width())[1]
        assert view._tail.get_height() == wanted
