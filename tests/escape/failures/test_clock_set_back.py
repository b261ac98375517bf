# SPDX-License-Identifier: GPL-3.0-or-later
"""The clock is set back between two commands: the later command still counts as the later one."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from support.escape.copy_back import during, review, settle, states
from support.escape.kill import Snapshot, killed_after
from support.person import Person

from ollmsandbox.project.changes.change import State
from ollmsandbox.project.changes.mode import Mode
from ollmsandbox.project.recovery.recover import finish_leftovers
from ollmsandbox.project.review import write_file
from ollmsandbox.project.review.review import Review

pytestmark = pytest.mark.anybody

HOUR = 3600


@pytest.fixture
def first(person: Person) -> str:
    """A pending run, after which the clock was set back: all recorded times are in the future."""
    (person.project / "f").write_text("old\n")
    run_id = settle(person, "echo first >>f; mkdir d; echo first >d/x", Mode.REVIEW).run_id
    with closing(sqlite3.connect(person.paths.database)) as database:
        database.execute("UPDATE run SET started_at = started_at + ?", (HOUR,))
        database.execute("UPDATE run SET ended_at = ended_at + ?", (HOUR,))
        database.commit()
    return run_id


def test_a_change_by_a_later_command_is_no_conflict(person: Person, first: str) -> None:
    second = settle(person, "echo second >>f; echo second >g", Mode.REVIEW)
    assert states(second) == dict.fromkeys(("f", "g"), State.PENDING)
    third = settle(person, "echo third >>f; rm d/x", Mode.REVIEW)
    assert states(third) == dict.fromkeys(("f", "d/x"), State.PENDING)
    assert states(review(person, "apply", third.run_id, "f")) == {"f": State.APPLIED}
    assert (person.project / "f").read_text() == "old\nfirst\nsecond\nthird\n"
    assert states(review(person, "apply", second.run_id)) == {"g": State.APPLIED}
    assert set(states(review(person, "apply", first)).values()) == {State.APPLIED}


def test_an_edit_during_the_run_is_a_conflict_all_the_same(person: Person, first: str) -> None:
    def write() -> None:
        project = str(person.project)
        write_file.write_file(
            person.paths, project, f"{project}/f", b"meanwhile\n", how=Mode.REVIEW
        )

    second = during(person, "echo second >f", write, Mode.REVIEW)
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
    assert len(done) > 2
    assert all(one == dict.fromkeys(("f", "d/x"), State.PENDING) for one in done)
