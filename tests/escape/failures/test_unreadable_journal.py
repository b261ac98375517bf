# SPDX-License-Identifier: GPL-3.0-or-later
"""A journal that cannot be read after a kill is kept and reported once, and no file of the user is
lost."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest
from support.escape.copy_back import review, settle
from support.escape.kill import Snapshot, killed_after
from support.person import Person

from ollmsandbox.project.apply.journal import Job, Journal, Task
from ollmsandbox.project.changes.mode import DAILY, Mode
from ollmsandbox.project.database.backups import clean_up
from ollmsandbox.project.manager import ProjectManager
from ollmsandbox.project.recovery.recover import recover

DAMAGE = {"cut off": b'{"task": "ta', "empty": b"", "of another kind": b'{"task": "dance"}'}


@pytest.fixture
def snapshot(person: Person) -> Snapshot:
    (person.project / "f").write_text("old\n")
    return Snapshot(person)


def cut_off_apply(person: Person, run: str) -> None:
    """Kill the program right after it wrote down that the user applies a run."""
    assert any(
        killed_after(number, lambda step: review(person, "apply", run, step=step))
        and any(person.paths.cache.glob("journal-*.json"))
        for number in range(1, 40)
    )


def damage(person: Person, pattern: str, what: str) -> None:
    [file] = person.paths.cache.glob(pattern)
    file.write_bytes(DAMAGE[what])


def check_told_once(person: Person, what: str) -> None:
    [said] = recover(person.paths).errors
    [kept] = person.paths.cache.glob("unreadable-*")
    assert str(kept) in said
    assert kept.read_bytes() == DAMAGE[what]
    assert not recover(person.paths).errors
    assert kept.exists()


@pytest.mark.parametrize("what", DAMAGE)
def test_a_request_of_the_user(snapshot: Snapshot, what: str) -> None:
    person = snapshot.person
    run = settle(person, "echo new >f", Mode.REVIEW).run_id
    cut_off_apply(person, run)
    damage(person, "journal-*.json", what)
    check_told_once(person, what)
    assert (person.project / "f").read_text() == "old\n"
    review(person, "apply", run)
    assert (person.project / "f").read_text() == "new\n"


def test_changes_of_a_command(snapshot: Snapshot) -> None:
    person, what = snapshot.person, "cut off"
    snapshot.leave("echo new >f")
    snapshot.save()
    for number in range(1, 40):
        snapshot.restore()
        assert killed_after(number, lambda step: snapshot.settle(Mode.AUTO, step))
        if any(person.paths.cache.glob("overlay-*/journal.json")):
            break
    damage(person, "overlay-*/journal.json", what)
    check_told_once(person, what)
    assert (person.project / "f").read_text() == "old\n"
    # What the command wrote waits.
    assert person.cli("apply", "--all").returncode == 0
    assert (person.project / "f").read_text() == "new\n"


def test_an_unreadable_journal_is_not_replaced(person: Person) -> None:
    cache: Path = person.paths.cache
    cache.mkdir(parents=True)
    for text in ("one", "two"):
        (cache / "journal-x.json").write_text(text)
        assert len(recover(person.paths).errors) == 1
    assert {file.read_text() for file in cache.glob("unreadable-*")} == {"one", "two"}


def test_a_journal_that_is_just_being_written_is_not_set_aside(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    person.paths.cache.mkdir(parents=True)
    journal = Journal.of_person(person.paths, "x")
    (person.paths.cache / "journal-x.json").write_text("damaged")
    job = Job(Task.UNDO, "x", str(person.project), "auto", "true", 1.0, (), {})

    def unpacked(_text: str) -> Job:
        monkeypatch.undo()
        journal.write(job)
        raise ValueError

    monkeypatch.setattr(Job, "unpacked", unpacked)
    journal.check(person.paths)
    assert journal.read() == job
    assert not list(person.paths.cache.glob("unreadable-*"))


def test_unreadable_journals_are_removed_with_old_runs(person: Person) -> None:
    cache = person.paths.cache
    (cache / "overlay-gone").mkdir(parents=True)
    for name in ("unreadable-journal-x.json", "unreadable-overlay-gone1.json"):
        (cache / name).write_text("damaged")
    manager = ProjectManager(person.paths)
    with closing(manager):
        for days, count in ((29, 2), (31, 1)):
            clean_up(manager, now=time.time() + days * DAILY)
            assert len(list(cache.glob("unreadable-*"))) == count
        # Of what is still to be finished.
        assert (cache / "unreadable-overlay-gone1.json").exists()
