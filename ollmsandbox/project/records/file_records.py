# SPDX-License-Identifier: GPL-3.0-or-later
"""Walks through a project and updates its records: its files, and links that lead outside.

A folder that has not changed since the last scan is not listed again; only its subfolders are
visited. With 100,000 files in 5,000 folders, that takes 0.15 s of processor time and not 1.4 s.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator

from ... import N_
from ...errors import ProjectError
from ...files.dirfd import opened_folder
from ...files.ignore import IgnoredPaths
from ...files.trees import WalkedFolder, walk
from ...paths import is_inside
from ..projects import ProjectManager
from .scan_cache import KnownFolder, ScanCache, stamp_of

# Each level takes a descriptor; deeper folders count as unreadable.
_DEEPEST = 250
# Rows in one transaction: a few milliseconds.
_BATCH = 1000
_MOST_LINKS = 1000
_SEE = (
    "INSERT INTO filerecord (project_id, path, is_deleted, seen_at) VALUES (?, ?, 0, ?)"
    " ON CONFLICT (project_id, path)"
    " DO UPDATE SET seen_at = max(coalesce(seen_at, 0), excluded.seen_at)"
)


class _Stopped(Exception):
    pass


class Scanner:
    """One scan, in a thread of its own."""

    def __init__(self, manager: ProjectManager, path: str, is_stopped: Callable[[], bool]) -> None:
        self._manager = manager
        self._path = path
        # What the paths in the records begin with.
        self._top = os.fsencode(path).rstrip(b"/") + b"/"
        self._is_stopped = is_stopped
        self._stamp = time.time()
        self._project_id = 0
        self._old = ScanCache(0)
        self._new = ScanCache(self._stamp)
        # Paths in the project.
        self._unchanged: set[str] = set()
        self._batch: list[str] = []
        self._links: list[tuple[str, str]] = []
        # Whether no link leads to a folder, by its full path.
        self._is_real: dict[bytes, bool] = {}

    def run(self) -> None:
        try:
            project = self._manager.find_project(self._path)
            self._project_id = (project or self._manager.add_project(self._path)).id
            file = self._manager.paths.scan_cache(self._path)
            self._old = ScanCache.read(file, self._project_id)
            with contextlib.suppress(_Stopped):
                self._walk()
                self._write_links()
                folders = self._new.folders
                is_unchanged = len(self._unchanged) == len(folders) == len(self._old.folders)
                self._forget_missing_backups()
                self._sweep(only_deleted=is_unchanged)
                if not is_unchanged:
                    self._new.write(file, self._project_id)
        finally:
            # Close this thread's connection: the thread may never need it again.
            self._manager.store.close()

    def _walk(self) -> None:
        try:
            with opened_folder(self._path) as top:
                exclude = _find(".git/info/exclude", top)
        except OSError as error:
            raise ProjectError(
                N_("{folder} cannot be read: {why}."), folder=self._path, why=error.strerror
            ) from error
        self._new.exclude = self._new.settled_stamp(exclude)
        ignored = IgnoredPaths(self._path)
        # By level: whether the ignore files there and further out are those of the last scan.
        are_same = [stamp_of(exclude) == self._old.exclude]
        # The records of a folder that cannot be opened stay, or go with the files.
        for folder in walk(self._path, skip_errors=True):
            del are_same[folder.depth + 1 :]
            are_same.append(self._enter(folder, ignored, has_same_rules=are_same[-1]))
            if folder.depth + 1 >= _DEEPEST:
                folder.folders.clear()
        self._write_batch()

    def _enter(self, folder: WalkedFolder, ignored: IgnoredPaths, *, has_same_rules: bool) -> bool:
        """Record what is in a folder; return whether the ignore files are the same here, too."""
        path = folder.path
        # Before it is read: a later change makes another stamp.
        found, ignore_file = os.fstat(folder.descriptor), _find(".gitignore", folder.descriptor)
        known = self._old.folders.get(path)
        has_same_rules &= known is not None and known.ignore_file == stamp_of(ignore_file)
        if known is not None and known.stamp == stamp_of(found) and has_same_rules:
            self._pause()
            self._new.folders[path] = known
            self._unchanged.add(path)
            folder.folders += known.folders
            for link in known.links:
                # What it leads to may have changed.
                self._follow(os.path.join(path, link))
            return True
        with contextlib.suppress(OSError):  # it cannot be read
            links: list[str] = []
            with os.scandir(folder.descriptor) as entries:
                for entry in entries:
                    is_entered = self._meet(entry, os.path.join(path, entry.name), ignored)
                    if entry.is_symlink():
                        links.append(entry.name)
                    elif is_entered:
                        folder.folders.append(entry.name)
            self._new.folders[path] = KnownFolder(
                self._new.settled_stamp(found),
                self._new.settled_stamp(ignore_file),
                list(folder.folders),
                links,
            )
        return has_same_rules

    def _pause(self) -> None:
        if self._is_stopped():
            raise _Stopped

    def _meet(self, entry: os.DirEntry[str], path: str, ignored: IgnoredPaths) -> bool:
        """Record a file or a link; return whether it is a folder to be entered."""
        self._pause()
        if entry.name == ".git":
            return False
        is_folder = entry.is_dir(follow_symlinks=False)
        is_link = entry.is_symlink()
        if is_link:
            self._follow(path)
        if ignored.covers(path, is_folder=is_folder):
            return False
        if is_link or entry.is_file(follow_symlinks=False):
            self._batch.append(path)
            if len(self._batch) >= _BATCH:
                self._write_batch()
        return is_folder

    def _follow(self, link: str) -> None:
        """Note where a link leads if that is a folder outside the project. Do not enter it."""
        if len(self._links) >= _MOST_LINKS:
            return
        target = os.path.realpath(os.path.join(self._path, link))
        if not is_inside(target, self._path) and os.path.isdir(target):
            self._links.append((link, target))

    def _write_batch(self) -> None:
        rows = [
            (self._project_id, self._top + os.fsencode(path), self._stamp) for path in self._batch
        ]
        self._batch.clear()
        with self._changing() as connection:
            connection.executemany(_SEE, rows)

    def _write_links(self) -> None:
        with self._changing() as connection:
            connection.execute("DELETE FROM foundlink WHERE project_id = ?", (self._project_id,))
            connection.executemany(
                "INSERT INTO foundlink (project_id, path, target) VALUES (?, ?, ?)",
                (
                    (self._project_id, os.fsencode(link), os.fsencode(target))
                    for link, target in self._links
                ),
            )

    @contextlib.contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._manager.store.transaction() as connection:
            try:
                yield connection
            except sqlite3.IntegrityError as error:
                raise ProjectError(
                    N_("{folder} is no longer a project."), folder=self._path
                ) from error

    def _forget_missing_backups(self) -> None:
        """Remove the records that only a backup kept, if someone has removed the backup."""
        missing = self._manager.forget_missing_backups(self._project_id)
        with self._changing() as connection:
            connection.executemany(
                "DELETE FROM filerecord WHERE id = ? AND last_approved_copy_path IS NULL"
                " AND coalesce(seen_at, 0) < ?",
                [
                    (number, self._stamp)
                    for number, path in missing
                    if self._is_there(path) is False
                ],
            )

    def _sweep(self, *, only_deleted: bool) -> None:
        """Update the records of files that the walk did not find.

        Remove those of files that do not exist, and mark deleted files that are back. With
        `only_deleted`, look only for the latter.
        """
        after, seen_before = b"", 0 if only_deleted else self._stamp
        while True:
            self._pause()
            rows = self._manager.store.query(
                "SELECT path, id, is_deleted, coalesce(seen_at, 0) FROM filerecord"
                " WHERE project_id = ? AND path > ? AND (is_deleted OR"
                " coalesce(seen_at, 0) < ? AND last_approved_copy_path IS NULL)"
                " ORDER BY path LIMIT ?",
                (self._project_id, after, seen_before, _BATCH),
            )
            if not rows:
                return
            after = rows[-1][0]
            back = [
                (number,) for path, number, deleted, _ in rows if deleted and self._is_there(path)
            ]
            gone = [
                (number, self._stamp)
                for path, number, deleted, seen_at in rows
                if not deleted
                and not self._is_known(path, seen_at)
                and self._is_there(path) is False
            ]
            if not back and not gone:
                continue
            with self._changing() as connection:
                connection.executemany("UPDATE filerecord SET is_deleted = 0 WHERE id = ?", back)
                # A run may have begun to use it since.
                connection.executemany(
                    "DELETE FROM filerecord WHERE id = ? AND NOT is_deleted"
                    " AND last_approved_copy_path IS NULL AND coalesce(seen_at, 0) < ?",
                    gone,
                )

    def _is_there(self, path: bytes) -> bool | None:
        """Return whether a file is at exactly this path, not behind a link; None if unknown."""
        around = os.path.dirname(path)
        if around not in self._is_real:
            self._is_real[around] = os.path.realpath(around) == around
        if not self._is_real[around]:
            return False
        try:
            return not stat.S_ISDIR(os.lstat(path).st_mode)
        except OSError as error:
            return False if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP) else None

    def _is_known(self, path: bytes, seen_at: float) -> bool:
        """Return whether an earlier scan saw a file in a folder that has not changed since."""
        inner = os.fsdecode(path.removeprefix(self._top))
        return seen_at <= self._old.began and os.path.dirname(inner) in self._unchanged


def _find(name: str, around: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=around, follow_symlinks=False)
    except OSError:
        return None
