# SPDX-License-Identifier: GPL-3.0-or-later
"""An interrupted operation on two roots, one of which is missing: all of it waits until both are
there, and nothing else is done to its run before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.escape.copy_back import review, settle
from support.escape.kill import Snapshot, check_finished, has_journal, killed_when
from support.person import Person

from ollmsandbox.engine.move import check_move
from ollmsandbox.errors import ProjectError
from ollmsandbox.project.changes.mode import Mode
from ollmsandbox.project.database.runs import read_changes
from ollmsandbox.project.manager import ProjectManager
from ollmsandbox.project.recovery.missing import MissingRootError
from ollmsandbox.project.recovery.recover import recover

pytestmark = pytest.mark.anybody


@pytest.fixture
def linked(person: Person) -> Path:
    """A second folder that commands may write to."""
    folder = person.home / "linked"
    folder.mkdir()
    for file in (person.project / "file", folder / "one", folder / "two"):
        file.write_text("old\n")
    _agree(person, folder)
    return folder


def _agree(person: Person, folder: Path) -> None:
    agreed = person.paths.linked_roots(str(person.project))
    agreed.parent.mkdir(parents=True, exist_ok=True)
    agreed.write_text(json.dumps([str(folder)]))


def _cut_off(person: Person, linked: Path) -> Path:
    """A run that has begun to be applied, and whose linked folder is gone. Returns its path."""
    snapshot = Snapshot(person)
    settle(person, "echo new >first", Mode.REVIEW)
    _agree(person, linked)
    snapshot.leave(
        f"mkdir new; echo new >new/second; echo new >{linked}/one; echo new >{linked}/two"
    )
    assert killed_when(lambda: has_journal(person), lambda step: snapshot.settle(Mode.AUTO, step))
    away = linked.rename(person.home / "away")
    [said] = recover(person.paths).errors
    assert str(linked) in said
    return away


def test_each_change_has_a_number_of_its_own(person: Person, linked: Path) -> None:
    _cut_off(person, linked).rename(linked)
    assert not recover(person.paths).errors
    check_finished(person)
    with Snapshot(person).review() as (work, run):
        paths = [item.change.path for item in read_changes(work.manager, run)]
    assert sorted(paths) == ["new", "new/second", "one", "two"]


def test_it_waits_for_its_project_too(person: Person, linked: Path) -> None:
    away = _cut_off(person, linked)
    elsewhere = person.project.rename(person.home / "elsewhere")
    away.rename(linked)
    recovered = recover(person.paths)
    # It is reported once, whichever of its folders is missing.
    assert not (*recovered.errors, *recovered.finished)
    assert (linked / "one").read_text() == "old\n"
    elsewhere.rename(person.project)
    assert not recover(person.paths).errors
    check_finished(person)
    assert (linked / "one").read_text() == "new\n"


def test_a_project_with_an_unfinished_part_is_not_moved(person: Person, linked: Path) -> None:
    _cut_off(person, linked)
    elsewhere = person.project.rename(person.home / "elsewhere")
    manager = ProjectManager(person.paths)
    try:
        project = manager.find_project(person.project)
        assert project
        with pytest.raises(ProjectError, match="was interrupted"):
            check_move(manager, project, elsewhere)
    finally:
        manager.close()


def test_a_new_request_does_not_replace_the_unfinished_one(person: Person, linked: Path) -> None:
    run = settle(person, f"echo new >file; echo new >{linked}/one; echo new >{linked}/two").run_id

    def is_half() -> bool:
        return "old\n" in ((linked / "one").read_text(), (linked / "two").read_text())

    assert killed_when(is_half, lambda step: review(person, "undo", run, step=step))
    away = linked.rename(person.home / "away")
    assert len(recover(person.paths).errors) == 1
    for action in ("apply", "undo", "discard"):
        with pytest.raises(MissingRootError):
            review(person, action, run, "file")
    away.rename(linked)
    assert not recover(person.paths).errors
    check_finished(person)
    assert (linked / "one").read_text() == (linked / "two").read_text() == "old\n"
    assert (person.project / "file").read_text() == "old\n"
