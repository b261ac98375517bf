# SPDX-License-Identifier: GPL-3.0-or-later
"""A later run covers pending changes: after it is discarded, all is as the earlier run left it,
even after a kill. Whatever is killed, no version of a run is lost."""

from __future__ import annotations

from functools import partial

import pytest
from support.escape.copy_back import review, rows, settle
from support.escape.kill import Seen, Snapshot, check_finished, finish, look_at
from support.person import Person

from ollmsandbox.project.change import State
from ollmsandbox.sandbox.spec import Mode

FIRST = """
echo first >file; echo first >folder/leaf; mkdir -m 700 new; echo first >new/inner
rm gone; rm -r all; rm swapped; mkdir swapped; echo first >swapped/inner; ln -s first link
"""
SECOND = """
echo second >file; rm -r folder; echo second >folder; echo second >new/inner; echo second >gone
mkdir -m 711 all; echo second >all/one; echo second >swapped/inner; rm link; mkdir link
echo second >other
"""


def fill(person: Person) -> tuple[str, Seen]:
    """Run the first command; return its id, and what it makes of the project."""
    for name in ("folder", "all"):
        (person.project / name).mkdir()
    for name in ("file", "folder/leaf", "folder/other", "gone", "all/one", "all/two", "swapped"):
        (person.project / name).write_text("old\n")
    other = person.home / "other"
    other.mkdir()
    person.run_outside(f"cp -a . {other}; cd {other}; {FIRST}")
    return settle(person, FIRST, Mode.REVIEW).run_id, look_at(other)


def assert_first_run_is_pending(snapshot: Snapshot, first: str, wanted: Seen) -> None:
    """Assert it after the later run was discarded."""
    person = snapshot.person
    assert {state for state, _ in rows(person, first).values()} == {State.PENDING}
    with snapshot.review() as (work, second):
        assert second.id != first
        kept = rows(person, second.id)
        for name in ("file", "folder", "gone"):
            assert kept[name][1] == b"second\n"
        for report in work.apply_all(second.project):
            assert {item.state for item in report.changes} == {State.APPLIED}, report
    assert look_at(person.project) == wanted


@pytest.mark.ordinary
@pytest.mark.parametrize("moment", ["when the later one is kept", "when it is discarded"])
def test_a_kill_at_any_step(person: Person, moment: str) -> None:
    """At the end it is not killed."""
    first, wanted = fill(person)
    snapshot = Snapshot(person)
    snapshot.leave(SECOND)
    is_kept = moment == "when the later one is kept"
    if not is_kept:
        snapshot.settle(Mode.REVIEW)
    snapshot.save()
    act = partial(snapshot.settle, Mode.REVIEW) if is_kept else snapshot.discard
    for _ in snapshot.kills(act, every=17):
        finish(snapshot)
        # If it had not begun.
        snapshot.discard()
        check_finished(person)
        assert_first_run_is_pending(snapshot, first, wanted)


@pytest.mark.ordinary
def test_a_file_that_a_later_run_deleted_can_still_be_applied(person: Person) -> None:
    first, _ = fill(person)
    settle(person, "rm -r new", Mode.REVIEW)
    review(person, "apply", first, "new")
    assert (person.project / "new/inner").read_text() == "first\n"


@pytest.mark.parametrize("mode", [Mode.REVIEW, Mode.AUTO])
def test_a_run_before_a_discard_is_finished_loses_no_version(person: Person, mode: Mode) -> None:
    file = person.project / "file"
    file.write_text("old\n")
    first = settle(person, "echo first >file; echo first >other", Mode.REVIEW).run_id
    second = settle(person, "echo second >file", Mode.REVIEW).run_id
    snapshot = Snapshot(person)
    snapshot.save()
    for number, _ in snapshot.kills(snapshot.discard, every=3):
        third = settle(person, "echo third >file", mode).run_id
        finish(snapshot)
        check_finished(person)
        told = f"killed after step {number}"
        kept = {run: rows(person, run)["file"][1] for run in (first, second, third)}
        assert kept == {first: b"first\n", second: b"second\n", third: b"third\n"}, told
        with snapshot.review() as (work, run):
            assert run.id == third
            work.apply_all(run.project)
            assert file.read_text() in ("first\n", "second\n", "third\n"), told
            work.apply(run, [str(file)])
        assert file.read_text() == "third\n", told
        assert (person.project / "other").read_text() == "first\n", told
