# SPDX-License-Identifier: GPL-3.0-or-later
"""A chat view in a window, for tests."""

from __future__ import annotations

from pathlib import Path

from gi.repository import Gtk
from support.chat import Chat
from support.screen import Screen, all_of, draw_frames, spin_until

from ollmsandbox.paths import Paths
from ollmsandbox.ui.chat.tool_card import ToolCard
from ollmsandbox.ui.chat.view import ChatView
from ollmsandbox.ui.permission.card import ChatPermission
from ollmsandbox.ui.sessions.entries import CallEntry
from ollmsandbox.ui.settings import Settings
from ollmsandbox.ui.widgets.focus import FocusKeeper


class Place:
    """A chat view in a window, and what the user requested in it."""

    def __init__(self, screen: Screen, folder: Path, width: int = 700, height: int = 600) -> None:
        self.view = ChatView(Settings(Paths.from_environ({"HOME": str(folder)})))
        heard = self.heard = list[tuple[object, ...]]()
        names = (
            "send",
            "retry",
            "stop-call",
            "answer",
            "show-changes",
            "open-link",
        )
        for name in names:
            self.view.connect(name, lambda _view, *said, name=name: heard.append((name, *said)))
        self.window = screen.show(self.view, width, height)
        # As in the program's own window.
        self._keeper = FocusKeeper(self.window)
        self.chat = Chat()
        self.view.show(self.chat.session)

    @property
    def focus(self) -> Gtk.Widget | None:
        return self.window.get_focus()

    def has_focus(self, widget: Gtk.Widget) -> bool:
        return self.focus is widget

    def card(self, entry: CallEntry) -> ToolCard:
        spin_until(lambda: any(card.entry is entry for card in all_of(self.view, ToolCard)))
        return next(card for card in all_of(self.view, ToolCard) if card.entry is entry)

    def question(self, entry: CallEntry) -> ChatPermission:
        question = self.card(entry).question
        assert question is not None
        return question

    def ask(self, command: str = "make install", **options: object) -> CallEntry:
        entry = self.chat.call(command)
        self.chat.ask(entry, **options)
        return entry

    def fill(self, count: int = 30) -> None:
        for number in range(count):
            self.chat.agent(f"Answer {number}.\n\nWith a second paragraph.")
        self.settle()

    def settle(self) -> None:
        draw_frames(self.view, 4)
        spin_until(lambda: self.view.column.is_settled)

    def scroll_up(self) -> None:
        self.view.column.get_vadjustment().set_value(0)
        spin_until(lambda: not self.view.column.at_end)
        self.settle()
