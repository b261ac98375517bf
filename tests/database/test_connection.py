# SPDX-License-Identifier: GPL-3.0-or-later
"""Opening, creating and upgrading the database, and setting aside a damaged one."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from peewee import IntegrityError
from support.folder import records_for
from support.person import Person

from ollmsandbox.database.connection import Database
from ollmsandbox.database.tables import ChatMessage, ChatSession, Project, Question
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.project.projects import ProjectManager

pytestmark = pytest.mark.ordinary


def file_of(person: Person) -> Path:
    return person.paths.data / "ollmsandbox.db"


def fill(person: Person) -> None:
    """A good database with one project and some records."""
    with closing(ProjectManager(person.paths)) as manager:
        project = manager.add_project(person.project)
        records_for(manager, project, [f"/file/{number}" for number in range(500)])


# --- the file ----------------------------------------------------------------------------------


def test_a_new_database_is_readable_by_its_owner_only(person: Person) -> None:
    with closing(Database(person.paths)) as store:
        Project.create(path="/p", name="p", added_at=0, used_at=0)
        modes = {
            file.name: stat.S_IMODE(file.stat().st_mode) for file in person.paths.data.iterdir()
        }
        assert store.notices == []
    made = [f"ollmsandbox.db{suffix}" for suffix in ("", "-wal", "-shm")]
    assert modes == dict.fromkeys([*made, "reserve"], 0o600)


@pytest.mark.parametrize(
    "content", [b"garbage " * 1000, b"x" * 600, b"SQLite format 3\0" + b"\xff" * 9999]
)
def test_a_file_that_is_no_database_is_set_aside(person: Person, content: bytes) -> None:
    file = file_of(person)
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    with closing(Database(person.paths)) as store:
        assert Project.select().count() == 0
        [notice] = store.notices
    [aside] = file.parent.glob("ollmsandbox-broken-????????-??????.db")
    assert str(aside) in notice
    assert aside.read_bytes() == content
    with closing(Database(person.paths)) as store:
        assert store.notices == []


@pytest.mark.parametrize("part", [0.3, 0.9, None])
def test_a_database_that_was_cut_off_or_lost_a_table_is_set_aside(
    person: Person, part: float | None
) -> None:
    fill(person)
    file = file_of(person)
    if part is None:
        with closing(sqlite3.connect(file)) as plain:
            plain.execute("DROP TABLE setting")
    else:
        os.truncate(file, int(file.stat().st_size * part))
    with closing(Database(person.paths)) as store:
        assert len(store.notices) == 1
        assert Project.select().count() == 0


def test_the_log_of_a_broken_database_never_reaches_the_new_one(person: Person) -> None:
    # As a crash leaves it: what was written last is in the log only.
    fill(person)
    file = file_of(person)
    with closing(Database(person.paths)):
        Project.create(path="/late", name="late", added_at=0, used_at=0)
        log = Path(f"{file}-wal").read_bytes()
    os.truncate(file, file.stat().st_size // 2)
    Path(f"{file}-wal").write_bytes(log[: len(log) // 2])
    with closing(Database(person.paths)) as store:
        assert len(store.notices) == 1
        assert Project.select().count() == 0
    assert len(list(file.parent.glob("ollmsandbox-broken-*.db"))) == 1


def test_two_broken_databases_in_one_second_are_both_kept(person: Person) -> None:
    for number in range(3):
        file_of(person).parent.mkdir(parents=True, exist_ok=True)
        file_of(person).write_bytes(b"broken %d" % number * 200)
        Database(person.paths).close()
    assert len(list(file_of(person).parent.glob("ollmsandbox-broken-*.db"))) == 3


def test_damage_found_later_is_reported_and_set_aside_at_the_next_start(person: Person) -> None:
    fill(person)
    with closing(sqlite3.connect(file_of(person))) as plain:
        size = plain.execute("PRAGMA page_size").fetchone()[0]
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'filerecord'"
        page = plain.execute(query).fetchone()[0]
    with open(file_of(person), "r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with closing(ProjectManager(person.paths)) as manager:
        project = manager.add_project(person.project)
        assert manager.store.notices == []
        with pytest.raises(OllmSandboxError, match="damaged") as told:
            records_for(manager, project, ["/file/1", "/new"])
        assert "Restart" in told.value.remedy
    with closing(ProjectManager(person.paths)) as manager:
        assert len(manager.store.notices) == 1
        assert manager.projects() == []
    with closing(ProjectManager(person.paths)) as manager:
        assert manager.store.notices == []


def test_ids_of_a_lost_database_are_not_used_again(person: Person) -> None:
    fill(person)
    file_of(person).write_bytes(b"garbage" * 100)
    with closing(ProjectManager(person.paths)) as manager:
        project = manager.add_project(person.project)
        assert project.id > 500
        assert min(records_for(manager, project, ["/file/1"]).values()) > 500


def test_ids_of_removed_rows_are_not_used_again(manager: ProjectManager, person: Person) -> None:
    project = manager.add_project(person.project)
    old = records_for(manager, project, ["/a"])["/a"]
    Project.delete().where(Project.id == project.id).execute()
    again = manager.add_project(person.project)
    assert again.id > project.id
    assert records_for(manager, again, ["/a"])["/a"] > old


def test_a_folder_in_the_place_of_the_database_is_reported(person: Person) -> None:
    file_of(person).mkdir(parents=True)
    (file_of(person) / "keep").touch()
    with pytest.raises(OllmSandboxError, match="folder where the database should be"):
        Database(person.paths)
    assert (file_of(person) / "keep").exists()


def test_a_locked_database_is_not_a_broken_one(person: Person) -> None:
    fill(person)
    with closing(sqlite3.connect(file_of(person), isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = exclusive")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(OllmSandboxError, match="locked") as told:
            Database(person.paths, patience=0.05)
        assert told.value.remedy
    with closing(Database(person.paths)) as store:
        assert store.notices == []
        assert Project.select().count() == 1


def test_a_lock_held_too_long_is_an_error(person: Person) -> None:
    fill(person)
    with (
        closing(Database(person.paths, patience=0.05)) as store,
        closing(sqlite3.connect(file_of(person), isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        # Reading goes on.
        assert Project.select().count() == 1
        with pytest.raises(OllmSandboxError, match="locked"), store.transaction():
            pytest.fail("two write at once")


def test_a_transaction_that_fails_leaves_nothing(person: Person) -> None:
    with closing(Database(person.paths)) as store:
        with pytest.raises(ZeroDivisionError), store.transaction(), store.transaction():
            Project.create(path="/p", name="p", added_at=0, used_at=0)
            raise ZeroDivisionError
        assert Project.select().count() == 0


# --- versions ----------------------------------------------------------------------------------


def test_a_database_of_a_newer_program_is_left_alone(person: Person) -> None:
    fill(person)
    with closing(sqlite3.connect(file_of(person))) as plain:
        plain.execute("PRAGMA user_version = 1000")
    with pytest.raises(OllmSandboxError, match="older than its database"):
        Database(person.paths)
    assert list(file_of(person).parent.glob("*broken*")) == []


def test_messages_and_questions_outlive_their_project(
    manager: ProjectManager, person: Person
) -> None:
    project = manager.add_project(person.project)
    session = ChatSession.create(id="s", project=project, created_at=1, updated_at=2)
    ChatMessage.create(session=session, number=0, role="user", text="Hello", at=1)
    Question.create(
        id="q", session_id="s", tool="t", project=project.path, question="May it?", asked_at=1
    )
    Project.delete().where(Project.id == project.id).execute()
    assert [(each.id, each.project) for each in ChatSession.select()] == [("s", None)]
    with pytest.raises(IntegrityError):
        ChatMessage.create(session=session, number=0, role="user", text="Twice", at=1)
    session.delete_instance()
    assert ChatMessage.select().count() == 0
    assert [each.project for each in Question.select()] == [str(person.project)]
