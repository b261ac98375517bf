# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the versions of a file before and after a change, and all versions that are kept: from
runs, and from the daily backups."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from ..database.tables import Project, Run
from ..files.overlayfs import Seen, find_in_layers, read_link, read_seen
from .change import Kind, Recorded, State, Type
from .index import replaced_as
from .projects import ProjectManager, backup_name, backups_in
from .reasons import Note, Reason
from .recorder import root_of
from .run import RunFolder, signature


@dataclass(frozen=True)
class Version:
    """One version of a file or link. Without `seen` there was nothing, or, with a `note`, the
    version cannot be had."""

    seen: Seen | None = None
    note: Note | None = None

    @property
    def type(self) -> Type | None:
        if self.seen is None:
            return None
        if self.seen.is_folder:
            return Type.FOLDER
        return Type.LINK if self.seen.is_link else Type.FILE

    @property
    def size(self) -> int:
        return self.seen.found.st_size if self.seen and self.seen.is_file else 0

    @property
    def target(self) -> str:
        """Return what a link leads to; "" for anything else, and if it cannot be read."""
        return read_link(self.seen) if self.seen and self.seen.is_link else ""

    def read(self, most: int = -1) -> bytes:
        """Return the content; nothing if it is not a file, or not there."""
        return read_seen(self.seen, most) if self.seen and self.seen.is_file else b""

    @property
    def content(self) -> bytes | None:
        """Return the content of a file; None if it is not a file, or not there."""
        return self.read() if self.type is Type.FILE else None


_NOTHING = Version()
_CHANGED_SINCE = Version(note=Note(Reason.CHANGED_SINCE))
_GONE = Version(note=Note(Reason.LOST))


class Versions:
    """Looks at the disk each time: a version moves when others take its place."""

    def __init__(self, manager: ProjectManager) -> None:
        self._manager = manager

    def before(self, run: Run, item: Recorded) -> Version:
        """Return the version that the command saw."""
        kind, old_type = item.change.kind, item.change.old_type
        # What was in a folder has changes of its own.
        if kind is Kind.ADDED or (kind is Kind.REPLACED and old_type is Type.FOLDER):
            return _NOTHING
        kept = _find_kept(self._folder(run).base(item.number))
        if kept.seen is not None or not item.is_known or item.on is not None:
            return kept if kept.seen is not None else _CHANGED_SINCE
        there = self.on_disk(item)
        known = item.after if item.state is State.UNDONE and item.after else item.base
        if there.seen is None or signature(there.seen.found) == known:
            return there
        return kept if item.state is State.APPLIED else _CHANGED_SINCE

    def after(self, run: Run, item: Recorded) -> Version:
        """Return the version that the command left."""
        kind, type_ = item.change.kind, item.change.type
        if kind is Kind.DELETED or (kind is Kind.REPLACED and type_ is Type.FOLDER):
            return _NOTHING
        kept = _find_kept(self._folder(run).whole_result(item.number))
        if kept.seen is not None or item.state is not State.APPLIED:
            return kept
        return self._left_there(item)

    def pending(self, run: Run, item: Recorded) -> Version:
        """Return the version that applying the change would put into the project."""
        return _find_kept(self._folder(run).result(item.number))

    def made(self, run: Run, item: Recorded) -> tuple[Version, Version]:
        """Return the versions before and after a decision of the user."""
        before, after = self._folder(run).pair(item)
        return _find_kept(before), _find_kept(after)

    def three_way(self, run: Run, item: Recorded) -> tuple[bytes | None, bytes, bytes | None]:
        """Return what is to be merged: base, result, and what is on disk now. None for a base that
        was not kept, and for what is no file on disk."""
        base = _find_kept(self._folder(run).base(item.number))
        return base.content, self.after(run, item).read(), self.on_disk(item).content

    def _left_there(self, item: Recorded) -> Version:
        """Return the version that we left in the project, or that the next run found there."""
        there = self.on_disk(item)
        if there.seen is not None and signature(there.seen.found) == item.after:
            return there
        for run_id, number in replaced_as(self._manager, item) if item.after else ():
            kept = _find_kept(RunFolder(self._manager.paths, run_id).base(number))
            if kept.seen is not None:
                return kept
        return _CHANGED_SINCE

    def on_disk(self, item: Recorded) -> Version:
        return _find(item.change.root, item.change.path)

    def _folder(self, run: Run) -> RunFolder:
        return RunFolder(self._manager.paths, run.id)


def _find_kept(file: Path) -> Version:
    found = _find(str(file.parent), file.name) if file.parent.is_dir() else _NOTHING
    return found if found.seen is not None else _GONE


def _find(folder: str, path: str) -> Version:
    try:
        return Version(find_in_layers([folder], path))
    except OSError as error:
        return Version(note=Note(Reason.UNREADABLE, {"error": error.strerror or str(error)}))


@dataclass(frozen=True)
class EarlierVersion:
    """An older version of a file, which can be restored."""

    # When something else took its place; of a backup only the day is known.
    until: float
    version: Version
    # The run that replaced it; "" for the backup of a day.
    run_id: str = ""


def earlier_versions(manager: ProjectManager, project: Project, path: str) -> list[EarlierVersion]:
    """Return the kept versions of a file, by its full path, of runs and days; the newest first."""
    root, inner = root_of(manager.paths, project.path, path) or ("", "")
    replaced = manager.store.query(
        "SELECT run.id, change.number, coalesce(run.ended_at, run.started_at)"
        " FROM change JOIN run ON run.id = change.run_id"
        " WHERE change.root = ? AND change.path = ? AND change.state = ?"
        " ORDER BY run.ended_at DESC",
        (os.fsencode(root), os.fsencode(inner), State.APPLIED.value),
    )
    kept = [
        (until, manager.paths.runs / run_id / "base", str(number), run_id)
        for run_id, number, until in replaced
    ]
    records = manager.store.query(
        "SELECT id FROM filerecord WHERE project_id = ? AND path = ?"
        " AND last_approved_copy_path IS NOT NULL",
        (project.id, os.fsencode(path)),
    )
    kept += [
        (time.mktime(time.strptime(backup.day, "%y-%m-%d")), manager.paths.backups, name, "")
        for (number,) in records
        for backup in backups_in(manager.paths.backups)
        if (name := backup_name(number, path, backup.day)) == os.path.basename(backup.path)
    ]
    found: list[EarlierVersion] = []
    known: set[int] = set()
    for until, folder, name, run_id in kept:
        seen = find_in_layers([str(folder)], name)
        # A backup is mostly the very file that a run kept.
        if seen is not None and seen.is_file and seen.found.st_ino not in known:
            known.add(seen.found.st_ino)
            found.append(EarlierVersion(until, Version(seen), run_id))
    return sorted(found, key=lambda earlier: -earlier.until)
