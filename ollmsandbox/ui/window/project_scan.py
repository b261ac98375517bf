# SPDX-License-Identifier: GPL-3.0-or-later
"""Update the records of a project's files in the background, when it is opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...paths import is_missing
from ...project.projects import ProjectManager
from ..widgets.tasks import Tasks

# Seconds. The chat is shown first, and nothing is done for a project that is left at once.
_REST = 1.0


class ProjectScan:
    def __init__(self, manager: ProjectManager, tell: Callable[[str], None]) -> None:
        """`tell` shows an error to the user, each one only once."""
        self._manager = manager
        self._tell = tell
        self._tasks = Tasks(self._tell_once)
        self._told: set[str] = set()
        self._project: str | None = None

    def show_project(self, project: str | None) -> None:
        """Scan the project if it was not shown before, and no other one any more."""
        if project != self._project:
            self.end()
            self._project = project
            if project is not None:
                self._tasks.start(self._scan(project))

    @property
    def is_idle(self) -> bool:
        return self._tasks.is_idle

    def end(self) -> None:
        self._tasks.cancel()

    async def _scan(self, project: str) -> None:
        await asyncio.sleep(_REST)
        # The chat says that a folder is missing.
        if not await asyncio.to_thread(is_missing, project):
            # In a thread: even a look at a folder may take long.
            from ...project.records.folder import Folder  # not needed for the first frame

            folder = await asyncio.to_thread(Folder, project, self._manager)
            await folder.scan()

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(text)
