# SPDX-License-Identifier: GPL-3.0-or-later
"""Records pending changes again after the database was lost.

Every command sees them, so the user has to be able to apply or discard them.
"""

from __future__ import annotations

import os
import time

from ...errors import OllmSandboxError
from ...files.dirfd import restore_modes
from ..apply.journal import Job, Task, project_lock
from ..changes.change import Change, Recorded
from ..changes.mode import Mode
from ..changes.scan import scan
from ..database import runs
from ..manager import ProjectManager, is_missing
from ..pending.chain import Chain, chains
from .missing import unfinished_projects

_COMMAND = "Changes that were found again"


def adopt(manager: ProjectManager, errors: list[str]) -> list[str]:
    """Record unrecorded pending changes, with their runs; return the projects that have some.

    An error with one project is added to `errors`, and the others are processed.
    """
    paths = manager.paths
    is_all = True
    found = []
    for project, _ in chains(paths):
        if is_missing(project):
            continue  # perhaps on a disk that is not mounted now
        try:
            with project_lock(paths, project):
                begun = unfinished_projects(paths)
                if begun is None or project in begun:
                    # Recovery records what is in the layers.
                    is_all = False
                elif _adopt(manager, project, Chain(paths, project)):
                    found.append(project)
        except (OllmSandboxError, OSError) as error:
            errors.append(str(error))
    if is_all:
        paths.unclaimed.unlink(missing_ok=True)
    return found


def _adopt(manager: ProjectManager, project: str, chain: Chain) -> bool:
    known = {run_id for run_id, _ in runs.changes_of_runs(manager, chain.runs)}
    lost = [run_id for run_id in chain.runs if run_id not in known]
    for run_id in lost:
        changes: list[tuple[Change, int]] = []
        for root, layer in chain.roots_of(run_id).items():
            if os.path.isdir(root):
                restore_modes(layer)
                found = scan(layer, chain.lowers(run_id, root), root).changes
                changes += ((change, _made_at(layer, change.path)) for change in found)
        job = Job(
            task=Task.SETTLE,
            run_id=run_id,
            project=project,
            mode=Mode.REVIEW.value,
            command=_COMMAND,
            started=time.time(),
            items=tuple(Recorded(n, change, began=at) for n, (change, at) in enumerate(changes)),
            sources={},
        )
        with manager.store.transaction():
            runs.begin_run(manager, job)
            runs.end_run(manager, job, job.items)
    return bool(lost)


def _made_at(layer: str, path: str) -> int:
    """Return when the command made a change: later changes on disk are someone else's. For what was
    deleted with its folder, return when the folder was deleted."""
    while path:
        try:
            found = os.lstat(f"{layer}/{path}")
        except OSError:
            path = os.path.dirname(path)
        else:
            # A command can set the first, and the second is never earlier than the change.
            return min(found.st_mtime_ns, found.st_ctime_ns)
    return 0
