# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs and their changes, in the database."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..apply.journal import Job
from ..changes.change import ASIDE, Change, Flag, Kind, Recorded, State, Type
from ..changes.reasons import Note, Reason
from ..manager import ProjectManager
from . import models
from .connection import insert_rows
from .models import as_bytes

_INSERT = (
    "INSERT OR REPLACE INTO change (run_id, number, root, path, kind, type, mode, old_mode,"
    " old_type, target, flags, state, reason, arguments, began, before, after)"
)
_COLUMNS = (
    "number, root, path, kind, type, mode, old_mode, old_type, target, flags, state, reason,"
    " arguments, began, before, after"
)
_READ = f"SELECT {_COLUMNS} FROM change WHERE run_id = ? ORDER BY number"
# Selects changes that are in the pending layer of a project.
_IN_LAYER = (
    f"change.state IN ('pending', 'conflict', 'failed') AND change.after != '{ASIDE}'"
    " AND EXISTS (SELECT 1 FROM run AS its WHERE its.id = change.run_id AND its.project_id = ?)"
)
# Than another run: it came into the layer before that one.
_IS_OLDER = (
    "(SELECT ended_at FROM run WHERE id = change.run_id) <= (SELECT ended_at FROM run WHERE id = ?)"
)
# The last of those that are said to have ended later than that, and of which something waits.
_LAST = (
    "SELECT max(ended_at) FROM run WHERE project_id = ? AND ended_at > ? AND EXISTS (SELECT 1"
    " FROM change WHERE run_id = run.id AND change.state IN ('pending', 'conflict', 'failed'))"
)
# The same as _what() tells of others.
_WHAT = "iif(kind = 'deleted', kind, type)"
# So much later than others a run ends at least, that their order is told by it; and twice as much
# if it was not cut off, so that it is also told from one that was and is recorded only then.
APART_NS = 40_000_000


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


def end_run(
    manager: ProjectManager,
    project: models.Project,
    job: Job,
    items: Sequence[Recorded],
    *,
    alone: bool,
    ended_at: float | None = None,
) -> float:
    """Record the end of a run and its changes; return the time of the end.

    `alone` means that no other run has pending changes. After a kill, `ended_at` is the time that
    was intended before; otherwise it is now.
    """
    with manager.store.transaction():
        write_changes(manager, job.run_id, items)
        at = ended_at or _after_others(manager, project, 2 * APART_NS)
        models.Run.update(state="done", ended_at=at).where(models.Run.id == job.run_id).execute()
        if not alone:
            settle_older(manager, project, job.run_id, items)
    return at


def intended_end(manager: ProjectManager, path: str) -> float:
    """Of a run of that project that begins to be settled now, if it is cut off."""
    project = manager.find_project(path)
    return _after_others(manager, project, APART_NS) if project else time.time()


def _after_others(manager: ProjectManager, project: models.Project, apart_ns: int) -> float:
    """Now, or later, if the clock was set back: what comes later is on top of what waits."""
    now, apart = time.time(), apart_ns / 1e9
    with manager.store.translated_errors():
        rows = manager.store.connection.execute(_LAST, (project.id, now - apart))
        last: float | None = rows.fetchone()[0]
    return now if last is None else max(now, last + apart)


def note_exit(manager: ProjectManager, run_id: str, exit_code: int) -> None:
    with manager.store.transaction():
        models.Run.update(exit_code=exit_code).where(models.Run.id == run_id).execute()


def write_changes(manager: ProjectManager, run_id: str, items: Iterable[Recorded]) -> None:
    with manager.store.transaction() as connection:
        insert_rows(connection, _INSERT, (_row(run_id, item) for item in items))


def last_number(manager: ProjectManager, run_id: str) -> int:
    """Return the highest number of the run's recorded changes, or -1 if there are none."""
    query = "SELECT coalesce(max(number), -1) FROM change WHERE run_id = ?"
    with manager.store.translated_errors():
        found: int = manager.store.connection.execute(query, (run_id,)).fetchone()[0]
        return found


def signatures(
    manager: ProjectManager, run_id: str, state: State = State.APPLIED
) -> dict[int, tuple[str, str]]:
    """Return, by number, the recorded signatures of what was found and of what was left."""
    query = "SELECT number, before, after FROM change WHERE run_id = ? AND state = ?"
    with manager.store.translated_errors():
        rows = manager.store.connection.execute(query, (run_id, state.value))
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
    with manager.store.translated_errors():
        rows = manager.store.connection.execute(
            query, (*map(os.fsencode, (root, path)), State.APPLIED.value)
        )
        return [
            Replaced(run_id, number, _time_in(before), _time_in(after))
            for run_id, number, before, after in rows
            if before and after
        ]


def has_later(manager: ProjectManager, run: models.Run, item: Recorded) -> bool:
    """Return whether a later run has changed the same path, too."""
    query = (
        "SELECT 1 FROM change JOIN run ON run.id = change.run_id WHERE root = ? AND path = ?"
        " AND change.state = ? AND run.ended_at > ? LIMIT 1"
    )
    place = map(os.fsencode, (item.change.root, item.change.path))
    values = (*place, State.APPLIED.value, run.ended_at or run.started_at)
    with manager.store.translated_errors():
        return manager.store.connection.execute(query, values).fetchone() is not None


def _time_in(signature: str) -> int:
    return int(signature.partition(":")[2])


def settle_older(
    manager: ProjectManager, project: models.Project, run_id: str, items: Iterable[Recorded]
) -> None:
    """What waited at the same path is gone with what was discarded. Under what is applied it is no
    more than it was: another version, which never was in the project, unless both wanted the same.
    """
    later = Note(Reason.LATER_RUN, {"run": run_id})
    with manager.store.transaction() as connection:
        connection.executemany(
            f"UPDATE change SET state = iif(:what = {_WHAT}, 'applied', 'discarded'),"
            f" reason = iif(:what = {_WHAT}, '', :reason),"
            f" arguments = iif(:what = {_WHAT}, '', :arguments)"
            " WHERE root = :root AND path = :path AND run_id != :run"
            f" AND {_IN_LAYER.replace('?', ':project')} AND {_IS_OLDER.replace('?', ':run')}",
            (
                {
                    "what": _what(item) if item.state is State.APPLIED else "",
                    "reason": later.reason.value if item.state is State.APPLIED else "",
                    "arguments": later.packed_arguments() if item.state is State.APPLIED else "",
                    "root": os.fsencode(item.change.root),
                    "path": os.fsencode(item.change.path),
                    "run": run_id,
                    "project": project.id,
                }
                for item in items
                if item.state in (State.APPLIED, State.DISCARDED)
            ),
        )


def _what(item: Recorded) -> str:
    """Two that have the same want the same, too; "" if that cannot be told."""
    if item.change.kind is Kind.DELETED:
        return "deleted"
    return "folder" if item.change.type is Type.FOLDER else ""


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


def settle_idle(
    manager: ProjectManager, project: models.Project, root: str, paths: Iterable[str]
) -> None:
    """Mark pending changes as applied that someone else has made on disk: an undo has to ask."""
    _settle(manager, project, root, paths, State.APPLIED)


def settle_undeleted(
    manager: ProjectManager, project: models.Project, root: str, paths: Iterable[str]
) -> None:
    """Mark pending deletions as discarded: neither they nor the deleted files are in the layer."""
    _settle(manager, project, root, paths, State.DISCARDED)


def _settle(
    manager: ProjectManager, project: models.Project, root: str, paths: Iterable[str], state: State
) -> None:
    with manager.store.transaction() as connection:
        connection.executemany(
            "UPDATE change SET state = ?, reason = '', arguments = '', after = ''"
            f" WHERE root = ? AND path = ? AND {_IN_LAYER}",
            ((state.value, *map(os.fsencode, (root, path)), project.id) for path in paths),
        )


def renew_waiting(
    manager: ProjectManager,
    project: models.Project,
    done: Iterable[Recorded],
    left: Collection[str],
) -> None:
    """Update pending changes of which a part was applied: the rest is not in conflict with it.

    What is not `left` in the layer is completely applied.
    """
    with manager.store.transaction() as connection:
        for item in done:
            place = (*map(os.fsencode, (item.change.root, item.change.path)),)
            now = int(item.after.partition(":")[2] or 0)
            state = None if item.change.path in left else State.APPLIED.value
            connection.execute(
                "UPDATE change SET began = max(began, ?), state = coalesce(?, state),"
                f" reason = '', arguments = '' WHERE root = ? AND path = ? AND {_IN_LAYER}",
                (now, state, *place, project.id),
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
    """Read a run's changes. Rows of peewee would take five times as long."""
    with manager.store.translated_errors():
        rows = manager.store.connection.execute(_READ, (run.id,))
        return [_recorded(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The run that a pending path belongs to: the last one that changed it."""

    run_id: str
    # When the first of all that wait there began, as the file system tells time: what somebody
    # changed on disk since then, none of them has seen.
    began: int
    ended_at: float
    is_deletion: bool
    # Of the change, in that run.
    number: int


def waiting(
    manager: ProjectManager, project: models.Project, root: str, path: str | None = None
) -> dict[str, Waiting]:
    """Return, by path, what is pending in the project's layer for a root, or only at one path."""
    only = () if path is None else (os.fsencode(path),)
    with manager.store.translated_errors():
        rows = manager.store.connection.execute(
            "SELECT change.path, run.id, change.began, run.ended_at, change.kind = 'deleted',"
            " change.number FROM change"
            " JOIN run ON run.id = change.run_id"
            f" WHERE root = ? {'AND change.path = ?' if only else ''} AND {_IN_LAYER}"
            # Not by when they began: of two at once, the one that ends last is on top.
            " ORDER BY run.ended_at, run.rowid",
            (os.fsencode(root), *only, project.id),
        )
        found: dict[str, Waiting] = {}
        for at, run_id, began, ended_at, is_deletion, number in rows:
            name = os.fsdecode(at)
            earliest = min(began, found[name].began) if name in found else began
            found[name] = Waiting(run_id, earliest, ended_at, bool(is_deletion), number)
        return found


def rows_in_layer(
    manager: ProjectManager, project: models.Project, root: str
) -> list[tuple[str, Recorded]]:
    """Return all pending changes with their runs; the last one of a path is the visible one."""
    columns = ", ".join(f"change.{name}" for name in _COLUMNS.split(", "))
    with manager.store.translated_errors():
        rows = manager.store.connection.execute(
            f"SELECT run.id, {columns} FROM change JOIN run ON run.id = change.run_id"
            f" WHERE root = ? AND {_IN_LAYER}"
            " ORDER BY run.ended_at, run.rowid, change.number",
            (os.fsencode(root), project.id),
        )
        return [(run_id, _recorded(*row)) for run_id, *row in rows]


def _row(run_id: str, item: Recorded) -> tuple[object, ...]:
    # `_value_` is what `value` returns, without a call for each of a hundred thousand.
    change = item.change
    return (
        run_id,
        item.number,
        as_bytes(change.root),
        as_bytes(change.path),
        change.kind._value_,
        change.type._value_,
        change.mode,
        change.old_mode,
        change.old_type._value_ if change.old_type else "",
        None if change.target is None else os.fsencode(change.target),
        " ".join(flag.value for flag in change.flags) if change.flags else "",
        item.state._value_,
        item.note.reason.value if item.note else "",
        item.note.packed_arguments() if item.note else "",
        item.began,
        item.before,
        item.after,
    )


def _recorded(
    number: int,
    root: bytes,
    path: bytes,
    kind: str,
    type_: str,
    mode: int | None,
    old_mode: int | None,
    old_type: str,
    target: bytes | None,
    flags: str,
    state: str,
    reason: str,
    arguments: str,
    began: int,
    before: str,
    after: str,
) -> Recorded:
    change = Change(
        os.fsdecode(root),
        os.fsdecode(path),
        Kind(kind),
        Type(type_),
        mode,
        None if target is None else os.fsdecode(target),
        tuple(map(Flag, flags.split())) if flags else (),
        Type(old_type) if old_type else None,
        old_mode,
    )
    note = Note.unpacked(reason, arguments) if reason else None
    return Recorded(number, change, State(state), note, began, before, after)
