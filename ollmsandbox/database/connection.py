# SPDX-License-Identifier: GPL-3.0-or-later
"""The connection to the database: transactions, and what to do if it is damaged.

It keeps a file of reserved space beside it: on a full disk, SQLite could not even read, and nothing
could be undone to make room.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from peewee import PeeweeException, SqliteDatabase

from .. import N_
from ..errors import OllmSandboxError, Sentence
from ..files.atomic import flush
from ..files.broken import set_aside
from ..files.locks import FileLock
from ..paths import Paths, make_folder, real_path
from .tables import CURRENT, TABLES

_NAME = "reserve"
_SIZE = 256 << 10
# Reserve nothing if less than this is free.
_PLENTY = 64 << 20


def reserve_space(folder: Path) -> None:
    """Reserve space, unless the disk is nearly full."""
    file = folder / _NAME
    # The reserve is a precaution: the program works without it.
    with contextlib.suppress(OSError):
        if file.exists() or _free(folder) < _PLENTY:
            return
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, _SIZE)
        except OSError:
            file.unlink()
        finally:
            os.close(descriptor)


def release_space(folder: Path) -> bool:
    """Release the reserved space if the disk is full. Return whether that made room."""
    try:
        if _free(folder) >= _SIZE:
            return False
        os.unlink(folder / _NAME)
    except OSError:
        return False
    return True


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


# Nothing was released yet, so there is nothing to migrate from.
VERSION = 1

_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# Without our tables it can be read, but not used.
_UNUSABLE = (*_BROKEN, sqlite3.SQLITE_ERROR)
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class Database:
    """The open database. Inside its `transaction()` and `translated_errors()`, the tables are those
    of this database; elsewhere, those of the one that was opened last.

    Each thread has a connection of its own, and should `close()` it before it ends.
    """

    def __init__(self, paths: Paths, *, patience: float = 10) -> None:
        self.notices: list[str] = []
        self.file = paths.database
        self._cache = paths.cache
        self._patience = patience
        make_folder(paths.data)
        self.database = SqliteDatabase(
            str(self.file),
            pragmas={"foreign_keys": 1, "synchronous": "normal"},
            timeout=patience,
        )
        try:
            with CURRENT.use(self.database):
                self._open_if_full()
            CURRENT.last = self.database
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise self._explained(error) from error
            raise

    @property
    def connection(self) -> sqlite3.Connection:
        """This thread's connection, opened when it is first needed."""
        connection: sqlite3.Connection = self.database.connection()  # type: ignore[no-untyped-call]
        return connection

    def close(self) -> None:
        """End the connection of this thread."""
        self.database.close()

    def make_durable(self) -> None:
        """Write the log to disk: needed before a job is removed that could repeat it."""
        with contextlib.suppress(FileNotFoundError):
            flush(f"{self.file}-wal")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write all of it or nothing. Inside another transaction, join that one: an error must end
        that one, too."""
        with self.translated_errors(), self.database.transaction("IMMEDIATE"):
            yield self.connection

    def query(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Return the rows that a statement selects."""
        with self.translated_errors():
            return self.connection.execute(statement, values).fetchall()

    @contextlib.contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Raise SQLite's errors as OllmSandboxError, with a sentence for the user."""
        try:
            with CURRENT.use(self.database):
                yield
        except (PeeweeException, sqlite3.Error) as error:
            if _code(error) in _BROKEN:
                # Have the database checked when it is opened next: that takes long.
                with contextlib.suppress(OSError):
                    self._doubt.touch()
            raise self._explained(error) from error

    @property
    def _doubt(self) -> Path:
        return self.file.with_name("ollmsandbox.db-doubt")

    def _open_if_full(self) -> None:
        try:
            self._open()
        except (OllmSandboxError, OSError):
            self.close()
            # SQLite needs some room even to read.
            if not release_space(self.file.parent):
                raise
            self._open()
        else:
            reserve_space(self.file.parent)

    def _open(self) -> None:
        self._make_file()
        try:
            if self._version() == VERSION and not self._doubt.exists():
                return
        except (PeeweeException, sqlite3.Error) as error:
            if _code(error) in _LOCKED:
                raise self._explained(error) from error
        # Another process may just be making it, or setting it aside, which looks like an error of
        # the disk if it was opened just before. What is wrong for good is found again.
        with self._alone(), self.translated_errors():
            self.database.close()
            if self._is_broken():
                self.database.close()
                self._set_aside()
                self._make_file()
            self._doubt.unlink(missing_ok=True)
            self._make_current()

    def _make_file(self) -> None:
        """Create the file before SQLite does, which would let others read it."""
        # Only a new one: closing a file takes away the locks that SQLite holds on it.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def _version(self) -> int:
        version: int = self.connection.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise OllmSandboxError(
                N_("This program is older than its database ({file})."),
                N_("Reinstall the newer version of OLLM Sandbox."),
                file=self.file,
            )
        if version:
            self.connection.execute("SELECT * FROM setting LIMIT 1").fetchone()
        return version

    def _is_broken(self) -> bool:
        try:
            self._version()
            if self._doubt.exists():
                found = self.connection.execute("PRAGMA quick_check(1)").fetchone()
                return bool(found[0] != "ok")
        except (PeeweeException, sqlite3.Error) as error:
            if _code(error) in _UNUSABLE:
                return True
            raise
        return False

    def _set_aside(self) -> None:
        # The log first: that of an old database must never meet a new one.
        aside = set_aside(self.file, ("-wal", "-shm"))
        text = N_(
            "The database was damaged, so a new one was created; the old one is {aside}. "
            "Your files and their earlier versions are not affected, but sessions with models, "
            "approved folders and settings are lost."
        )
        self.notices.append(Sentence(text, aside=aside))

    def _make_current(self) -> None:
        if self._version():
            return
        self.connection.execute("PRAGMA journal_mode = wal")
        with self.transaction() as connection:
            self.database.create_tables(TABLES)
            connection.execute(f"PRAGMA user_version = {VERSION}")
            if any(self.file.parent.glob("ollmsandbox-broken-*")):
                self._skip_used_ids()
            # The roots that the lost database listed are no longer approved.
            for file in self._cache.glob("roots-*.json"):
                file.unlink(missing_ok=True)

    def _skip_used_ids(self) -> None:
        """Do not reuse ids of the lost database: files that are named by them still exist."""
        for table in ("project", "filerecord"):
            self.connection.execute(
                "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, int(time.time()))
            )

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            folder = real_path(self.file.parent)
            lock = FileLock(folder, is_folder=True, timeout=self._patience)
        except BlockingIOError:
            raise self._busy() from None
        with lock:
            yield

    def _busy(self) -> OllmSandboxError:
        return OllmSandboxError(
            N_("Another program keeps the database locked ({file})."),
            N_("Wait until it is done, or close it, and try again."),
            file=self.file,
        )

    def _explained(self, error: Exception) -> OllmSandboxError:
        code = _code(error)
        if code in _LOCKED:
            return self._busy()
        if code in _BROKEN:
            return OllmSandboxError(
                N_("The database is damaged ({file})."),
                N_("Restart the program. It will set the damaged file aside and create a new one."),
                file=self.file,
            )
        if self.file.is_dir():
            return OllmSandboxError(
                N_("There is a folder where the database should be: {file}."),
                N_("Move it away and try again."),
                file=self.file,
            )
        why = error.strerror if isinstance(error, OSError) else str(error)
        return OllmSandboxError(
            N_("The database cannot be used ({file}): {why}."),
            N_(
                "Check that the disk is not full and that you can write to this file and its "
                "folder."
            ),
            file=self.file,
            why=why,
        )


def _code(error: BaseException | None) -> int:
    """Return SQLite's primary error code, or 0 if the error is not from SQLite."""
    while error is not None:
        if isinstance(error, sqlite3.Error):
            return getattr(error, "sqlite_errorcode", 0) & 0xFF
        error = error.__context__
    return 0
