# SPDX-License-Identifier: GPL-3.0-or-later
"""Walks through a project and updates its records: its files, and links that lead outside."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .. import N_
from ..errors import ProjectError
from ..files.dirfd import FOLDER
from ..paths import is_inside
from . import ignore
from .manager import UPSERT_SEEN, ProjectManager

# Each level takes a descriptor; deeper folders count as unreadable.
_DEEPEST = 250
# Rows in one transaction: a few milliseconds.
_BATCH = 1000
_MOST_LINKS = 1000
_PROGRESS_SECONDS = 0.1
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


class _Stopped(Exception):
    pass


class Scanner:
    """One scan, in a thread of its own."""

    def __init__(
        self,
        manager: ProjectManager,
        path: str,
        tell: Callable[[ScanProgress], None],
        is_stopped: Callable[[], bool],
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
        self._batch: list[bytes] = []
        self._found_links: list[tuple[bytes, str]] = []
        self._folders = self._files = self._ignored = self._unreadable = 0
        self._links = self._removed = 0

    def run(self) -> Scan:
        is_cancelled = False
        try:
            project = self._manager.find_project(self._path)
            self._project_id = (project or self._manager.add_project(self._path)).id
            try:
                self._walk()
                self._write_links()
                self._sweep()
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
        self._exclude = _read_exclude(top)
        try:
            self._enter(top, b"")
            while self._levels:
                level = self._levels[-1]
                if not level.folders:
                    os.close(self._levels.pop().descriptor)
                    continue
                name = level.folders.pop()
                if len(self._levels) >= _DEEPEST:
                    self._unreadable += 1
                    continue
                try:
                    descriptor = os.open(name, FOLDER, dir_fd=level.descriptor)
                except OSError as error:
                    # A folder that was deleted or replaced meanwhile is not unreadable.
                    self._unreadable += error.errno not in _NOT_THERE
                    continue
                self._enter(descriptor, name)
            self._write_batch()
        finally:
            for level in self._levels:
                os.close(level.descriptor)

    def _enter(self, descriptor: int, name: bytes) -> None:
        level = _Level(descriptor, name, [], ignore.read_ignore_file(".gitignore", descriptor))
        self._levels.append(level)
        self._folders += 1
        way = [one.name for one in self._levels[1:]]
        around = os.fsencode(self._path).rstrip(b"/") + b"".join(b"/" + one for one in way) + b"/"
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    self._meet(entry, level, way, around)
        except OSError:
            self._unreadable += 1

    def _meet(
        self, entry: os.DirEntry[str], level: _Level, way: list[bytes], around: bytes
    ) -> None:
        if self._is_stopped():
            raise _Stopped
        self._report()
        name = os.fsencode(entry.name)
        if name == b".git":
            return
        is_folder = entry.is_dir(follow_symlinks=False)
        is_link = entry.is_symlink()
        if is_link:
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

    def _sweep(self) -> None:
        """Update the records of files that the walk did not find.

        Remove those of files that do not exist, and mark deleted files that are back.
        """
        after = b""
        is_there = _Presence()
        while True:
            if self._is_stopped():
                raise _Stopped
            self._report()
            with self._manager.store.translated_errors():
                rows = self._manager.store.connection.execute(
                    "SELECT path, id, is_deleted FROM filerecord"
                    " WHERE project_id = ? AND path > ? AND (is_deleted OR"
                    " (coalesce(seen_at, 0) < ? AND last_approved_copy_path IS NULL))"
                    " ORDER BY path LIMIT ?",
                    (self._project_id, after, self._stamp, _BATCH),
                ).fetchall()
            if not rows:
                return
            after = rows[-1][0]
            back = [number for path, number, deleted in rows if deleted and is_there(path) is True]
            gone = [
                (number, self._stamp)
                for path, number, deleted in rows
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


def _read_exclude(top: int) -> ignore.IgnoreRules | None:
    descriptor = top
    opened: list[int] = []
    try:
        for name in (".git", "info"):
            descriptor = os.open(name, FOLDER, dir_fd=descriptor)
            opened.append(descriptor)
        return ignore.read_ignore_file("exclude", descriptor)
    except OSError:
        return None  # no repository, or one of another kind
    finally:
        for one in opened:
            os.close(one)
