# SPDX-License-Identifier: GPL-3.0-or-later
"""The database: opened, made, brought up to date, set aside; and what is kept in it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from conftest import ROOT, Person
from peewee import SqliteDatabase

from ollmsandbox.errors import OllmSandboxError, ProjectError
from ollmsandbox.project import models
from ollmsandbox.project.manager import ProjectManager
from ollmsandbox.project.models import Change, FileRecord, Project, Run, Store

NOT_UTF_8 = os.fsdecode(b"/caf\xe9/\xff\n'\"")


@pytest.fixture
def manager(person: Person) -> Iterator[ProjectManager]:
    manager = ProjectManager(person.paths)
    yield manager
    manager.close()


def file_of(person: Person) -> Path:
    return person.paths.data / "ollmsandbox.db"


def fill(person: Person) -> None:
    """A good database with one project and some records."""
    with closing(ProjectManager(person.paths)) as manager:
        project = manager.add_project(person.project)
        manager.records_for(project, [f"/file/{number}" for number in range(500)])


def make(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def active(manager: ProjectManager) -> str | None:
    project = manager.active_project
    return None if project is None else project.path


def make_run(project: Project, run_id: str, started_at: float = 0) -> Run:
    return Run.create(
        id=run_id, project=project, command="x", mode="auto", state="done", started_at=started_at
    )


# --- the file ----------------------------------------------------------------------------------


def test_a_new_database_is_for_the_person_alone(person: Person) -> None:
    with closing(Store(person.paths)) as store:
        Project.create(path="/p", name="p", added_at=0, used_at=0)
        modes = {
            file.name: stat.S_IMODE(file.stat().st_mode) for file in person.paths.data.iterdir()
        }
        assert store.notices == []
    assert modes == {f"ollmsandbox.db{suffix}": 0o600 for suffix in ("", "-wal", "-shm")}


def test_a_connection_has_the_settings_it_needs(person: Person) -> None:
    with closing(Store(person.paths)) as store:
        settings = [
            store.connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "foreign_keys", "synchronous", "busy_timeout")
        ]
    assert settings == ["wal", 1, 1, 10000]


def test_a_good_database_is_kept(person: Person) -> None:
    fill(person)
    with closing(Store(person.paths)) as store:
        assert store.notices == []
        assert FileRecord.select().count() == 500


def test_several_stores_can_be_opened_one_after_another(person: Person, tmp_path: Path) -> None:
    fill(person)
    other = Person(tmp_path, tmp_path, {"HOME": str(tmp_path)})
    with closing(Store(other.paths)):
        assert Project.select().count() == 0
    with closing(Store(person.paths)):
        assert Project.select().count() == 1


@pytest.mark.parametrize(
    "content", [b"garbage " * 1000, b"x" * 600, b"SQLite format 3\0" + b"\xff" * 9999]
)
def test_a_file_that_is_no_database_is_set_aside(person: Person, content: bytes) -> None:
    file = file_of(person)
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    with closing(Store(person.paths)) as store:
        assert Project.select().count() == 0
        [notice] = store.notices
    [aside] = file.parent.glob("ollmsandbox-broken-????????-??????.db")
    assert str(aside) in notice
    assert aside.read_bytes() == content
    with closing(Store(person.paths)) as store:
        assert store.notices == []


@pytest.mark.parametrize("part", [0.3, 0.9])
def test_a_database_that_was_cut_off_is_set_aside(person: Person, part: float) -> None:
    fill(person)
    file = file_of(person)
    os.truncate(file, int(file.stat().st_size * part))
    with closing(Store(person.paths)) as store:
        assert len(store.notices) == 1
        assert Project.select().count() == 0


def test_a_database_without_its_tables_is_set_aside(person: Person) -> None:
    fill(person)
    with closing(sqlite3.connect(file_of(person))) as plain:
        plain.execute("DROP TABLE setting")
    with closing(Store(person.paths)) as store:
        assert len(store.notices) == 1
        assert Project.select().count() == 0


def test_the_log_of_a_broken_database_never_reaches_the_new_one(person: Person) -> None:
    # As a crash leaves it: what was written last is in the log only.
    fill(person)
    file = file_of(person)
    with closing(Store(person.paths)):
        Project.create(path="/late", name="late", added_at=0, used_at=0)
        log = Path(f"{file}-wal").read_bytes()
    os.truncate(file, file.stat().st_size // 2)
    Path(f"{file}-wal").write_bytes(log[: len(log) // 2])
    with closing(Store(person.paths)) as store:
        assert len(store.notices) == 1
        assert Project.select().count() == 0
    assert len(list(file.parent.glob("ollmsandbox-broken-*.db"))) == 1


def test_two_broken_databases_in_one_second_are_both_kept(person: Person) -> None:
    for number in range(3):
        file_of(person).parent.mkdir(parents=True, exist_ok=True)
        file_of(person).write_bytes(b"broken %d" % number * 200)
        Store(person.paths).close()
    assert len(list(file_of(person).parent.glob("ollmsandbox-broken-*.db"))) == 3


def test_damage_that_shows_later_is_told_and_set_aside_at_the_next_start(person: Person) -> None:
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
        assert manager.notices == []
        with pytest.raises(OllmSandboxError, match="damaged") as told:
            manager.records_for(project, ["/file/1", "/new"])
        assert "again" in told.value.remedy
    with closing(ProjectManager(person.paths)) as manager:
        assert len(manager.notices) == 1
        assert manager.projects() == []
    with closing(ProjectManager(person.paths)) as manager:
        assert manager.notices == []


def test_ids_of_a_lost_database_are_not_used_again(person: Person) -> None:
    fill(person)
    file_of(person).write_bytes(b"garbage" * 100)
    with closing(ProjectManager(person.paths)) as manager:
        project = manager.add_project(person.project)
        assert project.id > 500
        assert min(manager.records_for(project, ["/file/1"]).values()) > 500


def test_ids_of_removed_rows_are_not_used_again(manager: ProjectManager, person: Person) -> None:
    project = manager.add_project(person.project)
    old = manager.records_for(project, ["/a"])["/a"]
    manager.remove_project(project)
    again = manager.add_project(person.project)
    assert again.id > project.id
    assert manager.records_for(again, ["/a"])["/a"] > old


def test_a_folder_in_the_place_of_the_database_is_told(person: Person) -> None:
    file_of(person).mkdir(parents=True)
    (file_of(person) / "keep").touch()
    with pytest.raises(OllmSandboxError, match="folder where the database should be"):
        Store(person.paths)
    assert (file_of(person) / "keep").exists()


def test_a_locked_database_is_not_a_broken_one(person: Person) -> None:
    fill(person)
    with closing(sqlite3.connect(file_of(person), isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = exclusive")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(OllmSandboxError, match="locked") as told:
            Store(person.paths, patience=0.05)
        assert told.value.remedy
    with closing(Store(person.paths)) as store:
        assert store.notices == []
        assert Project.select().count() == 1


def test_who_waits_too_long_to_write_is_told(person: Person) -> None:
    fill(person)
    with (
        closing(Store(person.paths, patience=0.05)) as store,
        closing(sqlite3.connect(file_of(person), isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        # Reading goes on.
        assert Project.select().count() == 1
        with pytest.raises(OllmSandboxError, match="locked"), store.transaction():
            pytest.fail("two write at once")


def test_a_transaction_that_fails_leaves_nothing(person: Person) -> None:
    with closing(Store(person.paths)) as store:
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
        Store(person.paths)
    assert list(file_of(person).parent.glob("*broken*")) == []


def test_an_older_database_is_brought_up_to_date(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(person)
    done = []

    def second(database: SqliteDatabase) -> None:
        done.append(2)
        database.connection().execute("ALTER TABLE project ADD COLUMN colour TEXT")  # type: ignore[no-untyped-call]

    def third(database: SqliteDatabase) -> None:
        done.append(3)
        database.connection().execute("CREATE TABLE third (id INTEGER)")  # type: ignore[no-untyped-call]
        if len(done) == 2:
            raise ZeroDivisionError

    monkeypatch.setattr(models, "MIGRATIONS", [*models.MIGRATIONS, second, third])
    with pytest.raises(ZeroDivisionError):
        Store(person.paths)
    # Each is done whole and once.
    with closing(Store(person.paths)) as store:
        assert done == [2, 3, 3]
        assert store.connection.execute("PRAGMA user_version").fetchone() == (3,)
        assert store.connection.execute("SELECT path, colour FROM project").fetchall() == [
            (os.fsencode(person.project), None)
        ]
    Store(person.paths).close()
    assert done == [2, 3, 3]


# --- at once -----------------------------------------------------------------------------------

_WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from ollmsandbox.paths import Paths
from ollmsandbox.project.manager import ProjectManager
manager = ProjectManager(Paths.from_environ({"HOME": sys.argv[2]}))
sys.stdin.read()
project = manager.add_project(sys.argv[3])
for number in range(20):
    manager.records_for(project, [f"/{sys.argv[4]}/{number}", f"/both/{number}"])
print(len(manager.notices))
"""


@pytest.mark.parametrize("broken", [False, True])
def test_processes_that_start_at_once_share_one_database(person: Person, broken: bool) -> None:
    if broken:
        file_of(person).parent.mkdir(parents=True)
        file_of(person).write_bytes(b"garbage" * 1000)
    command = [
        sys.executable,
        "-I",
        "-c",
        _WRITER,
        str(ROOT),
        str(person.home),
        str(person.project),
    ]
    writers = [
        subprocess.Popen(
            [*command, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for number in range(3)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()
        writer.stdin = None
    notices = [int(writer.communicate(timeout=60)[0]) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert sum(notices) == broken
    with closing(Store(person.paths)):
        assert Project.select().count() == 1
        assert FileRecord.select().count() == 4 * 20


def test_one_waits_while_another_makes_the_database(person: Person) -> None:
    folder = os.open(make(person.paths.data), os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with pytest.raises(OllmSandboxError, match="locked"):
            Store(person.paths, patience=0.05)
    finally:
        os.close(folder)
    fill(person)


def test_threads_share_one_manager(manager: ProjectManager, person: Person) -> None:
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            project = manager.project_for(person.project)
            for one in range(10):
                manager.records_for(project, [f"/{number}/{one}", f"/both/{one}"])
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


# --- projects ----------------------------------------------------------------------------------


def test_nothing_is_opened_before_it_is_needed(person: Person) -> None:
    ProjectManager(person.paths).close()
    assert not person.paths.data.exists()


def test_a_project_is_added_once(manager: ProjectManager, person: Person) -> None:
    link = person.home / "link"
    link.symlink_to(person.project)
    first = manager.add_project(person.project)
    second = manager.project_for(f"{link}/../project/")
    assert (first.id, first.path, first.name) == (second.id, str(person.project), "project")
    assert [project.id for project in manager.projects()] == [first.id]
    found = manager.find_project(link)
    assert found is not None
    assert found.id == first.id
    assert manager.find_project(person.home) is None


def test_a_project_may_have_any_name(manager: ProjectManager, person: Person) -> None:
    folder = os.path.join(person.home, os.fsdecode(b"caf\xe9\n"))
    os.mkdir(folder)
    project = manager.project_for(folder)
    assert manager.projects()[0].path == folder
    assert project.name.encode()
    run = make_run(project, "1")
    Run.update(command=f"ls {folder}").where(Run.id == run.id).execute()
    assert manager.run("1").command.startswith("ls ")


def test_only_a_folder_can_be_a_project(manager: ProjectManager, person: Person) -> None:
    with pytest.raises(ProjectError, match="does not exist"):
        manager.add_project(person.home / "nothing")
    (person.home / "file").touch()
    with pytest.raises(ProjectError, match="not a folder"):
        manager.project_for(person.home / "file")
    assert manager.projects() == []


def test_the_project_used_last_comes_first(manager: ProjectManager, person: Person) -> None:
    folders = [person.home / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    a, b, c = [manager.add_project(folder) for folder in folders]
    assert [project.name for project in manager.projects()] == ["c", "b", "a"]
    manager.active_project = a
    manager.project_for(b.path)
    assert [project.id for project in manager.projects()] == [b.id, a.id, c.id]


def test_the_active_project_is_remembered(person: Person) -> None:
    with closing(ProjectManager(person.paths)) as manager:
        assert active(manager) is None
        manager.active_project = manager.add_project(person.project)
    with closing(ProjectManager(person.paths)) as manager:
        assert active(manager) == str(person.project)
        manager.active_project = None
        assert active(manager) is None


def test_a_project_whose_folder_is_gone_is_not_active(
    manager: ProjectManager, person: Person
) -> None:
    project = manager.add_project(person.project)
    manager.active_project = project
    person.project.rmdir()
    assert active(manager) is None
    assert manager.missing(project)
    person.project.mkdir()
    assert active(manager) == str(person.project)
    assert not manager.missing(project)


def test_a_removed_project_takes_all_that_is_known_with_it(
    manager: ProjectManager, person: Person
) -> None:
    project = manager.add_project(person.project)
    manager.active_project = project
    manager.agree(project, make(person.home / "linked"))
    manager.records_for(project, ["/a"])
    run = make_run(project, "1")
    Change.create(run=run, number=1, root="/", path="a", kind="added", type="file", state="applied")
    manager.remove_project(project)
    assert active(manager) is None
    for table in models.TABLES:
        assert table.select().count() == 0, table
    assert person.project.is_dir()


def test_an_agreement_is_kept_until_it_is_revoked(manager: ProjectManager, person: Person) -> None:
    project = manager.add_project(person.project)
    outside = make(person.home / "outside")
    (person.project / "link").symlink_to(outside)
    manager.agree(project, person.project / "link")
    manager.agree(project, outside)
    assert manager.agreed_roots(project) == [str(outside)]
    manager.revoke(project, person.project / "link")
    assert manager.agreed_roots(project) == []


def test_an_agreement_can_be_revoked_when_the_folder_is_gone_or_a_link(
    manager: ProjectManager, person: Person
) -> None:
    project = manager.add_project(person.project)
    gone, swapped = make(person.home / "gone"), make(person.home / "swapped")
    manager.agree(project, gone)
    manager.agree(project, swapped)
    gone.rmdir()
    swapped.rmdir()
    swapped.symlink_to("/usr")
    manager.revoke(project, gone)
    manager.revoke(project, swapped)
    assert manager.agreed_roots(project) == []


@pytest.mark.parametrize("folder", ["/", "..", ".", "../.local/share", "../.cache/ollmchat/in"])
def test_what_is_too_wide_cannot_be_agreed_to(
    manager: ProjectManager, person: Person, folder: str
) -> None:
    project = manager.add_project(person.project)
    make(person.paths.cache / "in")
    with pytest.raises(ProjectError, match="cannot be opened to commands"):
        manager.agree(project, person.project / folder)


# --- records -----------------------------------------------------------------------------------


def test_records_are_made_once_and_any_path_is_kept(
    manager: ProjectManager, person: Person
) -> None:
    project = manager.add_project(person.project)
    first = manager.records_for(project, ["/a", NOT_UTF_8, "/a"])
    assert set(first) == {"/a", NOT_UTF_8}
    assert all(number > 0 for number in first.values())
    second = manager.records_for(project, [NOT_UTF_8, "/b"])
    assert second[NOT_UTF_8] == first[NOT_UTF_8]
    assert {record.path for record in FileRecord.select()} == {"/a", "/b", NOT_UTF_8}
    assert manager.records_for(project, []) == {}


def test_projects_have_records_of_their_own(manager: ProjectManager, person: Person) -> None:
    one, two = manager.add_project(person.project), manager.add_project(person.home)
    assert manager.records_for(one, ["/a"]) != manager.records_for(two, ["/a"])


def test_many_records_take_little_time(manager: ProjectManager, person: Person) -> None:
    project = manager.add_project(person.project)
    paths = [f"{person.project}/some/folder/{number % 100}/{number}" for number in range(20_000)]
    times = []
    for _ in range(3):
        start = time.process_time()
        ids = manager.records_for(project, paths)
        times.append(time.process_time() - start)
    assert len(set(ids.values())) == 20_000
    # Far below what a query for each would take.
    assert min(times) < 0.6


def test_deletion_and_copies_are_noted_in_bulk(manager: ProjectManager, person: Person) -> None:
    project, other = manager.add_project(person.project), manager.add_project(person.home)
    paths = [f"/{number}" for number in range(1500)]
    ids = manager.records_for(project, paths)
    manager.records_for(other, paths)
    manager.mark_deleted(project, paths[:1200], deleted=True)
    manager.mark_deleted(project, paths[:100], deleted=False)
    deleted = FileRecord.select().where(FileRecord.is_deleted)
    assert {record.path for record in deleted} == set(paths[100:1200])
    assert {record.project_id for record in deleted} == {project.id}

    copies = [(ids[path], f"/copy{NOT_UTF_8}{path}") for path in paths]
    manager.note_backups([(number, copy, False) for number, copy in copies])
    # A file without a new backup keeps the one it has.
    manager.note_backups([(number, None, False) for number, _ in copies])
    manager.forget_copies([copy for _, copy in copies[:1499]] + ["/unknown"])
    kept = FileRecord.select().where(FileRecord.last_approved_copy_path.is_null(False))
    assert [(record.id, record.last_approved_copy_path) for record in kept] == copies[1499:]


# --- runs --------------------------------------------------------------------------------------


def test_runs_come_newest_first(manager: ProjectManager, person: Person) -> None:
    one, two = manager.add_project(person.project), manager.add_project(person.home)
    assert manager.last_run(one) is None
    for number, project in enumerate([one, two, one, one]):
        make_run(project, f"run-{number}", started_at=number)
    assert [run.id for run in manager.runs(one, 10)] == ["run-3", "run-2", "run-0"]
    assert [run.id for run in manager.runs(None, 2)] == ["run-3", "run-2"]
    last = manager.last_run(two)
    assert last is not None
    assert last.id == "run-1"


def test_a_run_is_found_by_its_beginning(manager: ProjectManager, person: Person) -> None:
    project = manager.add_project(person.project)
    for run_id in ("20240101-abc", "20240101-abd", "20240102-abc", "20240102", "a%b"):
        make_run(project, run_id)
    assert manager.run("20240101-abc").id == "20240101-abc"
    assert manager.run("20240101-abd"[:-1] + "d").id == "20240101-abd"
    assert manager.run("20240102").id == "20240102"
    assert manager.run("a").id == "a%b"
    with pytest.raises(OllmSandboxError, match="Several runs begin with 2024") as told:
        manager.run("20240101")
    assert "20240101-abc" in told.value.remedy
    for unknown in ("2025", "%", "", "20240101-abcd", "\udcff"):
        with pytest.raises(OllmSandboxError, match="no run") as told:
            manager.run(unknown)
        assert "history" in told.value.remedy


def test_changes_come_in_their_order(manager: ProjectManager, person: Person) -> None:
    run = make_run(manager.add_project(person.project), "1")
    for number in (3, 1, 2):
        Change.create(
            run=run,
            number=number,
            root=NOT_UTF_8,
            path=f"{NOT_UTF_8}{number}",
            kind="added",
            type="file",
            state="applied",
            note="\udcff",
        )
    changes = manager.changes(run)
    assert [change.number for change in changes] == [1, 2, 3]
    assert changes[0].root == NOT_UTF_8
    assert changes[0].path == f"{NOT_UTF_8}1"
    assert (changes[0].target, changes[0].mode, changes[0].note, changes[0].flags) == (
        None,
        None,
        "?",
        "",
    )
