# SPDX-License-Identifier: GPL-3.0-or-later
"""The clock is set back between two commands: the later command still counts as the later one."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.escape.copy_back import during, review, settle, states
from support.escape.kill import Snapshot, has_journal, killed_after
from support.person import Person

from ollmsandbox.project.apply.journal import Job, Task
from ollmsandbox.project.changes.change import Mode, State
from ollmsandbox.project.database.runs import waiting
from ollmsandbox.project.pending.conflicts import came_since
from ollmsandbox.project.pending.layer import newest_in
from ollmsandbox.project.recovery.recover import finish_leftovers
from ollmsandbox.project.review import write_file
from ollmsandbox.project.review.review import Review

HOUR = 3600


def set_clock_back(person: Person) -> None:
    """Move all recorded times into the future, as if the clock had been set back."""
    with closing(sqlite3.connect(person.paths.database)) as database:
        database.execute("UPDATE run SET started_at = started_at + ?", (HOUR,))
        database.execute("UPDATE run SET ended_at = ended_at + ?", (HOUR,))
        database.commit()
    for file in (person.paths.data / "pending").glob("*/map.json"):
        at = file.stat().st_mtime + HOUR
        os.utime(file, (at, at))


@pytest.fixture
def first(person: Person) -> str:
    (person.project / "f").write_text("old\n")
    run_id = settle(person, "echo first >>f; mkdir d; echo first >d/x", Mode.REVIEW).run_id
    set_clock_back(person)
    return run_id


def test_a_change_by_a_later_command_is_no_conflict(person: Person, first: str) -> None:
    second = settle(person, "echo second >>f; echo second >g", Mode.REVIEW)
    assert states(second) == dict.fromkeys(("f", "g"), State.PENDING)
    third = settle(person, "echo third >>f; rm d/x", Mode.REVIEW)
    # The last is as it is on disk.
    assert states(third) == {"f": State.PENDING, "d/x": State.APPLIED}
    assert states(review(person, "apply", first)) == {"f": State.PENDING, "d": State.APPLIED}
    assert states(review(person, "apply", third.run_id)) == {"f": State.APPLIED}
    assert (person.project / "f").read_text() == "old\nfirst\nsecond\nthird\n"
    assert states(review(person, "apply", second.run_id)) == {"g": State.APPLIED}
    check_nothing_waits(person)


def test_a_run_in_auto_mode_settles_what_was_pending_before(person: Person, first: str) -> None:
    second = settle(person, "echo second >>f; rm -r d")
    assert states(second) == dict.fromkeys(("f", "d", "d/x"), State.APPLIED)
    assert (person.project / "f").read_text() == "old\nfirst\nsecond\n"
    assert not (person.project / "d").exists()
    check_nothing_waits(person)


def test_a_command_that_takes_it_back_is_not_forgotten(person: Person, first: str) -> None:
    assert states(settle(person, "echo old >f")) == {"f": State.APPLIED}
    review(person, "apply", first)
    assert (person.project / "f").read_text() == "old\n"
    check_nothing_waits(person)


def test_a_version_that_is_lost_does_not_own_a_place_for_ever(person: Person, first: str) -> None:
    folder = person.paths.pending(str(person.project))
    folder.rename(f"{folder}.away")
    review(person, "apply", first)
    second = settle(person, "echo second >f", Mode.REVIEW)
    assert states(review(person, "apply", second.run_id)) == {"f": State.APPLIED}
    assert (person.project / "f").read_text() == "second\n"


def test_an_edit_during_the_run_is_a_conflict_all_the_same(person: Person, first: str) -> None:
    def write() -> None:
        project = str(person.project)
        write_file.write_file(
            person.paths, project, f"{project}/f", b"meanwhile\n", how=Mode.REVIEW
        )

    second = during(person, "echo second >>f", write, Mode.REVIEW)
    assert states(second) == {"f": State.CONFLICT}


def test_a_later_command_that_is_killed_is_still_the_later_one(person: Person, first: str) -> None:
    snapshot = Snapshot(person)
    snapshot.leave("echo second >>f; echo second >d/x")
    snapshot.save()
    done = []
    # Before it is written down what is to be done, after that, and in the midst of it.
    for number in (1, *range(3, 40, 4)):
        snapshot.restore()
        if not killed_after(number, lambda step: snapshot.settle(Mode.REVIEW, step)):
            break
        done += [states(report) for report in finish_leftovers(person.paths)]
        with closing(Review(person.paths)) as found:
            project = found.manager.find_project(person.project)
            assert project is not None
            assert found.waiting(project)[0].id == first
            waits = waiting(found.manager, project, str(person.project))
            assert first not in {waits["f"].run_id, waits["d/x"].run_id}
    assert len(done) > 2
    assert all(one == dict.fromkeys(("f", "d/x"), State.PENDING) for one in done)


def test_a_run_before_the_recovery_counts_as_later(person: Person, first: str) -> None:
    snapshot = Snapshot(person)
    snapshot.leave("echo second >>f")
    snapshot.save()
    for number in range(1, 40):
        snapshot.restore()
        assert killed_after(number, lambda step: snapshot.settle(Mode.REVIEW, step))
        if has_journal(person):
            break
    project = str(person.project)
    write_file.write_file(person.paths, project, f"{project}/f", b"third\n", how=Mode.REVIEW)
    [report] = finish_leftovers(person.paths)
    assert states(report) == {"f": State.CONFLICT}


@pytest.mark.anybody
def test_a_journal_of_an_earlier_version_is_read() -> None:
    job = Job(Task.MERGE, "run", "/project", "auto", "true", 1.0, (), {}, ends_at=2.0)
    assert Job.unpacked(job.packed()) == job
    document = json.loads(job.packed())
    del document["ends_at"]
    assert Job.unpacked(json.dumps(document)) == replace(job, ends_at=0.0)


@pytest.mark.anybody
def test_files_of_a_time_to_come_were_there_before(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    at = (tmp_path / "f").stat().st_ctime_ns
    layer = str(tmp_path)
    assert not came_since(layer, at, newest=0, now=at + 9)
    assert came_since(layer, at - 1, newest=0, now=at + 9)
    # It came when the clock was further, and something else came after it.
    assert not came_since(layer, at - 9, newest=at, now=at - 1)
    assert came_since(layer, at - 9, newest=at - 1, now=at - 5)
    # The clock has caught up: the order is unknown.
    assert came_since(layer, at - 9, newest=at, now=at)


def test_a_discard_updates_the_time_of_the_layer(person: Person) -> None:
    """Showing one file of a deleted folder again hides the others by name."""
    (person.project / "d").mkdir()
    for name in ("x", "y"):
        (person.project / "d" / name).write_text("old\n")
    run_id = settle(person, "rm -r d", Mode.REVIEW).run_id
    review(person, "discard", run_id, "d/x")
    folder = person.paths.pending(str(person.project))
    [layer] = folder.glob("overlay*")
    assert newest_in(folder) >= (layer / "d" / "y").lstat().st_ctime_ns


def check_nothing_waits(person: Person) -> None:
    with closing(Review(person.paths)) as found:
        project = found.manager.find_project(person.project)
        assert project is not None
        assert not found.waiting(project)
