# SPDX-License-Identifier: GPL-3.0-or-later
"""What was cut off is finished, and what is old goes: at the start, and once a day after that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from gettext import gettext as _

from gi.repository import GLib

from ..paths import Paths
from ..project.care import take_care
from ..project.recorder import DAILY
from .output_files import remove_old
from .tasks import Tasks
from .weakly import weakly


class DailyCare:
    def __init__(self, paths: Paths, tasks: Tasks, done: Callable[[], object]) -> None:
        """`done` is called when files may be other than before."""
        self._paths = paths
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
        care = await asyncio.to_thread(take_care, self._paths)
        await asyncio.to_thread(remove_old, self._paths.cache / "output")
        for text in (*care.notices, *care.errors):
            self._tasks.tell(text)
        for report in care.finished:
            self._tasks.tell(_("A run that was cut off is finished now: {}.").format(report.run_id))
        self._done()
