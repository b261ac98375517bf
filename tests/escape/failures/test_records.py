# SPDX-License-Identifier: GPL-3.0-or-later
"""Failures while changes are recorded."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.escape.copy_back import settle
from support.escape.kill import Snapshot, killed_when
from support.person import Person

from ollmsandbox.database.tables import FileRecord
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.project.change import State
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.jobs import unfinished
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.project.recover import finish_leftovers
from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.ordinary

NAMES = [f"{number}" for number in range(12)]
CHANGE = "for name in [0-9]*; do echo 'this is new' >$name; done"


@pytest.fixture(autouse=True)
def _files(person: Person) -> None:
    for name in NAMES:
        (person.project / name).write_text(f"old {name}")


def assert_all_is_finished(person: Person) -> None:
    """Assert it after the next program has started."""
    assert [error for report in finish_leftovers(person.paths) for error in report.errors] == []
    assert not [*person.paths.cache.glob("overlay-*")]


def test_an_error_is_reported_and_the_rest_is_done_later(person: Person) -> None:
    with closing(ProjectManager(person.paths)) as manager:
        manager.add_project(person.project)
    with closing(sqlite3.connect(person.paths.database)) as database:
        database.execute(
            "CREATE TRIGGER stop BEFORE INSERT ON change BEGIN SELECT RAISE(ABORT, 'stop'); END"
        )
        database.commit()
        with pytest.raises(OllmSandboxError, match="stop"):
            settle(person, CHANGE)
        database.execute("DROP TRIGGER stop")
        database.commit()
    assert_all_is_finished(person)
    assert {(person.project / name).read_text() for name in NAMES} == {"this is new\n"}
    with Snapshot(person).review() as (review, run):
        found = [item.state for item in read_changes(review.manager, run)]
        assert found == [State.APPLIED] * len(NAMES)
        for record in FileRecord.select():
            copy = Path(str(record.last_approved_copy_path))
            assert copy.read_text() == f"old {os.path.basename(record.path)}"


def test_an_edit_before_the_recovery_is_not_undone(person: Person) -> None:
    snapshot = Snapshot(person)
    snapshot.leave(CHANGE)
    written, put_there, theirs = (person.project / name for name in NAMES[:3])

    assert killed_when(
        lambda: theirs.read_text() == "this is new\n", lambda: snapshot.settle(Mode.AUTO)
    )
    # In another moment of the clock than that of the job.
    [job] = unfinished(person.paths)
    while written.stat().st_mtime_ns <= job.stat().st_mtime_ns:
        written.write_text("mine\n")
    other = put_there.with_name("other")
    other.write_text("mine\n")
    other.rename(put_there)
    assert_all_is_finished(person)
    with snapshot.review() as (review, run):
        review.undo(run)
    assert [file.read_text() for file in (written, put_there)] == ["mine\n"] * 2
    assert theirs.read_text() == f"old {theirs.name}"
