# SPDX-License-Identifier: GPL-3.0-or-later
"""What was cut off is finished, and what is old goes: at the start, and once a day after that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from gettext import gettext as _

from gi.repository import GLib

from ...project.changes.change import DAILY
from ...project.manager import ProjectManager
from ...project.recovery.recover import take_care
from ..terminal.output import remove_old
from ..widgets.tasks import Tasks
from ..widgets.weak import weakly


class DailyCare:
    def __init__(self, manager: ProjectManager, tasks: Tasks, done: Callable[[], object]) -> None:
        """`manager` is the window's; `done` is called when files may be other than before."""
        self._manager = manager
        self._tasks = tasks
        self._done = done
        self._begin()
        self._timer = GLib.timeout_add_seconds(DAILY, weakly(self._begin))

    def end(self) -> None:
        GLib.source_remove(self._timer)

    def _begin(self) -> bool:
        self._tasks.start(self._care())
        return GLib.SOURCE_CONTINUE

    async def _care(self) -> None:
        paths = self._manager.paths
        care = await asyncio.to_thread(take_care, paths)
        await asyncio.to_thread(remove_old, paths.cache / "output")
        # Who opens a damaged database first hears that it was set aside: the care, or the window.
        notices = await asyncio.to_thread(self._take_notices)
        for text in (*notices, *care.notices, *care.errors):
            self._tasks.tell(text)
        for report in care.finished:
            self._tasks.tell(_("A run that was cut off is finished now: {}.").format(report.run_id))
        self._done()

    def _take_notices(self) -> list[str]:
        notices = list(self._manager.notices)
        self._manager.notices.clear()
        return notices
