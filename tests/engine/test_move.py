# SPDX-License-Identifier: GPL-3.0-or-later
"""Moving a project: its history, pending changes, sessions and rules move along."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.folder import records_for
from support.person import Person

from ollmsandbox.chat.sessions import SessionFactory
from ollmsandbox.chat.storage.history import History
from ollmsandbox.chat.storage.stored import SessionInfo
from ollmsandbox.database.tables import Project
from ollmsandbox.engine import move
from ollmsandbox.engine.move import move_project
from ollmsandbox.engine.session_lock import SessionLock
from ollmsandbox.engine.system import System, set_system, system_of
from ollmsandbox.errors import OllmSandboxError, ProjectError
from ollmsandbox.paths import is_missing
from ollmsandbox.permission.request import Answer, PermissionRequest
from ollmsandbox.permission.rules import Command, Key, Rule, Target
from ollmsandbox.permission.store import RuleStore
from ollmsandbox.project.layer import PendingLayer
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.caches import all_caches
from ollmsandbox.sandbox.spec import Mode, RunSpec
from ollmsandbox.ui.models.choice import ModelChoice
from ollmsandbox.ui.sessions.sessions import Sessions
from ollmsandbox.ui.settings import Settings

pytestmark = pytest.mark.ordinary


class _Nobody:
    async def ask(self, request: PermissionRequest) -> Answer:
        raise AssertionError(request.question)


@pytest.fixture
def sessions(person: Person) -> Iterator[Sessions]:
    factory = SessionFactory(person.paths, person.environ, _Nobody())
    yield Sessions(factory, ModelChoice(factory.connections), Settings(person.paths))
    factory.manager.close()


def _run(person: Person, command: str, project: Path, *, mode: Mode = Mode.AUTO) -> None:
    keeper = Recorder(RunSpec(str(project), mode=mode), person.paths)
    assert person.run(command, project=project, keeper=keeper).exit_code == 0


def _move(person: Person, review: Review) -> Path:
    new = person.home / "elsewhere" / "new name"
    new.parent.mkdir()
    old = _known(review, person.project)
    person.project.rename(new)
    assert _move_to(review, old, new).path == str(new)
    return new


def _move_to(review: Review, project: Project, new: Path) -> Project:
    return move_project(review.manager, RuleStore(review.manager.paths), project, new)


def test_applied_changes_are_undone_at_the_new_path(person: Person, review: Review) -> None:
    (person.home / ".npm").mkdir()
    (person.project / "a").write_text("before\n")
    caches = "echo 1 >~/.npm/a; echo 2 >~/.m2/b"
    _run(person, f"echo after > a; mkdir b; echo new > b/c; {caches}", person.project)
    new = _move(person, review)
    project = _known(review, new)
    assert project.name == "new name"
    assert review.manager.find_project(person.project) is None
    run = review.manager.last_run(project)
    assert run is not None
    review.undo(run)
    assert (new / "a").read_text() == "before\n"
    assert not (new / "b").exists() and not person.project.exists()
    review.apply(run)
    assert (new / "b/c").read_text() == "new\n"
    # Its caches have moved along.
    _run(person, "cat ~/.npm/a ~/.m2/b >both", new)
    assert (new / "both").read_text() == "1\n2\n"
    assert [one.project for one in all_caches(person.paths)] == [str(new)]


def test_pending_changes_stay_pending_and_the_next_command_sees_them(
    person: Person, review: Review
) -> None:
    _run(person, "echo 1 > a", person.project, mode=Mode.REVIEW)
    new = _move(person, review)
    _run(person, "grep -q 1 a && echo 2 > b", new, mode=Mode.REVIEW)
    assert not list(new.iterdir())
    review.apply_all(_known(review, new))
    assert sorted(file.name for file in new.iterdir()) == ["a", "b"]


def test_sessions_system_and_records_move_along(person: Person, review: Review) -> None:
    manager = review.manager
    project = manager.add_project(person.project)
    history = History(manager)
    history.create(_talk("one", person.project))
    set_system(person.paths, str(person.project), System.ALPINE)
    beside = str(person.project) + "-not"
    records_for(manager, project, [f"{person.project}/a", beside])
    new = _move(person, review)
    assert [one.id for one in history.sessions(str(new))] == ["one"]
    assert system_of(person.paths, str(new)) is System.ALPINE
    assert system_of(person.paths, str(person.project)) is System.HOST
    ids = records_for(manager, _known(review, new), [f"{new}/a", beside])
    assert sorted(ids.values()) == [1, 2]


def test_saved_rules_move_along(person: Person) -> None:
    store = RuleStore(person.paths)
    always = Answer.ALLOW_ALWAYS

    def rules(project: str) -> set[Rule]:
        return {
            Rule(Key("run_command", project, Command("make", f"{project}/src")), always),
            Rule(Key("edit_file", project, Target(f"{project}/a")), Answer.DENY_ALWAYS),
            Rule(Key("edit_file", project, Target("/old-but-not-it/a")), Answer.DENY_ALWAYS),
        }

    other = Rule(Key("run_command", "/old-but-not-it", Command("make", "/old")), always)
    for rule in (*rules("/old"), other):
        store.add(rule)
    with store.move_project("/old", "/new"):
        assert set(store.rules()) == {*rules("/old"), *rules("/new"), other}
    assert set(store.rules()) == {*rules("/new"), other}


def test_a_denial_at_either_path_stays_in_force(person: Person) -> None:
    store = RuleStore(person.paths)

    def key(project: str, name: str) -> Key:
        return Key("edit_file", project, Target(f"{project}/{name}"))

    for project, name, answer in (
        ("/old", "a", Answer.ALLOW_ALWAYS),
        ("/new", "a", Answer.DENY_ALWAYS),
        ("/old", "b", Answer.DENY_ALWAYS),
        ("/new", "b", Answer.ALLOW_ALWAYS),
    ):
        store.add(Rule(key(project, name), answer))
    with store.move_project("/old", "/new"):
        pass
    assert set(store.rules()) == {
        Rule(key("/new", name), Answer.DENY_ALWAYS) for name in ("a", "b")
    }


def test_a_project_whose_rules_cannot_be_read_is_not_moved(
    person: Person, sessions: Sessions, review: Review
) -> None:
    review.manager.add_project(person.project)
    new = person.project.rename(person.home / "new")
    rules = RuleStore(person.paths).file
    rules.parent.mkdir(parents=True, exist_ok=True)
    rules.symlink_to(rules)
    with pytest.raises(OllmSandboxError, match="Cannot read"):
        asyncio.run(sessions.move_project(str(person.project), str(new)))
    assert _paths(review) == [str(person.project)]
    rules.unlink()
    deny = Rule(Key("edit_file", str(person.project), Target("a")), Answer.DENY_ALWAYS)
    RuleStore(person.paths).add(deny)
    assert asyncio.run(sessions.move_project(str(person.project), str(new))) == str(new)
    (rule,) = RuleStore(person.paths).rules()
    assert rule.key.project == str(new)


@pytest.mark.parametrize("is_parent", [False, True])
def test_a_link_in_the_place_of_the_folder_leads_to_the_new_one(
    person: Person, sessions: Sessions, review: Review, is_parent: bool
) -> None:
    around = person.home / "around"
    (around / "project").mkdir(parents=True)
    project = review.manager.add_project(around / "project")
    assert not is_missing(project.path)
    old = around if is_parent else around / "project"
    old.symlink_to(old.rename(person.home / "there"))
    new = person.home / "there" / "project" if is_parent else person.home / "there"
    assert is_missing(project.path)
    assert asyncio.run(sessions.move_project(project.path, str(new))) == str(new)
    assert _paths(review) == [str(new)]
    with pytest.raises(ProjectError, match="no longer in the list"):
        asyncio.run(sessions.move_project(project.path, str(new)))


def test_a_turn_under_way_is_not_stopped_to_move_the_project(
    person: Person, sessions: Sessions
) -> None:
    async def locate() -> None:
        session = await sessions.new(str(person.project))
        is_busy = asyncio.Event()
        session.connect("state-changed", lambda _session: is_busy.set())
        turn = asyncio.ensure_future(session.conversation.run("sleep 1000"))
        await is_busy.wait()
        for work in (sessions.check_move, sessions.move_project):
            with pytest.raises(ProjectError, match="still running"):
                await work(str(person.project), str(person.home))
        assert sessions.open_ones == [session] and not turn.done()
        await sessions.close_all()
        await asyncio.wait([turn])

    asyncio.run(locate())


@pytest.mark.parametrize("place", ["old", "new"])
def test_a_project_with_a_session_in_another_program_is_not_moved(
    person: Person, review: Review, place: str
) -> None:
    manager = review.manager
    project = manager.add_project(person.project)
    new = person.project.rename(person.home / "new")
    manager.add_project(new)
    where = {"old": project.path, "new": str(new)}[place]
    History(manager).create(SessionInfo("s", "A session", where, "m", "", 1.0, 1.0))
    lock = SessionLock(person.paths, "s")
    with pytest.raises(ProjectError, match="open in another program"):
        _move_to(review, project, new)
    assert {p.path for p in manager.projects()} == {project.path, str(new)}
    lock.release()
    assert _move_to(review, project, new).path == str(new)


def test_a_session_that_was_begun_through_a_link_is_of_the_folder_itself(
    person: Person, sessions: Sessions, review: Review
) -> None:
    link = person.home / "link"
    link.symlink_to(person.project)

    async def begin() -> str | None:
        session = await sessions.new(str(link))
        await sessions.close_all()
        return session.project

    assert asyncio.run(begin()) == str(person.project)
    assert _paths(review) == [str(person.project)]


def test_a_project_behind_a_link_is_removed_from_the_list(
    person: Person, sessions: Sessions, review: Review
) -> None:
    project = review.manager.add_project(person.project)
    person.project.symlink_to(person.project.rename(person.home / "new"))
    asyncio.run(sessions.remove_project(project.path))
    assert not review.manager.projects()


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
    _move_to(review, old, new)
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
        _move_to(review, old, new)
    assert len(review.manager.projects()) == 2


def test_pending_changes_at_the_new_path_are_not_overwritten(
    person: Person, review: Review
) -> None:
    _run(person, "echo 1 > a", person.project, mode=Mode.REVIEW)
    old, new = _known(review, person.project), person.home / "new"
    person.project.rename(new)
    there = PendingLayer(review.manager.paths, str(new))
    person.paths.project_data(str(new)).mkdir()
    there.note({"another": True})
    with pytest.raises(ProjectError, match="another project"):
        _move_to(review, old, new)
    assert there.runs() == ["another"]
    # It can be put back, and all that waits is there.
    new.rename(person.project)
    review.apply_all(old)
    assert (person.project / "a").read_text() == "1\n"


@pytest.mark.parametrize("cut_before", ["_move_file_records", "_move_records"])
def test_cut_off_it_is_done_once_more(
    person: Person, review: Review, monkeypatch: pytest.MonkeyPatch, cut_before: str
) -> None:
    _run(person, "echo 1 > a", person.project, mode=Mode.REVIEW)
    old, new = _known(review, person.project), person.home / "new"
    person.project.rename(new)

    def cut(*_args: object, **_named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(move, cut_before, cut)
        _move_to(review, old, new)
    # Opened there meanwhile.
    review.manager.add_project(new)
    _move_to(review, old, new)
    review.apply_all(_known(review, new))
    assert (new / "a").read_text() == "1\n"


def test_records_of_a_project_that_moved_up_keep_apart(person: Person, review: Review) -> None:
    manager = review.manager
    up, down = person.home / "up", person.home / "up" / "b"
    down.mkdir(parents=True)
    project = manager.add_project(down)
    names = ["b/b/f", "b/f", "f"]
    ids = records_for(manager, project, [f"{down}/{name}" for name in names])
    # Outside, in whose place a file of the project will be.
    records_for(manager, project, [f"{up}/f"])
    down.rename(person.home / "away")
    project = _move_to(review, project, up)
    expected = [ids[f"{down}/{name}"] for name in names]
    moved = records_for(manager, project, [f"{up}/{name}" for name in names])
    assert [moved[f"{up}/{name}"] for name in names] == expected


def test_a_folder_that_is_there_is_not_moved(person: Person, review: Review) -> None:
    old = review.manager.add_project(person.project)
    (person.home / "new").mkdir()
    with pytest.raises(ProjectError, match="still exists"):
        _move_to(review, old, person.home / "new")
    person.project.rmdir()
    with pytest.raises(ProjectError, match="not a folder"):
        _move_to(review, old, person.home / "nothing")


def _talk(session_id: str, project: Path) -> SessionInfo:
    return SessionInfo(session_id, "a talk", str(project), "", "", 0.0, 0.0)


def _paths(review: Review) -> list[str]:
    return [project.path for project in review.manager.projects()]


def _known(review: Review, path: Path) -> Project:
    project = review.manager.find_project(path)
    assert project is not None
    return project
