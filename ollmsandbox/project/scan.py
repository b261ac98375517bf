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
from dataclasses import dataclass, field

from .. import N_
from ..errors import ProjectError
from ..files.dirfd import FOLDER
from ..paths import is_inside
from . import ignore
from .manager import UPSERT_SEEN, ProjectManager
from .scan_cache import UNKNOWN, KnownFolder, ScanCache, Stamp

# Each level takes a descriptor; deeper folders count as unreadable.
_DEEPEST = 250
# Rows in one transaction: a few milliseconds.
_BATCH = 1000
_MOST_LINKS = 1000
_PROGRESS_SECONDS = 0.1
_UNSEEN = "(coalesce(seen_at, 0) < :stamp AND last_approved_copy_path IS NULL)"
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


@dataclass(frozen=True)
class ScanProgress:
    folders: int
    files: int
    is_done: bool


@dataclass(frozen=True)
class Scan:
    """The numbers of what a scan found. An ignored folder counts once, without its content."""

    folders: int
    files: int
    ignored: int
    unreadable: int
    links: int
    removed: int
    is_cancelled: bool


@dataclass
class _Level:
    """A folder above the present one: its subfolders still to visit, and its ignore file."""

    descriptor: int
    name: bytes
    folders: list[bytes]
    rules: ignore.IgnoreRules | None
    # Whether the ignore files here and further out are those of the last scan.
    has_same_rules: bool
    links: list[bytes] = field(default_factory=list)


class _Stopped(Exception):
    pass


class Scanner:
    """One scan, in a thread of its own."""

    def __init__(
        self,
        manager: ProjectManager,
        path: str,
        is_stopped: Callable[[], bool],
        tell: Callable[[ScanProgress], None] = lambda _progress: None,
    ) -> None:
        self._manager = manager
        self._path = path
        self._tell = tell
        self._is_stopped = is_stopped
        self._stamp = time.time()
        self._told_at = 0.0
        self._project_id = 0
        self._levels: list[_Level] = []
        self._exclude: ignore.IgnoreRules | None = None
        self._old = ScanCache(0)
        self._new = ScanCache(self._stamp)
        # Absolute paths, as in the records.
        self._unchanged: set[bytes] = set()
        self._batch: list[bytes] = []
        self._found_links: list[tuple[bytes, str]] = []
        self._folders = self._files = self._ignored = self._unreadable = 0
        self._links = self._removed = 0

    def run(self) -> Scan:
        is_cancelled = False
        try:
            project = self._manager.find_project(self._path)
            self._project_id = (project or self._manager.add_project(self._path)).id
            file = self._manager.paths.scan_cache(self._path)
            self._old = ScanCache.read(file, self._project_id)
            try:
                self._walk()
                self._write_links()
                folders, before = self._new.folders, self._old.folders
                is_unchanged = len(self._unchanged) == len(folders) == len(before)
                self._forget_missing_backups()
                self._sweep(only_deleted=is_unchanged)
                if not is_unchanged:
                    self._new.write(file, self._project_id)
            except _Stopped:
                is_cancelled = True
        finally:
            # Close this thread's connection: the thread may never need it again.
            self._manager.store.close()
        return Scan(
            self._folders,
            self._files,
            self._ignored,
            self._unreadable,
            self._links,
            self._removed,
            is_cancelled,
        )

    def _walk(self) -> None:
        try:
            top = os.open(self._path, FOLDER)
        except OSError as error:
            raise ProjectError(
                N_("{folder} cannot be read: {why}."), folder=self._path, why=error.strerror
            ) from error
        self._exclude, exclude_stamp = _read_exclude(top)
        self._new.exclude = self._new.settled(exclude_stamp)
        try:
            self._enter(top, b"", has_same_rules=exclude_stamp == self._old.exclude)
            while self._levels:
                level = self._levels[-1]
                if not level.folders:
                    os.close(self._levels.pop().descriptor)
                    continue
                name = level.folders.pop()
                if len(self._levels) >= _DEEPEST:
                    self._unreadable += 1
                    continue
                if level.has_same_rules and self._is_unchanged_leaf(level, name):
                    continue
                try:
                    descriptor = os.open(name, FOLDER, dir_fd=level.descriptor)
                except OSError as error:
                    # A folder that was deleted or replaced meanwhile is not unreadable.
                    self._unreadable += error.errno not in _NOT_THERE
                    continue
                self._enter(descriptor, name, has_same_rules=level.has_same_rules)
            self._write_batch()
        finally:
            for level in self._levels:
                os.close(level.descriptor)

    def _is_unchanged_leaf(self, level: _Level, name: bytes) -> bool:
        """Return whether nothing in the folder has to be looked at, and keep it if so."""
        way = [*(one.name for one in self._levels[1:]), name]
        path = os.fsdecode(b"/".join(way))
        known = self._old.folders.get(path)
        if known is None or known.folders or known.links or known.ignore_file:
            return False
        try:
            found = os.stat(name, dir_fd=level.descriptor, follow_symlinks=False)
        except OSError:
            return False
        if Stamp.of(found) != known.stamp:
            return False
        self._pause()
        self._keep(path, known)
        return True

    def _keep(self, path: str, known: KnownFolder) -> None:
        self._new.folders[path] = known
        top = os.fsencode(self._path).rstrip(b"/")
        self._unchanged.add(top + b"/" + os.fsencode(path) if path else top)
        self._folders += 1
        self._files += known.files
        self._ignored += known.ignored

    def _enter(self, descriptor: int, name: bytes, *, has_same_rules: bool) -> None:
        level = _Level(descriptor, name, [], None, has_same_rules)
        self._levels.append(level)
        way = [one.name for one in self._levels[1:]]
        path = os.fsdecode(b"/".join(way))
        around = os.fsencode(self._path).rstrip(b"/") + b"".join(b"/" + one for one in way) + b"/"
        # Before it is read: a later change makes another stamp.
        stamp = Stamp.of(os.fstat(descriptor))
        ignore_stamp = _stamp_of_file(".gitignore", descriptor)
        level.rules = ignore.read_ignore_file(".gitignore", descriptor) if ignore_stamp else None
        known = self._old.folders.get(path)
        level.has_same_rules &= known is not None and known.ignore_file == ignore_stamp
        if known is not None and known.stamp == stamp and level.has_same_rules:
            self._pause()
            self._keep(path, known)
            level.folders += map(os.fsencode, known.folders)
            for link in known.links:
                # What it leads to may have changed.
                self._follow(around + os.fsencode(link))
            return
        self._folders += 1
        files, ignored = self._files, self._ignored
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    self._meet(entry, level, way, around)
        except OSError:
            self._unreadable += 1
            return
        self._new.folders[path] = KnownFolder(
            self._new.settled(stamp) or UNKNOWN,
            self._new.settled(ignore_stamp),
            tuple(map(os.fsdecode, level.folders)),
            tuple(map(os.fsdecode, level.links)),
            self._files - files,
            self._ignored - ignored,
        )

    def _pause(self) -> None:
        if self._is_stopped():
            raise _Stopped
        self._report()

    def _meet(
        self, entry: os.DirEntry[str], level: _Level, way: list[bytes], around: bytes
    ) -> None:
        self._pause()
        name = os.fsencode(entry.name)
        if name == b".git":
            return
        is_folder = entry.is_dir(follow_symlinks=False)
        is_link = entry.is_symlink()
        if is_link:
            level.links.append(name)
            self._follow(around + name)
        if self._is_ignored([*way, name], is_folder):
            self._ignored += 1
        elif is_folder:
            level.folders.append(name)
        elif is_link or entry.is_file(follow_symlinks=False):
            self._files += 1
            self._batch.append(around + name)
            if len(self._batch) >= _BATCH:
                self._write_batch()

    def _is_ignored(self, names: list[bytes], is_folder: bool) -> bool:
        # The nearest ignore file decides, then those further out.
        for depth in range(len(self._levels) - 1, -1, -1):
            if rules := self._levels[depth].rules:
                verdict = rules.decide(names[depth:], is_folder)
                if verdict is not None:
                    return verdict
        return self._exclude is not None and bool(self._exclude.decide(names, is_folder))

    def _follow(self, link: bytes) -> None:
        """Note where a link leads if that is a folder outside the project. Do not enter it."""
        target = os.path.realpath(os.fsdecode(link))
        if not is_inside(target, self._path) and os.path.isdir(target):
            self._links += 1
            if len(self._found_links) < _MOST_LINKS:
                self._found_links.append((link, target))

    def _report(self) -> None:
        now = time.monotonic()
        if now - self._told_at >= _PROGRESS_SECONDS:
            self._told_at = now
            self._tell(ScanProgress(self._folders, self._files, is_done=False))

    def _write_batch(self) -> None:
        rows = [(self._project_id, path, self._stamp) for path in self._batch]
        self._batch.clear()
        with self._changing() as connection:
            connection.executemany(UPSERT_SEEN, rows)

    def _write_links(self) -> None:
        start = len(os.fsencode(self._path).rstrip(b"/")) + 1
        with self._changing() as connection:
            connection.execute("DELETE FROM foundlink WHERE project_id = ?", (self._project_id,))
            connection.executemany(
                "INSERT INTO foundlink (project_id, path, target) VALUES (?, ?, ?)",
                (
                    (self._project_id, link[start:], os.fsencode(target))
                    for link, target in self._found_links
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
        is_there = _Presence()
        gone = [(number, self._stamp) for number, path in missing if is_there(path) is False]
        with self._changing() as connection:
            before = connection.total_changes
            connection.executemany(
                "DELETE FROM filerecord WHERE id = ? AND last_approved_copy_path IS NULL"
                " AND coalesce(seen_at, 0) < ?",
                gone,
            )
            self._removed += connection.total_changes - before

    def _sweep(self, *, only_deleted: bool) -> None:
        """Update the records of files that the walk did not find.

        Remove those of files that do not exist, and mark deleted files that are back. With
        `only_deleted`, look only for the latter.
        """
        unseen = "" if only_deleted else " OR " + _UNSEEN
        after = b""
        is_there = _Presence()
        while True:
            if self._is_stopped():
                raise _Stopped
            self._report()
            with self._manager.store.translated_errors():
                rows = self._manager.store.connection.execute(
                    "SELECT path, id, is_deleted, coalesce(seen_at, 0) FROM filerecord"
                    f" WHERE project_id = :project AND path > :after AND (is_deleted{unseen})"
                    " ORDER BY path LIMIT :most",
                    {
                        "project": self._project_id,
                        "after": after,
                        "stamp": self._stamp,
                        "most": _BATCH,
                    },
                ).fetchall()
            if not rows:
                return
            after = rows[-1][0]
            rows = [row for row in rows if row[2] or not self._is_known(row[0], row[3])]
            back = [
                number for path, number, deleted, _ in rows if deleted and is_there(path) is True
            ]
            gone = [
                (number, self._stamp)
                for path, number, deleted, _ in rows
                if not deleted and is_there(path) is False
            ]
            if not back and not gone:
                continue
            with self._changing() as connection:
                connection.executemany(
                    "UPDATE filerecord SET is_deleted = 0 WHERE id = ?",
                    ((number,) for number in back),
                )
                before = connection.total_changes
                # A run may have begun to use it since.
                connection.executemany(
                    "DELETE FROM filerecord WHERE id = ? AND NOT is_deleted"
                    " AND last_approved_copy_path IS NULL AND coalesce(seen_at, 0) < ?",
                    gone,
                )
                self._removed += connection.total_changes - before

    def _is_known(self, path: bytes, seen_at: float) -> bool:
        """Return whether an earlier scan saw a file in a folder that has not changed since."""
        return seen_at <= self._old.began and path.rpartition(b"/")[0] in self._unchanged


class _Presence:
    """Tells whether a file is at exactly this path, not behind a link; None if that is unknown."""

    def __init__(self) -> None:
        self._around = b""
        self._is_real = True

    def __call__(self, path: bytes) -> bool | None:
        around = os.path.dirname(path)
        if around != self._around:
            self._around, self._is_real = around, os.path.realpath(around) == around
        if not self._is_real:
            return False
        try:
            return not stat.S_ISDIR(os.lstat(path).st_mode)
        except OSError as error:
            return False if error.errno in _NOT_THERE else None


def _stamp_of_file(name: str, around: int) -> Stamp | None:
    try:
        return Stamp.of(os.stat(name, dir_fd=around, follow_symlinks=False))
    except OSError:
        return None


def _read_exclude(top: int) -> tuple[ignore.IgnoreRules | None, Stamp | None]:
    descriptor = top
    opened: list[int] = []
    try:
        for name in (".git", "info"):
            descriptor = os.open(name, FOLDER, dir_fd=descriptor)
            opened.append(descriptor)
        stamp = _stamp_of_file("exclude", descriptor)
        return ignore.read_ignore_file("exclude", descriptor), stamp
    except OSError:
        return None, None  # no repository, or one of another kind
    finally:
        for one in opened:
            os.close(one)
