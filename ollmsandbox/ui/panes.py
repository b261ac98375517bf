# SPDX-License-Identifier: GPL-3.0-or-later
"""The side pane, the chat and the changes: which of them is shown, and which has the keyboard."""

from __future__ import annotations

from gi.repository import Adw, GLib, Gtk

from .changes_view import ChangesView
from .chat_view import ChatView
from .sandbox_badge import SandboxBadge
from .sidebar import Sidebar
from .weakly import weakly

# Narrower than that, the badge has no room for words.
_NARROW = 560


class Panes:
    def __init__(
        self,
        leaflet: Adw.Leaflet,
        flap: Adw.Flap,
        sidebar: Sidebar,
        chat: ChatView,
        changes: ChangesView,
    ) -> None:
        self._leaflet = leaflet
        self._flap = flap
        self._sidebar = sidebar
        self._chat = chat
        self._changes = changes

    def back(self, *_args: object) -> None:
        """One step: from a file to all changes, from these to the chat, from it to the sessions."""
        if self._is_in(self._changes) and self._changes.page is not None:
            self._changes.leave_file()
        elif self._flap.get_reveal_flap() and self._flap.get_folded():
            self.toggle_changes()
        else:
            self._leaflet.set_visible_child_name("sidebar")
            self._sidebar.focus()

    def toggle_changes(self, *_args: object) -> None:
        is_open = self._flap.get_reveal_flap()
        has_keyboard = self._is_in(self._changes)
        self._flap.set_reveal_flap(not is_open)
        if is_open and (has_keyboard or self._flap.get_folded()):
            self._chat.focus_composer()
        elif self._flap.get_folded():
            # They cover the chat.
            self._changes.focus()

    def show_changes(self, _view: ChatView, run_id: str) -> None:
        self._flap.set_reveal_flap(True)
        self._changes.focus()
        self._changes.select_run(run_id)

    def _is_in(self, pane: Gtk.Widget) -> bool:
        window = pane.get_root()
        focus = window.get_focus() if isinstance(window, Gtk.Window) else None
        return focus is not None and focus.is_ancestor(pane)


class Edges:
    """What depends on how wide the window is, and on what is open in it."""

    def __init__(
        self, window: Gtk.Window, flap: Adw.Flap, header: Adw.HeaderBar, badge: SandboxBadge
    ) -> None:
        self._flap = flap
        self._header = header
        self._badge = badge
        self._is_due = False
        # At once, or the badge's words would keep the window wide.
        window.connect("notify::default-width", weakly(self._look))
        flap.connect("notify::reveal-flap", weakly(self._look))
        flap.connect("notify::folded", weakly(self._look_soon))
        self._look()

    def _look_soon(self, *_args: object) -> None:
        """Not at once: this comes in the middle of laying out, and what is changed then is drawn
        without a place."""
        if not self._is_due:
            self._is_due = True
            GLib.timeout_add(0, weakly(self._look))

    def _look(self, *_args: object) -> bool:
        self._is_due = False
        is_open = self._flap.get_reveal_flap()
        # The buttons of the window are at its edge, once.
        self._header.set_show_end_title_buttons(not is_open or self._flap.get_folded())
        # With words, it would leave the changes no room beside the chat.
        window = self._flap.get_root()
        width = window.get_default_size()[0] if isinstance(window, Gtk.Window) else 0
        self._badge.set_narrow(is_open or 0 < width < _NARROW)
        return GLib.SOURCE_REMOVE
