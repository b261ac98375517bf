# SPDX-License-Identifier: GPL-3.0-or-later
"""An interrupted discard, and a run that starts before it is finished: no version is lost."""

from __future__ import annotations

import pytest
from support.escape.attack import IS_ROOT
from support.escape.copy_back import settle
from support.escape.kill import EVERY, Snapshot, check_finished, finish, killed_after
from support.person import Person

from ollmsandbox.project.index import read_changes
from ollmsandbox.project.versions import Versions
from ollmsandbox.sandbox.spec import Mode


@pytest.mark.parametrize("mode", [Mode.REVIEW, Mode.AUTO])
def test_a_run_before_a_discard_is_finished_loses_no_version(person: Person, mode: Mode) -> None:
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
            told = f"killed after step {number}"
            kept = {}
            for run_id in (first, second, third):
                one = review.manager.run(run_id)
                for item in read_changes(review.manager, one):
                    if item.change.path == "file":
                        kept[run_id] = Versions(review.manager).after(one, item).read()
            assert kept == {first: b"first\n", second: b"second\n", third: b"third\n"}, told
            review.apply_all(run.project)
            assert file.read_text() in ("first\n", "second\n", "third\n"), told
            review.apply(run, [str(file)])
        assert file.read_text() == "third\n", told
        assert (person.project / "other").read_text() == "first\n", told
        number += EVERY or 3
