# SPDX-License-Identifier: GPL-3.0-or-later
"""Gives questions in the chat the keyboard focus, one by one, and keeps the focused one in view."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gi.repository import Gtk

from ..permission.visibility import is_covered
from ..sessions.entries import CallEntry, ChatEntry, Stage
from ..widgets.focus import focus_around
from .composer import Composer
from .message_list import MessageList

if TYPE_CHECKING:
    from .tool_card import ToolCard


class QuestionFocus:
    """`card` returns the card of a call, or None if it does not exist yet."""

    def __init__(
        self,
        column: MessageList[ChatEntry],
        pages: Gtk.Stack,
        composer: Composer,
        card: Callable[[CallEntry], ToolCard | None],
    ) -> None:
        self._column = column
        # Everything above the composer.
        self._pages = pages
        self._composer = composer
        self._card = card
        # In the order in which they came.
        self._asking: list[CallEntry] = []
        # Gets the focus as soon as its card exists.
        self._next: CallEntry | None = None
        # The list stays at this question, although more is added below.
        self._held: CallEntry | None = None

    def forget(self) -> None:
        self._asking = []
        self._next = self._held = None

    def note(self, entry: CallEntry) -> None:
        """Note that a call has asked, or was answered."""
        if entry.stage is Stage.ASKING:
            if entry not in self._asking:
                self._asking.append(entry)
            follows = self._column.at_end or self._held is not None
            if self._next is None and follows and self.may_take():
                self._next = entry
        elif entry in self._asking:
            place = self._asking.index(entry)
            self._asking.remove(entry)
            self._go_on(entry, self._asking[place:])
        if self._next is not None:
            # Its card may exist already, and nothing else may scroll.
            self._column.look_again()

    @property
    def focused(self) -> CallEntry | None:
        """The call whose question has the keyboard focus."""
        focus = focus_around(self._column) if self._asking else None
        if focus is None:
            return None
        for entry in self._asking:
            card = self._card(entry)
            if card is not None and focus.is_ancestor(card):
                return entry
        return None

    def look(self) -> None:
        """Move the focus, and keep its question in view, after something has moved."""
        entry = self._next
        card = self._card(entry) if entry is not None else None
        question = card.open_question if card is not None else None
        if entry is not None and question is not None:
            # The user must see the question that Enter would answer.
            if is_covered(self._pages):
                return
            self._next = None
            if self.may_take():
                question.take_focus()
                # Last: moving the focus scrolls, too, to where the card was before.
                if self._held is not None:
                    self._hold(entry)
        if self._held is not None and not self._column.is_in_view(self._held):
            # The user scrolled away.
            self._held = None
        self._let_go()
        self._stay()

    def may_take(self) -> bool:
        """Return whether the focus is free: the user neither types nor uses another widget."""
        focus = focus_around(self._column)
        # The scrolled window has the focus when nothing in it has.
        is_free = (
            focus is None
            or focus.is_ancestor(self._composer)
            or (isinstance(focus, Gtk.ScrolledWindow) and focus.is_ancestor(self._pages))
        )
        return is_free and self._composer.is_untouched

    def _stay(self) -> None:
        """Keep the calls below from pushing the focused question out of view."""
        entry = self.focused if self._column.at_end else None
        if entry is not None and self._column.is_cut_off(entry):
            items = self._column.items
            after = items[items.index(entry) + 1 :]
            if after and isinstance(after[0], CallEntry):
                self._hold(entry)

    def _hold(self, entry: CallEntry) -> None:
        self._held = entry
        self._column.show_whole(entry)

    def _go_on(self, answered: CallEntry, after: list[CallEntry]) -> None:
        """Go on to the next question, which ignores a click that was meant for this one."""
        for entry in self._asking:
            card = self._card(entry)
            if card is not None and (question := card.open_question) is not None:
                question.wait_a_moment()
        was_held = self._held is answered
        # At the end of the list, those after it are about to come into view.
        in_reach = after if was_held or self._column.at_end else []
        seen = [entry for entry in self._asking if self._column.is_in_view(entry)]
        self._next = next(iter(in_reach or seen), None)
        self._let_go()

    def _let_go(self) -> None:
        """Follow the end again once the held question is answered and none comes next."""
        if self._held is not None and self._held not in self._asking and self._next is None:
            self._held = None
            self._column.scroll_to_end()
