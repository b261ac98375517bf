# SPDX-License-Identifier: GPL-3.0-or-later
"""A later run covers pending changes: after it is discarded, all is as the earlier run left it,
even after a kill."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.escape.kill import EVERY, Seen, Snapshot, check_finished, finish, killed_after, look_at
from support.person import Person

from ollmsandbox.project.change import State
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.project.versions import Versions
from ollmsandbox.sandbox.spec import Mode, RunSpec

pytestmark = pytest.mark.anybody

FIRST = """
echo first >file; echo first >folder/leaf; mkdir -m 700 new; echo first >new/inner
rm gone; rm -r all; rm swapped; mkdir swapped; echo first >swapped/inner; ln -s first link
"""
SECOND = """
echo second >file; rm -r folder; echo second >folder; echo second >new/inner; echo second >gone
mkdir -m 711 all; echo second >all/one; echo second >swapped/inner; rm link; mkdir link
echo second >other
"""


def fill(person: Person) -> Seen:
    """Returns what the first command makes of it."""
    for name in ("folder", "all"):
        (person.project / name).mkdir()
    for name in ("file", "folder/leaf", "folder/other", "gone", "all/one", "all/two", "swapped"):
        (person.project / name).write_text("old\n")
    other = person.home / "other"
    other.mkdir()
    person.run_outside(f"cp -a . {other}; cd {other}; {FIRST}")
    person.run(FIRST, keeper=Recorder(RunSpec(str(person.project), mode=Mode.REVIEW), person.paths))
    return look_at(other)


def assert_first_run_is_pending(snapshot: Snapshot, wanted: Seen) -> None:
    """Assert it after the later run was discarded."""
    with snapshot.review() as (review, second):
        first = min(review.manager.runs(second.project, limit=-1), key=lambda run: run.started_at)
        assert first.id != second.id
        for item in read_changes(review.manager, first):
            assert item.state is State.PENDING, item
        versions = Versions(review.manager)
        kept = {
            item.change.path: versions.after(second, item).read()
            for item in read_changes(review.manager, second)
        }
        assert kept["file"] == kept["folder"] == kept["gone"] == b"second\n"
        for report in review.apply_all(first.project):
            assert {item.state for item in report.changes} == {State.APPLIED}, report
    assert look_at(snapshot.person.project) == wanted


def test_without_the_later_run_all_is_as_the_earlier_one_left_it(person: Person) -> None:
    wanted = fill(person)
    person.run(
        SECOND, keeper=Recorder(RunSpec(str(person.project), mode=Mode.REVIEW), person.paths)
    )
    snapshot = Snapshot(person)
    snapshot.discard()
    assert_first_run_is_pending(snapshot, wanted)


@pytest.mark.parametrize("moment", ["when the later one is kept", "when it is discarded"])
def test_a_kill_at_any_step(person: Person, moment: str) -> None:
    wanted = fill(person)
    snapshot = Snapshot(person)
    snapshot.leave(SECOND)
    act: Callable[[], object] = snapshot.discard
    if moment == "when it is discarded":
        snapshot.settle(Mode.REVIEW)
    else:
        act = lambda: snapshot.settle(Mode.REVIEW)  # noqa: E731
    snapshot.save()
    number, is_killed = 1, True
    while is_killed:
        snapshot.restore()
        is_killed = killed_after(number, act)
        finish(snapshot)
        # If it had not begun.
        snapshot.discard()
        check_finished(person)
        assert_first_run_is_pending(snapshot, wanted)
        number += EVERY or 17


def test_a_file_that_a_later_run_deleted_can_still_be_applied(person: Person) -> None:
    fill(person)
    person.run(
        "rm -r new", keeper=Recorder(RunSpec(str(person.project), mode=Mode.REVIEW), person.paths)
    )
    snapshot = Snapshot(person)
    with snapshot.review() as (review, second):
        first = min(review.manager.runs(second.project, limit=-1), key=lambda run: run.started_at)
        review.apply(first, [f"{person.project}/new"])
    assert (person.project / "new/inner").read_text() == "first\n"
