# SPDX-License-Identifier: GPL-3.0-or-later
"""Records pending changes again after the database was lost.

Every command sees them, so the user has to be able to apply or discard them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence

from ...errors import OllmSandboxError
from ...files.dirfd import restore_modes
from ...paths import Paths
from ..apply.journal import Job, Task, project_lock
from ..changes.change import Change, Mode, Recorded
from ..changes.scan import scan
from ..database import runs
from ..manager import ProjectManager, is_missing
from ..pending import layer as pending
from .missing import unfinished_projects

_COMMAND = "Changes that were found again"


def adopt(manager: ProjectManager, errors: list[str]) -> list[str]:
    """Record unrecorded pending changes as one run for each project; return these projects.

    If a project has recorded pending changes, all are recorded, unless the database is new. An
    error with one project is added to `errors`, and the others are processed.
    """
    paths = manager.paths
    is_new = paths.unclaimed.exists()
    is_all = True
    found = []
    for project, roots in _layers(paths):
        if is_missing(project):
            continue  # perhaps on a disk that is not mounted now
        try:
            with project_lock(paths, project):
                begun = unfinished_projects(paths)
                if begun is None or project in begun:
                    # Recovery records what is in the layer, with its run.
                    is_all = False
                elif _adopt(manager, project, roots, is_new=is_new):
                    found.append(project)
        except (OllmSandboxError, OSError) as error:
            errors.append(str(error))
    if is_new and is_all:
        paths.unclaimed.unlink(missing_ok=True)
    return found


def _layers(paths: Paths) -> list[tuple[str, list[str]]]:
    """Return each project with pending changes, and its roots that have them."""
    found = []
    for file in sorted((paths.data / "pending").glob("*/map.json")):
        try:
            known: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            continue
        folder = file.parent
        roots = [root for name, root in known.items() if not pending.is_empty(f"{folder}/{name}")]
        project = [root for root in known.values() if paths.pending(root) == folder]
        if roots and project:
            found.append((project[0], roots))
    return found


def _adopt(manager: ProjectManager, path: str, roots: Sequence[str], *, is_new: bool) -> bool:
    known = manager.find_project(path)
    changes: list[tuple[Change, int]] = []
    for root in roots:
        covered = runs.waiting(manager, known, root) if known else {}
        if (covered and not is_new) or not os.path.isdir(root):
            continue
        layer = pending.layer_for(manager.paths.pending(path), root)
        if pending.is_empty(layer):
            continue
        restore_modes(layer)
        for change in scan(layer, [root], root).changes:
            if change.path not in covered:
                changes.append((change, _made_at(layer, change.path)))
    if not changes:
        return False
    now = time.time()
    job = Job(
        task=Task.APPLY,
        run_id=f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(4).hex()}",
        project=path,
        mode=Mode.REVIEW.value,
        command=_COMMAND,
        started=now,
        items=tuple(Recorded(n, change, began=at) for n, (change, at) in enumerate(changes)),
        sources={},
    )
    with manager.store.transaction():
        project = runs.begin_run(manager, job)
        runs.end_run(manager, project, job, job.items, alone=True)
    return True


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
