# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of the database; all of them, for everything that the program keeps is in one file."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from operator import methodcaller
from typing import TYPE_CHECKING

from peewee import (
    SQL,
    AutoField,
    BlobField,
    BooleanField,
    FloatField,
    ForeignKeyField,
    IntegerField,
    Metadata,
    Model,
    SqliteDatabase,
    TextField,
)

if TYPE_CHECKING:
    _Blob = BlobField[str]
    _OptionalBlob = BlobField[str | None]
    _Text = TextField[str]
else:
    _Blob = _OptionalBlob = BlobField
    _Text = TextField


# As os.fsencode(), of a string, and quicker where there are many.
as_bytes = methodcaller("encode", sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())


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


class Opened:
    """Whose the tables are: in a thread that is using a store, that one's; else the one's that was
    opened last. A thread must not write through another store while it holds the lock of its own:
    it would wait for itself."""

    def __init__(self) -> None:
        self.last: SqliteDatabase | None = None
        self._used = threading.local()

    @property
    def current(self) -> SqliteDatabase | None:
        used: SqliteDatabase | None = getattr(self._used, "database", None)
        return used or self.last

    @contextlib.contextmanager
    def use(self, database: SqliteDatabase) -> Iterator[None]:
        before = getattr(self._used, "database", None)
        self._used.database = database
        try:
            yield
        finally:
            self._used.database = before


OPENED = Opened()


class _OfOpened(Metadata):
    @property
    def database(self) -> SqliteDatabase | None:
        return OPENED.current

    @database.setter
    def database(self, database: object) -> None:
        """Peewee sets it for each new table; there is none then."""


class Table(Model):
    class Meta:
        model_metadata_class = _OfOpened


def _id_used_once() -> AutoField[int]:
    # Files and folders are named by it, and they may outlive the row.
    return AutoField(constraints=[SQL("AUTOINCREMENT")])


class Project(Table):
    id = _id_used_once()
    path = PathField(unique=True)
    name = ShownTextField()
    added_at = FloatField()
    used_at = FloatField()
    # A person who removes it from the list loses nothing: what waits and what can be undone stay.
    is_listed = BooleanField(default=True)


class AgreedRoot(Table):
    """A folder outside the project that commands may change, because the person said so."""

    id = AutoField()
    project = ForeignKeyField(Project, on_delete="CASCADE")
    project_id: int
    path = PathField()

    class Meta:
        indexes = ((("project", "path"), True),)


class FoundLink(Table):
    """A link of the project to a folder outside it, as the last scan found it."""

    id = AutoField()
    project = ForeignKeyField(Project, on_delete="CASCADE")
    project_id: int
    path = PathField()
    target = PathField()


class FileRecord(Table):
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


class Run(Table):
    id = TextField(primary_key=True)
    project = ForeignKeyField(Project, on_delete="CASCADE")
    project_id: int
    command = ShownTextField()
    mode = TextField()
    state = TextField()
    started_at = FloatField()
    ended_at = FloatField(null=True)
    exit_code = IntegerField(null=True)
    # The chat and the tool call that it belongs to, if it does.
    session_id = TextField(default="")
    call_id = TextField(default="")


class Change(Table):
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
    # Why it is in that state: the name of a reason, and JSON; "" if there is nothing to say.
    reason = TextField(default="")
    arguments = TextField(default="")
    # When the run began, as the file system of its root tells time.
    began = IntegerField(default=0)
    # What was found at its place, and what was left there.
    before = TextField(default="")
    after = TextField(default="")

    class Meta:
        indexes = ((("run", "number"), True), (("root", "path"), False))


class Setting(Table):
    key = TextField(primary_key=True)
    value = TextField()


class ChatSession(Table):
    id = TextField(primary_key=True)
    # A talk outlives the project that it was about.
    project = ForeignKeyField(Project, null=True, on_delete="SET NULL")
    project_id: int | None
    title = ShownTextField(default="")
    model = TextField(default="")
    connection = TextField(default="")
    created_at = FloatField()
    updated_at = FloatField()
    # What was typed and not sent.
    draft = ShownTextField(default="")


class ChatMessage(Table):
    id = AutoField()
    session = ForeignKeyField(ChatSession, on_delete="CASCADE", index=False)
    session_id: str
    number = IntegerField()
    role = TextField()
    text = ShownTextField(default="")
    thinking = ShownTextField(default="")
    model = TextField(default="")
    # JSON: the tool calls that it asks for; and of a tool's answer, which call, and how it went.
    calls = TextField(default="[]")
    call_id = TextField(default="")
    outcome = TextField(default="")
    state = TextField(default="done")
    at = FloatField()

    class Meta:
        indexes = ((("session", "number"), True),)


class Question(Table):
    """What a person was asked, and what they said: the audit trail. Nothing here is removed with
    a session or a project."""

    id = TextField(primary_key=True)
    session_id = TextField(default="")
    call_id = TextField(default="")
    tool = TextField()
    project = PathField()
    question = ShownTextField()
    subject = ShownTextField(default="")
    target = ShownTextField(default="")
    one_time_only = BooleanField(default=False)
    asked_at = FloatField(index=True)
    answer = TextField(null=True)
    # Who or what answered: the person, a rule, a time-out.
    source = TextField(default="")
    answered_at = FloatField(null=True)


TABLES: tuple[type[Table], ...] = (
    Project,
    AgreedRoot,
    FoundLink,
    FileRecord,
    Run,
    Change,
    Setting,
    ChatSession,
    ChatMessage,
    Question,
)
