# SPDX-License-Identifier: GPL-3.0-or-later
"""Walks through a project: lists its files and the links that lead outside, in a file, and updates
the records of the files that runs have changed.

With 100,000 files in 5,000 folders, the walk takes 0.4 s of processor time.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ... import N_
from ...database.tables import Project
from ...errors import ProjectError
from ...files.atomic import write_atomically
from ...files.dirfd import opened_folder
from ...files.ignore import IgnoredPaths
from ...files.trees import walk
from ...paths import is_inside
from ..projects import ProjectManager

# Each level takes a descriptor; deeper folders are left out.
_DEEPEST = 250
_MOST_LINKS = 1000


class FoundFiles(NamedTuple):
    """The files and links that a walk found, by their paths in the project. Those that git ignores
    are left out."""

    # Files, and links to anything.
    files: list[str]
    # Links to folders outside the project, with the real paths of these.
    links: list[tuple[str, str]]


def scan_project(manager: ProjectManager, path: str, is_stopped: Callable[[], bool]) -> None:
    """Update the list of a project's files and its records, unless the scan is stopped."""
    found = FoundFiles([], [])
    try:
        with opened_folder(path):
            pass
    except OSError as error:
        raise ProjectError(
            N_("{folder} cannot be read: {why}."), folder=path, why=error.strerror
        ) from error
    ignored = IgnoredPaths(path)
    for folder in walk(path, skip_errors=True):
        if is_stopped():
            return
        around = f"{folder.path}/" if folder.path else ""
        with contextlib.suppress(OSError):  # it cannot be read
            for entry in os.scandir(folder.descriptor):
                inner, is_folder = around + entry.name, entry.is_dir(follow_symlinks=False)
                if entry.name == ".git":
                    continue
                if entry.is_symlink() and len(found.links) < _MOST_LINKS:
                    target = os.path.realpath(f"{path}/{inner}")
                    if not is_inside(target, path) and os.path.isdir(target):
                        found.links.append((inner, target))
                if ignored.covers(inner, is_folder=is_folder):
                    continue
                if is_folder and folder.depth + 1 < _DEEPEST:
                    folder.folders.append(entry.name)
                elif entry.is_symlink() or entry.is_file():
                    found.files.append(inner)
    file = manager.paths.scan_cache(path)
    try:
        write_atomically(file, json.dumps(found))
    except OSError as error:
        raise ProjectError(
            N_("Cannot write {file}: {why}."), file=file, why=error.strerror
        ) from error
    if (project := manager.find_project(path)) is not None:
        _update_records(manager, project)


def found_files(file: Path) -> FoundFiles:
    """Return what the last scan found; nothing if there was none."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return FoundFiles(*json.loads(file.read_text(encoding="utf-8")))
    return FoundFiles([], [])


def _update_records(manager: ProjectManager, project: Project) -> None:
    """Remove the records of files that are gone and have no backup, unless a run deleted them; mark
    deleted files that are back."""
    manager.forget_missing_backups()
    with manager.store.transaction() as connection:
        # Looked at in the transaction: a run that has just put a file in place records it after.
        rows = manager.store.query(
            "SELECT id, path, is_deleted FROM filerecord WHERE project_id = ?"
            " AND (is_deleted OR last_approved_copy_path IS NULL)",
            [project.id],
        )
        # Many files are in few folders.
        is_real = cache(lambda folder: os.path.realpath(folder) == folder)
        back, lost = [], []
        for number, path, is_gone in rows:
            is_there = is_real(os.path.dirname(path)) and _is_there(path)
            if is_gone and is_there:
                back.append((number,))
            elif not is_gone and is_there is False:
                lost.append((number,))
        connection.executemany("UPDATE filerecord SET is_deleted = 0 WHERE id = ?", back)
        connection.executemany("DELETE FROM filerecord WHERE id = ?", lost)


def _is_there(path: bytes) -> bool | None:
    """Return whether a file is at this path; None if unknown."""
    try:
        return not stat.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return None
