# SPDX-License-Identifier: GPL-3.0-or-later
"""The clock is set back between two commands: the later command still counts as the later one."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from support.changes import states
from support.escape.copy_back import apply_all, during, review, settle
from support.escape.kill import Snapshot
from support.person import Person

from ollmsandbox.project.change import State
from ollmsandbox.project.recover import finish_leftovers
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.ordinary

HOUR = 3600


@pytest.fixture
def first(person: Person, monkeypatch: pytest.MonkeyPatch) -> str:
    """A pending run, after which the clock was set back: all recorded times are in the future."""
    (person.project / "f").write_text("old\n")
    real = time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: real() + HOUR)
        return settle(person, "echo first >>f; mkdir d; echo first >d/x", Mode.REVIEW).run_id


def last_states(person: Person) -> dict[str, State]:
    """Apply what is pending; return the state of each path in the last run that changed it."""
    return {path: state for report in apply_all(person) for path, state in states(report).items()}


def test_a_change_by_a_later_command_is_no_conflict(person: Person, first: str) -> None:
    second = settle(person, "echo second >>f; echo second >g", Mode.REVIEW)
    assert states(second) == dict.fromkeys(("f", "g"), State.PENDING)
    third = settle(person, "echo third >>f; rm d/x", Mode.REVIEW)
    assert states(third) == dict.fromkeys(("f", "d/x"), State.PENDING)
    assert last_states(person) == dict.fromkeys(("f", "d", "d/x", "g"), State.APPLIED)
    assert (person.project / "f").read_text() == "old\nfirst\nsecond\nthird\n"
    assert not (person.project / "d/x").exists()


def test_a_change_that_another_makes_during_the_run_is_not_overwritten(
    person: Person, first: str
) -> None:
    second = during(
        person,
        "echo second >f",
        lambda: person.write("f", "meanwhile\n", Mode.REVIEW),
        Mode.REVIEW,
    )
    assert last_states(person)["f"] is State.CONFLICT
    assert (person.project / "f").read_text() == "meanwhile\n"
    assert states(review(person, "apply", second.run_id, "f")) == {"f": State.APPLIED}
    assert (person.project / "f").read_text() == "second\n"


def test_a_later_command_that_is_killed_is_still_the_later_one(person: Person, first: str) -> None:
    snapshot = Snapshot(person)
    snapshot.leave("echo second >>f; echo second >d/x")
    snapshot.save()
    done = []
    # Before it is written down what is to be done, after that, and in the midst of it.
    for _ in snapshot.kills(lambda: snapshot.settle(Mode.REVIEW), every=7):
        done += [states(report) for report in finish_leftovers(person.paths)]
        with closing(Review(person.paths)) as found:
            project = found.manager.find_project(person.project)
            assert project is not None
            assert found.waiting(project)[0].id == first
    assert len(done) > 2
    assert all(one == dict.fromkeys(("f", "d/x"), State.PENDING) for one in done)
