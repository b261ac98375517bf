# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes a backup of each changed file once a day, and removes old backups and runs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from ..database.tables import Project, Run
from ..errors import OllmSandboxError
from ..files import trees
from ..files.copying import HALF, copy_whole
from ..files.dirfd import FOLDER, DirEntryAt
from ..files.exchange import NO_LINKS
from ..paths import Paths, make_folder
from . import DAILY
from .change import PENDING_STATES, Kind, Recorded, State, Type
from .index import count_states, replaced_by
from .jobs import job_file, project_lock
from .projects import ProjectManager, backup_name, backups_in
from .run import OpenRuns, is_part, is_pending, read_run, run_ids
from .settings import KEEP_DAYS, KEEP_MIB
from .swap import OUT


def back_up(
    manager: ProjectManager, project: Project, run_id: str, items: Sequence[Recorded]
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
    with manager.store.transaction():
        ids, _ = manager.numbers_for(project, paths)
        copies = _link_all(manager, run_id, [ids[path] for path in paths], done)
        manager.record_backups(
            project,
            [
                (ids[path], path, copy, item.change.kind is Kind.DELETED, _modified(item))
                for path, item, copy in zip(paths, done, copies, strict=True)
            ],
        )


def _modified(item: Recorded) -> float | None:
    """Return when the file that was left was modified, if that is known."""
    if not item.after:
        return None
    seconds, rest = divmod(int(item.after.split(":")[1]), 10**9)
    return seconds + 1e-9 * rest  # as in os.stat()


def _replaced_version(runs: OpenRuns, run_id: str, item: Recorded) -> DirEntryAt:
    """Return what came out of the project: the version before the change, or, if the change was
    merged into a file, what is kept until the next job."""
    is_merge = not item.after and item.change.kind is not Kind.DELETED
    for name in (f"stage/{item.number}", f"stage/{item.number}{OUT}") if is_merge else ():
        if (slot := runs.at(run_id, name)).lstat() is not None:
            return slot
    is_decision = item.made and not is_part(item)
    made = f"made/{item.number}-{item.made}.before"
    return runs.at(run_id, made if is_decision else f"base/{item.number}")


def keep_replaced(manager: ProjectManager, run_id: str, items: Sequence[Recorded]) -> None:
    """Keep the versions of other runs that a run has replaced, with those runs, too, if they were
    only in the project: an undo of this run puts back a copy, which they would not recognise."""
    own = {item.number: item for item in items}

    @cache
    def names(folder: Path) -> set[str]:
        with contextlib.suppress(FileNotFoundError):
            return {name.partition("-")[0] for name in os.listdir(folder)}
        return set()

    with contextlib.closing(OpenRuns(manager.paths)) as runs:
        for other, number, state, by in replaced_by(manager, run_id):
            around = manager.paths.runs / other
            part = around / ("result" if state == State.APPLIED.value else "base")
            # A change with a pair in "made" keeps what was really done there.
            if (
                by in own
                and str(number) not in names(part)
                and str(number) not in names(around / "made")
            ):
                with contextlib.suppress(OSError):  # such as another owner's file
                    version = _replaced_version(runs, run_id, own[by])
                    os.link(
                        version.name,
                        part / str(number),
                        src_dir_fd=version.dir_fd,
                        follow_symlinks=False,
                    )


def forget_unrecorded(manager: ProjectManager, project: Project, run_id: str) -> None:
    """Remove backups that this run made before it was killed and that are not recorded.

    Another file would get their ids. They are hard links of the versions that the run keeps.
    """
    with contextlib.suppress(FileNotFoundError), manager.store.transaction():
        _, last = manager.numbers_for(project, ())
        folder = manager.paths.runs / run_id
        kept = {entry.inode() for part in ("base", "stage") for entry in os.scandir(folder / part)}
        for backup in backups_in(manager.paths.backups):
            if backup.number > last and os.lstat(backup.path).st_ino in kept:
                os.unlink(backup.path)


def _link_all(
    manager: ProjectManager, run_id: str, ids: Sequence[int], items: Sequence[Recorded]
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
    runs = OpenRuns(manager.paths)
    try:
        for number, item in zip(ids, items, strict=True):
            copies.append(None)
            if item.change.old_type is not Type.FILE:
                continue
            name = backup_name(number, item.change.path, day)
            try:
                version = _replaced_version(runs, run_id, item)
                _link(version, DirEntryAt(folder, name), manager)
                copies[-1] = f"{around}/{name}"
            except OSError:
                # Such as another owner's file, which we may move and neither link nor read.
                with contextlib.suppress(OSError):
                    os.unlink(f"{name}{HALF}", dir_fd=folder)
    finally:
        runs.close()
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
    manager: ProjectManager, others: Sequence[Callable[[ProjectManager], object]] = ()
) -> None:
    """Remove what is too old, at most once a day. A stamp file has the time of the last one.

    `others` remove what does not belong to the records.
    """
    now = time.time()
    stamp = manager.paths.cache / "cleaned"
    with contextlib.suppress(FileNotFoundError):
        # A clock that was set back must not put it off for ever.
        if 0 <= now - stamp.stat().st_mtime < DAILY:
            return
    manager.cleanup_old_backups(now=now)
    cleanup_old_runs(manager, now=now)
    _remove_files(manager, now)
    for remove in others:
        remove(manager)
    make_folder(stamp.parent)
    stamp.touch()
    os.utime(stamp, (now, now))


def _remove_files(manager: ProjectManager, now: float) -> None:
    """Remove temporary files that a kill left behind, and jobs that were set aside, when runs of
    that age expire."""
    cache, projects = manager.paths.cache, manager.paths.projects
    for file in (*cache.glob(".*-*"), *projects.glob("*/.*-*")):
        with contextlib.suppress(OSError):
            if now - file.lstat().st_mtime > DAILY:
                file.unlink()
    for file in projects.glob("*/unreadable-*.json"):
        if now - file.lstat().st_ctime > KEEP_DAYS.read(manager) * DAILY:
            file.unlink(missing_ok=True)


def cleanup_old_runs(manager: ProjectManager, *, now: float) -> list[str]:
    """Remove runs that were not used for too long, and the oldest ones beyond the size limit.

    A run with pending changes stays, as do those that its changes are based on, and the newest run
    with changes in each project, unless it is too old. Return the ids of the removed runs.
    """
    keep, most = KEEP_DAYS.read(manager) * DAILY, KEEP_MIB.read(manager) << 20
    unlisted = set(run_ids(manager.paths))
    with manager.store.translated_errors():
        used = {run: _used_at(manager.paths, run) for run in Run.select()}
    ids = [run.id for run in used]
    needed, changed = _needed(manager, ids), count_states(manager, ids)
    total, newest = 0, set[int]()
    old: dict[str, list[str]] = {}
    for run in sorted(used, key=lambda run: (used[run], str(run.id)), reverse=True):
        unlisted.discard(run.id)
        total += trees.measure(manager.paths.runs / run.id)[1]
        is_newest = run.project_id not in newest and bool(changed[run.id])
        newest |= {run.project_id} if is_newest else set()
        too_much = total > most and not is_newest
        if (now - used[run] > keep or too_much) and run.id not in needed:
            old.setdefault(run.project.path, []).append(run.id)
    removed = []
    for project, of_project in old.items():
        # Another process may be undoing one of them.
        with project_lock(manager.paths, project):
            if not job_file(manager.paths, project).exists():
                removed += _remove_runs(manager, of_project)
    for left in (manager.paths.runs / run_id for run_id in unlisted):
        # A kill came before its changes were listed. The overlay has all of it, if it is needed.
        if now - left.stat().st_mtime > DAILY and not (left / "changes.jsonl").exists():
            with contextlib.suppress(FileNotFoundError):
                trees.remove_path(left)
    return removed


def _needed(manager: ProjectManager, ids: Sequence[str]) -> set[str]:
    """Return the runs with pending changes, and those that these are based on."""
    pending = [state.value for state in PENDING_STATES]
    counts = count_states(manager, ids)
    needed = {run_id for run_id, found in counts.items() if any(found[one] for one in pending)}
    for run_id in list(needed):
        items = read_run(manager.paths, run_id).changes
        needed |= {item.on[0] for item in items if is_pending(item) and item.on}
    return needed


def _used_at(paths: Paths, run: Run) -> float:
    """Return when the run was last used: its states are appended to a file in its folder."""
    times = [run.started_at, run.ended_at or 0]
    with contextlib.suppress(FileNotFoundError):
        times.append((paths.runs / run.id / "state.jsonl").stat().st_mtime)
    return max(times)


def _remove_runs(manager: ProjectManager, ids: Sequence[str]) -> list[str]:
    """Remove runs and their versions; return the ids of the removed ones."""
    removed = []
    for run_id in ids:
        if run_id in _needed(manager, [run_id]):
            continue  # it has pending changes now
        folder = manager.paths.runs / run_id
        # First: a run without versions must not be listed again after a kill.
        (folder / "changes.jsonl").unlink(missing_ok=True)
        with manager.store.transaction():
            Run.delete().where(Run.id == run_id).execute()
        with contextlib.suppress(FileNotFoundError):
            trees.remove_path(folder)
        removed.append(run_id)
    return removed
