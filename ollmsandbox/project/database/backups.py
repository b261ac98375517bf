# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes a backup of each changed file once a day, and removes old backups, runs and versions."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ...errors import OllmSandboxError
from ...files import trees
from ...files.dirfd import FOLDER, DirEntryAt, opened_folder
from ...paths import Paths, make_folder
from ..apply.journal import UNREADABLE, Journal, project_lock
from ..apply.swap import HALF, NO_LINKS, ConflictError, copy_whole
from ..changes.change import Kind, Recorded, State, Type
from ..changes.mode import DAILY
from ..manager import ProjectManager
from ..settings import KEEP_DAYS, KEEP_MIB
from .models import ChangeRow, Project, Run
from .names import backup_name, backups_in

_PENDING = [State.PENDING.value, State.CONFLICT.value, State.FAILED.value]


def back_up(
    manager: ProjectManager, project: Project, versions: Path, items: Sequence[Recorded]
) -> None:
    """Record the files that a run replaced or deleted, and back up the first version of the day."""
    done = [
        item
        for item in items
        if item.state is State.APPLIED and item.change.type is not Type.FOLDER
    ]
    if not done:
        return
    paths = [f"{item.change.root}/{item.change.path}" for item in done]
    with opened_folder(make_folder(versions)) as kept, manager.store.transaction():
        ids, _ = manager.numbers_for(project, paths)
        copies = _link_all(manager, [ids[path] for path in paths], done, kept)
        manager.record_backups(
            project,
            [
                (ids[path], path, copy, item.change.kind is Kind.DELETED, item.modified)
                for path, item, copy in zip(paths, done, copies, strict=True)
            ],
        )


def forget_unrecorded(manager: ProjectManager, project: Project, versions: Path) -> None:
    """Remove backups that this run made before it was killed and that are not recorded.

    Another file would get their ids. They are hard links of the versions that the run keeps.
    """
    with contextlib.suppress(FileNotFoundError), manager.store.transaction():
        _, last = manager.numbers_for(project, ())
        kept = {entry.inode() for entry in os.scandir(versions)}
        for backup in backups_in(manager.paths.backups):
            if backup.number > last and os.lstat(backup.path).st_ino in kept:
                os.unlink(backup.path)


def _link_all(
    manager: ProjectManager, ids: Sequence[int], items: Sequence[Recorded], versions: int
) -> list[str | None]:
    """Make today's backups of files with these record ids; return their paths, None for failures.

    A failure is not raised: the run itself keeps the version, and the file is to be recorded.
    """
    day, around = time.strftime("%y-%m-%d"), manager.paths.backups
    try:
        folder = os.open(make_folder(around), FOLDER)
    except (OSError, OllmSandboxError):
        return [None] * len(items)
    copies: list[str | None] = []
    try:
        for number, item in zip(ids, items, strict=True):
            copies.append(None)
            if item.change.old_type is not Type.FILE:
                continue
            name = backup_name(number, item.change.path, day)
            try:
                _link(DirEntryAt(versions, str(item.number)), DirEntryAt(folder, name), manager)
                copies[-1] = f"{around}/{name}"
            except (OSError, ConflictError):
                # Such as another owner's file, which we may move and neither link nor read.
                with contextlib.suppress(OSError):
                    os.unlink(f"{name}{HALF}", dir_fd=folder)
    finally:
        os.close(folder)
    return copies


def _link(version: DirEntryAt, backup: DirEntryAt, manager: ProjectManager) -> None:
    """Link a version as the backup (nobody writes to either), or copy it if that fails."""
    try:
        version.link_to(backup)
    except FileExistsError:
        if not manager.has_backup(int(backup.name.partition("-")[0])):
            # A crash kept it out of the database: it may be another file's.
            backup.unlink()
            _link(version, backup, manager)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        copy_whole(version, backup)


def clean_up(
    manager: ProjectManager,
    *,
    now: float | None = None,
    others: Sequence[Callable[[ProjectManager], object]] = (),
) -> None:
    """Remove what is too old, at most once a day. A stamp file has the time of the last one.

    `others` remove what does not belong to the records.
    """
    now = time.time() if now is None else now
    stamp = manager.paths.cache / "cleaned"
    with contextlib.suppress(FileNotFoundError):
        # A clock that was set back must not put it off for ever.
        if 0 <= now - stamp.stat().st_mtime < DAILY:
            return
    manager.cleanup_old_backups(now=now)
    cleanup_old_runs(manager, now=now)
    _remove_halves(manager.paths, now)
    _remove_unreadable(manager, now)
    for remove in others:
        remove(manager)
    make_folder(stamp.parent)
    stamp.touch()
    os.utime(stamp, (now, now))


def _remove_halves(paths: Paths, now: float) -> None:
    """Remove temporary files that a kill left behind."""
    for file in (*paths.cache.glob(".*-*"), *(paths.data / "pending").glob("*/.*-*")):
        with contextlib.suppress(OSError):
            if now - file.lstat().st_mtime > DAILY:
                file.unlink()


def _remove_unreadable(manager: ProjectManager, now: float) -> None:
    """Remove journals that were set aside when runs of that age expire, unless the run is still to
    be finished."""
    cache, keep = manager.paths.cache, KEEP_DAYS.read(manager) * DAILY
    left = tuple(UNREADABLE + folder.name for folder in cache.glob("overlay-*"))
    for file in cache.glob(f"{UNREADABLE}*.json"):
        if now - file.lstat().st_ctime > keep and not file.name.startswith(left):
            file.unlink(missing_ok=True)


def cleanup_old_runs(
    manager: ProjectManager,
    *,
    now: float | None = None,
) -> list[str]:
    """Remove runs that were not used for too long, and the oldest ones beyond the size limit.

    A run with pending changes stays, and so does the newest run of each project, unless it is too
    old. Return the ids of the removed runs.
    """
    now = time.time() if now is None else now
    keep, most = KEEP_DAYS.read(manager) * DAILY, KEEP_MIB.read(manager) << 20
    folders = {}
    with contextlib.suppress(FileNotFoundError):
        folders = {entry.name: entry.path for entry in os.scandir(manager.paths.versions)}
    with manager.store.translated_errors():
        used = {run: _used_at(run, folders.get(run.id)) for run in Run.select()}
        pending = {
            change.run_id
            for change in ChangeRow.select(ChangeRow.run).where(ChangeRow.state.in_(_PENDING))
        }
    total, newest = 0, set[int]()
    old: dict[str, list[tuple[str, str]]] = {}
    for run in sorted(used, key=lambda run: (used[run], str(run.id)), reverse=True):
        folder = folders.pop(run.id, "")
        total += trees.measure(Path(folder))[1] if folder else 0
        is_newest = run.project_id not in newest
        newest.add(run.project_id)
        too_much = total > most and not is_newest
        if (now - used[run] > keep or too_much) and run.id not in pending:
            old.setdefault(run.project.path, []).append((run.id, folder))
    removed = []
    for project, of_project in old.items():
        # Another process may be undoing one of them.
        with project_lock(manager.paths, project):
            removed += _remove_runs(manager, of_project)
    for left in folders.values():
        # The run is no longer recorded.
        if now - os.stat(left).st_mtime > DAILY:
            remove_versions(Path(left))
    return removed


def touch_versions(versions: Path) -> None:
    """Record that something of a run was applied, undone or discarded just now."""
    os.utime(make_folder(versions))


def _used_at(run: Run, versions: str | None) -> float:
    """Return when the run was last used."""
    times = [run.started_at, run.ended_at or 0]
    with contextlib.suppress(FileNotFoundError):
        times += [os.stat(versions).st_mtime] if versions else []
    return max(times)


def _remove_runs(manager: ProjectManager, runs: Sequence[tuple[str, str]]) -> list[str]:
    """Remove runs and their versions; return the ids of the removed ones.

    The rows go first: a run without versions must not be offered for undo.
    """
    removed = []
    for run_id, folder in runs:
        journal = Journal.of_person(manager.paths, run_id)
        with manager.store.transaction():
            pending = ChangeRow.select().where(
                (ChangeRow.run == run_id) & ChangeRow.state.in_(_PENDING)
            )
            # It was interrupted, or has pending changes now: it is still needed.
            if journal.read() is not None or pending.exists():
                continue
            Run.delete().where(Run.id == run_id).execute()
        if folder:
            remove_versions(Path(folder))
        removed.append(run_id)
    return removed


def remove_versions(versions: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        trees.empty(versions)
        versions.rmdir()
