# SPDX-License-Identifier: GPL-3.0-or-later
"""The main window: the sidebar, a page, and the changes beside it.

It is drawn first. What shows sessions in it is made after the first frame: see controller.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gi.repository import Adw, Gio, GObject, Gtk

from ...i18n import _, localized
from ...text.visible import visible_words
from ..badge.badge import SandboxBadge
from ..resources import template
from ..sidebar.sidebar import Sidebar
from ..widgets.focus import FocusKeeper, contains_focus
from ..widgets.labels import (
    decorative_icon,
    name_buttons,
    set_accessible_name,
    show_ellipsized_as_tooltip,
    show_hidden_as_tooltip,
    wrapped,
)
from ..widgets.resizable import ResizablePane
from ..widgets.scheduling import Timer
from ..widgets.signals import signals
from ..widgets.weak import weakly
from .welcome import Welcome

if TYPE_CHECKING:
    from ..changes.view import ChangesView
    from ..chat.view import ChatView
    from ..settings import Settings


# The least widths of the panes, in pixels, and the greatest one of the side pane.
_SIDE, _CHANGES, _WIDEST = 200, 340, 420
# Springs: that of an Adw.Flap, and one that comes to rest in the first frame.
_SLIDE, _AT_ONCE = Adw.SpringParams.new(1, 0.5, 500), Adw.SpringParams.new(1, 1, 1e9)

_ACTIONS = (
    *("new-session", "open-project", "take-tour", "export-session", "preferences", "about", "back"),
    *("toggle-side-pane", "toggle-changes", "stop", "compose", "next-question", "connect-model"),
    *("show-connections", "show-help-overlay"),
)
# These need a session.
_BY_SESSION = ("compose", "export-session", "toggle-changes")


class NoticeBar(Gtk.Revealer):
    """The bar below the header for what stays as it is until somebody does something about it. It
    shows one text after the other, each until the user dismisses it."""

    __gtype_name__ = "OllmNoticeBar"

    def __init__(self) -> None:
        super().__init__()
        self._texts: list[str] = []
        self._label = wrapped()
        self._label.set_hexpand(True)
        self._label.set_selectable(True)
        icon = decorative_icon("dialog-warning-symbolic", "warning")
        button = Gtk.Button(label=_("_Dismiss"), use_underline=True, valign=Gtk.Align.CENTER)
        button.connect("clicked", weakly(self._on_dismissed))
        self._content = content = Gtk.Box(
            spacing=12, css_classes=["notice-bar"], accessible_role=Gtk.AccessibleRole.ALERT
        )
        for part in (icon, self._label, button):
            content.append(part)
        name_buttons(content)
        self.set_child(content)

    def tell(self, text: str) -> None:
        """Show a text, unless it is shown or waits already."""
        # It may contain a file name, which may contain anything.
        shown = visible_words(localized(text).replace("\n", " "))
        if shown not in self._texts:
            self._texts.append(shown)
            self._show()

    def on_text(self, _source: object, text: str) -> None:
        """Show the text that comes with a signal."""
        self.tell(text)

    def _show(self) -> None:
        # While the bar slides away, it keeps its text.
        if self._texts:
            self._label.set_label(self._texts[0])
            set_accessible_name(self._content, self._texts[0])
        self.set_reveal_child(bool(self._texts))

    def _on_dismissed(self, _button: Gtk.Button) -> None:
        del self._texts[:1]
        self._show()


@Gtk.Template(filename=template("window/window"))
class Window(Adw.ApplicationWindow):
    __gtype_name__ = "OllmWindow"

    # Sessions are closed, and the window is destroyed.
    __gsignals__ = signals({"closed": ()})

    toasts: Adw.ToastOverlay = Gtk.Template.Child()
    leaflet: Adw.Leaflet = Gtk.Template.Child()
    flap: Adw.Flap = Gtk.Template.Child()
    header: Adw.HeaderBar = Gtk.Template.Child()
    title: Adw.WindowTitle = Gtk.Template.Child()
    notices: NoticeBar = Gtk.Template.Child()
    pages: Gtk.Stack = Gtk.Template.Child()
    sidebar_place: Adw.Bin = Gtk.Template.Child()
    badge_place: Adw.Bin = Gtk.Template.Child()
    side_pane: ResizablePane = Gtk.Template.Child()
    side_edge: Gtk.Separator = Gtk.Template.Child()
    side_button: Gtk.ToggleButton = Gtk.Template.Child()
    changes_place: Adw.Bin = Gtk.Template.Child()
    changes_pane: ResizablePane = Gtk.Template.Child()
    changes_edge: Gtk.Separator = Gtk.Template.Child()
    fill_button: Gtk.ToggleButton = Gtk.Template.Child()
    changes_button: Gtk.ToggleButton = Gtk.Template.Child()
    changes_word: Gtk.Label = Gtk.Template.Child()
    changes_count: Gtk.Label = Gtk.Template.Child()

    chat: ChatView
    changes: ChangesView

    def __init__(
        self, application: Adw.Application, settings: Settings, do: Callable[[str], object]
    ) -> None:
        """`do` is called with the name of an action of the user."""
        super().__init__(application=application)
        self._settings = settings
        # Whether the last session is shown first, unless the user opens another one.
        self.goes_to_last = bool(
            settings.get_string("last-session") or settings.get_string("last-project")
        )
        # Whether the probe has finished.
        self.is_ready = False
        self.sidebar = Sidebar()
        self.sidebar_place.set_child(self.sidebar)
        self.badge = SandboxBadge()
        self.badge_place.set_child(self.badge)
        self.welcome = Welcome()
        self.pages.add_named(self.welcome, "welcome")
        self._typed = _unseen_field()
        self.pages.add_named(self._typed, "nothing")
        self._focus_chat = partial(do, "focus-chat")
        self._lay_out_side()
        self._lay_out_changes()
        self._lay_out_header()
        # A narrow window begins with the content, not with the sidebar.
        self.leaflet.set_visible_child_name("content")
        self._add_actions(do)
        if self.goes_to_last:
            # The welcome page would only flash up.
            self.pages.set_visible_child_name("nothing")
            # Else GTK would focus the first button, and a space in what is typed would press it.
            self._typed.grab_focus_without_selecting()
        else:
            self.welcome.focus()
        # GTK hides the focus when the window appears, and would fade it out in the first frames.
        self.set_focus_visible(False)
        self.set_default_size(settings.get_int("window-width"), settings.get_int("window-height"))
        if settings.get_boolean("window-maximized"):
            self.maximize()
        self._focus_keeper = FocusKeeper(self)

    def add_session_views(self, chat: ChatView, changes: ChangesView) -> None:
        """Add what the first frame does not show."""
        self.chat, self.changes = chat, changes
        self.pages.add_named(chat, "chat")
        self.changes_place.set_child(changes)

    def take_typed(self) -> str:
        """Return what was typed before a session was shown, once."""
        typed = self._typed.get_text()
        self._typed.set_text("")
        return typed

    def _add_actions(self, do: Callable[[str], object]) -> None:
        sync = GObject.BindingFlags.SYNC_CREATE
        for name in _ACTIONS:
            action = Gio.SimpleAction.new(name, None)
            action.connect("activate", lambda action, _target: do(action.get_name()))
            self.add_action(action)
            if name in _BY_SESSION:
                self.changes_button.bind_property("sensitive", action, "enabled", sync)

    # --- the side pane ---------------------------------------------------------------------------

    def _lay_out_side(self) -> None:
        """Show the side pane beside the chat, or hide it, as the user wants it. In a narrow window
        it is a page of its own."""
        pane, button, settings = self.side_pane, self.side_button, self._settings
        _put_shadows_last(self.leaflet)
        pane.add_edge(self.side_edge, _("Width of projects and sessions"), _SIDE, is_at_end=False)
        pane.resize(settings.get_int("side-width"))
        pane.limit(_WIDEST)
        button.set_active(settings.get_boolean("show-side-pane"))
        button.connect("toggled", weakly(self._on_side_toggled))
        pane.connect("resized", weakly(self._on_side_resized))
        self.leaflet.connect("notify::folded", weakly(self._on_side_folded))
        self._on_side_folded()
        self._update_side()

    def toggle_side(self, *_args: object) -> None:
        if self.leaflet.get_folded():
            is_shown = self.leaflet.get_visible_child_name() == "sidebar"
            self.leaflet.set_visible_child_name("content" if is_shown else "sidebar")
        else:
            self.side_button.set_active(not self.side_button.get_active())

    def show_side(self) -> None:
        self.side_button.set_active(True)

    def _update_side(self) -> None:
        # Hidden as long as the changes fill the window.
        is_covered = self.fill_button.get_active()
        self.side_pane.set_visible(self.side_button.get_active() and not is_covered)

    def _on_side_toggled(self, button: Gtk.ToggleButton) -> None:
        had_focus = contains_focus(self.side_pane)
        self._settings.set("show-side-pane", button.get_active())
        self._update_side()
        if button.get_active():
            # If there is no room for both, it takes the place of the chat.
            self.leaflet.set_visible_child_name("sidebar")
        elif had_focus:
            self._focus_chat()

    def _on_side_resized(self, _pane: ResizablePane, width: int) -> None:
        self._settings.set("side-width", min(width, _WIDEST))

    def _on_side_folded(self, *_args: object) -> None:
        is_folded = self.leaflet.get_folded()
        self.side_button.set_visible(not is_folded)
        self.side_pane.set_can_resize(not is_folded)

    # --- the changes -----------------------------------------------------------------------------

    def _lay_out_changes(self) -> None:
        """Give the changes as much of the window as they may have beside the chat, or all of it
        until the user says otherwise or hides them."""
        pane, flap = self.changes_pane, self.flap
        pane.add_edge(self.changes_edge, _("Width of the changes"), _CHANGES, is_at_end=True)
        pane.resize(self._settings.get_int("changes-width"))
        pane.connect("resized", weakly(self._on_changes_resized))
        self.fill_button.connect("toggled", weakly(self._on_fill_toggled))
        flap.connect("notify::reveal-flap", weakly(self._on_changes_hidden))
        flap.connect("notify::reveal-progress", weakly(self._on_changes_moved))
        flap.connect("notify::folded", weakly(self._on_changes_folded))
        self.leaflet.connect("notify::folded", weakly(self._limit_changes))
        self._on_changes_moved()
        self.side_button.connect("toggled", weakly(self._limit_changes))
        self._on_changes_folded()
        self.connect("realize", weakly(self._on_realize))
        both = GObject.BindingFlags.BIDIRECTIONAL | GObject.BindingFlags.SYNC_CREATE
        flap.bind_property("reveal-flap", self.changes_button, "active", both)

    def _on_realize(self, _window: Gtk.Widget) -> None:
        """Follow the width of the window. Its surface has the new one before the layout, in which
        a pane that is too wide would be folded."""
        surface = self.get_surface()
        assert surface is not None
        surface.connect("notify::width", weakly(self._limit_changes))
        self._limit_changes()

    def _on_changes_moved(self, *_args: object) -> None:
        progress = self.flap.get_reveal_progress()
        if progress in (0, 1):
            # To slide in beside a long chat would lay it out anew in each frame: 40 ms more.
            self.flap.set_reveal_params(_SLIDE if progress else _AT_ONCE)
        self._limit_changes()

    def _limit_changes(self, *_args: object) -> None:
        surface = self.get_surface()
        if surface is not None and not surface.is_destroyed():
            # Hidden, it must not keep the window from becoming narrow, nor fold the flap: GTK would
            # look up the styles of the whole chat when that changes.
            is_hidden = not self.flap.get_reveal_progress() and not self.flap.get_reveal_flap()
            side = min(self.side_pane.wanted, _WIDEST)
            has_side = self.side_pane.get_visible() and not self.leaflet.get_folded()
            # The chat keeps 400 pixels, its border included.
            room = max(1, surface.get_width() - (side if has_side else 0) - 400)
            # What is free because the user has hidden the side pane.
            free = 0 if self.side_button.get_active() else side
            self.changes_pane.limit(0 if is_hidden else room, free)

    def _on_fill_toggled(self, button: Gtk.ToggleButton) -> None:
        policy = Adw.FlapFoldPolicy
        self._update_side()
        self.flap.set_fold_policy(policy.ALWAYS if button.get_active() else policy.AUTO)
        self._on_changes_folded()

    def _on_changes_hidden(self, flap: Adw.Flap, _property: object) -> None:
        self._limit_changes()
        if not flap.get_reveal_flap():
            self.fill_button.set_active(False)

    def _on_changes_folded(self, *_args: object) -> None:
        is_folded, fills = self.flap.get_folded(), self.fill_button.get_active()
        # In a narrow window, they cover the chat anyway.
        self.fill_button.set_visible(fills or not is_folded)
        self.changes_pane.set_can_resize(not is_folded)
        self.changes_pane.set_hexpand(is_folded)

    def _on_changes_resized(self, _pane: ResizablePane, width: int) -> None:
        self._settings.set("changes-width", width)

    # --- the header bar --------------------------------------------------------------------------

    def _lay_out_header(self) -> None:
        """Adapt the header bar to the window's width and to the changes beside it."""
        # Later: a widget that is changed during layout is drawn without an allocation.
        self._header_timer = Timer(self._update_header)
        # Immediately: the badge's text would keep the window wide.
        self.connect("notify::default-width", weakly(self._update_header))
        self.badge.label.connect("notify::label", weakly(self._update_header))
        for name in ("reveal-flap", "reveal-progress"):
            self.flap.connect(f"notify::{name}", weakly(self._update_header))
        self.flap.connect("notify::folded", self._header_timer.soon)
        self._update_header()
        show_hidden_as_tooltip(self.changes_button, self.changes_word)
        show_ellipsized_as_tooltip(self.title)

    def _update_header(self, *_args: object) -> None:
        # The changes count as open until they are hidden: a wider header bar would fold the flap
        # while they close.
        is_open = self.flap.get_reveal_flap() or self.flap.get_reveal_progress() > 0
        # Only one header bar shows the buttons of the window.
        self.header.set_show_end_title_buttons(not is_open or self.flap.get_folded())
        # The badge's text would leave the changes no room beside the chat.
        width = self.get_default_size()[0]
        # The text is longer in some languages.
        needed = self.badge.text_width + 430
        self.badge.set_narrow(is_open or 0 < width < needed)
        self.changes_word.set_visible(not is_open and width >= 1000)


def _unseen_field() -> Gtk.Text:
    """Return a field that takes what is typed, also by an input method, and shows nothing."""
    field = Gtk.Text(opacity=0, can_target=False)
    set_accessible_name(field, _("Message, @file, or !command"))
    return field


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
