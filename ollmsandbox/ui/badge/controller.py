# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the badge up to date with the session that is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...sandbox.spec import RunSpec
from ..settings import Settings, own_limits
from ..widgets.scheduling import Timer
from .badge import SandboxBadge, SandboxState
from .project import (
    ProjectState,
    find_state,
    flatpak_state_without_project,
    machine_state,
    with_network,
)

if TYPE_CHECKING:
    from ...chat.sessions import SessionFactory
    from ...sandbox.probe.probe import Capabilities
    from ..sessions.open_session import OpenSession
    from ..widgets.tasks import Tasks


class BadgeController:
    def __init__(
        self, badge: SandboxBadge, factory: SessionFactory, settings: Settings, tasks: Tasks
    ) -> None:
        self._badge = badge
        self._factory = factory
        self._settings = settings
        self._tasks = tasks
        self._session: OpenSession | None = None
        self._found: Capabilities | None = None
        self._state = ProjectState(SandboxState.UNKNOWN, ())
        self._looks = 0
        self._soon = Timer(self.look_again)

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
        """Show what the machine can do: without a project, nothing else is known."""
        if self._factory.environ.get("FLATPAK_ID"):
            self._show(flatpak_state_without_project())
        elif self._found is not None:
            self._show(machine_state(can_wrap=self._found.can_wrap))
        else:
            self._show(ProjectState(SandboxState.UNKNOWN, ()))

    def look_again(self, *_args: object) -> None:
        """Read the plan of a command again, which also depends on preferences."""
        if self._project is not None:
            self._looks += 1
            self._tasks.start(self._look(self._project, self._looks))

    def look_soon(self) -> None:
        """Read it once after several changes, such as steps of a spin button."""
        self._soon.restart(400)

    def refresh(self) -> None:
        self._badge.show(with_network(self._state.sandbox, self._session), self._state.sections)

    async def _look(self, project: str, number: int) -> None:
        limits = own_limits(self._settings)
        spec = RunSpec(project, profile=self._settings.get_string("profile"), limits=limits)
        state = await find_state(spec, self._factory.paths, self._factory.environ)
        # Only the call that started last counts.
        if self._project == project and number == self._looks:
            self._show(state)

    def _show(self, state: ProjectState) -> None:
        self._state = state
        self.refresh()
