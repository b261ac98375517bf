# SPDX-License-Identifier: GPL-3.0-or-later
"""The open sessions of the window, and the list of all sessions for the sidebar."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gi.repository import GObject

from ... import N_
from ...chat.messages import Role
from ...chat.providers.connections_file import TOUR
from ...chat.providers.tour.sample import remove_sample
from ...chat.storage.history import FoundLine, title_from
from ...chat.storage.stored import SessionInfo, Spent
from ...engine.system import System, set_system, system_of
from ...errors import OllmSandboxError, ProjectError, UnsavedError
from ...i18n import _, ngettext
from ...project.opening import check_links, check_readable
from ...sandbox.plan.folders import find_project
from ...sandbox.spec import Mode
from ..changes.model import count_pending
from ..settings import Settings, own_limits
from ..widgets.readable import days_ago, money, number
from ..widgets.signals import signals
from .entries import CallEntry, entries_of
from .folder import FolderChecker
from .items import Day, ProjectItem, SessionItem

if TYPE_CHECKING:
    from ...chat.conversation import Conversation
    from ...chat.sessions import SessionFactory
    from ...database.tables import Project
    from ..models.choice import ModelChoice
    from .open_session import OpenSession

T = TypeVar("T")

# By session: whether it is busy, whether it asks something, and whether its end was not seen yet.
States = Mapping[str, tuple[bool, bool, bool]]


class Sessions(GObject.Object):
    # Something that the sidebar shows has changed; a turn of a session has ended, and why.
    __gsignals__ = signals({"changed": (), "turn-ended": (object, object)})

    def __init__(self, factory: SessionFactory, choice: ModelChoice, settings: Settings) -> None:
        super().__init__()
        self.factory = factory
        self._choice = choice
        self.settings = settings
        self.folders = FolderChecker()
        self._open: dict[str, OpenSession] = {}
        self._opening: dict[str, asyncio.Future[OpenSession]] = {}
        self._closing: dict[str, asyncio.Future[None]] = {}
        settings.connect("changed", lambda *_: self._follow_settings())

    @property
    def open_ones(self) -> list[OpenSession]:
        return list(self._open.values())

    async def open(self, session_id: str) -> OpenSession:
        if session_id in self._open:
            return self._open[session_id]
        if session_id not in self._opening:
            # Opening a session twice fails: it is locked.
            task = asyncio.ensure_future(self._open_stored(session_id))
            self._opening[session_id] = task
            task.add_done_callback(lambda _task: self._opening.pop(session_id, None))
        return await asyncio.shield(self._opening[session_id])

    async def new(self, project: str | None) -> OpenSession:
        """Return an empty session of the project, or open a new one."""
        if project is not None:
            paths = self.factory.manager.paths
            await asyncio.to_thread(check_links, project, paths)
            # Projects are stored with the path that this returns.
            project = await asyncio.to_thread(find_project, project, paths)
            await asyncio.to_thread(check_readable, project)
        for session in self.open_ones:
            has_draft = session.kept_draft or session.draft.strip()
            is_empty = not session.entries and not has_draft
            if session.project == project and is_empty:
                return session
        if project is not None:
            await asyncio.to_thread(self.factory.manager.add_project, project)
        conversation = await self.factory.open(project, with_model=False)
        return self._opened(_make(conversation, project), *self._choice.default())

    async def follow(
        self, session_id: str, agent: str, project: str, stop: Callable[[str], None]
    ) -> OpenSession:
        """Show a session that another program leads. `stop` asks it to stop a call."""
        if session_id in self._open or not await asyncio.to_thread(self._is_locked, session_id):
            raise OllmSandboxError(N_("No other program leads this session."))
        from .followed import FollowedConversation

        session = _make(FollowedConversation(session_id, agent, stop), project or None)
        with contextlib.suppress(OllmSandboxError):  # it may not be stored yet
            stored = await asyncio.to_thread(self.factory.history.load, session_id)
            session.show_stored(await asyncio.to_thread(entries_of, stored))
        self._opened(session, "", "")
        self.emit("changed")
        return session

    def _is_locked(self, session_id: str) -> bool:
        from ...engine.session_lock import SessionLock

        try:
            SessionLock(self.factory.paths, session_id).release()
        except OllmSandboxError:
            return True
        return False

    async def show_end(self, session: OpenSession, call_id: str) -> None:
        """Show how a call of another program ended, which has stored that."""
        stored = await asyncio.to_thread(self.factory.history.load, session.id)
        entries = await asyncio.to_thread(entries_of, stored)
        for entry in entries:
            if isinstance(entry, CallEntry) and entry.call.id == call_id:
                session.end_followed(entry)

    async def close(self, session_id: str) -> None:
        if session_id in self._opening:
            await asyncio.wait({self._opening[session_id]})
        session = self._open.get(session_id)
        try:
            if session is not None:
                await self._close(session)
            elif session_id in self._closing:
                await asyncio.wait({self._closing[session_id]})
        finally:
            if session is not None:
                self.emit("changed")

    async def _close(self, session: OpenSession) -> None:
        del self._open[session.id]
        # It cannot be opened again before it is closed.
        task = self._closing[session.id] = asyncio.ensure_future(session.close())
        task.add_done_callback(lambda _task: self._closing.pop(session.id, None))
        await asyncio.shield(task)

    async def close_all(self) -> None:
        """Close all sessions, and raise the first error when all are closed."""
        every = {*self._open, *self._opening, *self._closing}
        closing = [asyncio.ensure_future(self.close(session_id)) for session_id in every]
        if closing:
            await asyncio.wait(closing)
        for task in closing:
            task.result()

    async def delete(self, session_id: str) -> None:
        # It is closed all the same, and its last messages are not wanted any more.
        with contextlib.suppress(UnsavedError):
            await self.close(session_id)
        await self._change(self.factory.history.delete, session_id)

    async def undelete(self, session_id: str) -> None:
        await self._change(self.factory.history.undelete, session_id)

    async def _change(self, work: Callable[..., T], *arguments: object) -> T:
        """Do work in a thread that changes what the sidebar shows."""
        try:
            return await asyncio.to_thread(work, *arguments)
        finally:
            self.emit("changed")

    def keep_draft(self, session: OpenSession, text: str) -> asyncio.Task[None]:
        """Store the unsent text of a session, even if it has no messages yet."""
        session.draft = text
        task = session.keeping = asyncio.ensure_future(self._keep(session, text, session.keeping))
        return task

    async def rename(self, session_id: str, title: str) -> None:
        await self._change(self.factory.history.rename, session_id, title)

    async def name(self, session: OpenSession) -> None:
        """Let the model name a session after its first turn, unless the user did already."""
        from ...chat.naming import suggest_title

        model, messages = session.conversation.model, list(session.conversation.messages)
        first = next((one.text for one in messages if one.role is Role.USER), "")
        is_wanted = self.settings.get_boolean("name-sessions") and session.connection != TOUR.name
        if model is None or not is_wanted or await self.title(session.id) != title_from(first):
            return
        title = await suggest_title(model, messages)
        if title and await self.title(session.id) == title_from(first):
            await self.rename(session.id, title)

    async def waiting(self, path: str) -> int:
        """Return the number of pending changes of a project."""
        return await asyncio.to_thread(
            lambda: count_pending(self.factory.manager, self._project(path))
        )

    async def remove_project(self, path: str) -> None:
        """Remove a project from the list. A search still finds its sessions."""
        await self._close_all_in(path)
        await self.list_project(path, is_listed=False)

    async def remove_sample(self, session: OpenSession) -> None:
        """Delete the sample project of the tour, with its session."""
        folder = session.project
        await self.delete(session.id)
        if folder is not None:
            await self.remove_project(folder)
            await self._change(remove_sample, Path(folder), self.factory.manager.paths)

    async def list_project(self, path: str, *, is_listed: bool) -> None:
        manager = self.factory.manager
        await self._change(lambda: manager.list_project(self._project(path), is_listed=is_listed))

    async def switch_system(self, path: str) -> None:
        """Let a project's commands run in Alpine, or with this computer's programs again."""

        def switch() -> None:
            paths = self.factory.manager.paths
            is_alpine = system_of(paths, path) is System.ALPINE
            set_system(paths, path, System.HOST if is_alpine else System.ALPINE)

        await self._change(switch)

    async def check_move(self, path: str, folder: str) -> None:
        """Raise an error if the project cannot be moved there. Change nothing."""
        from ...engine.move import check_move  # seldom needed

        self._check_idle(path)
        manager = self.factory.manager
        await asyncio.to_thread(lambda: check_move(manager, self._project(path), folder))

    async def move_project(self, path: str, folder: str) -> str:
        """Move a project, with its sessions and rules, to another folder. Return its new path."""
        from ...engine.move import move_project  # seldom needed

        self._check_idle(path)
        await self._close_all_in(path)
        # These are locked, too.
        if self._opening:
            await asyncio.wait(self._opening.values())
        if self._closing:
            await asyncio.wait(self._closing.values())
        manager, rules = self.factory.manager, self.factory.rules
        return await self._change(
            lambda: move_project(manager, rules, self._project(path), folder).path
        )

    async def listing(self) -> list[ProjectItem]:
        return await asyncio.to_thread(self.lister())

    def lister(self, search: str = "") -> Callable[[], list[ProjectItem]]:
        """Return a function that lists what a search finds, for a thread."""
        # Read in the main thread, which changes them.
        states = {
            one.id: (one.is_busy, bool(one.asking()), one.is_unread) for one in self.open_ones
        }
        return lambda: self._listing(search, states)

    async def title(self, session_id: str) -> str:
        def look() -> str:
            try:
                found = self.factory.history.find(session_id)
            except OllmSandboxError:
                return ""  # it is empty or deleted
            return found.title if found.id == session_id else ""

        return await asyncio.to_thread(look)

    def use_model(self, session: OpenSession, connection: str, model: str) -> None:
        session.connection, session.model_name = connection, model
        found = self._choice.model(connection, model)
        from ...chat.providers.tour.model import TourModel

        if isinstance(found, TourModel):
            found.pause = session.pause_tour
        session.conversation.use_model(found, connection)
        session.emit("state-changed")

    async def set_seeing(self, session: OpenSession, *, sees: bool) -> None:
        """Save the user's word on whether the model of a session sees pictures."""
        store, model = self.factory.connections, session.model_name
        await asyncio.to_thread(store.set_seeing, session.connection, model, sees=sees)
        self.renew_models()

    def renew_models(self) -> None:
        """Look up the model of each open session again, after the connections have changed."""
        for session in self.open_ones:
            self.use_model(session, session.connection, session.model_name)

    async def rename_connection(self, before: str, now: str) -> None:
        """Rename a connection in all sessions, open or not."""
        for session in self.open_ones:
            if session.connection == before:
                self.use_model(session, now, session.model_name)
        await asyncio.to_thread(self.factory.history.rename_connection, before, now)

    # --- projects ------------------------------------------------------------------------------

    def _project(self, path: str) -> Project:
        return self.factory.manager.recorded_project(path)

    async def _close_all_in(self, path: str) -> None:
        for session in self.open_ones:
            if session.project == path:
                await self.close(session.id)

    def _check_idle(self, path: str) -> None:
        if any(session.is_busy for session in self.open_ones if session.project == path):
            raise ProjectError(
                N_("A session in {folder} is still running."),
                N_("Stop it or wait until it finishes."),
                folder=path,
            )

    # --- opening -------------------------------------------------------------------------------

    async def _open_stored(self, session_id: str) -> OpenSession:
        if session_id in self._closing:
            await asyncio.wait({self._closing[session_id]})
        stored = await asyncio.to_thread(self.factory.history.load, session_id)
        # In a thread: there may be thousands.
        entries = await asyncio.to_thread(entries_of, stored)
        for entry in entries:
            if isinstance(entry, CallEntry) and entry.is_interrupted:
                # What it changed before the crash is on record, or was recovered.
                entry.run_id = await asyncio.to_thread(
                    self.factory.history.run_of, session_id, entry.call.id
                )
        connections = await asyncio.to_thread(self._choice.store.all)
        known = stored.info.connection in {one.name for one in (*connections, TOUR)}
        chosen = (stored.info.connection, stored.info.model) if known else self._choice.default()
        if stored.info.project:
            await asyncio.to_thread(self._bring_back, stored.info.project)
        # Last: this locks the session.
        conversation = await self.factory.open(None, session_id=session_id, with_model=False)
        session = _make(conversation, stored.info.project or None)
        session.show_stored(entries)
        session.spent = stored.info.spent
        session.draft = session.kept_draft = stored.draft
        return self._opened(session, *chosen)

    def _bring_back(self, path: str) -> None:
        """List a removed project again, when one of its sessions is opened."""
        project = self._project(path)
        if not project.is_listed:
            self.factory.manager.list_project(project, is_listed=True)

    async def _keep(
        self, session: OpenSession, text: str, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait({before})
        now = time.time()
        place = session.project or ""
        chosen = (session.model_name, session.connection)
        is_first = bool(text.strip()) and not session.entries

        def keep() -> None:
            if is_first:
                self.factory.history.create(SessionInfo(session.id, "", place, *chosen, now, now))
            self.factory.history.keep_draft(session.id, text)

        await asyncio.to_thread(keep)
        session.kept_draft = text
        if not session.entries:
            # An empty session is listed only if it has a draft.
            self.emit("changed")

    def _opened(self, session: OpenSession, connection: str, model: str) -> OpenSession:
        self._open[session.id] = session
        self._follow(session)
        session.connect("state-changed", lambda *_: self.emit("changed"))
        session.connect("files-changed", lambda *_: self.emit("changed"))
        session.connect("turn-ended", lambda one, end: self.emit("turn-ended", one, end))
        self.use_model(session, connection, model)
        return session

    def _follow_settings(self) -> None:
        for session in self._open.values():
            self._follow(session)

    def _follow(self, session: OpenSession) -> None:
        """Apply the preferences to a session, from its next call on."""
        # Imported here: the first frame does not need it.
        from ...tools.context import ToolPreferences

        session.conversation.use_preferences(
            ToolPreferences(
                mode=Mode(self.settings.get_string("apply-mode")),
                profile_name=self.settings.get_string("profile"),
                ask_every_command=self.settings.get_boolean("ask-every-command"),
                session_hosts=self.settings.get_boolean("session-hosts"),
                own_limits=own_limits(self.settings),
            )
        )

    def _listing(self, search: str, states: States) -> list[ProjectItem]:
        by_project: dict[str, list[SessionInfo]] = {}
        for info in self.factory.history.sessions(search=search):
            by_project.setdefault(info.project, []).append(info)
        lines = self.factory.history.found_lines(search)
        manager = self.factory.manager
        found = []
        # A search also finds removed projects.
        for project in manager.projects(with_removed=bool(search)):
            sessions = by_project.get(project.path, [])
            if sessions or not search:
                missing = self.folders.is_missing(project.path)
                shown = _shown(sessions, states, lines)
                is_alpine = system_of(manager.paths, project.path) is System.ALPINE
                found.append(ProjectItem(project.path, project.name, missing, shown, is_alpine))
        if without := by_project.get(""):
            found.append(ProjectItem("", _("No Project"), False, _shown(without, states, lines)))
        return found


def _make(conversation: Conversation, project: str | None) -> OpenSession:
    # Imported here: it loads what a turn needs, and the first frame does not.
    from .open_session import OpenSession

    return OpenSession(conversation, project)


def _shown(
    sessions: list[SessionInfo], states: States, lines: Mapping[str, FoundLine]
) -> tuple[SessionItem, ...]:
    return tuple(
        SessionItem(
            info.id,
            info.title or _("New Session"),
            *states.get(info.id, (False, False, False)),
            spent=_spent_text(info.spent),
            day=_day(info.updated_at),
            found=lines.get(info.id),
        )
        for info in sessions
    )


def _spent_text(spent: Spent) -> str:
    if not spent.tokens:
        return ""
    text = ngettext("{count} token", "{count} tokens", spent.tokens)
    text = text.format(count=number(spent.tokens))
    if spent.cost is None:
        return text
    # Translators: what a session has used: "12,345 tokens, cost 0.0123"
    return _("{tokens}, cost {cost}").format(tokens=text, cost=money(spent.cost))


def _day(at: float) -> Day:
    ago = days_ago(at)
    return Day.TODAY if ago <= 0 else Day.YESTERDAY if ago == 1 else Day.EARLIER
