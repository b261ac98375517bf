# SPDX-License-Identifier: GPL-3.0-or-later
"""All tables of the database."""

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
    CompositeKey,
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


# The same as os.fsencode() for strings, but faster.
as_bytes = methodcaller("encode", sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())


class _AsBytes:
    """Stores paths as bytes: a name on disk need not be UTF-8, and SQLite's text has to be."""

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
    """Text for people: an invalid character becomes a question mark."""

    def db_value(self, value: str) -> str:
        return value.encode("utf-8", "replace").decode("utf-8")


class CurrentDatabase:
    """The database that the tables belong to: the one this thread is using, or else the last one
    that was opened.

    A thread must not write to another database while it holds the lock of the first: if both are
    the same file, it would wait for itself.
    """

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


CURRENT = CurrentDatabase()


class _CurrentMetadata(Metadata):
    @property
    def database(self) -> SqliteDatabase | None:
        return CURRENT.current

    @database.setter
    def database(self, database: object) -> None:
        """Do nothing: peewee sets it for each new table, when there is no database yet."""


class Table(Model):
    class Meta:
        model_metadata_class = _CurrentMetadata


def _id_used_once() -> AutoField[int]:
    # Files and folders are named by it, and they may outlive the row.
    return AutoField(constraints=[SQL("AUTOINCREMENT")])


class Project(Table):
    id = _id_used_once()
    path = PathField(unique=True)
    name = ShownTextField()
    added_at = FloatField()
    used_at = FloatField()
    # Removing a project from the list keeps its pending changes and its history.
    is_listed = BooleanField(default=True)


class ApprovedRoot(Table):
    """A folder outside the project that the user lets commands change."""

    id = AutoField()
    project = ForeignKeyField(Project, on_delete="CASCADE")
    project_id: int
    path = PathField()

    class Meta:
        indexes = ((("project", "path"), True),)


class FileRecord(Table):
    """A file that a run has changed."""

    id = _id_used_once()
    # The index on project and path serves this column too.
    project = ForeignKeyField(Project, on_delete="CASCADE", index=False)
    project_id: int
    path = PathField()
    is_deleted = BooleanField(default=False)
    last_approved_copy_path = OptionalPathField()
    # The time of the file when a run was last applied to it or undone.
    last_modified = FloatField(null=True)

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
    # The chat session and the tool call that it belongs to, if any.
    session_id = TextField(default="")
    call_id = TextField(default="")


class ChangeRow(Table):
    """An index of the changes by path. The runs' own folders have all about them."""

    run = ForeignKeyField(Run, on_delete="CASCADE", index=False)
    run_id: str
    number = IntegerField()
    root = PathField()
    path = PathField()
    kind = TextField()
    state = TextField()
    # The signatures of what was found at the path, and of what was left there, with their times.
    before = TextField(default="")
    after = TextField(default="")
    replaced_at = IntegerField(default=0)
    left_at = IntegerField(default=0)

    class Meta:
        table_name = "change"
        primary_key = CompositeKey("run", "number")
        without_rowid = True
        indexes = ((("root", "path"), False),)


class Setting(Table):
    key = TextField(primary_key=True)
    value = TextField()


class ChatSession(Table):
    id = TextField(primary_key=True)
    # A session outlives its project.
    project = ForeignKeyField(Project, null=True, on_delete="SET NULL")
    project_id: int | None
    title = ShownTextField(default="")
    model = TextField(default="")
    connection = TextField(default="")
    created_at = FloatField()
    updated_at = FloatField()
    # What was typed and not sent.
    draft = ShownTextField(default="")
    # The tokens that were sent and received, and what they cost, if there is a price.
    prompt_tokens = IntegerField(default=0)
    reply_tokens = IntegerField(default=0)
    cost = FloatField(null=True)
    # What the model was told about changes, as JSON.
    told = TextField(default="")


class ChatMessage(Table):
    id = AutoField()
    session = ForeignKeyField(ChatSession, on_delete="CASCADE", index=False)
    session_id: str
    number = IntegerField()
    role = TextField()
    text = ShownTextField(default="")
    thinking = ShownTextField(default="")
    model = TextField(default="")
    # The tool calls of a reply, as JSON. A tool's message has the id of its call, and its outcome.
    calls = TextField(default="[]")
    call_id = TextField(default="")
    outcome = TextField(default="")
    # What came with a reply and goes back to its server; how much a summary covers. JSON, or "".
    extra = TextField(default="")
    state = TextField(default="done")
    at = FloatField()

    class Meta:
        indexes = ((("session", "number"), True),)


class ChatPicture(Table):
    """A picture of a message, for models that see. It goes with the message."""

    id = AutoField()
    message = ForeignKeyField(ChatMessage, on_delete="CASCADE")
    message_id: int
    media_type = TextField()
    data = BlobField()
    name = TextField(default="")


class Question(Table):
    """A permission question and its answer: the audit trail. It is not removed with a session or a
    project."""

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
    # Who or what answered: the user, a rule, a time-out.
    source = TextField(default="")
    answered_at = FloatField(null=True)


TABLES = tuple(Table.__subclasses__())
