# SPDX-License-Identifier: GPL-3.0-or-later
"""An interrupted operation on two roots, one of which is missing: it waits for its project; what is
to be done in another folder is left undone, and can be done later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.escape.copy_back import review, settle
from support.escape.kill import Snapshot, check_finished, has_job, killed_when
from support.person import Person

from ollmsandbox.engine.move import check_move
from ollmsandbox.errors import ProjectError
from ollmsandbox.project.index import read_changes
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.project.recover import recover
from ollmsandbox.sandbox.spec import Mode

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


def _cut_off(person: Person, linked: Path) -> None:
    """Kill a program that has begun to apply a run to both folders."""
    snapshot = Snapshot(person)
    settle(person, "echo new >first", Mode.REVIEW)
    _agree(person, linked)
    snapshot.leave(
        f"mkdir new; echo new >new/second; echo new >{linked}/one; echo new >{linked}/two"
    )
    assert killed_when(lambda: has_job(person), lambda: snapshot.settle(Mode.AUTO))


def test_each_change_has_a_number_of_its_own(person: Person, linked: Path) -> None:
    _cut_off(person, linked)
    assert not recover(person.paths).errors
    check_finished(person)
    with Snapshot(person).review() as (work, run):
        paths = [item.change.path for item in read_changes(work.manager, run)]
    assert sorted(paths) == ["new", "new/second", "one", "two"]


def test_it_waits_for_its_project(person: Person, linked: Path) -> None:
    _cut_off(person, linked)
    elsewhere = person.project.rename(person.home / "elsewhere")
    [said] = recover(person.paths).errors
    assert str(person.project) in said
    recovered = recover(person.paths)
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


@pytest.mark.parametrize("is_large", [False, True])
def test_an_undo_that_was_half_done_in_a_missing_folder(
    person: Person, linked: Path, is_large: bool
) -> None:
    """A large file is not compared, and only one version of it is kept."""
    old = "old\n" * (1_000_000 if is_large else 1)
    for name in ("one", "two"):
        (linked / name).write_text(old)
    run = settle(person, f"echo new >file; echo new >{linked}/one; echo new >{linked}/two").run_id

    def texts() -> list[str]:
        return [(linked / name).read_text() for name in ("one", "two")]

    assert killed_when(lambda: old in texts(), lambda: review(person, "undo", run))
    assert "new\n" in texts()
    away = linked.rename(person.home / "away")
    assert not recover(person.paths).errors
    check_finished(person)
    assert (person.project / "file").read_text() == "old\n"
    # What else is done to the project meanwhile changes nothing of that.
    settle(person, "echo more >more")
    settle(person, "echo more >>more")
    away.rename(linked)
    review(person, "undo", run)
    assert texts() == [old, old]
    check_finished(person)
