# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs and their changes, in the database."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence

from . import models
from .apply import Recorded, State
from .changes import Change, Flag, Kind, Type
from .journal import Job
from .manager import ProjectManager

_INSERT = (
    "INSERT OR REPLACE INTO change (run_id, number, root, path, kind, type, mode, old_mode,"
    " old_type, target, flags, state, note, began, before, after)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def begin_run(manager: ProjectManager, job: Job) -> models.Project:
    project = manager.project_for(job.project)
    with manager.store.transaction():
        models.Run.insert(
            id=job.run_id,
            project=project.id,
            command=job.command,
            mode=job.mode,
            state="working",
            started_at=job.started,
        ).on_conflict_ignore().execute()
    return project


def end_run(manager: ProjectManager, job: Job, items: Sequence[Recorded], *, alone: bool) -> None:
    """`alone` if nothing of other runs waited."""
    with manager.store.transaction():
        write_changes(manager, job.run_id, items)
        models.Run.update(state="done", ended_at=time.time()).where(
            models.Run.id == job.run_id
        ).execute()
        if not alone:
            settle_older(manager, job.run_id, items)


def note_exit(manager: ProjectManager, run_id: str, exit_code: int) -> None:
    with manager.store.transaction():
        models.Run.update(exit_code=exit_code).where(models.Run.id == run_id).execute()


def write_changes(manager: ProjectManager, run_id: str, items: Iterable[Recorded]) -> None:
    with manager.store.transaction() as connection:
        connection.executemany(_INSERT, (_row(run_id, item) for item in items))


def settle_older(manager: ProjectManager, run_id: str, items: Iterable[Recorded]) -> None:
    """What waited at the same path is part of what is in place now, or gone with it."""
    with manager.store.transaction() as connection:
        connection.executemany(
            "UPDATE change SET state = ?, note = '' WHERE root = ? AND path = ? AND run_id != ?"
            " AND state IN ('pending', 'conflict', 'failed')",
            (
                (item.state.value, *map(os.fsencode, (item.change.root, item.change.path)), run_id)
                for item in items
                if item.state in (State.APPLIED, State.DISCARDED)
            ),
        )


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
    return [_recorded(row) for row in manager.changes(run)]


def waiting_began(manager: ProjectManager, root: str) -> dict[str, int]:
    """For each path that waits: when the last run that changed it began."""
    with manager.store.errors_told():
        rows = manager.store.connection.execute(
            "SELECT change.path, change.began FROM change JOIN run ON run.id = change.run_id"
            " WHERE root = ? AND change.state IN ('pending', 'conflict', 'failed')"
            " ORDER BY run.started_at",
            (os.fsencode(root),),
        )
        return {os.fsdecode(path): began for path, began in rows}


def _row(run_id: str, item: Recorded) -> tuple[object, ...]:
    change = item.change
    return (
        run_id,
        item.number,
        os.fsencode(change.root),
        os.fsencode(change.path),
        change.kind.value,
        change.type.value,
        change.mode,
        change.old_mode,
        change.old_type.value if change.old_type else "",
        None if change.target is None else os.fsencode(change.target),
        " ".join(flag.value for flag in change.flags),
        item.state.value,
        item.note,
        item.began,
        item.before,
        item.after,
    )


def _recorded(row: models.Change) -> Recorded:
    change = Change(
        root=row.root,
        path=row.path,
        kind=Kind(row.kind),
        type=Type(row.type),
        mode=row.mode,
        target=row.target,
        flags=tuple(map(Flag, row.flags.split())),
        old_type=Type(row.old_type) if row.old_type else None,
        old_mode=row.old_mode,
    )
    state = State(row.state)
    return Recorded(row.number, change, state, row.note, row.began, row.before, row.after)
