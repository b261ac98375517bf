# SPDX-License-Identifier: GPL-3.0-or-later
"""Backups: one of each changed file and day, and what each run found; and when they go."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from .. import trees
from ..paths import Paths, make_folder
from .apply import Recorded, State, remove_versions
from .changes import FOLDER, Kind, Type
from .exchange import NO_LINKS, Spot, copy
from .manager import ProjectManager
from .models import Change, Project, Run
from .recorder import DAILY
from .settings import KEEP_DAYS, KEEP_MIB

KEEP_BACKUPS = 7 * 86400
_LONGEST = 255
_BACKUP = re.compile(r"\d+-(\d\d-\d\d-\d\d)-", re.ASCII)
# So many characters fit in any case, however many bytes each has.
_SHORT = 50


def backup_name(number: int, path: str, day: str) -> str:
    """`{id}-{YY-MM-DD}-{basename}`; of a long name the end is kept, which tells what kind it is."""
    start = f"{number}-{day}-"
    name = os.path.basename(path)
    if len(name) < _SHORT:
        return start + name
    return start + os.fsdecode(os.fsencode(name)[-(_LONGEST - len(start)) :])


def back_up(
    manager: ProjectManager, project: Project, versions: Path, items: Sequence[Recorded]
) -> None:
    """What a run replaced or deleted: a record for each file, and the first version of the day."""
    done = [
        (f"{item.change.root}/{item.change.path}", item)
        for item in items
        if item.state is State.APPLIED and item.change.type is not Type.FOLDER
    ]
    if not done:
        return
    ids = manager.records_for(project, [path for path, _ in done])
    day = time.strftime("%y-%m-%d")
    around = str(manager.paths.backups)
    folder = os.open(make_folder(manager.paths.backups), FOLDER)
    kept = os.open(make_folder(versions), FOLDER)
    noted: list[tuple[int, str | None, bool]] = []
    try:
        for path, item in done:
            number, copied = ids[path], None
            if item.change.old_type is Type.FILE:
                name = backup_name(number, path, day)
                if _link(Spot(kept, str(item.number)), Spot(folder, name)):
                    copied = f"{around}/{name}"
            noted.append((number, copied, item.change.kind is Kind.DELETED))
    finally:
        os.close(folder)
        os.close(kept)
    manager.note_backups(noted)


def _link(version: Spot, backup: Spot) -> bool:
    """Nobody writes to a kept version, so the backup may be the same file. True if there is one."""
    try:
        version.link_to(backup)
    except FileExistsError:
        return True
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        copy(version, backup)
    return True


def clean_up(manager: ProjectManager, *, now: float | None = None) -> None:
    """At start and daily: the stamp says when it was last done."""
    now = time.time() if now is None else now
    stamp = manager.paths.cache / "cleaned"
    with contextlib.suppress(FileNotFoundError):
        # A clock that was set back must not put it off for ever.
        if 0 <= now - stamp.stat().st_mtime < DAILY:
            return
    cleanup_old_backups(manager, now=now)
    cleanup_old_runs(manager, now=now)
    _remove_halves(manager.paths, now)
    make_folder(stamp.parent)
    stamp.touch()
    os.utime(stamp, (now, now))


def _remove_halves(paths: Paths, now: float) -> None:
    """What a kill left of files that were just being written."""
    for file in (*paths.cache.glob(".*-*"), *(paths.data / "pending").glob("*/.*-*")):
        with contextlib.suppress(OSError):
            if now - file.lstat().st_mtime > DAILY:
                file.unlink()


def cleanup_old_backups(manager: ProjectManager, *, now: float | None = None) -> int:
    """Those of more than seven days ago. A backup is as old as its name says: it may be the very
    file that lay in the project for years."""
    now = time.time() if now is None else now
    limit = time.strftime("%y-%m-%d", time.localtime(now - KEEP_BACKUPS))
    removed = []
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(manager.paths.backups):
            ours = _BACKUP.match(entry.name)
            if ours and ours[1] < limit and not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                removed.append(entry.path)
    if removed:
        manager.forget_copies(removed)
    return len(removed)


def cleanup_old_runs(
    manager: ProjectManager,
    *,
    now: float | None = None,
) -> list[str]:
    """Runs that can no longer be undone: too old, or the oldest of too much. One whose changes
    still wait stays."""
    now = time.time() if now is None else now
    keep, most = KEEP_DAYS.read(manager) * DAILY, KEEP_MIB.read(manager) << 20
    folders = {}
    with contextlib.suppress(FileNotFoundError):
        folders = {entry.name: entry.path for entry in os.scandir(manager.paths.versions)}
    with manager.store.errors_told():
        runs = list(Run.select().order_by(Run.started_at.desc(), Run.id.desc()))
        waiting = {
            change.run_id
            for change in Change.select(Change.run).where(
                Change.state.in_([State.PENDING.value, State.CONFLICT.value, State.FAILED.value])
            )
        }
    total, removed, newest = 0, [], set[int]()
    for run in runs:
        folder = folders.pop(run.id, None)
        total += trees.measure(Path(folder))[1] if folder else 0
        is_newest = run.project_id not in newest
        newest.add(run.project_id)
        too_much = total > most and not is_newest
        if (now - run.started_at > keep or too_much) and run.id not in waiting:
            removed.append(run.id)
            if folder:
                remove_versions(Path(folder))
    for left in folders.values():
        # Of a run that nobody knows any more.
        if now - os.stat(left).st_mtime > DAILY:
            remove_versions(Path(left))
    if removed:
        with manager.store.transaction():
            Run.delete().where(Run.id.in_(removed)).execute()
    return removed
