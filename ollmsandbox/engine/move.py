# SPDX-License-Identifier: GPL-3.0-or-later
"""Give a project its new path after the user has moved or renamed its folder.

Pending changes, kept versions, records, sessions, caches, the chosen system and the saved rules
move along. The files come first and the database last: interrupted in between, the project is still
missing, and moving it again finishes the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3

from .. import N_
from ..database.tables import ChatSession, Project
from ..errors import OllmSandboxError, ProjectError
from ..paths import Paths, is_missing
from ..permission.store import RuleStore
from ..project.jobs import job_file, project_lock
from ..project.layer import PendingLayer
from ..project.opening import check_links
from ..project.projects import AnyPath, ProjectManager
from ..project.run import RunFolder
from ..sandbox.caches import move_caches
from .session_lock import SessionLock


def move_project(
    manager: ProjectManager, rules: RuleStore, project: Project, folder: AnyPath
) -> Project:
    """Record that the project, whose folder no longer exists, is in `folder` now.

    Close its sessions first. Raise ProjectError if one is open, or if the project cannot be moved
    there.
    """
    new = check_move(manager, project, folder)
    _check_closed(manager, project)
    if other := _other(manager, project, new):
        _check_closed(manager, other)
    with rules.move_project(project.path, new):
        return _move(manager, project, new)


def _move(manager: ProjectManager, project: Project, new: str) -> Project:
    paths, old = manager.paths, project.path
    with project_lock(paths, old), project_lock(paths, new):
        other = _check(manager, project, new)
        _move_runs(manager, project, new)
        with contextlib.suppress(FileNotFoundError):
            os.replace(paths.system(old), paths.system(new))
        move_caches(paths, old, new)
        _move_records(manager, project, other, new)
        for path in (old, new):
            paths.linked_roots(path).unlink(missing_ok=True)
    moved = manager.find_project(new)
    assert moved is not None
    return moved


def check_move(manager: ProjectManager, project: Project, folder: AnyPath) -> str:
    """Return the path that the project will have; raise ProjectError if it cannot be moved."""
    check_links(folder, manager.paths)
    old, new = project.path, os.path.realpath(folder)
    if not is_missing(project.path):
        raise ProjectError(
            N_("{folder} still exists."),
            N_("Open the other folder as a separate project."),
            folder=old,
        )
    if not os.path.isdir(new):
        raise ProjectError(
            N_("{path} is not a folder."), N_("Choose an existing folder."), path=new
        )
    with project_lock(manager.paths, project.path), project_lock(manager.paths, new):
        _check(manager, project, new)
    return new


def _check_closed(manager: ProjectManager, project: Project) -> None:
    """Raise ProjectError if a session is open in another program, which knows the old folder."""
    with manager.store.translated_errors():
        chosen = ChatSession.select(ChatSession.id).where(ChatSession.project == project.id)
        sessions = [session.id for session in chosen]
    for session_id in sessions:
        try:
            # One after the other: all at once may be more files than a process can open.
            SessionLock(manager.paths, session_id).release()
        except OllmSandboxError as error:
            raise ProjectError(
                N_("A session in {folder} is open in another program."),
                N_("Close it there, then try again."),
                folder=project.path,
            ) from error


def _check(manager: ProjectManager, project: Project, new: str) -> Project | None:
    """Return the other project that was opened in the new folder; None if there is none."""
    paths, old = manager.paths, project.path
    if _has_unfinished_run(paths, old):
        raise ProjectError(
            N_(
                "A command in {folder} was interrupted, and its changes have not been "
                "recovered yet."
            ),
            N_("Move the folder back, start OLLM Sandbox, then move it again."),
            folder=old,
        )
    other = _other(manager, project, new)
    # If the old folder has no pending changes, an interrupted move has moved them already.
    if PendingLayer(paths, old).runs() and PendingLayer(paths, new).runs():
        raise ProjectError(
            N_("There are pending changes of another project that was in {folder} before."),
            N_("Rename the folder, and choose it again."),
            folder=new,
        )
    return other


def _has_unfinished_run(paths: Paths, project: str) -> bool:
    """Return whether a run of the project is unfinished: its records name the old folder."""
    if job_file(paths, project).exists():
        return True
    for file in paths.cache.glob("overlay-*/map.json"):
        with contextlib.suppress(FileNotFoundError, ValueError):
            document = json.loads(file.read_text(encoding="utf-8"))
            # Its project's own root may be settled already, and only a linked one be left.
            if project in (document.get("project"), *(root[0] for root in document["roots"])):
                return True
    return False


def _other(manager: ProjectManager, project: Project, new: str) -> Project | None:
    """Return the project that the user opened in the new folder after moving it, or None.

    Sessions of both can be merged. Raise ProjectError if it has runs: two histories cannot.
    """
    other = manager.find_project(new)
    if other is None or other.id == project.id:
        return None
    if manager.last_run(other) is not None:
        raise ProjectError(
            N_("{folder} is already a project with changes of its own."),
            N_("Rename the folder, and choose it again."),
            folder=new,
        )
    return other


def _move_runs(manager: ProjectManager, project: Project, new: str) -> None:
    """Record the new path with the project's runs, and which of them have pending changes."""
    paths, old = manager.paths, project.path
    for run in manager.runs(project, limit=-1):
        # Gone since, or moved already by a move that was interrupted.
        with contextlib.suppress(FileNotFoundError):
            RunFolder(paths, run.id).move_root(old, new)
    pending = PendingLayer(paths, old).runs()
    if pending:
        PendingLayer(paths, new).note(dict.fromkeys(pending, True))
        PendingLayer(paths, old).note(dict.fromkeys(pending, False))


def _move_records(
    manager: ProjectManager, project: Project, other: Project | None, new: str
) -> None:
    old_name, new_name = os.fsencode(project.path), os.fsencode(new)
    with manager.store.transaction() as connection:
        if other is not None:
            ChatSession.update(project=project.id).where(ChatSession.project == other.id).execute()
            Project.delete().where(Project.id == other.id).execute()
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
    """Make all paths relative first, which no recorded path is otherwise, then absolute again: if
    one folder is in the other, one file's new path may be another's old path."""
    connection.execute(
        "UPDATE filerecord SET path = substr(path, ?)"
        " WHERE project_id = ? AND substr(path, 1, ?) = ?",
        (len(old) + 1, project_id, len(old), old),
    )
    relative = "project_id = ? AND substr(path, 1, 1) <> x'2f'"
    # Drop the record of a file outside, where a file of the project is now.
    connection.execute(
        "DELETE FROM filerecord WHERE project_id = ? AND path IN"
        f" (SELECT CAST(? || path AS BLOB) FROM filerecord WHERE {relative})",
        (project_id, new, project_id),
    )
    connection.execute(
        f"UPDATE filerecord SET path = CAST(? || path AS BLOB) WHERE {relative}", (new, project_id)
    )
