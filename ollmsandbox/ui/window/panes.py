# SPDX-License-Identifier: GPL-3.0-or-later
"""Show the sidebar, the chat and the changes, and move the focus between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gi.repository import Adw, Gdk, GLib, Gtk

from ..badge.badge import SandboxBadge
from ..settings import Settings
from ..sidebar.sidebar import Sidebar
from ..widgets.focus import contains_focus
from ..widgets.keyboard import add_shortcut
from ..widgets.resizable import ResizablePane
from ..widgets.weak import weakly

if TYPE_CHECKING:
    from ..changes.view import ChangesView
    from ..chat.turn import TurnBar
    from ..chat.view import ChatView

# Pixels that the header bar needs beside the text of the badge, which is longer in some languages.
_BESIDE_BADGE = 430
# From this width on, the button for the changes has room for its text.
_WIDE = 1000
# What the changes leave of the window for the chat, its border included.
_CHAT = 400
# Springs: that of an Adw.Flap, and one that comes to rest in the first frame.
_SLIDE, _AT_ONCE = Adw.SpringParams.new(1, 0.5, 500), Adw.SpringParams.new(1, 1, 1e9)
# The greatest width of the side pane.
_WIDEST = 420


class Panes:
    def __init__(
        self,
        leaflet: Adw.Leaflet,
        flap: Adw.Flap,
        sidebar: Sidebar,
        side: SideLayout,
        chat: ChatView,
        changes: ChangesView,
    ) -> None:
        self._leaflet = leaflet
        self._flap = flap
        self._side = side
        self._sidebar = sidebar
        self._chat = chat
        self._changes = changes
        pane = flap.get_flap()
        assert pane is not None
        for widget, keys, callback in (
            (pane, "Escape", self._leave_changes),
            (pane, "<Control>f", self._filter_changes),
            (sidebar, "Escape", self._leave_sidebar),
            # GTK may focus the scrolled window around the list, which does not show its focus.
            (changes.filter, "Down", self._go_to_changes),
            (sidebar.search, "Down", self._go_to_sessions),
        ):
            add_shortcut(widget, keys, callback)
        flap.connect("notify::reveal-progress", weakly(self._on_revealed))
        leaflet.connect("notify::folded", weakly(self._on_sidebar_folded))
        for name in ("folded", "reveal-flap"):
            flap.connect(f"notify::{name}", weakly(self._look_what_is_covered))
        # Search entries handle Escape themselves.
        changes.filter.connect("stop-search", weakly(self._leave_changes))
        sidebar.search.connect("stop-search", weakly(self._leave_sidebar))

    def watch_keys(self, window: Gtk.Window) -> None:
        """Let what the user types go to the composer, wherever the focus is."""
        keys = Gtk.EventControllerKey()
        keys.connect("key-pressed", weakly(self._on_key))
        window.add_controller(keys)

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
            self._side.show()
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

    def _on_sidebar_folded(self, _leaflet: Adw.Leaflet, _property: object) -> None:
        # Its header bar gets or loses the buttons of the window in the middle of a layout. With
        # animations there are more layouts; without them, it would stay too wide.
        GLib.timeout_add(0, weakly(self._lay_out_again))

    def _lay_out_again(self) -> bool:
        self._leaflet.queue_resize()
        return GLib.SOURCE_REMOVE

    def _look_what_is_covered(self, _flap: Adw.Flap, _property: object) -> None:
        # Not in the middle of a layout.
        GLib.timeout_add(0, weakly(self._focus_what_is_shown))

    def _focus_what_is_shown(self) -> bool:
        """Give the focus to the changes if they cover what has it, or to the composer if they have
        it when a finger swipes them away. GTK would give it to a toast, which would then stay."""
        content, pane = self._flap.get_content(), self._flap.get_flap()
        if self.is_chat_covered and content is not None and contains_focus(content):
            self._changes.focus()
        elif not self._flap.get_reveal_flap() and pane is not None and contains_focus(pane):
            self._chat.focus_composer()
        return GLib.SOURCE_REMOVE

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

    def review_turn(self, _bar: TurnBar, run_ids: Sequence[str]) -> None:
        self._flap.set_reveal_flap(True)
        self._changes.review_runs(run_ids)

    def _leave_changes(self, *_args: object) -> bool:
        """Close the file, else clear the filter, else go to the chat."""
        if not self._changes.is_list:
            self._changes.leave_file()
        elif self._changes.filter.get_text():
            self._changes.filter.set_text("")
        elif self._flap.get_folded():
            self.toggle_changes()
        else:
            self._chat.focus_composer()
        return True

    def _filter_changes(self) -> bool:
        return self._changes.is_list and self._changes.filter.grab_focus()

    def _leave_sidebar(self, *_args: object) -> bool:
        if self._sidebar.search.get_text():
            self._sidebar.search.set_text("")
        elif self._chat.session is not None:
            self._leaflet.set_visible_child_name("content")
            self._chat.focus_composer()
        return True

    def _go_to_changes(self) -> bool:
        self._changes.focus()
        return True

    def _go_to_sessions(self) -> bool:
        self._sidebar.focus()
        return True


def _put_shadows_last(leaflet: Adw.Leaflet) -> None:
    """Move the leaflet's own children behind its pages.

    Whenever something in the window changes its size, the leaflet sets the style classes of its
    shadows. GTK then looks up the styles of all widgets in what follows them: for each word of an
    answer, those of the whole chat.
    """
    # The stubs do not know that it can be iterated over.
    pages = {page.get_child() for page in leaflet.get_pages()}  # type: ignore[attr-defined]
    while (first := leaflet.get_first_child()) is not None and first not in pages:
        first.insert_before(leaflet, None)


class SideLayout:
    """Shows the side pane beside the chat, or hides it, as the user wants it. In a narrow window it
    is a page of its own."""

    def __init__(
        self,
        leaflet: Adw.Leaflet,
        pane: ResizablePane,
        button: Gtk.ToggleButton,
        focus_chat: Callable[[], object],
        settings: Settings,
    ) -> None:
        self._leaflet = leaflet
        self._pane = pane
        self._button = button
        self._focus_chat = focus_chat
        self._settings = settings
        self._is_covered = False
        _put_shadows_last(leaflet)
        pane.resize(settings.number("side-width"))
        pane.limit(_WIDEST)
        button.set_active(settings.boolean("show-side-pane"))
        button.connect("toggled", weakly(self._on_toggled))
        pane.connect("resized", weakly(self._on_resized))
        leaflet.connect("notify::folded", weakly(self._on_folded))
        self._on_folded()
        self._update()

    def toggle(self, *_args: object) -> None:
        if self._leaflet.get_folded():
            is_shown = self._leaflet.get_visible_child_name() == "sidebar"
            self._leaflet.set_visible_child_name("content" if is_shown else "sidebar")
        else:
            self._button.set_active(not self._button.get_active())

    def show(self) -> None:
        self._button.set_active(True)

    def set_covered(self, is_covered: bool) -> None:
        """Hide the pane as long as the changes fill the window."""
        self._is_covered = is_covered
        self._update()

    @property
    def width(self) -> int:
        """The width that the pane takes from what is beside it."""
        return 0 if self._leaflet.get_folded() or not self._pane.get_visible() else self._wide

    @property
    def free_width(self) -> int:
        """The width that is free because the user has hidden the pane."""
        return 0 if self._button.get_active() else self._wide

    @property
    def _wide(self) -> int:
        return min(self._pane.wanted, _WIDEST)

    def _update(self) -> None:
        self._pane.set_visible(self._button.get_active() and not self._is_covered)

    def _on_toggled(self, button: Gtk.ToggleButton) -> None:
        had_focus = contains_focus(self._pane)
        self._settings.set("show-side-pane", button.get_active())
        self._update()
        if button.get_active():
            # If there is no room for both, it takes the place of the chat.
            self._leaflet.set_visible_child_name("sidebar")
        elif had_focus:
            self._focus_chat()

    def _on_resized(self, _pane: ResizablePane, width: int) -> None:
        self._settings.set("side-width", min(width, _WIDEST))

    def _on_folded(self, *_args: object) -> None:
        is_folded = self._leaflet.get_folded()
        self._button.set_visible(not is_folded)
        self._pane.set_can_resize(not is_folded)


class ChangesLayout:
    """Gives the changes as much of the window as they may have beside the chat, or all of it until
    the user says otherwise or hides them."""

    def __init__(
        self,
        leaflet: Adw.Leaflet,
        flap: Adw.Flap,
        side: SideLayout,
        side_button: Gtk.ToggleButton,
        pane: ResizablePane,
        fill_button: Gtk.ToggleButton,
    ) -> None:
        self._flap = flap
        self._side = side
        self._pane = pane
        self._button = fill_button
        fill_button.connect("toggled", weakly(self._on_toggled))
        flap.connect("notify::reveal-flap", weakly(self._on_hidden))
        flap.connect("notify::reveal-progress", weakly(self._on_moved))
        flap.connect("notify::folded", weakly(self._on_folded))
        leaflet.connect("notify::folded", weakly(self._limit))
        self._on_moved()
        side_button.connect("toggled", weakly(self._limit))
        self._on_folded()

    def watch(self, window: Gtk.Window) -> None:
        """Follow the width of the window. Its surface has the new one before the layout, in which
        a pane that is too wide would be folded."""
        surface = window.get_surface()
        assert surface is not None
        surface.connect("notify::width", weakly(self._limit))
        self._limit()

    def _on_moved(self, *_args: object) -> None:
        progress = self._flap.get_reveal_progress()
        if progress in (0, 1):
            # To slide in beside a long chat would lay it out anew in each frame: 40 ms more.
            self._flap.set_reveal_params(_SLIDE if progress else _AT_ONCE)
        self._limit()

    def _limit(self, *_args: object) -> None:
        window = self._flap.get_root()
        surface = window.get_surface() if isinstance(window, Gtk.Window) else None
        if surface is not None and not surface.is_destroyed():
            # Hidden, it must not keep the window from becoming narrow, nor fold the flap: GTK would
            # look up the styles of the whole chat when that changes.
            is_hidden = not self._flap.get_reveal_progress() and not self._flap.get_reveal_flap()
            room = max(1, surface.get_width() - self._side.width - _CHAT)
            self._pane.limit(0 if is_hidden else room, self._side.free_width)

    def _on_toggled(self, button: Gtk.ToggleButton) -> None:
        fills = button.get_active()
        policy = Adw.FlapFoldPolicy
        self._side.set_covered(fills)
        self._flap.set_fold_policy(policy.ALWAYS if fills else policy.AUTO)
        self._on_folded()

    def _on_hidden(self, flap: Adw.Flap, _property: object) -> None:
        self._limit()
        if not flap.get_reveal_flap():
            self._button.set_active(False)

    def _on_folded(self, *_args: object) -> None:
        is_folded, fills = self._flap.get_folded(), self._button.get_active()
        # In a narrow window, they cover the chat anyway.
        self._button.set_visible(fills or not is_folded)
        self._pane.set_can_resize(not is_folded)
        self._pane.set_hexpand(is_folded)


class HeaderLayout:
    """Adapts the header bar to the window's width and to the changes beside it."""

    def __init__(
        self,
        window: Gtk.Window,
        flap: Adw.Flap,
        header: Adw.HeaderBar,
        badge: SandboxBadge,
        changes_word: Gtk.Label,
    ) -> None:
        self._changes_word = changes_word
        self._flap = flap
        self._header = header
        self._badge = badge
        self._is_due = False
        # Immediately: the badge's text would keep the window wide.
        window.connect("notify::default-width", weakly(self._update))
        badge.label.connect("notify::label", weakly(self._update))
        for name in ("reveal-flap", "reveal-progress"):
            flap.connect(f"notify::{name}", weakly(self._update))
        flap.connect("notify::folded", weakly(self._update_soon))
        self._update()

    def _update_soon(self, *_args: object) -> None:
        """Update later: a widget that is changed during layout is drawn without an allocation."""
        if not self._is_due:
            self._is_due = True
            GLib.timeout_add(0, weakly(self._update))

    def _update(self, *_args: object) -> bool:
        self._is_due = False
        # The changes count as open until they are hidden: a wider header bar would fold the flap
        # while they close.
        is_open = self._flap.get_reveal_flap() or self._flap.get_reveal_progress() > 0
        # Only one header bar shows the buttons of the window.
        self._header.set_show_end_title_buttons(not is_open or self._flap.get_folded())
        # The badge's text would leave the changes no room beside the chat.
        window = self._flap.get_root()
        width = window.get_default_size()[0] if isinstance(window, Gtk.Window) else 0
        needed = self._badge.text_width + _BESIDE_BADGE
        self._badge.set_narrow(is_open or 0 < width < needed)
        self._changes_word.set_visible(not is_open and width >= _WIDE)
        return GLib.SOURCE_REMOVE
