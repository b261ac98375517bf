# SPDX-License-Identifier: GPL-3.0-or-later
"""Take a project's files back to an earlier point in time.

Everything that runs have changed since then is undone, the last run first, by the rules of undo:
what the user edited elsewhere in a file stays, and a file whose lines the user edited is a
conflict. Changes that are still pending are discarded.
"""

from __future__ import annotations

from ..database.tables import Run
from ..project.change import PENDING_STATES, Report, State
from ..project.projects import AnyPath, ProjectManager
from ..project.review import Review
from ..project.state import read_current


def runs_since(
    manager: ProjectManager, project: AnyPath, since: float, *, session_id: str = ""
) -> list[Run]:
    """Return the runs that began at this time or later, the last one first: all of the project's,
    or only those of a session."""
    found = manager.find_project(project)
    runs = manager.runs(found, -1, session_id=session_id) if found else []
    return [run for run in runs if run.started_at >= since]


def changes_to_restore(manager: ProjectManager, runs: list[Run]) -> list[Report]:
    """Return what `undo_runs` would undo or discard, for each of these runs."""
    found = []
    for run in runs:
        states = (State.APPLIED, *PENDING_STATES)
        items = tuple(item for item in read_current(manager, run) if item.state in states)
        found += [Report(run.id, items)] if items else []
    return found


def undo_runs(review: Review, runs: list[Run]) -> list[Report]:
    """Discard what is pending of these runs, and undo the rest. They begin with the last one."""
    done = []
    for run in runs:
        # First what is pending: if some hunks of it are applied, it is applied then.
        reports = (review.discard(run), review.undo(run))
        items = {item.number: item for report in reports for item in report.changes}
        if items:
            done.append(Report(run.id, tuple(items.values())))
    return done
