# SPDX-License-Identifier: GPL-3.0-or-later
"""The main window: the sidebar, a page, and the changes beside it.

It is drawn first. What shows sessions in it is made after the first frame: see controller.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gi.repository import Adw, Gio, GObject, Gtk

from ...i18n import _
from ..badge.badge import SandboxBadge
from ..resources import template
from ..sidebar.sidebar import Sidebar
from ..widgets.focus import FocusKeeper
from ..widgets.labels import show_ellipsized_as_tooltip, show_hidden_as_tooltip
from ..widgets.resizable import ResizablePane
from ..widgets.signals import signals
from ..widgets.weak import weakly
from .notices import NoticeBar
from .panes import ChangesLayout, HeaderLayout, SideLayout
from .welcome import Welcome

if TYPE_CHECKING:
    from ..changes.view import ChangesView
    from ..chat.view import ChatView
    from ..settings import Settings


# The least widths of the panes, in pixels.
_SIDE, _CHANGES = 200, 340

_ACTIONS = (
    *("new-session", "open-project", "take-tour", "export-session", "preferences", "about", "back"),
    *("toggle-side-pane", "toggle-changes", "stop", "compose", "next-question"),
    "show-help-overlay",
)
# These need a session.
_BY_SESSION = ("compose", "export-session", "toggle-changes")


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
        self.goes_to_last = bool(settings.text("last-session") or settings.text("last-project"))
        # Whether the probe has finished.
        self.is_ready = False
        self.sidebar = Sidebar()
        self.sidebar_place.set_child(self.sidebar)
        self.badge = SandboxBadge()
        self.badge_place.set_child(self.badge)
        self.welcome = Welcome()
        self.pages.add_named(self.welcome, "welcome")
        nothing = Gtk.Box(focusable=True)
        self.pages.add_named(nothing, "nothing")
        self._lay_out(partial(do, "focus-chat"))
        self._add_actions(do)
        if self.goes_to_last:
            # The welcome page would only flash up.
            self.pages.set_visible_child_name("nothing")
            # Else GTK would focus the first button, and a space in what is typed would press it.
            nothing.grab_focus()
        else:
            self.welcome.focus()
        # GTK hides the focus when the window appears, and would fade it out in the first frames.
        self.set_focus_visible(False)
        self.set_default_size(settings.number("window-width"), settings.number("window-height"))
        if settings.boolean("window-maximized"):
            self.maximize()
        self._focus_keeper = FocusKeeper(self)

    def add_session_views(self, chat: ChatView, changes: ChangesView) -> None:
        """Add what the first frame does not show."""
        self.chat, self.changes = chat, changes
        self.pages.add_named(chat, "chat")
        self.changes_place.set_child(changes)

    def _lay_out(self, focus_chat: Callable[[], object]) -> None:
        changes, settings = self.changes_pane, self._settings
        changes.add_edge(self.changes_edge, _("Width of the changes"), _CHANGES, is_at_end=True)
        changes.resize(settings.number("changes-width"))
        changes.connect("resized", weakly(self._on_resized))
        side_name = _("Width of projects and sessions")
        self.side_pane.add_edge(self.side_edge, side_name, _SIDE, is_at_end=False)
        self.side_layout = SideLayout(
            self.leaflet, self.side_pane, self.side_button, focus_chat, settings
        )
        self._changes_layout = ChangesLayout(
            self.leaflet,
            self.flap,
            self.side_layout,
            self.side_button,
            changes,
            self.fill_button,
        )
        self.connect("realize", weakly(self._changes_layout.watch))
        both = GObject.BindingFlags.BIDIRECTIONAL | GObject.BindingFlags.SYNC_CREATE
        self.flap.bind_property("reveal-flap", self.changes_button, "active", both)
        # A narrow window begins with the content, not with the sidebar.
        self.leaflet.set_visible_child_name("content")
        self._header_layout = HeaderLayout(
            self, self.flap, self.header, self.badge, self.changes_word
        )
        show_hidden_as_tooltip(self.changes_button, self.changes_word)
        show_ellipsized_as_tooltip(self.title)

    def _add_actions(self, do: Callable[[str], object]) -> None:
        allowing = {
            **dict.fromkeys(_BY_SESSION, self.changes_button),
            "take-tour": self.welcome.tour_button,
        }
        sync = GObject.BindingFlags.SYNC_CREATE
        for name in _ACTIONS:
            action = Gio.SimpleAction.new(name, None)
            action.connect("activate", lambda action, _target: do(action.get_name()))
            self.add_action(action)
            if name in allowing:
                allowing[name].bind_property("sensitive", action, "enabled", sync)

    def _on_resized(self, _pane: ResizablePane, width: int) -> None:
        self._settings.set("changes-width", width)
