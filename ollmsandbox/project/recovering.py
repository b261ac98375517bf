# SPDX-License-Identifier: GPL-3.0-or-later
"""What programs that were killed have left is finished by the next one."""

from __future__ import annotations

import os

from .. import N_
from ..errors import OllmSandboxError
from ..paths import Paths
from ..sandbox.overlay import leftovers
from .abandoned import GoneError, check
from .exchange import Step
from .finding import find_changes, numbered, uncrossed
from .journal import Journal, project_lock
from .manager import is_missing
from .opened import close_left
from .recorder import Mode, Report, nothing
from .review import Review
from .settling import Settling
from .told import Told


def _unreadable(folder: str) -> Report:
    text = N_(
        "It cannot be told which project {folder} belongs to, which holds what a command did."
    )
    what_to_do = N_("Take from it what you need, and remove it.")
    return Report("", errors=(str(OllmSandboxError(text, what_to_do, folder=folder)),))


def recover(paths: Paths, step: Step = nothing) -> list[Report]:
    """What programs that were killed have left: runs are finished, and what a command had written
    by then waits to be looked at."""
    reports: list[Report] = []
    told = Told(paths)
    for overlay in leftovers(paths.cache, lambda folder: reports.append(_unreadable(folder))):
        project = overlay.roots[0].path
        try:
            with project_lock(paths, project):
                journal = Journal.of_run(overlay.folder)
                if journal.exists():
                    check(overlay)
                job = journal.read()
                settling = Settling(paths, step)
                if job is None:
                    try:
                        journal.check(paths)
                    except OllmSandboxError as error:
                        # What is on disk has to do.
                        reports.append(Report(overlay.run_id, errors=(str(error),)))
                    for name in overlay.overlay_map:
                        close_left(overlay.upper(name))
                    mode = overlay.about.get("mode", Mode.NEVER.value)
                    if overlay.is_untouched() or mode == Mode.NEVER.value:
                        overlay.cleanup()
                        continue
                    sets = find_changes(overlay)
                    changes = [change for found in sets.values() for change in found.changes]
                    items = numbered(overlay, changes)
                    items, ways = uncrossed(paths, overlay, items, sets)
                    if items:
                        started = os.stat(overlay.folder).st_mtime
                        command = f"{overlay.about.get('command', '')} (interrupted)"
                        job = settling.plan(
                            overlay, items, Mode.REVIEW, command, started, ways=ways
                        )
                if job is not None:
                    reports.append(Report(overlay.run_id, tuple(settling.run(overlay, job))))
                overlay.cleanup()
        except (OllmSandboxError, OSError) as error:
            overlay.release()
            # Who works in the project hears each time what is missing there.
            if (
                not isinstance(error, GoneError)
                or not is_missing(project)
                or told.is_news(os.path.basename(overlay.folder), project)
            ):
                reports.append(Report(overlay.run_id, errors=(str(error),)))
    for journal in Journal.left(paths):
        review = Review(paths, step)
        try:
            reports += review.finish(journal)
        except (OllmSandboxError, OSError) as error:
            job = journal.read()
            if not isinstance(error, GoneError) or told.is_news(
                journal.name, job.project if job else ""
            ):
                reports.append(Report("", errors=(str(error),)))
        finally:
            review.close()
    told.end()
    return reports
