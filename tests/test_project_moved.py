# SPDX-License-Identifier: GPL-3.0-or-later
"""A project's folder was moved: what is known of it is found at its new place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Person

from ollmsandbox.chat.history import History
from ollmsandbox.chat.stored import SessionInfo
from ollmsandbox.errors import ProjectError
from ollmsandbox.permission.moving import move_rules
from ollmsandbox.permission.request import Answer
from ollmsandbox.permission.rules import Command, Key, Rule, Target
from ollmsandbox.permission.store import RuleStore
from ollmsandbox.project.models import Project
from ollmsandbox.project.moving import move_project
from ollmsandbox.project.recorder import Mode, Recorder
from ollmsandbox.project.review import Review
from ollmsandbox.project.system import System, set_system, system_of


@pytest.fixture
def review(person: Person) -> Iterator[Review]:
    review = Review(person.paths)
    yield review
    review.close()


def _run(
    person: Person, command: str, project: Path, *, mode: Mode = Mode.AUTO, many: int = 1000
) -> None:
    keeper = Recorder(str(project), person.paths, mode=mode, many=many)
    assert person.run(command, project=project, keeper=keeper).exit_code == 0


def _move(person: Person, review: Review) -> Path:
    project = review.manager.find_project(person.project)
    assert project is not None
    new = person.home / "elsewhere" / "new name"
    new.parent.mkdir()
    person.project.rename(new)
    assert move_project(review.manager, project, new).path == str(new)
    return new


def test_what_was_applied_is_undone_at_the_new_place(person: Person, review: Review) -> None:
    (person.project / "a").write_text("before\n")
    _run(person, "echo after > a; mkdir b; echo new > b/c", person.project)
    new = _move(person, review)
    project = review.manager.find_project(new)
    assert project is not None and project.name == "new name"
    assert review.manager.find_project(person.project) is None
    run = review.manager.last_run(project)
    assert run is not None
    review.undo(run)
    assert (new / "a").read_text() == "before\n"
    assert not (new / "b").exists() and not person.project.exists()
    review.apply(run)
    assert (new / "b/c").read_text() == "new\n"


def test_many_files_of_one_run_go_along(person: Person, review: Review) -> None:
    """More than so many are kept as a whole, in a folder that is named after the project's."""
    for number in range(30):
        (person.project / f"file-{number}").write_text("before\n")
    _run(person, "for f in file-*; do echo after > $f; done", person.project, many=10)
    assert list(person.paths.versions.glob("*/layer-*"))
    new = _move(person, review)
    run = review.manager.last_run(_known(review, new))
    assert run is not None
    review.undo(run)
    assert {file.read_text() for file in new.iterdir()} == {"before\n"}


def test_what_waits_waits_on_and_the_next_command_sees_it(person: Person, review: Review) -> None:
    _run(person, "echo 1 > a", person.project, mode=Mode.REVIEW)
    new = _move(person, review)
    _run(person, "grep -q 1 a && echo 2 > b", new, mode=Mode.REVIEW)
    assert not list(new.iterdir())
    review.apply_all(_known(review, new))
    assert sorted(file.name for file in new.iterdir()) == ["a", "b"]


def test_its_sessions_its_system_and_its_records_go_along(person: Person, review: Review) -> None:
    manager = review.manager
    project = manager.add_project(person.project)
    history = History(manager)
    history.create(_talk("one", person.project))
    set_system(person.paths, str(person.project), System.ALPINE)
    beside = str(person.project) + "-not"
    manager.records_for(project, [f"{person.project}/a", beside])
    new = _move(person, review)
    assert [one.id for one in history.sessions(str(new))] == ["one"]
    assert system_of(person.paths, str(new)) is System.ALPINE
    assert system_of(person.paths, str(person.project)) is System.HOST
    ids = manager.records_for(_known(review, new), [f"{new}/a", beside])
    assert sorted(ids.values()) == [1, 2]


def test_answers_for_good_go_along(person: Person) -> None:
    store = RuleStore(person.paths)
    always = Answer.ALLOW_ALWAYS

    def rules(project: str) -> set[Rule]:
        return {
            Rule(Key("run_command", project, Command(("make",), f"{project}/src")), always),
            Rule(Key("edit_file", project, Target(f"{project}/a")), Answer.DENY_ALWAYS),
            Rule(Key("edit_file", project, Target("/old-but-not-it/a")), Answer.DENY_ALWAYS),
        }

    other = Rule(Key("run_command", "/old-but-not-it", Command(("make",), "/old")), always)
    for rule in (*rules("/old"), other):
        store.add(rule)
    move_rules(store, "/old", "/new")
    assert set(store.rules()) == {*rules("/new"), other}


def test_a_folder_that_was_opened_there_meanwhile_becomes_the_same_project(
    person: Person, review: Review
) -> None:
    manager = review.manager
    _run(person, "echo 1 > a", person.project)
    old = manager.find_project(person.project)
    assert old is not None
    new = person.home / "new"
    person.project.rename(new)
    manager.add_project(new)
    History(manager).create(_talk("two", new))
    move_project(manager, old, new)
    assert [project.path for project in manager.projects()] == [str(new)]
    assert manager.last_run(_known(review, new)) is not None
    assert [one.id for one in History(manager).sessions(str(new))] == ["two"]


def test_two_histories_do_not_become_one(person: Person, review: Review) -> None:
    _run(person, "echo 1 > a", person.project)
    old = _known(review, person.project)
    new = person.home / "new"
    person.project.rename(new)
    _run(person, "echo 2 > a", new)
    with pytest.raises(ProjectError, match="changes of its own"):
        move_project(review.manager, old, new)
    assert len(review.manager.projects()) == 2


def test_a_folder_that_is_there_is_not_moved(person: Person, review: Review) -> None:
    old = review.manager.add_project(person.project)
    (person.home / "new").mkdir()
    with pytest.raises(ProjectError, match="still there"):
        move_project(review.manager, old, person.home / "new")
    person.project.rmdir()
    with pytest.raises(ProjectError, match="not a folder"):
        move_project(review.manager, old, person.home / "nothing")


def _talk(session_id: str, project: Path) -> SessionInfo:
    return SessionInfo(session_id, "a talk", str(project), "", "", 0.0, 0.0)


def _known(review: Review, path: Path) -> Project:
    project = review.manager.find_project(path)
    assert project is not None
    return project
