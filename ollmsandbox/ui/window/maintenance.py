# SPDX-License-Identifier: GPL-3.0-or-later
"""Finish interrupted runs and remove old files: when the window opens, and daily after that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...engine.run import finish_interrupted_runs
from ...i18n import ngettext
from ...project.projects import ProjectManager
from ...project.short_list import split_ignored
from ..terminal.output import remove_old
from ..widgets.readable import number


async def maintain(
    manager: ProjectManager,
    tell: Callable[[str], object],
    warn: Callable[[str], object],
    done: Callable[[], object],
) -> None:
    """Call `warn` with what the user has to know, and `done` when files may have changed."""
    paths = manager.paths
    found = await asyncio.to_thread(finish_interrupted_runs, paths, clean_up=True, always=True)
    await asyncio.to_thread(remove_old, paths.cache / "output")
    # Only whoever opens a damaged database first hears that it was set aside.
    store = await asyncio.to_thread(lambda: manager.store)
    while store.notices:
        warn(store.notices.pop(0))
    if found is not None:
        for text in (*found.notices, *found.errors):
            warn(text)
        for report in found.finished:
            shown, ignored = split_ignored(report.changes)
            count = len(shown or ignored)
            text = ngettext(
                "Recovered {} file from a command that was interrupted.",
                "Recovered {} files from a command that was interrupted.",
                count,
            )
            tell(text.format(number(count)))
    done()
