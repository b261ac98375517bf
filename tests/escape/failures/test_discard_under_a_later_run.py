# SPDX-License-Identifier: GPL-3.0-or-later
"""An interrupted discard, and a run that starts before it is finished: the run's version stays the
last one."""

from __future__ import annotations

import pytest
from support.escape.attack import IS_ROOT
from support.escape.copy_back import settle
from support.escape.kill import EVERY, Snapshot, check_finished, finish, killed_after
from support.person import Person

from ollmsandbox.project.changes.change import Mode, State
from ollmsandbox.project.database.runs import read_changes


@pytest.mark.parametrize("mode", [Mode.REVIEW, Mode.AUTO])
def test_a_later_run_stays_on_top_of_a_discard(person: Person, mode: Mode) -> None:
    file = person.project / "file"
    file.write_text("old\n")
    first = settle(person, "echo first >file; echo first >other", Mode.REVIEW).run_id
    second = settle(person, "echo second >file", Mode.REVIEW).run_id
    snapshot = Snapshot(person)
    snapshot.save()
    number, is_killed = 2 if IS_ROOT else 3, True
    while is_killed:
        snapshot.restore()
        is_killed = killed_after(number, snapshot.discard)
        third = settle(person, "echo third >file", mode).run_id
        finish(snapshot)
        check_finished(person)
        with snapshot.review() as (review, run):
            assert run.id == third
            states, kept = {}, {}
            for run_id in (first, second, third):
                for item in read_changes(review.manager, review.manager.run(run_id)):
                    if item.change.path == "file":
                        states[run_id] = item.state
                        file_kept = person.paths.versions / run_id / f"new-{item.number}"
                        kept[run_id] = file_kept.read_text() if run_id != third else ""
            told = f"killed after step {number}"
            assert kept == {first: "first\n", second: "second\n", third: ""}, told
            if mode is Mode.AUTO:
                assert file.read_text() == "third\n", told
                assert states.pop(third) is State.APPLIED, told
                assert set(states.values()) == {State.DISCARDED}, told
            assert states.get(third, State.PENDING) is State.PENDING, told
            for report in review.apply_all(run.project):
                assert {item.state for item in report.changes} == {State.APPLIED}, told
        assert file.read_text() == "third\n", told
        assert (person.project / "other").read_text() == "first\n", told
        number += EVERY or 3
