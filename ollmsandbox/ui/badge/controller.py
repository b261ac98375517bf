# SPDX-License-Identifier: GPL-3.0-or-later
"""What the badge says about the session that is shown."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...chat.sessions import SessionFactory
from ...sandbox.probe.probe import Capabilities
from ..preferences.settings import Settings
from ..widgets.tasks import Tasks
from .badge import SandboxBadge, Section, Wall
from .limits import own_limits
from .project import ProjectState, look, of_machine, wall_now

if TYPE_CHECKING:
    from ..sessions.open_session import OpenSession

# Seconds without a further step.
_REST = 0.4


class BadgeController:
    def __init__(
        self, badge: SandboxBadge, desk: SessionFactory, settings: Settings, tasks: Tasks
    ) -> None:
        self._badge = badge
        self._desk = desk
        self._settings = settings
        self._tasks = tasks
        self._session: OpenSession | None = None
        self._found: Capabilities | None = None
        self._wall = Wall.UNKNOWN
        self._sections: tuple[Section, ...] = ()
        self._looks = 0

    @property
    def _in_flatpak(self) -> bool:
        return bool(self._desk.environ.get("FLATPAK_ID"))

    @property
    def _project(self) -> str | None:
        return self._session.project if self._session is not None else None

    def show_capabilities(self, found: Capabilities) -> None:
        self._found = found
        if self._project is None:
            self._show_machine()

    def show_session(self, session: OpenSession | None) -> None:
        before, self._session = self._project, session
        if self._project is None:
            self._show_machine()
        elif before != self._project:
            self.look_again()

    def _show_machine(self) -> None:
        """Without a project it is known what the machine can do, and no more."""
        if self._in_flatpak:
            from . import flatpak

            self._show(flatpak.of_flatpak())
        elif self._found is not None:
            self._show(of_machine(can_wrap=self._found.can_wrap))
        else:
            self._show(ProjectState(Wall.UNKNOWN, ()))

    def look_again(self, *_args: object) -> None:
        """At the plan of a command: it depends on preferences, too."""
        self._begin(0.0)

    def look_soon(self) -> None:
        """Once, when the person has done with what is chosen step by step."""
        self._begin(_REST)

    def _begin(self, rest: float) -> None:
        if self._project is not None:
            self._looks += 1
            self._tasks.start(self._look(self._project, self._looks, rest))

    def refresh(self) -> None:
        self._badge.show(wall_now(self._wall, self._session), self._sections)

    async def _look(self, project: str, number: int, rest: float) -> None:
        if rest:
            await asyncio.sleep(rest)
            if number != self._looks:
                return
        given = (
            project,
            self._settings.text("profile"),
            self._desk.paths,
            self._desk.environ,
            own_limits(self._settings),
        )
        if self._in_flatpak:
            from . import flatpak

            state = await flatpak.look(*given)
        else:
            state = await asyncio.to_thread(look, *given)
        # Of several, the last one knows best, however long each took.
        if self._project == project and number == self._looks:
            self._show(state)

    def _show(self, state: ProjectState) -> None:
        self._wall, self._sections = state.wall, state.sections
        self.refresh()
