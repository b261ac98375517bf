# SPDX-License-Identifier: GPL-3.0-or-later
"""An index of all runs in the database, by project, session, path and state.

Everything in it is also in the folders of the runs, from which it can be made again.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from ..database.tables import Project, Run, as_bytes
from ..paths import Paths
from ..sandbox.network.hosts import HostUse
from .change import Kind, Recorded, State, Type
from .projects import ProjectManager
from .run import RunFolder, RunInfo, RunStates, read_run, run_ids

_COLUMNS = "run_id, number, root, path, kind, state, before, after, replaced_at, left_at"
_INSERT = f"INSERT OR REPLACE INTO change ({_COLUMNS}) VALUES ({','.join('?' * 10)})"


def add_run(manager: ProjectManager, run_id: str, info: RunInfo, states: RunStates) -> None:
    project = manager.record_project(info.project)
    with manager.store.transaction():
        Run.insert(
            id=run_id,
            project=project.id,
            command=info.command,
            mode=info.mode,
            state="done",
            started_at=info.started,
            ended_at=states.ended or info.started,
            exit_code=states.exit_code,
            session_id=info.session_id,
            call_id=info.call_id,
        ).on_conflict_ignore().execute()
        write_changes(manager, run_id, states.changes)


def add_unchanged_run(
    paths: Paths, run_id: str, info: RunInfo, exit_code: int | None, hosts: Sequence[HostUse]
) -> None:
    """Record a run that changed nothing, and the hosts that it tried to reach."""
    run, ended = RunFolder(paths, run_id), time.time()
    run.create(info)
    run.append((), ended=ended, exit=exit_code, hosts=[use.document() for use in hosts])
    run.write_changes(info, ())
    with contextlib.closing(ProjectManager(paths)) as manager:
        add_run(manager, run_id, info, RunStates([], ended, exit_code))


def note_end(paths: Paths, run_id: str, exit_code: int | None, hosts: Sequence[HostUse]) -> None:
    facts = {"hosts": [use.document() for use in hosts]} if hosts else {}
    RunFolder(paths, run_id).append((), exit=exit_code, **facts)
    with contextlib.closing(ProjectManager(paths)) as manager, manager.store.transaction():
        Run.update(exit_code=exit_code).where(Run.id == run_id).execute()


def write_changes(manager: ProjectManager, run_id: str, items: Iterable[Recorded]) -> None:
    with manager.store.transaction() as connection:
        connection.executemany(
            _INSERT,
            (
                (
                    run_id, item.number, as_bytes(item.change.root), as_bytes(item.change.path),
                    item.change.kind._value_, item.state._value_, item.before, item.after,
                    item.replaced_at, item.left_at,
                )
                for item in items
            ),
        )  # fmt: skip


def rebuild(manager: ProjectManager) -> int:
    """Add the runs that the index does not have; return how many. Leave out what is unreadable."""
    with manager.store.translated_errors():
        known = {run.id for run in Run.select(Run.id)}
    added = 0
    for run_id in run_ids(manager.paths):
        folder = RunFolder(manager.paths, run_id)
        if run_id in known or not folder.is_captured:
            continue
        try:
            info, states = folder.info(), folder.states()
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            continue
        if states.ended is not None:  # else another program is about to add it
            add_run(manager, run_id, info, states)
            added += 1
    return added


def read_changes(manager: ProjectManager, run: Run) -> list[Recorded]:
    """Read a run's changes, in the states that were decided."""
    return read_run(manager.paths, run.id).changes


def replaced_since(
    manager: ProjectManager, root: str, path: str, time: int
) -> list[tuple[str, int]]:
    """Return the changes that replaced the version that a file had at a time, in nanoseconds: the
    run and the number of each."""
    query = (
        "SELECT run_id, number FROM change WHERE root = ? AND path = ? AND state = ?"
        " AND replaced_at BETWEEN 1 AND ? AND left_at > ? ORDER BY left_at"
    )
    values = (os.fsencode(root), os.fsencode(path), State.APPLIED.value, time, time)
    return manager.store.query(query, values)


def later_runs(manager: ProjectManager, run: Run, item: Recorded) -> list[tuple[str, int]]:
    """Return the applied changes of later runs to the same path, the last one first: the run of
    each, and its number."""
    query = (
        "SELECT run.id, number FROM change JOIN run ON run.id = change.run_id WHERE root = ?"
        " AND path = ? AND change.state = ? AND run.ended_at > ? ORDER BY run.ended_at DESC"
    )
    place = map(os.fsencode, (item.change.root, item.change.path))
    values = (*place, State.APPLIED.value, run.ended_at or run.started_at)
    return manager.store.query(query, values)


def replaced_as(manager: ProjectManager, item: Recorded) -> list[tuple[str, int]]:
    """Return the changes that replaced what this one left: the run and the number of each."""
    query = (
        "SELECT run_id, number FROM change"
        " WHERE root = ? AND path = ? AND before = ? AND state = ? ORDER BY run_id"
    )
    place = map(os.fsencode, (item.change.root, item.change.path))
    return manager.store.query(query, (*place, item.after, State.APPLIED.value))


def replaced_by(manager: ProjectManager, run_id: str) -> list[tuple[str, int, str, int]]:
    """Return the changes of other runs whose versions a run replaced: the run, the number and the
    state of each, and the number of the change that replaced it."""
    query = (
        "SELECT other.run_id, other.number, other.state, own.number FROM change AS own"
        " JOIN change AS other ON other.root = own.root AND other.path = own.path"
        " AND other.after = own.before AND other.run_id != own.run_id"
        " WHERE own.run_id = ? AND own.before != '' AND own.state = ? AND other.state IN (?, ?)"
    )
    applied, undone = State.APPLIED.value, State.UNDONE.value
    return manager.store.query(query, (run_id, applied, applied, undone))


def count_states(manager: ProjectManager, run_ids: Sequence[str]) -> dict[str, Counter[str]]:
    """Return how many changes are in each state, by run."""
    rows = manager.store.query(
        "SELECT run_id, state, count(*) FROM change"
        " WHERE run_id IN (SELECT value FROM json_each(?)) GROUP BY run_id, state",
        [json.dumps(list(run_ids))],
    )
    found: dict[str, Counter[str]] = {run_id: Counter() for run_id in run_ids}
    for run_id, state, number in rows:
        found[run_id][state] = number
    return found


def note_deleted(manager: ProjectManager, project: Project, done: Iterable[Recorded]) -> None:
    """Update the records of files that an undo or a redo removed or restored."""
    paths: dict[bool, list[str]] = {True: [], False: []}
    for item in done:
        change = item.change
        removed = Kind.ADDED if item.state is State.UNDONE else Kind.DELETED
        if change.type is not Type.FOLDER:
            paths[change.kind is removed].append(f"{change.root}/{change.path}")
    for deleted, names in paths.items():
        manager.mark_deleted(project, names, deleted=deleted)
