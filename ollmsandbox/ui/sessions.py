# SPDX-License-Identifier: GPL-3.0-or-later
"""The sessions that are open, and all there are for the side pane."""

from __future__ import annotations

import asyncio
from gettext import gettext as _

from gi.repository import GObject

from .. import N_
from ..chat.desk import Desk
from ..chat.providers.connections import TOUR
from ..chat.stored import SessionInfo
from ..errors import OllmSandboxError, ProjectError
from ..paths import real_path
from ..project.models import Project
from ..project.recorder import Mode
from ..tools.workbench import Workbench
from .model_choice import ModelChoice
from .open_session import OpenSession
from .settings import Settings
from .sidebar_rows import ProjectItem, SessionItem
from .signals import signals
from .stored_entries import entries_of


class Sessions(GObject.Object):
    __gtype_name__ = "OllmSessions"

    # Something that the side pane shows is other than before.
    __gsignals__ = signals({"changed": ()})

    def __init__(self, desk: Desk, choice: ModelChoice, settings: Settings) -> None:
        super().__init__()
        self._desk = desk
        self._choice = choice
        self._settings = settings
        self._open: dict[str, OpenSession] = {}
        self._opening: dict[str, asyncio.Future[OpenSession]] = {}
        settings.connect("changed", lambda *_: self._follow_settings())

    @property
    def open_ones(self) -> list[OpenSession]:
        return list(self._open.values())

    def find_open(self, session_id: str) -> OpenSession | None:
        return self._open.get(session_id)

    async def open(self, session_id: str) -> OpenSession:
        """The one that is open already, or the stored one."""
        if session_id in self._open:
            return self._open[session_id]
        if session_id not in self._opening:
            # Twice at once, it would be refused the second time.
            task = asyncio.ensure_future(self._open_stored(session_id))
            self._opening[session_id] = task
            task.add_done_callback(lambda _task: self._opening.pop(session_id, None))
        return await asyncio.shield(self._opening[session_id])

    async def new(self, project: str | None) -> OpenSession:
        """Or one in which nothing was said yet."""
        if project is not None:
            # As it will be known by.
            project = real_path(project)
        for session in self.open_ones:
            if session.project == project and not session.entries.get_n_items():
                return session
        if project is not None:
            await asyncio.to_thread(self._desk.manager.add_project, project)
        conversation = await self._desk.open(project, with_model=False)
        return self._opened(OpenSession(conversation, project), *self._choice.default())

    async def close(self, session_id: str) -> None:
        session = self._open.pop(session_id, None)
        if session is not None:
            await session.close()
            self.emit("changed")

    async def close_all(self) -> None:
        await asyncio.gather(*(self.close(session_id) for session_id in tuple(self._open)))

    async def delete(self, session_id: str) -> None:
        await self.close(session_id)
        await asyncio.to_thread(self._desk.history.delete, session_id)
        self.emit("changed")

    async def undelete(self, session_id: str) -> None:
        await asyncio.to_thread(self._desk.history.undelete, session_id)
        self.emit("changed")

    async def rename(self, session_id: str, title: str) -> None:
        await asyncio.to_thread(self._desk.history.rename, session_id, title)
        self.emit("changed")

    async def remove_project(self, path: str) -> None:
        """From the list. Its sessions stay, below those without a project."""
        for session in self.open_ones:
            if session.project == path:
                await self.close(session.id)

        def remove() -> None:
            self._desk.manager.remove_project(self._project(path))

        try:
            await asyncio.to_thread(remove)
        finally:
            self.emit("changed")

    async def check_move(self, path: str, folder: str) -> None:
        """Raises if the project cannot be moved there. Nothing is changed or closed yet."""

        def check() -> None:
            from ..project.moving import check_move

            check_move(self._desk.manager, self._project(path), folder)

        self._check_idle(path)
        await asyncio.to_thread(check)

    async def move_project(self, path: str, folder: str) -> str:
        """Its folder is elsewhere now; all that is known of it goes along. Returns its new path."""
        self._check_idle(path)
        for session in self.open_ones:
            if session.project == path:
                await self.close(session.id)

        def move() -> str:
            # Here, because it is seldom needed.
            from ..permission.moving import copy_rules
            from ..project.moving import check_move, move_project

            manager, rules = self._desk.manager, self._desk.rules
            project = self._project(path)
            before = copy_rules(rules, path, check_move(manager, project, folder))
            moved = move_project(manager, project, folder)
            rules.remove(before)
            return moved.path

        try:
            return await asyncio.to_thread(move)
        finally:
            self.emit("changed")

    async def listing(self, search: str = "") -> list[ProjectItem]:
        return await asyncio.to_thread(self._listing, search)

    async def title(self, session_id: str) -> str:
        def look() -> str:
            try:
                found = self._desk.history.find(session_id)
            except OllmSandboxError:
                return ""  # nothing was said in it yet, or it is deleted
            return found.title if found.id == session_id else ""

        return await asyncio.to_thread(look)

    def use_model(self, session: OpenSession, connection: str, model: str) -> None:
        session.connection, session.model_name = connection, model
        session.conversation.use_model(self._choice.model(connection, model), connection)
        session.emit("state-changed")

    # --- projects ------------------------------------------------------------------------------

    def _project(self, path: str) -> Project:
        """By the path that it is known by: a folder on the way there may be a link by now."""
        for project in self._desk.manager.projects():
            if project.path == path:
                return project
        raise ProjectError(N_("{folder} is no longer in the list of projects."), folder=path)

    def _check_idle(self, path: str) -> None:
        if any(session.is_busy for session in self.open_ones if session.project == path):
            raise ProjectError(
                N_("A turn in {folder} is not over."),
                N_("Stop it, or wait for its end."),
                folder=path,
            )

    # --- opening -------------------------------------------------------------------------------

    async def _open_stored(self, session_id: str) -> OpenSession:
        stored = await asyncio.to_thread(self._desk.history.load, session_id)
        states = await asyncio.to_thread(self._desk.history.states, session_id)
        conversation = await self._desk.open(None, session_id=session_id, with_model=False)
        session = OpenSession(conversation, stored.info.project or None)
        # Not in the main loop: there may be thousands.
        session.show_stored(await asyncio.to_thread(entries_of, stored))
        session.note_states(states)
        session.draft = stored.draft
        connections = await asyncio.to_thread(self._choice.store.all)
        known = stored.info.connection in {one.name for one in (*connections, TOUR)}
        chosen = (stored.info.connection, stored.info.model) if known else self._choice.default()
        return self._opened(session, *chosen)

    def _opened(self, session: OpenSession, connection: str, model: str) -> OpenSession:
        self._open[session.id] = session
        self._follow(session)
        session.connect("state-changed", lambda *_: self.emit("changed"))
        session.connect("files-changed", lambda *_: self.emit("changed"))
        self.use_model(session, connection, model)
        return session

    def _follow_settings(self) -> None:
        for session in self._open.values():
            self._follow(session)

    def _follow(self, session: OpenSession) -> None:
        """What was chosen in the preferences counts from the next call on."""
        bench = session.conversation.bench
        if isinstance(bench, Workbench):
            bench.mode = Mode(self._settings.text("apply-mode"))
            bench.profile_name = self._settings.text("profile")
            bench.ask_every_command = self._settings.boolean("ask-every-command")
            limit = self._settings.number("time-limit")
            bench.timeout = float(limit) if limit else None

    def _listing(self, search: str) -> list[ProjectItem]:
        by_project: dict[str, list[SessionInfo]] = {}
        for info in self._desk.history.sessions(search=search):
            by_project.setdefault(info.project, []).append(info)
        manager = self._desk.manager
        found = []
        for project in manager.projects():
            sessions = by_project.pop(project.path, [])
            if sessions or not search:
                missing = manager.missing(project)
                found.append(
                    ProjectItem(project.path, project.name, missing, self._shown(sessions))
                )
        for sessions in by_project.values():
            found.append(ProjectItem("", _("Without a Project"), False, self._shown(sessions)))
        return found

    def _shown(self, sessions: list[SessionInfo]) -> tuple[SessionItem, ...]:
        items = []
        for info in sessions:
            session = self._open.get(info.id)
            busy = session is not None and session.is_busy
            asking = session is not None and bool(session.asking())
            items.append(SessionItem(info.id, info.title or _("New session"), busy, asking))
        return tuple(items)
