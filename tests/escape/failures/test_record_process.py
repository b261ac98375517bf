# SPDX-License-Identifier: GPL-3.0-or-later
"""Failures of the process that writes the records of many changes."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from support.escape.kill import Snapshot, killed_after
from support.person import Person

from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.project.apply.record_process import RecordProcess
from ollmsandbox.project.apply.recorder import Recorder
from ollmsandbox.project.apply.swap import Step
from ollmsandbox.project.changes.change import MANY, Mode, Recorded, State
from ollmsandbox.project.database.models import FileRecord
from ollmsandbox.project.database.runs import read_changes
from ollmsandbox.project.manager import ProjectManager
from ollmsandbox.project.recovery.recover import finish_leftovers

NAMES = [f"{number}" for number in range(12)]
CHANGE = "for name in [0-9]*; do echo 'this is new' >$name; done"


@pytest.fixture(autouse=True)
def _few_at_once(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        (person.project / name).write_text(f"old {name}")
    # One after the other: there is a moment between any two.
    monkeypatch.setattr("ollmsandbox.project.apply.applier.AT_ONCE", 1)


def change(person: Person) -> None:
    person.run(CHANGE, keeper=Recorder(str(person.project), person.paths, many=1))


def assert_undone(person: Person) -> None:
    Snapshot(person).undo()
    assert [(person.project / name).read_text() for name in NAMES] == [f"old {n}" for n in NAMES]


def assert_all_is_finished(person: Person) -> None:
    """Assert it after the next program has started."""
    assert [error for report in finish_leftovers(person.paths) for error in report.errors] == []
    assert not [*person.paths.cache.glob("overlay-*")]


def assert_all_is_recorded(person: Person) -> None:
    assert_all_is_finished(person)
    assert {(person.project / name).read_text() for name in NAMES} == {"this is new\n"}
    manager = ProjectManager(person.paths)
    try:
        project = manager.find_project(person.project)
        assert project is not None
        run = manager.last_run(project)
        assert run is not None
        assert [item.state for item in read_changes(manager, run)] == [State.APPLIED] * len(NAMES)
        for record in FileRecord.select():
            copy = Path(str(record.last_approved_copy_path))
            assert copy.read_text() == f"old {os.path.basename(record.path)}"
    finally:
        manager.close()


def test_its_error_is_reported_and_its_work_done_later(person: Person) -> None:
    with closing(ProjectManager(person.paths)) as manager:
        manager.add_project(person.project)
    with closing(sqlite3.connect(person.paths.database)) as database:
        database.execute(
            "CREATE TRIGGER stop BEFORE INSERT ON change BEGIN SELECT RAISE(ABORT, 'stop'); END"
        )
        database.commit()
        with pytest.raises(OllmSandboxError, match="stop"):
            change(person)
        database.execute("DROP TRIGGER stop")
        database.commit()
    assert_all_is_recorded(person)


def test_its_work_is_done_if_it_is_killed(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    real = RecordProcess.put
    seen: list[Recorded] = []

    def put(self: RecordProcess, items: Sequence[Recorded]) -> None:
        real(self, items)
        seen.extend(items)
        if len(seen) == len(NAMES) // 2:
            self._process.kill()

    monkeypatch.setattr(RecordProcess, "put", put)
    change(person)
    assert len(seen) == len(NAMES)
    assert_all_is_recorded(person)
    assert_undone(person)


@pytest.mark.parametrize("program", ["/nowhere/python", "/bin/false"])
def test_its_work_is_done_if_it_cannot_be_started(
    person: Person, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    change(person)
    assert_all_is_recorded(person)
    assert_undone(person)


def test_it_does_not_load_files_that_a_command_wrote(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are in place before the process loads its modules."""
    modules = ("ctypes", "pickle", "signal", "pysqlite3", "sqlite3", "peewee", "ollmsandbox")
    monkeypatch.syspath_prepend(person.project)
    monkeypatch.chdir(person.project)
    monkeypatch.setenv("PYTHONPATH", str(person.project))
    escaped = person.home / "escaped"
    words = f"open({str(escaped)!r}, 'a').write(__name__)"
    for name in modules:
        (person.project / f"{name}.py").write_text(words)
    change(person)
    assert_all_is_recorded(person)
    assert not escaped.exists()


def test_there_is_none_if_a_command_could_change_its_python(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = person.project / "python"
    link.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(link))
    monkeypatch.setattr(RecordProcess, "__init__", None)
    change(person)
    assert_all_is_recorded(person)


def test_an_unrecorded_backup_is_not_used_for_another_file(
    person: Person,
) -> None:
    """A program that was killed before it recorded the number leaves such backups."""
    person.paths.backups.mkdir(parents=True)
    day = time.strftime("%y-%m-%d")
    for number in range(1, 20):
        for name in NAMES:
            (person.paths.backups / f"{number}-{day}-{name}").write_text("of something else")
    change(person)
    assert_all_is_recorded(person)


@pytest.mark.parametrize("many", [1, MANY])
def test_an_edit_before_the_recovery_is_not_undone(person: Person, many: int) -> None:
    snapshot = Snapshot(person)
    snapshot.leave(CHANGE)
    written, put_there, theirs = (person.project / name for name in NAMES[:3])

    def killed(_step: Step) -> None:
        def step() -> None:
            if theirs.read_text() == "this is new\n":
                os.kill(os.getpid(), signal.SIGKILL)

        snapshot.settle(Mode.AUTO, step, many=many)

    assert killed_after(0, killed)
    # In another moment of the clock than that of the journal.
    (journal,) = person.paths.cache.glob("overlay-*/journal.json")
    while written.stat().st_mtime_ns <= journal.stat().st_mtime_ns:
        written.write_text("mine\n")
    other = put_there.with_name("other")
    other.write_text("mine\n")
    other.rename(put_there)
    assert_all_is_finished(person)
    with snapshot.review() as (review, run):
        review.undo(run)
    assert [file.read_text() for file in (written, put_there)] == ["mine\n"] * 2
    assert theirs.read_text() == f"old {theirs.name}"
