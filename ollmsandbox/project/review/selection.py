# SPDX-License-Identifier: GPL-3.0-or-later
"""Selects changes of a run by path, and compares them with the disk."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ... import N_
from ...errors import OllmSandboxError
from ...paths import is_inside
from ..changes.change import Kind, Recorded, State, Type
from ..changes.reasons import Note, Reason
from ..manager import is_missing


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


def _is_at(item: Recorded, path: str) -> bool:
    full = os.path.normpath(f"{item.change.root}/{item.change.path}")
    return is_inside(full, path)


def conflict_was_reported(item: Recorded) -> bool:
    """Return whether the last attempt found, and reported, a conflict with someone else's edit."""
    # Earlier versions of the program discarded what a later run had replaced.
    if item.state is State.FAILED or item.is_because(Reason.LATER_RUN):
        return False
    if item.is_because(Reason.CONCURRENT):
        return False  # with another run's change
    return item.state is State.CONFLICT or item.note is not None
