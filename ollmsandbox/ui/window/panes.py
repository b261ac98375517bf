# SPDX-License-Identifier: GPL-3.0-or-later
"""Show the sidebar, the chat and the changes, and move the focus between them."""

from __future__ import annotations

from gi.repository import Adw, Gdk, Gtk

from ..changes.view import ChangesView
from ..chat.bars import TurnBar
from ..chat.view import ChatView
from ..widgets.focus import contains_focus
from ..widgets.keyboard import add_shortcut, on_key
from ..widgets.scheduling import Timer
from ..widgets.weak import weakly
from .window import Window


class Panes:
    def __init__(self, window: Window, chat: ChatView, changes: ChangesView) -> None:
        self._leaflet = leaflet = window.leaflet
        self._flap = flap = window.flap
        self._sidebar = sidebar = window.sidebar
        self._show_side = weakly(window.show_side)
        self._chat = chat
        self._changes = changes
        pane = flap.get_flap()
        assert pane is not None
        for widget, keys, callback in (
            (pane, "Escape", self._leave_changes),
            (pane, "<Control>f", self._filter_changes),
            (sidebar, "Escape", self._leave_sidebar),
            # GTK may focus the scrolled window around the list, which does not show its focus.
            (changes.filter, "Down", changes.focus),
            (sidebar.search, "Down", sidebar.focus),
        ):
            add_shortcut(widget, keys, callback)
        flap.connect("notify::reveal-progress", weakly(self._on_revealed))
        # Its header bar gets or loses the buttons of the window in the middle of a layout. With
        # animations there are more layouts; without them, it would stay too wide.
        leaflet.connect("notify::folded", Timer(self._lay_out_again).soon)
        for name in ("folded", "reveal-flap"):
            # Not in the middle of a layout.
            flap.connect(f"notify::{name}", Timer(self._focus_what_is_shown).soon)
        # What the user types goes to the composer, wherever the focus is.
        on_key(window, self._on_key)
        # Search entries handle Escape themselves.
        changes.filter.connect("stop-search", weakly(self._leave_changes))
        sidebar.search.connect("stop-search", weakly(self._leave_sidebar))

    def _on_key(
        self, keys: Gtk.EventControllerKey, key: int, _code: int, state: Gdk.ModifierType
    ) -> bool:
        held = Gdk.ModifierType
        sign = chr(Gdk.keyval_to_unicode(key))
        is_text = sign.isprintable() and not sign.isspace()
        session, composer = self._chat.session, self._chat.composer
        if (
            not is_text
            or state & (held.CONTROL_MASK | held.ALT_MASK | held.SUPER_MASK)
            # A question keeps the keyboard.
            or session is None
            or session.asking()
            or not composer.get_mapped()
            or self.is_chat_covered
        ):
            return Gdk.EVENT_PROPAGATE
        composer.focus()
        return keys.forward(composer.view)

    def back(self, *_args: object) -> None:
        """Go one step back: from a file to the changes, to the chat, to the sidebar."""
        if contains_focus(self._changes) and not self._changes.is_list:
            self._changes.leave_file()
        elif self.is_chat_covered:
            self.toggle_changes()
        else:
            self._show_side()
            self._leaflet.set_visible_child_name("sidebar")
            self._sidebar.focus()

    def compose(self, *_args: object) -> None:
        """Focus the composer, and show it if something covers it."""
        self.uncover_chat()
        self._chat.focus_composer()

    @property
    def is_chat_covered(self) -> bool:
        """Whether the changes are shown in place of the chat, in a narrow window."""
        return self._flap.get_reveal_flap() and self._flap.get_folded()

    def uncover_chat(self) -> None:
        self._leaflet.set_visible_child_name("content")
        if self.is_chat_covered:
            self._flap.set_reveal_flap(False)

    def _on_revealed(self, flap: Adw.Flap, _property: object) -> None:
        """Give the focus to a question that the changes covered."""
        if not flap.get_reveal_progress():
            self._chat.column.look_again()

    def _lay_out_again(self) -> None:
        self._leaflet.queue_resize()

    def _focus_what_is_shown(self) -> None:
        """Give the focus to the changes if they cover what has it, or to the composer if they have
        it when a finger swipes them away. GTK would give it to a toast, which would then stay."""
        content, pane = self._flap.get_content(), self._flap.get_flap()
        if self.is_chat_covered and content is not None and contains_focus(content):
            self._changes.focus()
        elif not self._flap.get_reveal_flap() and pane is not None and contains_focus(pane):
            self._chat.focus_composer()

    def toggle_changes(self, *_args: object) -> None:
        # If the sidebar is in front in a narrow window, show open changes instead of closing them.
        leaflet = self._leaflet
        is_behind = leaflet.get_folded() and leaflet.get_visible_child_name() == "sidebar"
        leaflet.set_visible_child_name("content")
        is_open = self._flap.get_reveal_flap() and not is_behind
        # Also on the handle and in the header bar, beside the changes themselves.
        pane = self._flap.get_flap()
        has_keyboard = pane is not None and contains_focus(pane)
        self._flap.set_reveal_flap(not is_open)
        if not is_open:
            self._changes.focus()
        elif has_keyboard or self._flap.get_folded():
            self._chat.focus_composer()

    def show_changes(self, _view: ChatView, run_id: str) -> None:
        self._flap.set_reveal_flap(True)
        self._changes.focus()
        self._changes.select_run(run_id)

    def review_turn(self, bar: TurnBar) -> None:
        self._flap.set_reveal_flap(True)
        self._changes.review_runs(bar.runs)

    def _leave_changes(self, *_args: object) -> None:
        """Close the file, else clear the filter, else go to the chat."""
        if not self._changes.is_list:
            self._changes.leave_file()
        elif self._changes.filter.get_text():
            self._changes.filter.set_text("")
        elif self._flap.get_folded():
            self.toggle_changes()
        else:
            self._chat.focus_composer()

    def _filter_changes(self) -> bool:
        return self._changes.is_list and self._changes.filter.grab_focus()

    def _leave_sidebar(self, *_args: object) -> None:
        if self._sidebar.search.get_text():
            self._sidebar.search.set_text("")
        elif self._chat.session is not None:
            self._leaflet.set_visible_child_name("content")
            self._chat.focus_composer()
