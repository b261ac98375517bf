# SPDX-License-Identifier: GPL-3.0-or-later
"""A project whose folder was moved or renamed: what is known of it goes along.

The files come first and the database last. Cut off in between, the project is still missing, and
to do it once more finds the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from pathlib import Path

from .. import N_
from ..errors import ProjectError
from ..files.atomic import write_atomically
from ..paths import Paths
from ..project.apply.journal import Journal, project_lock
from ..project.apply.kept_versions import layer_in
from ..project.database.models import ChatSession, FoundLink, Project, Run
from ..project.manager import AnyPath, ProjectManager

# In the folder of what waits: which layer is of which folder.
_LAYERS = "map.json"


def move_project(manager: ProjectManager, project: Project, folder: AnyPath) -> Project:
    """Its folder is `folder` now. The old one is gone."""
    paths, old, new = manager.paths, project.path, _check_folders(manager, project, folder)
    with project_lock(paths, old), project_lock(paths, new):
        other = _check(manager, project, new)
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


def check_move(manager: ProjectManager, project: Project, folder: AnyPath) -> str:
    """Whether it can be moved; nothing is changed yet. Returns the path that it will have."""
    new = _check_folders(manager, project, folder)
    with project_lock(manager.paths, project.path), project_lock(manager.paths, new):
        _check(manager, project, new)
    return new


def _check_folders(manager: ProjectManager, project: Project, folder: AnyPath) -> str:
    old, new = project.path, os.path.realpath(folder)
    if not manager.missing(project):
        raise ProjectError(
            N_("{folder} is still there."),
            N_("Open the other folder as a project of its own."),
            folder=old,
        )
    if not os.path.isdir(new):
        raise ProjectError(
            N_("{path} is not a folder."), N_("Choose a folder that is there."), path=new
        )
    return new


def _check(manager: ProjectManager, project: Project, new: str) -> Project | None:
    """Returns the project that the new folder is by now, if it is."""
    paths, old = manager.paths, project.path
    if _is_cut_off(paths, old):
        raise ProjectError(
            N_("A command in {folder} was cut off, and its changes are not in order yet."),
            N_("Put the folder back and start the program, then move it again."),
            folder=old,
        )
    other = _other(manager, project, new)
    # If nothing waits at the old place, what waits at the new one was moved before a kill.
    if paths.pending(old).is_dir() and _holds_more(paths.pending(new)):
        raise ProjectError(
            N_("Changes of another project, which was in {folder} before, still wait there."),
            N_("Give the folder another name, and choose it again."),
            folder=new,
        )
    return other


def _is_cut_off(paths: Paths, project: str) -> bool:
    """What is left of runs names the old folder. So does one that is under way."""
    if any(job.project == project for left in Journal.left(paths) for job in left.read_all()):
        return True
    for file in paths.cache.glob("overlay-*/map.json"):
        with contextlib.suppress(FileNotFoundError, ValueError):
            document = json.loads(file.read_text(encoding="utf-8"))
            # Of its folders a linked one alone may be left.
            if project in (document.get("project"), *(path for path, _ in document["roots"])):
                return True
    return False


def _other(manager: ProjectManager, project: Project, new: str) -> Project | None:
    """Somebody may have opened the folder at its new place, and talked there. But two histories do
    not become one."""
    other = manager.find_project(new)
    if other is None or other.id == project.id:
        return None
    if manager.last_run(other) is not None:
        raise ProjectError(
            N_("{folder} is a project already, with changes of its own."),
            N_("Give the folder another name, and choose it again."),
            folder=new,
        )
    return other


def _holds_more(pending: Path) -> bool:
    """Than the names of layers."""
    with contextlib.suppress(FileNotFoundError):
        return any(entry.name != _LAYERS for entry in pending.iterdir())
    return False


def _move_pending(paths: Paths, old: str, new: str) -> None:
    there, here = paths.pending(old), paths.pending(new)
    layers = here / _LAYERS
    if there.is_dir():
        layers.unlink(missing_ok=True)
        # Instead of the one that is empty now, if there is one.
        os.rename(there, here)
    # Also if it was moved before a kill.
    with contextlib.suppress(FileNotFoundError):
        known: dict[str, str] = json.loads(layers.read_text(encoding="utf-8"))
        moved = {name: new if root == old else root for name, root in known.items()}
        if moved != known:
            write_atomically(layers, json.dumps(moved), durably=True)


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
        _move_file_records(connection, project.id, _inside(old_name), _inside(new_name))
        name = os.path.basename(new) or new
        Project.update(path=new, name=name, is_listed=True).where(
            Project.id == project.id
        ).execute()


def _inside(folder: bytes) -> bytes:
    return folder.rstrip(b"/") + b"/"


def _move_file_records(
    connection: sqlite3.Connection, project_id: int, old: bytes, new: bytes
) -> None:
    """If one folder lies in the other, a new name may be another file's old one. So all of them
    become relative first, as no name is otherwise."""
    connection.execute(
        "UPDATE filerecord SET path = substr(path, ?)"
        " WHERE project_id = ? AND substr(path, 1, ?) = ?",
        (len(old) + 1, project_id, len(old), old),
    )
    relative = "project_id = ? AND substr(path, 1, 1) <> x'2f'"
    # What was known of a file outside, in whose place there is one of the project now.
    connection.execute(
        "DELETE FROM filerecord WHERE project_id = ? AND path IN"
        f" (SELECT CAST(? || path AS BLOB) FROM filerecord WHERE {relative})",
        (project_id, new, project_id),
    )
    connection.execute(
        f"UPDATE filerecord SET path = CAST(? || path AS BLOB) WHERE {relative}",
        (new, project_id),
    )
