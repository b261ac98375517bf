# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and writes projects, their approved roots, and the records of files and runs."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from peewee import SQL, fn

from .. import N_
from ..database.connection import Database
from ..database.tables import ApprovedRoot, Project, Run, as_bytes
from ..errors import OllmSandboxError, ProjectError
from ..paths import Paths
from . import DAILY
from .roots import may_be_root

# SQLite takes only so many values in one statement.
_CHUNK = 500
# Selects runs that changed something; others only tried to reach hosts.
_HAS_CHANGES = "EXISTS (SELECT 1 FROM change WHERE change.run_id = t1.id)"
# Selects runs with changes that are neither applied nor discarded.
_HAS_PENDING = (
    "EXISTS (SELECT 1 FROM change WHERE change.run_id = t1.id"
    " AND change.state IN ('pending', 'conflict', 'failed'))"
)

# A record without a new backup keeps the one it has.
_UPDATE_RECORD = (
    "ON CONFLICT DO UPDATE SET is_deleted = excluded.is_deleted,"
    " last_approved_copy_path ="
    " coalesce(excluded.last_approved_copy_path, last_approved_copy_path),"
    " last_modified = coalesce(excluded.last_modified, last_modified)"
)

AnyPath = str | os.PathLike[str]


class ProjectManager:
    """Opens the database when it is first needed. May be used from any thread."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self._store: Database | None = None
        self._opening = threading.Lock()
        # Held by the thread that reads the changes of a run and looks at their files.
        self.reading = threading.Lock()

    @property
    def store(self) -> Database:
        with self._opening:
            if self._store is None:
                self._store = Database(self.paths)
            return self._store

    def close(self) -> None:
        with self._opening:
            if self._store is not None:
                self._store.close()
                self._store = None

    # --- projects ------------------------------------------------------------------------------

    def projects(self, *, with_removed: bool = False) -> list[Project]:
        """Return the listed projects, the one used last first."""
        with self.store.translated_errors():
            query = Project.select().order_by(Project.used_at.desc(), Project.id.desc())
            return list(query if with_removed else query.where(Project.is_listed))

    def add_project(self, path: AnyPath) -> Project:
        """Return the project of a folder, recorded, listed and marked as used now."""
        return self.record_project(_existing_folder(path))

    def record_project(self, path: str) -> Project:
        """Record a project by its real path; the folder may be missing."""
        name = os.path.basename(path) or path
        now = time.time()
        with self.store.transaction():
            Project.insert(path=path, name=name, added_at=now, used_at=now).on_conflict(
                conflict_target=[Project.path],
                update={Project.used_at: now, Project.is_listed: True},
            ).execute()
            return Project.get(Project.path == path)

    def list_project(self, project: Project, *, is_listed: bool) -> None:
        """List a project, even if its folder is missing, or remove it from the list. Its records
        stay, for when it is opened again."""
        with self.store.transaction():
            Project.update(is_listed=is_listed).where(Project.id == project.id).execute()

    def find_project(self, path: AnyPath) -> Project | None:
        with self.store.translated_errors():
            return Project.get_or_none(Project.path == os.path.realpath(path))

    def recorded_project(self, path: str) -> Project:
        """Return the project that is recorded with exactly this path, or raise ProjectError.

        Unlike find_project(), resolve no links: by now a link may be in the folder's place.
        """
        with self.store.translated_errors():
            project = Project.get_or_none(Project.path == path)
        if project is None:
            raise ProjectError(N_("{folder} is no longer in the list of projects."), folder=path)
        return project

    # --- folders outside the project -----------------------------------------------------------

    def approve_root(self, project: Project, folder: AnyPath) -> None:
        """Let commands in this project change a folder outside it; raise if that is refused."""
        real = _existing_folder(folder)
        if not may_be_root(self.paths, project.path, real):
            raise ProjectError(
                N_(
                    "Commands cannot be given access to {folder}: it contains the project, "
                    "your home folder, or files of this program."
                ),
                N_("Choose a subfolder instead."),
                folder=real,
            )
        with self.store.transaction():
            ApprovedRoot.insert(project=project.id, path=real).on_conflict_ignore().execute()
        self._forget_roots(project)

    def revoke(self, project: Project, folder: AnyPath) -> None:
        # Also by the recorded path: what was a folder then may be a link now.
        names = {os.path.realpath(folder), os.path.abspath(folder)}
        with self.store.transaction():
            ApprovedRoot.delete().where(
                (ApprovedRoot.project == project.id) & ApprovedRoot.path.in_(list(names))
            ).execute()
        self._forget_roots(project)

    def _forget_roots(self, project: Project) -> None:
        """Remove the file that lists the roots, so that the next command asks the database."""
        self.paths.linked_roots(project.path).unlink(missing_ok=True)

    def approved_roots(self, project: Project) -> list[str]:
        with self.store.translated_errors():
            approved = ApprovedRoot.select().where(ApprovedRoot.project == project.id)
            return [root.path for root in approved.order_by(ApprovedRoot.path)]

    # --- records of files ----------------------------------------------------------------------

    def mark_deleted(self, project: Project, paths: Sequence[str], deleted: bool) -> None:
        with self.store.transaction() as connection:
            connection.executemany(
                "UPDATE filerecord SET is_deleted = ?, last_modified = coalesce(?, last_modified)"
                " WHERE project_id = ? AND path = ?",
                ((deleted, _modified_at(path), project.id, os.fsencode(path)) for path in paths),
            )

    def numbers_for(self, project: Project, paths: Sequence[str]) -> tuple[dict[str, int], int]:
        """Return the id of each file's record, by path, and the last id in use.

        A file without a record gets the next free id. Call it in the same transaction as
        `record_backups`, so that nobody else takes that id.
        """
        encoded = list(map(as_bytes, paths))
        ids: dict[bytes, int] = {}
        for start in range(0, len(encoded), _CHUNK):
            chunk = encoded[start : start + _CHUNK]
            marks = ",".join("?" * len(chunk))
            query = f"SELECT path, id FROM filerecord WHERE project_id = ? AND path IN ({marks})"
            ids.update(self.store.query(query, (project.id, *chunk)))
        query = "SELECT seq FROM sqlite_sequence WHERE name = 'filerecord'"
        last = number = max((number for (number,) in self.store.query(query)), default=0)
        for name in encoded:
            if name not in ids:
                number += 1
                ids[name] = number
        return dict(zip(paths, map(ids.__getitem__, encoded), strict=True)), last

    def record_backups(
        self, project: Project, files: Sequence[tuple[int, str, str | None, bool, float | None]]
    ) -> None:
        """Record files: the id, the path, the new backup if any, whether it was deleted, and when
        it was modified, if the caller knows."""
        rows = (
            (
                id_, project.id, as_bytes(path), gone, None if copy is None else as_bytes(copy),
                None if gone else modified or _modified_at(path),
            )
            for id_, path, copy, gone, modified in files
        )  # fmt: skip
        with self.store.transaction() as connection:
            connection.executemany(
                "INSERT INTO filerecord"
                " (id, project_id, path, is_deleted, last_approved_copy_path, last_modified)"
                f" VALUES (?, ?, ?, ?, ?, ?) {_UPDATE_RECORD}",
                rows,
            )

    def has_backup(self, number: int) -> bool:
        """Return whether the file record with this id names a backup that is on disk."""
        query = "SELECT last_approved_copy_path FROM filerecord WHERE id = ?"
        return any(copy and os.path.lexists(copy) for (copy,) in self.store.query(query, [number]))

    def cleanup_old_backups(self, *, now: float) -> int:
        """Remove backups that are more than seven days old; return how many.

        The day is in the name: the file itself may have been in the project for years. Also clean
        up the records of backups that someone else removed, and of deleted files without a backup.
        """
        limit = time.strftime("%y-%m-%d", time.localtime(now - 7 * DAILY))
        old = [backup for backup in backups_in(self.paths.backups) if backup.day < limit]
        for backup in old:
            Path(backup.path).unlink(missing_ok=True)
        self.forget_missing_backups()
        with self.store.transaction() as connection:
            connection.execute(
                "DELETE FROM filerecord WHERE is_deleted AND last_approved_copy_path IS NULL"
            )
        return len(old)

    def forget_missing_backups(self) -> None:
        """Correct the records of backups that are not on disk."""
        query = (
            "SELECT id, last_approved_copy_path FROM filerecord"
            " WHERE last_approved_copy_path IS NOT NULL"
        )
        missing = [row for row in self.store.query(query) if not os.path.lexists(row[1])]
        if not missing:
            return
        backups = sorted(backups_in(self.paths.backups), key=lambda backup: backup.day)
        newest = {backup.number: as_bytes(backup.path) for backup in backups}
        with self.store.transaction() as connection:
            connection.executemany(
                "UPDATE filerecord SET last_approved_copy_path = ?"
                " WHERE id = ? AND last_approved_copy_path = ?",
                ((newest.get(number), number, copy) for number, copy in missing),
            )

    def recorded_files(self, project: Project) -> list[tuple[str, bool]]:
        """Return the files that runs have changed, by their full paths, and whether each was
        deleted."""
        query = "SELECT path, is_deleted FROM filerecord WHERE project_id = ?"
        return [
            (os.fsdecode(path), bool(gone)) for path, gone in self.store.query(query, [project.id])
        ]

    # --- runs ----------------------------------------------------------------------------------

    def runs(
        self,
        project: Project | None = None,
        limit: int = 50,
        *,
        text: str = "",
        only_changed: bool = False,
        only_pending: bool = False,
        session_id: str = "",
    ) -> list[Run]:
        """Return runs, the newest first: of all projects if none is given, and of all sessions.
        Those that only tried to reach hosts have no changes.

        With a `text`, return those that have it in their command or in a path they changed.
        """
        with self.store.translated_errors():
            query = Run.select(Run, Project).join(Project)
            if project is not None:
                query = query.where(Run.project == project.id)
            if text:
                like = f"%{escape_like(text)}%"
                paths = SQL(
                    "EXISTS (SELECT 1 FROM change WHERE change.run_id = t1.id"
                    " AND CAST(change.path AS TEXT) LIKE ? ESCAPE '!')",
                    (like,),
                )
                command = SQL("t1.command LIKE ? ESCAPE '!'", (like,))
                query = query.where(command | paths)
            if only_changed:
                query = query.where(SQL(_HAS_CHANGES))
            if only_pending:
                query = query.where(SQL(_HAS_PENDING))
            if session_id:
                query = query.where(Run.session_id == session_id)
            return list(query.order_by(Run.started_at.desc(), Run.id.desc()).limit(limit))

    def known_runs(self, ids: Iterable[str]) -> list[Run]:
        """Return the runs with these ids that still exist."""
        with self.store.translated_errors():
            return list(Run.select().where(Run.id.in_(list(ids))))

    def last_run(self, project: Project) -> Run | None:
        """Return the last run that changed something."""
        return next(iter(self.runs(project, 1, only_changed=True)), None)

    def run(self, run_id: str) -> Run:
        """Return the run with this id, or the only one whose id begins with it; or raise."""
        found: list[Run] = []
        if run_id and run_id.isascii():
            with self.store.translated_errors():
                same = fn.substr(Run.id, 1, len(run_id)) == run_id
                found = list(Run.select().where(same).order_by(Run.id).limit(6))
        # The first in order is the whole id, where there is one.
        if found and (len(found) == 1 or found[0].id == run_id):
            return found[0]
        if not found:
            raise OllmSandboxError(
                N_("There is no run {run}."),
                N_("`ollmsandbox history` lists all runs."),
                run=run_id,
            )
        raise OllmSandboxError(
            N_("Several run IDs begin with {run}."),
            N_("Enter more of the ID: {runs}"),
            run=run_id,
            runs=", ".join(run.id for run in found[:5]) + (" ..." if len(found) > 5 else ""),
        )


def _existing_folder(path: AnyPath) -> str:
    real = os.path.realpath(path)
    if not os.path.isdir(real):
        is_there = os.path.lexists(real)
        raise ProjectError(
            N_("{path} is not a folder.") if is_there else N_("{path} does not exist."),
            N_("Choose an existing folder."),
            path=os.fspath(path),
        )
    return real


def _modified_at(path: str) -> float | None:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return None


def escape_like(text: str) -> str:
    shown = text.encode("utf-8", "replace").decode("utf-8")
    return shown.replace("!", "!!").replace("%", "!%").replace("_", "!_")


# --- the names of backups ---------------------------------------------------------------------

_LONGEST = 255
_BACKUP = re.compile(r"(\d+)-(\d\d-\d\d-\d\d)-", re.ASCII)


class Backup(NamedTuple):
    # The id of the file's record.
    number: int
    day: str
    path: str


def backup_name(number: int, path: str, day: str) -> str:
    """Return `{id}-{YY-MM-DD}-{basename}`; a long name keeps its end, with the extension."""
    start, short = f"{number}-{day}-", path.rpartition("/")[2]
    if len(short) < 50:
        return start + short
    name = os.fsencode(short)
    return start + os.fsdecode(name[-(_LONGEST - len(start)) :])


def backups_in(folder: Path) -> Iterator[Backup]:
    """Yield the backups that are on disk."""
    try:
        found = os.scandir(folder)
    except FileNotFoundError:
        return
    with found as entries:
        for entry in entries:
            ours = _BACKUP.match(entry.name)
            if ours is not None and not entry.is_dir(follow_symlinks=False):
                yield Backup(int(ours[1]), ours[2], entry.path)
