# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs and their changes, in the database."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..changes.change import PENDING_STATES, Change, Kind, Recorded, State, Type, pack, unpack
from . import models
from .models import as_bytes

if TYPE_CHECKING:
    from ..apply.journal import Job
    from ..manager import ProjectManager

# The values that `pack` returns; in place of the last one is the run.
_COLUMNS = (
    "number, root, path, kind, type, mode, old_mode, old_type, target, flags, state, reason,"
    " arguments, began, before, after"
)
_INSERT = f"INSERT OR REPLACE INTO change ({_COLUMNS}, run_id) VALUES ({','.join('?' * 17)})"
# Which of them are paths.
_PATHS = (1, 2, 8)
_READ = f"SELECT {_COLUMNS} FROM change WHERE run_id = ? ORDER BY number"


def begin_run(manager: ProjectManager, job: Job) -> models.Project:
    project = manager.add_project(job.project)
    with manager.store.transaction():
        models.Run.insert(
            id=job.run_id,
            project=project.id,
            command=job.command,
            mode=job.mode,
            state="working",
            started_at=job.started,
            session_id=job.session_id,
            call_id=job.call_id,
        ).on_conflict_ignore().execute()
    return project


def end_run(manager: ProjectManager, job: Job, items: Sequence[Recorded]) -> None:
    """Record the end of a run and its changes."""
    with manager.store.transaction():
        write_changes(manager, job.run_id, items)
        models.Run.update(state="done", ended_at=time.time()).where(
            models.Run.id == job.run_id
        ).execute()


def note_exit(manager: ProjectManager, run_id: str, exit_code: int) -> None:
    with manager.store.transaction():
        models.Run.update(exit_code=exit_code).where(models.Run.id == run_id).execute()


def write_changes(manager: ProjectManager, run_id: str, items: Iterable[Recorded]) -> None:
    with manager.store.transaction() as connection:
        connection.executemany(_INSERT, (_row(run_id, item) for item in items))


def last_number(manager: ProjectManager, run_id: str) -> int:
    """Return the highest number of the run's recorded changes, or -1 if there are none."""
    query = "SELECT coalesce(max(number), -1) FROM change WHERE run_id = ?"
    [(found,)] = manager.store.query(query, (run_id,))
    return int(found)


def signatures(manager: ProjectManager, run_id: str) -> dict[int, tuple[str, str]]:
    """Return, by the number of an applied change, the recorded signatures of what was found and of
    what was left."""
    query = "SELECT number, before, after FROM change WHERE run_id = ? AND state = ?"
    rows = manager.store.query(query, (run_id, State.APPLIED.value))
    return {number: (before, after) for number, before, after in rows if after}


class Replaced(NamedTuple):
    """A version that a run found and replaced, with the change times of both files."""

    run_id: str
    number: int
    changed_before: int
    changed_after: int


def replaced(manager: ProjectManager, root: str, path: str) -> list[Replaced]:
    """Return the versions of a file that were replaced by runs, the oldest first."""
    query = (
        "SELECT run_id, number, before, after FROM change"
        " WHERE root = ? AND path = ? AND state = ? ORDER BY id"
    )
    values = (os.fsencode(root), os.fsencode(path), State.APPLIED.value)
    return [
        Replaced(run_id, number, _time_in(before), _time_in(after))
        for run_id, number, before, after in manager.store.query(query, values)
        if before and after
    ]


def later_runs(manager: ProjectManager, run: models.Run, item: Recorded) -> list[tuple[str, int]]:
    """Return the applied changes of later runs to the same path, the last one first: the run of
    each, and its number."""
    query = (
        "SELECT run.id, number FROM change JOIN run ON run.id = change.run_id WHERE root = ?"
        " AND path = ? AND change.state = ? AND run.ended_at > ? ORDER BY run.ended_at DESC"
    )
    place = map(os.fsencode, (item.change.root, item.change.path))
    values = (*place, State.APPLIED.value, run.ended_at or run.started_at)
    return manager.store.query(query, values)


def _time_in(signature: str) -> int:
    return int(signature.partition(":")[2])


def left_before(manager: ProjectManager, run_id: str, started: float, change: Change) -> set[str]:
    """Return the signatures of what runs left at a path that ended before another one started."""
    query = (
        "SELECT after FROM change JOIN run ON run.id = change.run_id WHERE root = ? AND path = ?"
        " AND change.state = ? AND after != '' AND run.id != ? AND run.ended_at <= ?"
    )
    place = map(os.fsencode, (change.root, change.path))
    rows = manager.store.query(query, (*place, State.APPLIED.value, run_id, started))
    return {after for (after,) in rows}


def note_deleted(
    manager: ProjectManager, project: models.Project, done: Iterable[Recorded]
) -> None:
    """Update the records of files that an undo or a redo removed or restored."""
    gone: list[str] = []
    there: list[str] = []
    for item in done:
        change = item.change
        if change.type is Type.FOLDER:
            continue
        is_back = item.state is State.UNDONE
        was_removed = change.kind is (Kind.ADDED if is_back else Kind.DELETED)
        (gone if was_removed else there).append(f"{change.root}/{change.path}")
    manager.mark_deleted(project, gone, deleted=True)
    manager.mark_deleted(project, there, deleted=False)


def pass_on(manager: ProjectManager, done: Iterable[Recorded], found: Mapping[int, str]) -> None:
    """After an undo a file is again what an earlier run left there, and after a redo what a later
    one found: they recognise it by its new signature. `found` is what each had found before."""
    rows = [
        (item.after, *map(os.fsencode, (item.change.root, item.change.path)), found[item.number])
        for item in done
        if item.after and found.get(item.number)
    ]
    with manager.store.transaction() as connection:
        connection.executemany(
            "UPDATE change SET after = ? WHERE root = ? AND path = ? AND after = ?", rows
        )


def read_changes(manager: ProjectManager, run: models.Run) -> list[Recorded]:
    """Read a run's changes. Rows of peewee would take five times as long."""
    return [unpack(*row) for row in manager.store.query(_READ, (run.id,))]


def changes_of_runs(
    manager: ProjectManager, run_ids: Sequence[str], states: Sequence[State] = PENDING_STATES
) -> list[tuple[str, Recorded]]:
    """Return the changes of these runs in these states, each with its run, in the order of the
    runs."""
    rows = manager.store.query(
        f"SELECT run_id, {_COLUMNS}"
        " FROM (SELECT key AS position, value AS wanted FROM json_each(?))"
        " JOIN change ON run_id = wanted WHERE state IN (SELECT value FROM json_each(?))"
        " ORDER BY position, number",
        [json.dumps(run_ids), json.dumps([state.value for state in states])],
    )
    return [(run_id, unpack(*row)) for run_id, *row in rows]


def _row(run_id: str, item: Recorded) -> list[object]:
    values = pack(item)
    for at in _PATHS:
        values[at] = None if values[at] is None else as_bytes(values[at])
    values[-1] = run_id
    return values
