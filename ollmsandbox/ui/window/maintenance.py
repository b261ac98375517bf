# SPDX-License-Identifier: GPL-3.0-or-later
"""Finish interrupted runs and remove old files: when the window opens, and daily after that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gi.repository import GLib

from ...engine.run import finish_interrupted_runs
from ...i18n import ngettext
from ...project import DAILY
from ...project.projects import ProjectManager
from ...project.short_list import split_ignored
from ..terminal.output import remove_old
from ..widgets.readable import number
from ..widgets.tasks import Tasks
from ..widgets.weak import weakly


class Maintenance:
    def __init__(
        self,
        manager: ProjectManager,
        tasks: Tasks,
        warn: Callable[[str], object],
        done: Callable[[], object],
    ) -> None:
        """Start at once. Call `warn` with what to tell, and `done` when files may have changed."""
        self._manager = manager
        self._tasks = tasks
        self._warn = warn
        self._done = done
        self._start()
        self._timer = GLib.timeout_add_seconds(DAILY, weakly(self._start))

    def end(self) -> None:
        GLib.source_remove(self._timer)

    def _start(self) -> bool:
        self._tasks.start(self._maintain())
        return GLib.SOURCE_CONTINUE

    async def _maintain(self) -> None:
        paths = self._manager.paths
        found = await asyncio.to_thread(finish_interrupted_runs, paths, clean_up=True, always=True)
        await asyncio.to_thread(remove_old, paths.cache / "output")
        # Only whoever opens a damaged database first hears that it was set aside.
        for text in await asyncio.to_thread(self._take_notices):
            self._warn(text)
        if found is not None:
            for text in (*found.notices, *found.errors):
                self._warn(text)
            for report in found.finished:
                shown, ignored = split_ignored(report.changes)
                count = len(shown or ignored)
                text = ngettext(
                    "Recovered {} file from a command that was interrupted.",
                    "Recovered {} files from a command that was interrupted.",
                    count,
                )
                self._tasks.tell(text.format(number(count)))
        self._done()

    def _take_notices(self) -> list[str]:
        notices = list(self._manager.store.notices)
        self._manager.store.notices.clear()
        return notices
