# SPDX-License-Identifier: GPL-3.0-or-later
"""The versions of a file that are kept, from all runs and from the backups of each day."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from .backup import backup_name, day_of
from .change import State
from .kept import layer_in
from .manager import ProjectManager
from .models import Project
from .present import find_in_layers, root_of
from .versions import Version


@dataclass(frozen=True)
class Earlier:
    """A version of a file from before; it can be restored."""

    # When something else took its place; of a backup only the day is known.
    until: float
    version: Version
    # The run that replaced it; "" for the backup of a day.
    run_id: str = ""


def backups_of(manager: ProjectManager, project: Project, path: str) -> list[Earlier]:
    """By its full path; the newest first."""
    found: list[Earlier] = []
    known: set[int] = set()

    def add(until: float, folder: Path, name: str, run_id: str = "") -> None:
        seen = find_in_layers([str(folder)], name) if folder.is_dir() else None
        # A backup is mostly the very file that a run kept.
        if seen is not None and seen.is_file and seen.found.st_ino not in known:
            known.add(seen.found.st_ino)
            found.append(Earlier(until, Version(seen), run_id))

    root, inner = root_of(manager.paths, project.path, path) or ("", "")
    for run_id, number, ended in _replaced(manager, root, inner) if root else ():
        kept = manager.paths.versions / run_id
        add(ended, kept, str(number), run_id)
        # If it was one of many, it may lie by its path.
        add(ended, layer_in(kept, root), inner, run_id)
    for name, day in _copies(manager, project, path):
        add(day, manager.paths.backups, name)
    return sorted(found, key=lambda earlier: -earlier.until)


def _replaced(manager: ProjectManager, root: str, path: str) -> list[tuple[str, int, float]]:
    with manager.store.errors_told():
        return manager.store.connection.execute(
            "SELECT run.id, change.number, coalesce(run.ended_at, run.started_at)"
            " FROM change JOIN run ON run.id = change.run_id"
            " WHERE change.root = ? AND change.path = ? AND change.state = ?"
            " ORDER BY run.ended_at DESC",
            (*map(os.fsencode, (root, path)), State.APPLIED.value),
        ).fetchall()


def _copies(manager: ProjectManager, project: Project, path: str) -> list[tuple[str, float]]:
    with manager.store.errors_told():
        row = manager.store.connection.execute(
            "SELECT id FROM filerecord WHERE project_id = ? AND path = ?"
            " AND last_approved_copy_path IS NOT NULL",
            (project.id, os.fsencode(path)),
        ).fetchone()
    if row is None or not manager.paths.backups.is_dir():
        return []
    start = f"{row[0]}-"
    copies = []
    for name in os.listdir(manager.paths.backups):
        day = day_of(name) if name.startswith(start) else ""
        if day and name == backup_name(row[0], path, day):
            copies.append((name, time.mktime(time.strptime(day, "%y-%m-%d"))))
    return copies
