# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes a chain of the pending changes of earlier versions of the program, which merged those of
all runs into one layer: it becomes the layer of the oldest of these runs."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

from ...errors import OllmSandboxError, in_words
from ...files.dirfd import DirEntryAt, opened_folder, restore_modes
from ...paths import Paths, make_folder
from ..apply.journal import project_lock
from ..apply.swap import copy_whole
from ..changes.change import Recorded, State
from ..changes.reasons import Note, Reason
from ..changes.scan import scan
from ..database import runs
from ..manager import ProjectManager, is_missing
from ..pending.chain import Chain

# In the folder of a project: its roots, by the names of their layers.
_MAP = "map.json"
# Instead of a signature: of a conflict whose version was in no layer, but kept by the run.
_ASIDE = "aside"


def migrate_layers(manager: ProjectManager, errors: list[str]) -> None:
    """Migrate the pending changes of every project whose folder exists.

    An error with one project is added to `errors`, and the others are processed.
    """
    paths = manager.paths
    for file in sorted((paths.data / "pending").glob(f"*/{_MAP}")):
        try:
            layers: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
            projects = [root for root in layers.values() if paths.pending(root) == file.parent]
            if projects and not is_missing(projects[0]):
                with project_lock(paths, projects[0]):
                    _migrate(manager, projects[0], file, layers)
        except (OllmSandboxError, OSError, ValueError) as error:
            errors.append(in_words(error))


def _migrate(manager: ProjectManager, project: str, file: Path, layers: dict[str, str]) -> None:
    known = manager.find_project(project)
    order = manager.runs(known, limit=-1, only_pending=True) if known else []
    chain = Chain(manager.paths, project)
    ids = [run.id for run in sorted(order, key=lambda run: run.ended_at or run.started_at)]
    rows = runs.changes_of_runs(manager, ids)
    waiting = [run_id for run_id, row in rows if row.after != _ASIDE]
    # Without records, the same name each time.
    at = time.strftime("%Y%m%d-%H%M%S", time.localtime(file.stat().st_mtime))
    oldest = waiting[0] if waiting else f"{at}-{file.parent.name[:8]}"
    # Runs that came since have layers of their own.
    rows = [(one, row) for one, row in rows if one == oldest or one not in chain.runs]
    chain.add_below(oldest, layers)
    make_folder(file.parent / oldest)
    for name in layers:
        with contextlib.suppress(FileNotFoundError):
            os.rename(file.parent / name, file.parent / oldest / name)
    if waiting:
        _record(manager, chain, oldest, rows)
    chain.drop_empty([oldest])
    file.unlink()


def _record(
    manager: ProjectManager, chain: Chain, oldest: str, rows: list[tuple[str, Recorded]]
) -> None:
    """Record all that is in the layers with the oldest run; the others' changes are discarded."""
    tops = {
        (row.change.root, row.change.path): (run_id, row)
        for run_id, row in rows
        if row.after != _ASIDE
    }
    own = {
        (row.change.root, row.change.path): row.number for run_id, row in rows if run_id == oldest
    }
    free = runs.last_number(manager, oldest) + 1
    items: list[Recorded] = []
    for root, layer in chain.roots_of(oldest).items():
        restore_modes(layer)
        if is_missing(root):
            # It cannot be compared now: as it was recorded.
            changes = [row.change for (at, _), (_, row) in tops.items() if at == root]
        else:
            changes = list(scan(layer, [root], root).changes)
        for change in changes:
            place = (root, change.path)
            number = own.get(place, free + len(items))
            run_id, top = tops.get(place, (oldest, Recorded(number, change)))
            items.append(top._replace(number=number, change=change, after=""))
            if run_id != oldest:
                _copy_base(manager.paths, (run_id, top.number), (oldest, number))
    gone = Note(Reason.EARLIER_RUN, {"run": oldest})
    with manager.store.transaction():
        for run_id, row in rows:
            if run_id != oldest or row.after == _ASIDE:
                note = row.note if row.after == _ASIDE else gone
                row = row._replace(state=State.DISCARDED, note=note, after="")
                runs.write_changes(manager, run_id, [row])
        runs.write_changes(manager, oldest, items)


def _copy_base(paths: Paths, source: tuple[str, int], target: tuple[str, int]) -> None:
    """Copy what was on disk before a change, if it is kept."""
    folders = (make_folder(paths.versions / run_id) for run_id, _ in (source, target))
    with opened_folder(next(folders)) as one, opened_folder(next(folders)) as other:
        given, kept = DirEntryAt(one, str(source[1])), DirEntryAt(other, str(target[1]))
        if given.lstat() is not None and kept.lstat() is None:
            copy_whole(given, kept)
