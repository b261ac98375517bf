# SPDX-License-Identifier: GPL-3.0-or-later
"""Selects changes of a run by path, and compares them with the disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence

from ... import N_
from ...errors import OllmSandboxError
from ...paths import is_inside
from ..changes.change import PENDING_STATES, Change, Kind, Recorded, State, Type
from ..changes.reasons import Note, Reason
from ..database import runs
from ..database.models import Run
from ..manager import ProjectManager, is_missing


def choose(items: Sequence[Recorded], chosen: Sequence[str]) -> list[Recorded]:
    """Select changes by full path. A folder selects everything in it."""
    if not chosen:
        return list(items)
    found: dict[int, Recorded] = {}
    for path in chosen:
        matching = [item for item in items if _is_at(item, path)]
        if not matching:
            raise OllmSandboxError(
                N_("The run did not change {path}."),
                N_("`ollmsandbox changes` shows what it changed."),
                path=path,
            )
        found.update((item.number, item) for item in matching)
    return [found[number] for number in sorted(found)]


def with_folders(
    chosen: Sequence[Recorded], rows: Iterable[Recorded], *, undo: bool
) -> list[Recorded]:
    """With the run's own folders around what is to come back, if they are not there: to undo, those
    it deleted; to do it again, those it made."""
    comes, goes = (Kind.DELETED, Kind.ADDED) if undo else (Kind.ADDED, Kind.DELETED)
    states = (State.APPLIED,) if undo else (State.UNDONE, State.DISCARDED)
    folders = {
        (row.change.root, row.change.path): row
        for row in rows
        if row.change.type is Type.FOLDER and row.change.kind is comes and row.state in states
    }
    found = {item.number: item for item in chosen}
    for item in chosen if folders else ():
        root, path = item.change.root, item.change.path
        while item.change.kind is not goes and (path := os.path.dirname(path)):
            row = folders.get((root, path))
            if row is None or row.number in found or os.path.lexists(f"{root}/{path}"):
                break
            found[row.number] = row
    return [found[number] for number in sorted(found)]


def split_gone(items: Iterable[Recorded]) -> tuple[list[Recorded], list[Recorded]]:
    """Split changes into those whose root exists, and the others, which have to be left alone."""
    there: list[Recorded] = []
    gone: list[Recorded] = []
    is_gone: dict[str, bool] = {}
    for item in items:
        root = item.change.root
        if root not in is_gone:
            is_gone[root] = is_missing(root)
        if is_gone[root]:
            gone.append(item._replace(note=Note(Reason.ROOT_MISSING)))
        else:
            there.append(item)
    return there, gone


def to_give_way(
    manager: ProjectManager, run: Run, aside: Sequence[Recorded]
) -> list[tuple[Run, list[Recorded]]]:
    """What other runs have in the layer at the places of versions that are chosen instead."""
    found: dict[str, set[tuple[str, str]]] = {}
    for root in {item.change.root for item in aside}:
        waits = runs.waiting(manager, run.project, root)
        for path in {item.change.path for item in aside if item.change.root == root}:
            if path in waits:
                found.setdefault(waits[path].run_id, set()).add((root, path))
    gone = []
    for run_id, places in found.items():
        other = manager.run(run_id)
        items = [
            item
            for item in runs.read_changes(manager, other)
            if (item.change.root, item.change.path) in places and item.state in PENDING_STATES
        ]
        gone.append((other, items))
    return gone


def _is_at(item: Recorded, path: str) -> bool:
    full = os.path.normpath(f"{item.change.root}/{item.change.path}")
    return is_inside(full, path)


def conflict_was_reported(item: Recorded) -> bool:
    """Return whether the last attempt found, and reported, a conflict with someone else's edit."""
    if item.state is State.FAILED or item.is_because(Reason.LATER_RUN):
        return False
    return item.state is State.CONFLICT or item.note is not None


def is_folder_left(item: Recorded) -> bool:
    """It was to be deleted, and was not empty."""
    change = item.change
    return (
        item.state is State.CONFLICT
        and change.kind is Kind.DELETED
        and change.type is Type.FOLDER
        and not item.is_aside
    )


def is_undeleted(change: Change) -> bool:
    return change.kind is Kind.DELETED and os.path.lexists(f"{change.root}/{change.path}")


def is_there(change: Change) -> bool:
    """What the run wanted. Of a file's bytes that cannot be told any more."""
    place = f"{change.root}/{change.path}"
    try:
        found = os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        return change.kind is Kind.DELETED
    if change.kind is Kind.DELETED:
        return False
    if change.type is Type.LINK:
        return stat.S_ISLNK(found.st_mode) and os.readlink(place) == change.target
    if change.type is not Type.FOLDER or not stat.S_ISDIR(found.st_mode):
        return False
    return change.mode is None or stat.S_IMODE(found.st_mode) & 0o1777 == change.mode
