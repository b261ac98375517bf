# SPDX-License-Identifier: GPL-3.0-or-later
"""The main window: the sidebar, a chat, and the changes beside it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from gi.repository import Adw, Gio, GObject, Gsk, Gtk

from ...chat.providers.connections_file import TOUR
from ...chat.providers.tour.sample import make_sample, unused_folder
from ...i18n import _
from ...text.visible import visible_line
from ..badge.badge import SandboxBadge
from ..badge.controller import BadgeController
from ..changes.view import ChangesView
from ..chat.controller import ChatController
from ..chat.model_controller import ModelController
from ..chat.view import ChatView
from ..models.chooser import ModelChooser
from ..resources import template
from ..sessions.dialogs import export_session
from ..sidebar.controller import SidebarController
from ..sidebar.sidebar import Sidebar
from ..widgets.focus import FocusKeeper
from ..widgets.labels import show_ellipsized_as_tooltip, show_hidden_as_tooltip
from ..widgets.resizable import ResizablePane
from ..widgets.signals import signals
from ..widgets.tasks import Tasks
from ..widgets.toasts import ToastRoom, Toasts
from ..widgets.weak import weakly
from .about import about, show_shortcuts
from .closing import WindowCloser
from .finished import FinishedTurns
from .notices import NoticeBar
from .panes import ChangesLayout, HeaderLayout, Panes, SideLayout
from .project_scan import ProjectScan
from .questions import QuestionFinder
from .startup import after_first_frame, load_languages, load_rest
from .watch import FileWatch
from .welcome import Welcome

if TYPE_CHECKING:
    from ...chat.sessions import SessionFactory
    from ...paths import Paths
    from ...permission.request import PermissionRequest
    from ...sandbox.probe.probe import Capabilities
    from ...tools.base import UserQuestion
    from ..models.choice import ModelChoice
    from ..permission.asker import WindowAsker
    from ..preferences.window import Preferences
    from ..sessions.open_session import OpenSession
    from ..sessions.sessions import Sessions
    from ..settings import Settings
    from .maintenance import Maintenance


# The least widths of the panes, in pixels.
_SIDE, _CHANGES = 200, 340


async def begin_tour(paths: Paths, sessions: Sessions) -> OpenSession:
    """Open a session with the scripted model in a new sample project."""
    folder = await asyncio.to_thread(_sample, paths)
    session = await sessions.new(folder)
    sessions.use_model(session, TOUR.name, TOUR.model)
    return session


def _sample(paths: Paths) -> str:
    return str(make_sample(unused_folder(paths)))


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

    def __init__(
        self,
        application: Adw.Application,
        factory: SessionFactory,
        sessions: Sessions,
        choice: ModelChoice,
        asker: WindowAsker,
        settings: Settings,
    ) -> None:
        super().__init__(application=application)
        self._factory = factory
        self._sessions = sessions
        self._asker = asker
        self._settings = settings
        self.chat = ChatView(settings)
        self._toasts = Toasts(self.toasts.add_toast, ToastRoom(self.toasts, self.chat.messages))
        self._tasks = Tasks(self.tell)
        self._scan = ProjectScan(factory.manager, self.notices.tell)
        self._session: OpenSession | None = None
        # Whether to open the last session, unless the user opens another one first.
        self._goes_to_last = bool(settings.text("last-session") or settings.text("last-project"))
        # Whether the probe has finished.
        self.is_ready = False
        # Whether the modules are loaded that the first frame did not need.
        self._is_loaded = False
        self._build(choice)
        self._add_actions()
        if self._goes_to_last:
            # The welcome page would only flash up.
            self.pages.set_visible_child_name("nothing")
        else:
            self.welcome.focus()
        self.set_default_size(settings.number("window-width"), settings.number("window-height"))
        if settings.boolean("window-maximized"):
            self.maximize()
        self._handlers = [
            (sessions, sessions.connect("changed", weakly(self._on_sessions_changed))),
            *self._models.handlers,
            (sessions, self._finished.handler),
            (settings, settings.connect("changed", weakly(self._on_setting_changed))),
            (settings, settings.connect("trouble", weakly(self.notices.on_text))),
        ]
        self._focus_keeper = FocusKeeper(self)
        self._maintenance: Maintenance | None = None
        self._watches: list[FileWatch] = []
        # Everything else can wait for the first frame.
        after_first_frame(self, weakly(self._begin))

    # --- for the application ---------------------------------------------------------------------

    def tell(self, text: str) -> None:
        self._toasts.tell(text)

    def open_project(self, path: str) -> None:
        self._tasks.start(self._open(path))

    def shows_question(self, request: PermissionRequest | UserQuestion) -> bool:
        return self._questions.is_shown(request)

    def show_question(self, session_id: str, call_id: str) -> None:
        self._tasks.start(self._questions.show(session_id, call_id))

    def show_ended(self, session_id: str) -> None:
        """Show a session again whose agent has gone, as any other stored one."""
        if self._session is not None and self._session.id == session_id:
            self._tasks.start(self._side.open_session(session_id))

    def show_session(self, session_id: str) -> None:
        async def show() -> None:
            await self._side.open_session(session_id)
            self._panes.uncover_chat()

        self._tasks.start(show())

    @property
    def is_closing(self) -> bool:
        return self._closer.has_begun

    def close_at_once(self) -> None:
        self._closer.close_now()

    # --- building --------------------------------------------------------------------------------

    def _build(self, choice: ModelChoice) -> None:
        self.sidebar = Sidebar()
        self._side = SidebarController(
            self,
            self.sidebar,
            self._sessions,
            self.toasts,
            self._tasks,
            weakly(self._show),
            weakly(self.chat.go_to_line),
        )
        self.sidebar.connect("show-folders", weakly(self._on_show_folders))
        self.sidebar.connect("switch-system", weakly(self._on_switch_system))
        self.sidebar_place.set_child(self.sidebar)
        self.model_chooser = ModelChooser()
        self.model_chooser.connect("connect-model", weakly(self._on_connect_model))
        self.badge = SandboxBadge()
        self.badge_place.set_child(self.badge)
        self._badge = BadgeController(self.badge, self._factory, self._settings, self._tasks)
        self.welcome = Welcome()
        self.welcome.connect("take-tour", weakly(self._on_take_tour))
        self.welcome.connect("open-project", weakly(self._on_open_project))
        self.welcome.connect("connect-model", weakly(self._on_connect_model))
        self.pages.add_named(self.welcome, "welcome")
        self.pages.add_named(Gtk.Box(), "nothing")
        self._build_chat(choice)
        self._build_panes()
        self.connect("realize", weakly(self._changes_layout.watch))
        self._questions = QuestionFinder(
            self, self._asker, self.chat, self._panes, self._side.open_session
        )
        self.chat.connect("show-changes", weakly(self._panes.show_changes))
        self.chat.turn.connect("review", weakly(self._panes.review_turn))
        both = GObject.BindingFlags.BIDIRECTIONAL | GObject.BindingFlags.SYNC_CREATE
        self.flap.bind_property("reveal-flap", self.changes_button, "active", both)
        # A narrow window begins with the content, not with the sidebar.
        self.leaflet.set_visible_child_name("content")
        self._header_layout = HeaderLayout(
            self, self.flap, self.header, self.badge, self.changes_word
        )
        show_hidden_as_tooltip(self.changes_button, self.changes_word)
        show_ellipsized_as_tooltip(self.title)

    def _build_chat(self, choice: ModelChoice) -> None:
        self.chat.composer.model_place.set_child(self.model_chooser)
        self.chat.connect("connect-model", weakly(self._on_connect_model))
        self.chat.connect("show-connections", weakly(self._on_show_connections))
        self.chat.connect("open-project", weakly(self._on_open_project))
        self.chat.connect("remove-sample", weakly(self._on_remove_sample))
        self.chat.missing.connect("open-other", weakly(self._on_open_project))
        self.chat.missing.connect("remove", weakly(self._side.remove_shown))
        self.chat.missing.connect("locate", weakly(self._side.locate_shown))
        self.chat.missing.connect("notify::reveal-child", weakly(self._badge.look_again))
        self.pages.add_named(self.chat, "chat")
        self._models = ModelController(
            self.model_chooser, choice, self.chat, self._sessions, self._tasks
        )
        self.changes = ChangesView(self._factory.manager, self._settings, self.tell)
        self.changes.connect("count-changed", weakly(self._on_changes_counted))
        self.changes_place.set_child(self.changes)
        self._talk = ChatController(
            self,
            self.chat,
            self.changes,
            self._asker,
            self._factory.history,
            self._factory.manager,
            self._sessions,
            self._tasks,
        )
        self._finished = FinishedTurns(
            self, self.chat, self._sessions, self._factory.manager, self._settings, self._tasks
        )
        self._closer = WindowCloser(
            self,
            self._sessions,
            self._asker,
            self._settings,
            self.changes.progress,
            self._talk.keep_draft,
            weakly(self._leave_screen),
        )

    def _build_panes(self) -> None:
        changes = self.changes_pane
        changes.add_edge(self.changes_edge, _("Width of the changes"), _CHANGES, is_at_end=True)
        changes.resize(self._settings.number("changes-width"))
        changes.connect("resized", weakly(self._on_resized))
        side_name = _("Width of projects and sessions")
        self.side_pane.add_edge(self.side_edge, side_name, _SIDE, is_at_end=False)
        self._side_layout = SideLayout(
            self.leaflet, self.side_pane, self.side_button, self.chat, self._settings
        )
        self._panes = Panes(
            self.leaflet, self.flap, self.sidebar, self._side_layout, self.chat, self.changes
        )
        self._panes.watch_keys(self)
        self._changes_layout = ChangesLayout(
            self.leaflet,
            self.flap,
            self._side_layout,
            self.side_button,
            changes,
            self.fill_button,
        )

    def _add_actions(self) -> None:
        actions: dict[str, Callable[..., object]] = {
            "new-session": self._on_new_session,
            "open-project": self._on_open_project,
            "take-tour": self._on_take_tour,
            "export-session": self._on_export,
            "preferences": self._preferences,
            "about": self._on_about,
            "back": self._panes.back,
            "toggle-side-pane": self._side_layout.toggle,
            "toggle-changes": self._panes.toggle_changes,
            "stop": self._talk.stop,
            "compose": self._panes.compose,
            "next-question": self._on_next_question,
            "show-help-overlay": self._on_shortcuts,
        }
        # These need a session.
        by_session = ("compose", "export-session", "toggle-changes")
        allowing = {
            **dict.fromkeys(by_session, self.changes_button),
            "take-tour": self.welcome.tour_button,
        }
        sync = GObject.BindingFlags.SYNC_CREATE
        for name, method in actions.items():
            action = Gio.SimpleAction.new(name, None)
            action.connect("activate", weakly(method))
            self.add_action(action)
            if name in allowing:
                allowing[name].bind_property("sensitive", action, "enabled", sync)

    # --- opening and closing ---------------------------------------------------------------------

    def _begin(self) -> None:
        if self._closer.has_begun:
            return
        if isinstance(self.get_renderer(), Gsk.CairoRenderer):
            # Without a graphics card, a fade cannot be drawn in time.
            self.pages.set_transition_type(Gtk.StackTransitionType.NONE)
        self._tasks.start(self._side.refresh())
        self._tasks.start(self._show_last())
        self._tasks.start(self._look_at_machine())
        self._models.reload()
        self._watches = [
            FileWatch(self._factory.paths.database, weakly(self._on_database)),
            FileWatch(self._factory.connections.file, weakly(self._models.look_for_connections)),
        ]
        self._tasks.start(self._begin_maintenance())

    async def _begin_maintenance(self) -> None:
        # In a thread: it loads the sandbox, which takes 25 ms.
        module = await asyncio.to_thread(import_module, "ollmsandbox.ui.window.maintenance")
        if not self._closer.has_begun:
            self._maintenance = module.Maintenance(
                self._factory.manager,
                self._tasks,
                weakly(self.notices.tell),
                weakly(self.changes.refresh),
            )

    async def _show_last(self) -> None:
        last = self._settings.text("last-session")
        try:
            # Unless the user has chosen another one meanwhile.
            if (
                self._goes_to_last
                and await self._sessions.title(last)
                and not self._side.has_request
            ):
                await self._side.open_session(last)
            elif self._goes_to_last and not self._side.has_request:
                await self._begin_in_project()
        finally:
            if self._goes_to_last:
                self._show(None)

    async def _begin_in_project(self) -> None:
        """Open an empty session in the project that was used last, if it is still there."""
        last = self._settings.text("last-project")
        listed = [item for item in await self._sessions.listing() if not item.is_missing]
        if any(item.path == last for item in listed) and not self._side.has_request:
            await self._side.new_session(last)

    async def _look_at_machine(self) -> None:
        found = await asyncio.to_thread(self._probe)
        self.welcome.show_capabilities(found)
        self.chat.show_capabilities(found)
        self._badge.show_capabilities(found)
        self.is_ready = True
        await load_rest()
        self._is_loaded = True
        self._load_languages()

    def _load_languages(self) -> None:
        if self._is_loaded and self._session is not None:
            load_languages()

    def _probe(self) -> Capabilities:
        from ...sandbox.probe.probe import probe  # loaded by the thread that calls this

        return probe(self._factory.paths, self._factory.environ)

    def do_close_request(self) -> bool:
        self._closer.request()
        return True

    def _leave_screen(self) -> None:
        if self._maintenance is not None:
            self._maintenance.end()
        self._scan.end()
        for watch in self._watches:
            watch.end()
        for source, handler in self._handlers:
            source.disconnect(handler)
        self.changes.leave_screen()
        try:
            self.chat.show(None)
        finally:
            self.destroy()
            self.emit("closed")

    # --- sessions --------------------------------------------------------------------------------

    async def _open(self, project: str) -> None:
        self._goes_to_last = False
        try:
            await self._side.new_session(project)
        finally:
            if self._session is None:
                self._show(None)

    def _show(self, session: OpenSession | None) -> None:
        if (keeping := self._talk.keep_draft()) is not None:
            self._tasks.watch(keeping)
        self._goes_to_last = False
        is_same, self._session = session is self._session, session
        self.chat.show(session)
        self._talk.look_for_folder()
        self._talk.turn.show_session(session)
        self._badge.show_session(session)
        self.changes.show_project(*((session.project, session.id) if session else (None,)))
        self._scan.show_project(session.project if session else None)
        self._settings.set("last-session", session.id if session else "")
        if session is not None:
            # A path that is no text is not found again.
            project = (session.project or "").encode("utf-8", "ignore").decode()
            self._settings.set("last-project", project)
        self.pages.set_visible_child_name("welcome" if session is None else "chat")
        self.changes_button.set_sensitive(session is not None)
        self._models.show_session(session)
        self._side.note_shown(session)
        self._finished.note_seen()
        self._tasks.start(self._show_title())
        if session is None:
            self.flap.set_reveal_flap(False)
            focus = self.get_focus()
            # A user who deletes a session in the sidebar may continue there.
            if self.welcome.get_mapped() and not (focus and focus.is_ancestor(self.sidebar)):
                self.welcome.focus()
            return
        self.leaflet.set_visible_child_name("content")
        asking = session.asking() if is_same else []
        if asking:
            self.chat.show_call(asking[0].call.id)
        else:
            self.chat.focus_composer()
        self._load_languages()

    async def _show_title(self) -> None:
        session = self._session
        title = await self._sessions.title(session.id) if session else ""
        if session is self._session:
            # The first page has a heading of its own, beside the name of the program.
            self.title.set_title((title or _("New Session")) if session else "")
            project = session.project if session else None
            self.title.set_subtitle(visible_line(os.path.basename(project)) if project else "")

    # --- the user's actions ----------------------------------------------------------------------

    def _on_resized(self, _pane: ResizablePane, width: int) -> None:
        self._settings.set("changes-width", width)

    def _on_connect_model(self, *_args: object) -> None:
        self._preferences().connect_model()

    def _on_show_connections(self, _view: ChatView) -> None:
        self._preferences().show_connections()

    def _on_new_session(self, *_args: object) -> None:
        self._tasks.start(self._side.new_session(self._session.project if self._session else None))

    def _on_open_project(self, *_args: object) -> None:
        self._tasks.start(self._side.open_project())

    def _on_take_tour(self, *_args: object) -> None:
        async def tour() -> None:
            # A second click must not start another tour.
            self.welcome.tour_button.set_sensitive(False)
            try:
                session = await begin_tour(self._factory.paths, self._sessions)
                self._show(session)
            finally:
                self.welcome.tour_button.set_sensitive(True)
            self._tasks.start(self._side.refresh())
            await self._talk.send(session, _("Show me what you can do here."))

        self._tasks.start(tour())

    def _on_remove_sample(self, _view: ChatView) -> None:
        async def remove(session: OpenSession) -> None:
            self._show(None)
            await self._sessions.remove_sample(session)

        if self._session is not None:
            self._tasks.start(remove(self._session))

    def _on_export(self, *_args: object) -> None:
        if self._session is not None:
            self._tasks.start(export_session(self, self._factory.history, self._session.id))

    def _preferences(self, *_args: object) -> Preferences:
        from ..preferences.window import Preferences

        preferences = Preferences(self, self._factory, self._settings)
        preferences.connect("connections-changed", weakly(self._models.reload))
        preferences.connect("connection-renamed", weakly(self._models.follow_rename))
        preferences.connect("folders-changed", weakly(self._badge.look_again))
        preferences.present()
        return preferences

    def _on_show_folders(self, _sidebar: Sidebar, project: str) -> None:
        from ..preferences.folders import FoldersWindow

        factory = self._factory
        folders = FoldersWindow(self, factory.manager, factory.environ, project)
        folders.connect("changed", weakly(self._badge.look_again))
        folders.present()

    def _on_switch_system(self, _sidebar: Sidebar, project: str) -> None:
        async def switch() -> None:
            await self._sessions.switch_system(project)
            self._badge.look_again()

        self._tasks.start(switch())

    def _on_shortcuts(self, *_args: object) -> None:
        show_shortcuts(self)

    def _on_about(self, *_args: object) -> None:
        about(self).present()

    def _on_next_question(self, *_args: object) -> None:
        if (request := self._questions.next()) is not None:
            self.show_question(request.session_id, request.call_id)

    # --- other events ----------------------------------------------------------------------------

    def _on_sessions_changed(self, _sessions: Sessions) -> None:
        self._tasks.start(self._side.refresh())
        self._tasks.start(self._show_title())
        self._badge.refresh()
        self._talk.look_for_folder()
        self.changes.refresh()

    def _on_database(self) -> None:
        self._tasks.start(self._side.refresh())

    def _on_setting_changed(self, _settings: Settings, key: str) -> None:
        if key == "profile" or key.endswith("-limit"):
            self._badge.look_soon()

    def _on_changes_counted(self, _view: ChangesView, count: int) -> None:
        self.changes_count.set_label(str(count))
        self.changes_count.set_visible(count > 0)
