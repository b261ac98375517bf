# SPDX-License-Identifier: GPL-3.0-or-later
"""A project whose folder was moved or renamed: what is known of it goes along.

The files come first and the database last. Cut off in between, the project is still missing, and
to do it once more finds the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from .. import N_
from ..errors import ProjectError
from ..paths import Paths, make_folder, write_atomically
from .journal import Journal, project_lock
from .kept import layer_in
from .manager import AnyPath, ProjectManager
from .models import ChatSession, FoundLink, Project, Run


def move_project(manager: ProjectManager, project: Project, folder: AnyPath) -> Project:
    """Its folder is `folder` now. The old one is gone."""
    paths, old, new = manager.paths, project.path, os.path.realpath(folder)
    if os.path.isdir(old):
        raise ProjectError(
            N_("{folder} is still there."),
            N_("Open the other folder as a project of its own."),
            folder=old,
        )
    if not os.path.isdir(new):
        raise ProjectError(
            N_("{path} is not a folder."), N_("Choose a folder that is there."), path=new
        )
    with project_lock(paths, old), project_lock(paths, new):
        if _is_cut_off(paths, old):
            raise ProjectError(
                N_("A command in {folder} was cut off, and its changes are not in order yet."),
                N_("Put the folder back and start the program, then move it again."),
                folder=old,
            )
        other = _other(manager, project, new)
        _move_pending(paths, old, new)
        _move_versions(manager, project, new)
        with contextlib.suppress(FileNotFoundError):
            os.replace(paths.system(old), paths.system(new))
        _move_records(manager, project, other, new)
        for path in (old, new):
            paths.linked_roots(path).unlink(missing_ok=True)
    moved = manager.find_project(new)
    assert moved is not None
    return moved


def _is_cut_off(paths: Paths, project: str) -> bool:
    """What is left of runs names the old folder. So does one that is under way."""
    if any(job.project == project for left in Journal.left(paths) for job in left.read_all()):
        return True
    for file in paths.cache.glob("overlay-*/map.json"):
        with contextlib.suppress(FileNotFoundError, ValueError):
            roots = json.loads(file.read_text(encoding="utf-8"))["roots"]
            if project in (path for path, _pending in roots):
                return True
    return False


def _other(manager: ProjectManager, project: Project, new: str) -> Project | None:
    """Somebody may have opened the folder at its new place, and talked there. But two histories do
    not become one."""
    other = manager.find_project(new)
    if other is None or other.id == project.id:
        return None
    if manager.last_run(other) is not None or _waits(manager.paths.pending(new)):
        raise ProjectError(
            N_("{folder} is a project already, with changes of its own."),
            N_("Remove one of the two from the list."),
            folder=new,
        )
    return other


def _waits(pending: Path) -> bool:
    return any(pending.glob("overlay*"))


def _move_pending(paths: Paths, old: str, new: str) -> None:
    there, here = paths.pending(old), paths.pending(new)
    if not there.is_dir():
        return
    layers = there / "map.json"
    with contextlib.suppress(FileNotFoundError):
        known: dict[str, str] = json.loads(layers.read_text(encoding="utf-8"))
        moved = {name: new if root == old else root for name, root in known.items()}
        write_atomically(layers, json.dumps(moved), durably=True)
    (here / "map.json").unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        here.rmdir()
    make_folder(here.parent)
    os.rename(there, here)


def _move_versions(manager: ProjectManager, project: Project, new: str) -> None:
    """Those of many files at once are named after the folder that they are of."""
    with manager.store.errors_told():
        runs = [run.id for run in Run.select(Run.id).where(Run.project == project.id)]
    for run_id in runs:
        folder = manager.paths.versions / run_id
        with contextlib.suppress(FileNotFoundError):
            os.rename(layer_in(folder, project.path), layer_in(folder, new))


def _move_records(
    manager: ProjectManager, project: Project, other: Project | None, new: str
) -> None:
    old_name, new_name = os.fsencode(project.path), os.fsencode(new)
    with manager.store.transaction() as connection:
        if other is not None:
            ChatSession.update(project=project.id).where(ChatSession.project == other.id).execute()
            Project.delete().where(Project.id == other.id).execute()
        # Found anew by the next scan.
        FoundLink.delete().where(FoundLink.project == project.id).execute()
        connection.execute(
            "UPDATE change SET root = ? WHERE root = ?"
            " AND run_id IN (SELECT id FROM run WHERE project_id = ?)",
            (new_name, old_name, project.id),
        )
        below = old_name.rstrip(b"/") + b"/"
        connection.execute(
            "UPDATE filerecord SET path = CAST(? || substr(path, ?) AS BLOB)"
            " WHERE project_id = ? AND substr(path, 1, ?) = ?",
            (new_name.rstrip(b"/") + b"/", len(below) + 1, project.id, len(below), below),
        )
        Project.update(path=new, name=os.path.basename(new) or new).where(
            Project.id == project.id
        ).execute()
