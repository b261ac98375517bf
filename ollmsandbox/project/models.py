# SPDX-License-Identifier: GPL-3.0-or-later
"""The database: its tables, and how its file is opened, brought up to date or set aside."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from peewee import (
    SQL,
    AutoField,
    BlobField,
    BooleanField,
    FloatField,
    ForeignKeyField,
    IntegerField,
    Model,
    PeeweeException,
    SqliteDatabase,
    TextField,
)

from ..errors import OllmSandboxError
from ..paths import Paths, make_folder

if TYPE_CHECKING:
    _Blob = BlobField[str]
    _OptionalBlob = BlobField[str | None]
    _Text = TextField[str]
else:
    _Blob = _OptionalBlob = BlobField
    _Text = TextField


class _AsBytes:
    """A name on disk need not be UTF-8, and SQLite's text has to be."""

    def db_value(self, value: str | None) -> bytes | None:
        return None if value is None else os.fsencode(value)

    def python_value(self, value: bytes | None) -> str | None:
        return None if value is None else os.fsdecode(value)


class PathField(_AsBytes, _Blob):
    pass


class OptionalPathField(_AsBytes, _OptionalBlob):
    def __init__(self) -> None:
        super().__init__(null=True)


class ShownTextField(_Text):
    """For people to read: what is no character becomes a question mark."""

    def db_value(self, value: str) -> str:
        return value.encode("utf-8", "replace").decode("utf-8")


def _id_used_once() -> AutoField[int]:
    # Files and folders are named by it, and they may outlive the row.
    return AutoField(constraints=[SQL("AUTOINCREMENT")])


class Project(Model):
    id = _id_used_once()
    path = PathField(unique=True)
    name = ShownTextField()
    added_at = FloatField()
    used_at = FloatField()


class AgreedRoot(Model):
    """A folder outside the project that commands may change, because the person said so."""

    id = AutoField()
    project = ForeignKeyField(Project, on_delete="CASCADE")
    project_id: int
    path = PathField()

    class Meta:
        indexes = ((("project", "path"), True),)


class FoundLink(Model):
    """A link of the project to a folder outside it, as the last scan found it."""

    id = AutoField()
    project = ForeignKeyField(Project, on_delete="CASCADE")
    project_id: int
    path = PathField()
    target = PathField()


class FileRecord(Model):
    id = _id_used_once()
    # The index on project and path serves this column too.
    project = ForeignKeyField(Project, on_delete="CASCADE", index=False)
    project_id: int
    path = PathField()
    is_deleted = BooleanField(default=False)
    last_approved_copy_path = OptionalPathField()
    seen_at = FloatField(null=True)

    class Meta:
        indexes = ((("project", "path"), True),)


FileRecord.add_index(
    FileRecord.index(
        FileRecord.last_approved_copy_path, where=SQL("last_approved_copy_path IS NOT NULL")
    )
)


class Run(Model):
    id = TextField(primary_key=True)
    project = ForeignKeyField(Project, on_delete="CASCADE")
    project_id: int
    command = ShownTextField()
    mode = TextField()
    state = TextField()
    started_at = FloatField()
    ended_at = FloatField(null=True)
    exit_code = IntegerField(null=True)


class Change(Model):
    id = AutoField()
    run = ForeignKeyField(Run, on_delete="CASCADE", index=False)
    run_id: str
    number = IntegerField()
    root = PathField()
    path = PathField()
    kind = TextField()
    type = TextField()
    mode = IntegerField(null=True)
    old_mode = IntegerField(null=True)
    old_type = TextField(default="")
    target = OptionalPathField()
    flags = TextField(default="")
    state = TextField()
    note = ShownTextField(default="")
    # When the run began, as the file system of its root tells time.
    began = IntegerField(default=0)
    # What was found at its place, and what was left there.
    before = TextField(default="")
    after = TextField(default="")

    class Meta:
        indexes = ((("run", "number"), True), (("root", "path"), False))


class Setting(Model):
    key = TextField(primary_key=True)
    value = TextField()


TABLES: tuple[type[Model], ...] = (
    Project,
    AgreedRoot,
    FoundLink,
    FileRecord,
    Run,
    Change,
    Setting,
)


def _create(database: SqliteDatabase) -> None:
    database.create_tables(TABLES)


# The first makes a new database as it is now; each later one changes that of the version before.
MIGRATIONS: list[Callable[[SqliteDatabase], None]] = [_create]

_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# Without our tables it can be read, but not used.
_UNUSABLE = (*_BROKEN, sqlite3.SQLITE_ERROR)
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class Store:
    """The open database. The tables above belong to the store that was opened last.

    Each thread has a connection of its own; one that ends should `close()` its own.
    """

    def __init__(self, paths: Paths, *, patience: float = 10) -> None:
        self.notices: list[str] = []
        self.file = paths.database
        self._patience = patience
        make_folder(paths.data)
        self.database = SqliteDatabase(
            str(self.file),
            pragmas={"foreign_keys": 1, "synchronous": "normal"},
            timeout=patience,
        )
        self.database.bind(TABLES)
        try:
            self._open()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise self._explained(error) from error
            raise

    @property
    def connection(self) -> sqlite3.Connection:
        """That of this thread, made when missing."""
        connection: sqlite3.Connection = self.database.connection()  # type: ignore[no-untyped-call]
        return connection

    def close(self) -> None:
        """End the connection of this thread."""
        self.database.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it or nothing. Inside another one it is a part of that one."""
        with self.errors_told(), self.database.atomic("IMMEDIATE"):
            yield self.connection

    @contextlib.contextmanager
    def errors_told(self) -> Iterator[None]:
        """What SQLite has to say becomes a sentence for the person."""
        try:
            yield
        except (PeeweeException, sqlite3.Error) as error:
            if _code(error) in _BROKEN:
                # Looked at when the database is opened next: that takes long.
                with contextlib.suppress(OSError):
                    self._doubt.touch()
            raise self._explained(error) from error

    @property
    def _doubt(self) -> Path:
        return self.file.with_name("ollmsandbox.db-doubt")

    def _open(self) -> None:
        self._make_file()
        try:
            if self._version() == len(MIGRATIONS) and not self._doubt.exists():
                return
        except (PeeweeException, sqlite3.Error) as error:
            if _code(error) not in _UNUSABLE:
                raise self._explained(error) from error
        # Another process may just be making it, or setting it aside.
        with self._alone(), self.errors_told():
            self.database.close()
            if self._is_broken():
                self.database.close()
                self._set_aside()
                self._make_file()
            self._doubt.unlink(missing_ok=True)
            self._make_current()

    def _make_file(self) -> None:
        """Before SQLite does, which would let others read it."""
        # Only a new one: closing a file takes away the locks that SQLite holds on it.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def _version(self) -> int:
        version: int = self.connection.execute("PRAGMA user_version").fetchone()[0]
        if version > len(MIGRATIONS):
            raise OllmSandboxError(
                f"This program is older than its database ({self.file}).",
                "Install the newer version of OLLM Sandbox again.",
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
        stamp = time.strftime("%Y%m%d-%H%M%S")
        aside, number = self.file.with_name(f"ollmsandbox-broken-{stamp}.db"), 1
        while aside.exists():
            number += 1
            aside = self.file.with_name(f"ollmsandbox-broken-{stamp}-{number}.db")
        # The file itself last: a new one must never meet the log of an old one.
        for suffix in ("-wal", "-shm", ""):
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{self.file}{suffix}", f"{aside}{suffix}")
        self.notices.append(
            f"The database was damaged and a new one was begun; the old one is {aside}. "
            "Your files are not affected, but the list of projects and what could be undone "
            "are gone."
        )

    def _make_current(self) -> None:
        version = self._version()
        if version == 0:
            self.connection.execute("PRAGMA journal_mode = wal")
            with self.transaction():
                self._migrate(MIGRATIONS[0], len(MIGRATIONS))
                if any(self.file.parent.glob("ollmsandbox-broken-*")):
                    self._skip_used_ids()
            return
        for number, migration in enumerate(MIGRATIONS[version:], version + 1):
            self._migrate(migration, number)

    def _migrate(self, migration: Callable[[SqliteDatabase], None], version: int) -> None:
        with self.transaction() as connection:
            migration(self.database)
            connection.execute(f"PRAGMA user_version = {version}")

    def _skip_used_ids(self) -> None:
        """What the lost database named by its ids is still there."""
        for table in ("project", "filerecord"):
            self.connection.execute(
                "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, int(time.time()))
            )

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        folder = os.open(self.file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            give_up = time.monotonic() + self._patience
            while True:
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > give_up:
                        raise self._busy() from None
                    time.sleep(0.01)
            yield
        finally:
            os.close(folder)

    def _busy(self) -> OllmSandboxError:
        return OllmSandboxError(
            f"Another program keeps the database locked ({self.file}).",
            "Wait until it is done, or close it, and try again.",
        )

    def _explained(self, error: Exception) -> OllmSandboxError:
        code = _code(error)
        if code in _LOCKED:
            return self._busy()
        if code in _BROKEN:
            return OllmSandboxError(
                f"The database is damaged ({self.file}).",
                "Start the program again: it sets the damaged file aside and begins a new one.",
            )
        if self.file.is_dir():
            return OllmSandboxError(
                f"There is a folder where the database should be: {self.file}.",
                "Move it away and try again.",
            )
        why = error.strerror if isinstance(error, OSError) else error
        return OllmSandboxError(
            f"The database cannot be used ({self.file}): {why}.",
            "See whether the disk is full, and whether you may write to this file and its folder.",
        )


def _code(error: BaseException | None) -> int:
    """SQLite's own number for what went wrong, without its details; 0 if it is not from SQLite."""
    while error is not None:
        if isinstance(error, sqlite3.Error):
            return getattr(error, "sqlite_errorcode", 0) & 0xFF
        error = error.__context__
    return 0
