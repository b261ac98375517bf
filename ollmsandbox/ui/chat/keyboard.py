# SPDX-License-Identifier: GPL-3.0-or-later
"""Keyboard navigation between the calls of a chat: Alt+Up and Alt+Down."""

from __future__ import annotations

from collections.abc import Callable

from gi.repository import Gtk

from ..sessions.entries import CallEntry, ChatEntry
from ..sessions.folding import CallGroup
from .composer import Composer
from .message_list import MessageList


class CallNavigation:
    """`go_to` focuses a call, and scrolls to it if needed."""

    def __init__(
        self,
        column: MessageList[ChatEntry],
        composer: Composer,
        go_to: Callable[[CallEntry | CallGroup], object],
    ) -> None:
        self._column = column
        self._composer = composer
        self._go_to = go_to

    def add_keys(self, widget: Gtk.Widget) -> None:
        keys = Gtk.ShortcutController()
        for trigger, does in (("<Alt>Up", self._back), ("<Alt>Down", self._on)):
            keys.add_shortcut(
                Gtk.Shortcut.new(
                    Gtk.ShortcutTrigger.parse_string(trigger),
                    Gtk.CallbackAction.new(lambda *_args, does=does: does()),
                )
            )
        widget.add_controller(keys)

    def _back(self) -> bool:
        items, place = self._where()
        for item in reversed(items[:place]):
            if isinstance(item, CallEntry | CallGroup):
                self._go_to(item)
                return True
        return False

    def _on(self) -> bool:
        """Go to the next call, or from the last one to the composer."""
        items, place = self._where()
        for item in items[place + 1 :]:
            if isinstance(item, CallEntry | CallGroup):
                self._go_to(item)
                return True
        self._composer.focus()
        return True

    def _where(self) -> tuple[list[ChatEntry], int]:
        items = list(self._column.items)
        focused = self._column.focused_item
        return items, len(items) if focused is None else items.index(focused)
