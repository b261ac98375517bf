# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of an interrupted job cannot be read after a kill: it is kept and reported once, and no
file of the user is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from support.escape.copy_back import review, settle
from support.escape.kill import Snapshot, check_finished, has_job, killed_when
from support.person import Person

from ollmsandbox.paths import make_folder
from ollmsandbox.project import DAILY
from ollmsandbox.project import recover as recovery
from ollmsandbox.project.backups import clean_up
from ollmsandbox.project.jobs import unfinished
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.project.recover import recover
from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.ordinary

DAMAGE: dict[str, Callable[[str], str]] = {
    "cut off": lambda text: text[: len(text) // 2],
    "empty": lambda _text: "",
    "of another kind": lambda text: json.dumps({"project": json.loads(text)["project"]}),
    "with other items": lambda text: json.dumps({**json.loads(text), "items": [["dance"]]}),
}


@pytest.fixture
def snapshot(person: Person) -> Snapshot:
    (person.project / "f").write_text("old\n")
    return Snapshot(person)


def damage(person: Person, what: str) -> str:
    """Return what the file contains now."""
    [file] = unfinished(person.paths)
    text = DAMAGE[what](file.read_text())
    file.write_text(text)
    return text


def set_aside(person: Person) -> list[Path]:
    return [*person.paths.projects.glob("*/unreadable-*")]


def check_told_once(person: Person, text: str) -> None:
    [said] = recover(person.paths).errors
    [kept] = set_aside(person)
    assert str(kept) in said
    assert kept.read_text() == text
    assert not recover(person.paths).errors
    assert kept.exists()


@pytest.mark.parametrize("what", DAMAGE)
def test_a_request_of_the_user(snapshot: Snapshot, what: str) -> None:
    person = snapshot.person
    run = settle(person, "echo new >f", Mode.REVIEW).run_id
    assert killed_when(lambda: has_job(person), lambda: review(person, "apply", run))
    check_told_once(person, damage(person, what))
    assert (person.project / "f").read_text() == "old\n"
    review(person, "apply", run)
    assert (person.project / "f").read_text() == "new\n"
    review(person, "undo", run)
    assert (person.project / "f").read_text() == "old\n"
    check_finished(person)


@pytest.mark.parametrize("is_half_done", [False, True])
def test_changes_of_a_command(snapshot: Snapshot, is_half_done: bool) -> None:
    person = snapshot.person
    file = person.project / "f"
    snapshot.leave("echo new >f; echo new >g")

    def is_time() -> bool:
        return file.read_text() == "new\n" if is_half_done else has_job(person)

    assert killed_when(is_time, lambda: snapshot.settle(Mode.AUTO))
    check_told_once(person, damage(person, "cut off"))
    # What the command wrote is applied as it was meant to be.
    assert file.read_text() == (person.project / "g").read_text() == "new\n"
    check_finished(person)
    snapshot.undo()
    assert file.read_text() == "old\n"
    assert not (person.project / "g").exists()


def test_an_unreadable_job_is_not_replaced(person: Person) -> None:
    folder = make_folder(person.paths.project_data(str(person.project)))
    for text in ("one", "two"):
        (folder / "job.json").write_text(text)
        assert len(recover(person.paths).errors) == 1
    assert {file.read_text() for file in set_aside(person)} == {"one", "two"}


def test_a_job_that_ends_meanwhile_is_not_reported(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program ends its job between the look for jobs and the reading."""
    job = make_folder(person.paths.project_data(str(person.project))) / "job.json"
    monkeypatch.setattr(recovery, "unfinished", lambda _paths: [job])
    assert not recover(person.paths).errors


def test_unreadable_jobs_are_removed_with_old_runs(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_folder(person.paths.project_data(str(person.project)))
    (folder / "unreadable-1.json").write_text("damaged")
    with closing(ProjectManager(person.paths)) as manager:
        start = time.time()
        for days, count in ((29, 1), (31, 0)):
            monkeypatch.setattr(time, "time", lambda later=start + days * DAILY: later)
            clean_up(manager)
            assert len(set_aside(person)) == count
