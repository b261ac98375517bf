# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows sessions in the window, and does what the user asks for.

All of this is loaded and made after the first frame, which does not need it: 150 ms.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from gi.repository import Gio, GLib, Gsk, Gtk

from ...chat.providers.connections_file import TOUR
from ...chat.providers.tour.sample import make_sample, unused_folder
from ...i18n import _, ngettext
from ...project import DAILY
from ...text.visible import visible_line, visible_words
from ..badge.controller import BadgeController
from ..changes.text import problems_text
from ..changes.view import ChangesView
from ..chat.controller import ChatController
from ..chat.model_controller import ModelController
from ..chat.view import ChatView
from ..models.chooser import ModelChooser
from ..sessions.dialogs import export_session
from ..sidebar.controller import SidebarController
from ..widgets.actions import add_action
from ..widgets.dialogs import show_list
from ..widgets.focus import contains_focus
from ..widgets.readable import number
from ..widgets.signals import SignalHandlers
from ..widgets.tasks import Tasks, as_task
from ..widgets.toasts import ToastRoom, Toasts
from ..widgets.weak import weakly
from .about import about, show_shortcuts
from .closing import WindowCloser
from .finished import FinishedTurns
from .panes import Panes
from .project_scan import ProjectScan
from .startup import load_languages, load_rest
from .watch import FileWatch

if TYPE_CHECKING:
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
    from .window import Window


async def begin_tour(paths: Paths, sessions: Sessions) -> OpenSession:
    """Open a session with the scripted model in a new sample project."""
    folder = await asyncio.to_thread(lambda: str(make_sample(unused_folder(paths))))
    session = await sessions.new(folder)
    sessions.use_model(session, TOUR.name, TOUR.model)
    return session


class WindowController:
    def __init__(
        self,
        window: Window,
        sessions: Sessions,
        choice: ModelChoice,
        asker: WindowAsker,
    ) -> None:
        self._window = window
        self.factory = sessions.factory
        self.sessions = sessions
        self._settings = settings = sessions.settings
        self._asker = asker
        self.chat = ChatView(settings)
        self.toasts = Toasts(window.toasts.add_toast, ToastRoom(window.toasts, self.chat.messages))
        self._tasks = Tasks(self.tell)
        self._scan = ProjectScan(self.factory.manager, window.notices.tell)
        self._session: OpenSession | None = None
        # Whether to open the last session, unless the user opens another one first.
        self._goes_to_last = window.goes_to_last
        # Whether the modules are loaded that a session needs later.
        self._is_loaded = False
        self._build(choice)
        self._actions: dict[str, Callable[..., object]] = {
            "new-session": self._on_new_session,
            "open-project": lambda: self._tasks.start(self.side.open_project()),
            "take-tour": self._on_take_tour,
            "connect-model": lambda: self._preferences().connect_model(),
            "show-connections": lambda: self._preferences().show_connections(),
            "export-session": self._on_export,
            "preferences": self._preferences,
            "about": lambda: about(window).present(),
            "back": self._panes.back,
            "toggle-side-pane": window.toggle_side,
            "toggle-changes": self._panes.toggle_changes,
            "stop": self._talk.stop,
            "compose": self._panes.compose,
            "focus-chat": self.chat.focus_composer,
            "next-question": self._on_next_question,
            "show-help-overlay": partial(show_shortcuts, window),
        }
        handlers = SignalHandlers(window)
        handlers.connect(sessions, "changed", self._on_sessions_changed)
        handlers.connect(settings, "changed", self._on_setting_changed)
        handlers.connect(settings, "trouble", window.notices.on_text)
        self._daily = 0
        self._watches: list[FileWatch] = []

    # --- for the application ---------------------------------------------------------------------

    @property
    def tasks(self) -> Tasks:
        return self._tasks

    def act(self, name: str) -> None:
        self._actions[name]()

    def tell(self, text: str) -> None:
        self.toasts.tell(text)

    @as_task
    async def open_project(self, path: str) -> None:
        self._goes_to_last = False
        try:
            await self.side.new_session(path)
        finally:
            if self._session is None:
                self.show(None)

    def shows_question(self, request: PermissionRequest | UserQuestion) -> bool:
        """Return whether the user sees the chat with the question."""
        session = self._session
        return (
            session is not None
            and session.id == request.session_id
            and self._window.is_active()
            and self.chat.get_mapped()
            and not self._panes.is_chat_covered
        )

    @as_task
    async def show_question(self, session_id: str, call_id: str) -> None:
        await self.side.open_session(session_id)
        if self._session is not None and self._session.id == session_id:
            # The card gets the focus, so it must be visible.
            self._panes.uncover_chat()
            self.chat.show_call(call_id)

    def show_ended(self, session_id: str) -> None:
        """Show a session again whose agent has gone, as any other stored one."""
        if self._session is not None and self._session.id == session_id:
            self._tasks.start(self.side.open_session(session_id))

    @as_task
    async def show_session(self, session_id: str) -> None:
        await self.side.open_session(session_id)
        self._panes.uncover_chat()

    @property
    def is_closing(self) -> bool:
        return self._closer.has_begun

    def close(self) -> None:
        """Close the window, unless the user wants to keep it open."""
        self._closer.request()

    def close_at_once(self) -> None:
        self._closer.close_now()

    # --- building --------------------------------------------------------------------------------

    def _build(self, choice: ModelChoice) -> None:
        window = self._window
        self.side = SidebarController(
            window,
            window.sidebar,
            self.sessions,
            window.toasts,
            self._tasks,
            weakly(self.show),
            weakly(self.chat.go_to_line),
        )
        add_action(window.sidebar.actions, "show-folders", self._on_show_folders, "ay")
        add_action(window.sidebar.actions, "switch-system", self._on_switch_system, "ay")
        self.model_chooser = ModelChooser()
        self.badge = BadgeController(window.badge, self.factory, self._settings, self._tasks)
        self._build_chat(choice)
        self._panes: Panes = Panes(window, self.chat, self.changes)
        self.chat.connect("show-changes", weakly(self._panes.show_changes))
        self.chat.turn.connect("review", weakly(self._panes.review_turn))

    def _build_chat(self, choice: ModelChoice) -> None:
        self.chat.composer.model_place.set_child(self.model_chooser)
        self.chat.tour.connect("remove", weakly(self._on_remove_sample))
        self.chat.missing.connect("remove", weakly(self.side.remove_shown))
        self.chat.missing.connect("locate", weakly(self.side.locate_shown))
        self.chat.missing.connect("notify::reveal-child", weakly(self.badge.look_again))
        self._models = ModelController(
            self.model_chooser, choice, self.chat, self.sessions, self._tasks
        )
        self.changes = ChangesView(self.factory.manager, self._settings, self.tell)
        self.changes.connect("count-changed", weakly(self._on_changes_counted))
        self.changes.connect("problems", weakly(self._on_problems))
        self._window.add_session_views(self.chat, self.changes)
        self._talk = ChatController(
            self._window, self.chat, self.changes, self._asker, self.sessions, self._tasks
        )
        self._finished = FinishedTurns(self._window, self.chat, self.sessions, self._tasks)
        self._closer = WindowCloser(
            self._window,
            self.sessions,
            self._asker,
            self.changes.progress,
            self._talk.keep_draft,
            weakly(self._leave_screen),
        )

    # --- opening and closing ---------------------------------------------------------------------

    def begin(self) -> None:
        """Show what the first page did not, and look at the machine."""
        if self._closer.has_begun:
            return
        if isinstance(self._window.get_renderer(), Gsk.CairoRenderer):
            # Without a graphics card, a fade cannot be drawn in time.
            self._window.pages.set_transition_type(Gtk.StackTransitionType.NONE)
        self.side.refresh()
        self._tasks.start(self._show_last())
        self._tasks.start(self._look_at_machine())
        self._models.reload()
        self._watches = [
            FileWatch(self.factory.paths.database, self.side.refresh),
            FileWatch(self.factory.connections.file, self._models.look_for_connections),
        ]
        self._maintain()
        self._daily = GLib.timeout_add_seconds(DAILY, weakly(self._maintain))

    def _maintain(self) -> bool:
        async def maintain() -> None:
            # In a thread: it loads the sandbox, which takes 25 ms.
            module = await asyncio.to_thread(import_module, "ollmsandbox.ui.window.maintenance")
            tell, warn = self._tasks.tell, self._window.notices.tell
            if not self._closer.has_begun:
                await module.maintain(self.factory.manager, tell, warn, self.changes.refresh)

        self._tasks.start(maintain())
        return GLib.SOURCE_CONTINUE

    async def _show_last(self) -> None:
        last = self._settings.get_string("last-session")
        try:
            # Unless the user has chosen another one meanwhile.
            if self._goes_to_last and await self.sessions.title(last) and not self.side.has_request:
                await self.side.open_session(last)
            elif self._goes_to_last and not self.side.has_request:
                await self._begin_in_project()
        finally:
            if self._goes_to_last:
                self.show(None)

    async def _begin_in_project(self) -> None:
        """Open an empty session in the project that was used last, if it is still there."""
        last = self._settings.get_string("last-project")
        listed = [item for item in await self.sessions.listing() if not item.is_missing]
        if any(item.path == last for item in listed) and not self.side.has_request:
            await self.side.new_session(last)

    async def _look_at_machine(self) -> None:
        found = await asyncio.to_thread(self._probe)
        self._window.welcome.show_capabilities(found)
        self.chat.show_capabilities(found)
        self.badge.show_capabilities(found)
        self._window.is_ready = True
        await load_rest()
        self._is_loaded = True
        self._load_languages()

    def _load_languages(self) -> None:
        if self._is_loaded and self._session is not None:
            load_languages()

    def _probe(self) -> Capabilities:
        from ...sandbox.probe.probe import probe  # loaded by the thread that calls this

        return probe(self.factory.paths, self.factory.environ)

    def _leave_screen(self) -> None:
        if self._daily:
            GLib.source_remove(self._daily)
        self._scan.end()
        for watch in self._watches:
            watch.end()
        self.changes.leave_screen()
        try:
            self.chat.show(None)
        finally:
            self._window.destroy()
            self._window.emit("closed")

    # --- sessions --------------------------------------------------------------------------------

    def show(self, session: OpenSession | None) -> None:
        if (keeping := self._talk.keep_draft()) is not None:
            self._tasks.watch(keeping)
        self._goes_to_last = False
        is_same, self._session = session is self._session, session
        self.chat.show(session)
        if session is not None:
            self.chat.composer.insert(self._window.take_typed())
        self._talk.show_session(session)
        self.badge.show_session(session)
        self.changes.show_project(*((session.project, session.id) if session else (None,)))
        self._scan.show_project(session.project if session else None)
        self._settings.set("last-session", session.id if session else "")
        if session is not None:
            # A path that is no text is not found again.
            project = (session.project or "").encode("utf-8", "ignore").decode()
            self._settings.set("last-project", project)
        self._window.pages.set_visible_child_name("welcome" if session is None else "chat")
        self._window.changes_button.set_sensitive(session is not None)
        self._models.show_session(session)
        self.side.note_shown(session)
        self._finished.note_seen()
        self._show_title()
        if session is None:
            self._window.flap.set_reveal_flap(False)
            # A user who deletes a session in the sidebar may continue there.
            if self._window.welcome.get_mapped() and not contains_focus(self._window.sidebar):
                self._window.welcome.focus()
            return
        self._window.leaflet.set_visible_child_name("content")
        asking = session.asking() if is_same else []
        if asking:
            self.chat.show_call(asking[0].call.id)
        else:
            self.chat.focus_composer()
        self._load_languages()

    @as_task
    async def _show_title(self) -> None:
        session = self._session
        title = await self.sessions.title(session.id) if session else ""
        if session is self._session:
            # The first page has a heading of its own, beside the name of the program.
            self._window.title.set_title((title or _("New Session")) if session else "")
            project = session.project if session else None
            self._window.title.set_subtitle(
                visible_line(os.path.basename(project)) if project else ""
            )

    # --- the user's actions ----------------------------------------------------------------------

    def _on_new_session(self) -> None:
        self._tasks.start(self.side.new_session(self._session.project if self._session else None))

    @as_task
    async def _on_take_tour(self) -> None:
        action = self._window.lookup_action("take-tour")
        assert isinstance(action, Gio.SimpleAction)
        # A second click must not start another tour.
        action.set_enabled(False)
        try:
            session = await begin_tour(self.factory.paths, self.sessions)
            self.show(session)
        finally:
            action.set_enabled(True)
        self.side.refresh()
        await self._talk.send(session, _("Show me what you can do here."))

    @as_task
    async def _on_remove_sample(self, _bar: Gtk.Widget) -> None:
        if (session := self._session) is not None:
            self.show(None)
            await self.sessions.remove_sample(session)

    def _on_export(self) -> None:
        if self._session is not None:
            self._tasks.start(export_session(self._window, self.factory.history, self._session.id))

    def _preferences(self) -> Preferences:
        from ..preferences.window import Preferences

        preferences = Preferences(self._window, self.factory, self._settings)
        preferences.connections.connect("changed", weakly(self._models.reload))
        preferences.connections.connect("renamed", weakly(self._models.follow_rename))
        preferences.safety.folders.connect("changed", weakly(self.badge.look_again))
        preferences.present()
        return preferences

    def _on_show_folders(self, project: str) -> None:
        from ..preferences.folders import FoldersWindow

        folders = FoldersWindow(self._window, self.factory, project)
        folders.group.connect("changed", weakly(self.badge.look_again))
        folders.present()

    @as_task
    async def _on_switch_system(self, project: str) -> None:
        await self.sessions.switch_system(project)
        self.badge.look_again()

    def _on_next_question(self) -> None:
        """Show the question after the focused one, else the oldest."""
        if waiting := self._asker.waiting:
            session = self._session.id if self._session is not None else ""
            focused = (session, self.chat.focused_call)
            calls = [(request.session_id, request.call_id) for request in waiting]
            place = calls.index(focused) + 1 if focused in calls else 0
            self.show_question(*calls[place % len(calls)])

    # --- other events ----------------------------------------------------------------------------

    def _on_sessions_changed(self, _sessions: Sessions) -> None:
        self.side.refresh()
        self._show_title()
        self.badge.refresh()
        self._talk.look_for_folder()
        self.changes.refresh()

    def _on_setting_changed(self, _settings: Settings, key: str) -> None:
        if key == "profile" or key.endswith("-limit"):
            self.badge.look_soon()

    def _on_problems(self, _view: ChangesView, problems: Sequence[str]) -> None:
        """Tell one of several problems, and how to see all."""
        count = len(problems)
        heading = ngettext("{} Problem", "{} Problems", count).format(number(count))
        lines = [visible_words(problem) for problem in problems]
        show = partial(show_list, self._window, heading, lines)
        self.toasts.tell(problems_text(problems), _("_Show All"), show)

    def _on_changes_counted(self, _view: ChangesView, count: int) -> None:
        self._window.changes_count.set_label(str(count))
        self._window.changes_count.set_visible(count > 0)
