# SPDX-License-Identifier: GPL-3.0-or-later
"""Several threads or programs open and use the database at once."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest
from support.folder import records_for
from support.person import ROOT, Person
from support.timing import PATIENCE

from ollmsandbox.database.connection import Database
from ollmsandbox.database.tables import FileRecord, Project
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.project.projects import ProjectManager

pytestmark = pytest.mark.ordinary


def test_a_thread_writes_through_its_own_store(person: Person) -> None:
    with closing(Database(person.paths, patience=0.05)) as store, store.transaction():
        # Had the tables become those of the new store, this thread would wait for its own lock.
        other = threading.Thread(target=lambda: Database(person.paths).close())
        other.start()
        other.join()
        Project.create(path="/p", name="p", added_at=0, used_at=0)
    with closing(Database(person.paths)):
        assert Project.select().count() == 1


_WRITER = """
import sys
sys.path[:0] = [sys.argv[1], f"{sys.argv[1]}/tests"]
from support.folder import records_for
from ollmsandbox.paths import Paths
from ollmsandbox.project.projects import ProjectManager
manager = ProjectManager(Paths.from_environ({"HOME": sys.argv[2]}))
sys.stdin.read()
project = manager.add_project(sys.argv[3])
for number in range(20):
    records_for(manager, project, [f"/{sys.argv[4]}/{number}", f"/both/{number}"])
print(len(manager.store.notices))
"""


@pytest.mark.parametrize("broken", [False, True])
def test_processes_that_start_at_once_share_one_database(person: Person, broken: bool) -> None:
    if broken:
        person.paths.data.mkdir(parents=True)
        person.paths.database.write_bytes(b"garbage" * 1000)
    command = [sys.executable, "-I", "-c", _WRITER, str(ROOT), str(person.home)]
    pipe = subprocess.PIPE
    writers = [
        subprocess.Popen([*command, str(person.project), str(number)], stdin=pipe, stdout=pipe)
        for number in range(3)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()
        writer.stdin = None
    notices = [int(writer.communicate(timeout=PATIENCE)[0]) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert sum(notices) == broken
    with closing(Database(person.paths)):
        assert Project.select().count() == 1
        assert FileRecord.select().count() == 4 * 20


def test_a_database_that_is_set_aside_while_it_is_opened_is_opened_again(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = Database._version
    errors = [sqlite3.OperationalError("disk I/O error")]
    errors[0].sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMOPEN

    def interrupted(database: Database) -> int:
        if errors:
            raise errors.pop()
        return version(database)

    monkeypatch.setattr(Database, "_version", interrupted)
    with closing(Database(person.paths)):
        assert Project.select().count() == 0


def test_one_process_waits_while_another_creates_the_database(person: Person) -> None:
    person.paths.data.mkdir(parents=True)
    folder = os.open(person.paths.data, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with pytest.raises(OllmSandboxError, match="locked"):
            Database(person.paths, patience=0.05)
    finally:
        os.close(folder)
    Database(person.paths).close()


def test_threads_share_one_manager(manager: ProjectManager, person: Person) -> None:
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            project = manager.add_project(person.project)
            for one in range(10):
                records_for(manager, project, [f"/{number}/{one}", f"/both/{one}"])
        except BaseException as error:  # noqa: BLE001
            failed.append(error)
        finally:
            manager.store.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert FileRecord.select().count() == 7 * 10
