# SPDX-License-Identifier: GPL-3.0-or-later
"""A folder becomes a link to another place before, during or after a run: the copy-back writes only
to the named path in the project."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.changes import states
from support.escape.copy_back import (
    ATTACK,
    SWAPS,
    Counter,
    during,
    each_mode,
    fill,
    review,
    settle,
    settle_and_apply,
    swap,
    swap_back,
)
from support.escape.kill import FIRST_STEP, Snapshot
from support.person import Person

from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.project.change import Kind, State, Type
from ollmsandbox.project.reasons import Reason
from ollmsandbox.project.recover import finish_leftovers, recover
from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.usefixtures("home")

REPORTED = (State.CONFLICT, State.FAILED, State.PENDING)
SOME = ("outer/sub/changed", "outer/sub/new")
# Root takes every fifth step, and others some of those between.
START, STRIDE = FIRST_STEP + (2 if os.getuid() else 0), 5


@pytest.fixture
def inside(person: Person) -> Person:
    """The user, with a project that has a folder around it that is not the home folder."""
    project = person.home / "area" / "project"
    fill(project / "outer" / "sub")
    return replace(person, project=project)


def swap_at_every_step(inside: Person, what: str, work: Callable[[Counter], object]) -> int:
    """Do some work from the same beginning again and again, and swap at a later step each time.
    Return how many steps there were."""
    step, acted = START, True
    while acted:
        counter = Counter(step, swap(inside, what))
        try:
            work(counter)
        except OllmSandboxError as error:
            assert "the folder" in str(error)
        swap_back(inside, what)
        finish_leftovers(inside.paths)
        shutil.rmtree(inside.project)
        shutil.rmtree(inside.paths.project_data(str(inside.project)), ignore_errors=True)
        shutil.rmtree(inside.paths.runs, ignore_errors=True)
        fill(inside.project / "outer" / "sub")
        acted = counter.steps > step
        step += STRIDE
    return step


def test_a_naive_copy_falls_for_the_links(tmp_path: Path, home: Path) -> None:
    # What the tests below try is an attack.
    upper, project = tmp_path / "upper", tmp_path / "naive"
    (upper / "sub").mkdir(parents=True)
    (upper / "sub" / "changed").write_text("evil\n")
    precious = tmp_path / "precious"
    fill(precious)
    project.mkdir()
    (project / "sub").symlink_to(precious)
    shutil.copytree(upper, project, dirs_exist_ok=True)
    assert (precious / "changed").read_text() == "evil\n"
    (project / "file").hardlink_to(precious / "gone")
    (upper / "file").write_text("evil\n")
    subprocess.run(["cp", "--", upper / "file", project / "file"], check=True)
    assert (precious / "gone").read_text() == "evil\n"


@each_mode
@pytest.mark.parametrize("what", SWAPS)
def test_replaced_by_a_link_while_the_command_runs(inside: Person, what: str, mode: Mode) -> None:
    try:
        report = during(inside, ATTACK, swap(inside, what), mode)
    except OllmSandboxError as error:
        assert "the folder" in str(error)
        swap_back(inside, what)
        (again,) = finish_leftovers(inside.paths)
        # Nothing is lost: what the command wrote waits.
        assert states(again)["outer/sub/changed"] is State.PENDING
    else:
        assert report.changes
        for path, state in states(report).items():
            assert state in REPORTED or not path.startswith("outer/sub/"), path


@pytest.mark.parametrize("what", SWAPS)
def test_replaced_by_a_link_at_every_step_of_the_copy_back(inside: Person, what: str) -> None:
    steps = swap_at_every_step(inside, what, lambda step: settle(inside, ATTACK, step=step))
    assert steps > 10


@pytest.mark.parametrize("what", SWAPS)
def test_replaced_by_a_link_before_changes_are_looked_at(inside: Person, what: str) -> None:
    snapshot = Snapshot(inside, inside.home / "area", inside.paths.cache, inside.paths.data)
    run = settle(inside, ATTACK, Mode.REVIEW).run_id
    snapshot.save()
    for action, paths in [(a, p) for a in ("apply", "discard") for p in ((), SOME)]:
        snapshot.restore()
        swap(inside, what)()
        try:
            report = review(inside, action, run, *paths)
        except OllmSandboxError as error:
            assert "the folder" in str(error)
        else:
            # What was to be deleted there is not there.
            for item in report.changes:
                gone = action == "discard" or item.change.kind is Kind.DELETED
                assert gone or item.state in REPORTED, item
        # Another project is not held up by what could not be finished.
        if not paths:
            other = inside.home / "project"
            assert inside.cli("run", "-c", "echo fine", cwd=other).stdout == "fine\n"
        else:
            recover(inside.paths)
        swap_back(inside, what)
        for left in finish_leftovers(inside.paths):
            assert not left.errors
        found = settle(inside, "cat outer/sub/changed outer/sub/new >outer/seen")
        assert found.changes


@pytest.mark.parametrize("paths", [(), SOME], ids=["all", "some"])
@pytest.mark.parametrize("what", SWAPS)
def test_replaced_by_a_link_before_changes_are_undone_and_done_again(
    inside: Person, what: str, paths: tuple[str, ...]
) -> None:
    run = settle(inside, ATTACK).run_id
    sub = inside.project / "outer" / "sub"
    for does in ("undo", "apply"):
        swap(inside, what)()
        try:
            report = review(inside, does, run, *paths)
        except OllmSandboxError as error:
            assert "the folder" in str(error)
            done = inside.cli(does, run)
            assert "Traceback" not in done.stderr
        else:
            for item in report.changes:
                is_told = item.state is State.CONFLICT or item.is_because(Reason.ROOT_MISSING)
                assert item.change.type is Type.FOLDER or is_told, item
        swap_back(inside, what)
        finish_leftovers(inside.paths)
        review(inside, does, run)
        assert (sub / "changed").read_text() == ("old\n" if does == "undo" else "evil\n")
        assert (sub / "gone").exists() == (does == "undo")


@pytest.mark.parametrize("action", ["apply", "discard", "undo"])
@pytest.mark.parametrize("what", ["the folder", "its parent", "the project"])
def test_replaced_by_a_link_at_every_step_of_a_review(
    inside: Person, what: str, action: str
) -> None:
    def work(step: Counter) -> None:
        run = settle(inside, ATTACK, Mode.AUTO if action == "undo" else Mode.REVIEW).run_id
        review(inside, action, run, step=step)

    swap_at_every_step(inside, what, work)


@each_mode
def test_a_link_to_the_home_folder_that_was_there_before(person: Person, mode: Mode) -> None:
    (person.project / "sub").symlink_to(person.home)
    attack = (
        "echo evil >sub/.bashrc; rm sub/gone; chmod 777 sub; chmod 777 sub/tool; rm -r sub/outer"
    )
    assert not settle(person, attack, mode).changes
    # In its place a folder of the same name, with the same files in it.
    attack = "rm sub; mkdir sub; echo evil >sub/.bashrc; mkdir sub/outer; echo evil >sub/outer/x"
    report = settle(person, attack, mode)
    if mode is Mode.REVIEW:
        assert (person.project / "sub").is_symlink()
        report = review(person, "apply", report.run_id)
    assert set(states(report).values()) == {State.APPLIED}
    assert not (person.project / "sub").is_symlink()
    assert (person.project / "sub" / ".bashrc").read_text() == "evil\n"
    review(person, "undo", report.run_id)
    assert os.readlink(person.project / "sub") == str(person.home)


def test_a_folder_becomes_a_link_and_the_next_command_writes_through_it(person: Person) -> None:
    fill(person.project / "sub")
    for mode in (Mode.REVIEW, Mode.AUTO):
        settle(person, f"rm -r sub; ln -s {person.home} sub", mode)
        through = settle(person, "echo evil >sub/changed; echo evil >sub/new; rm sub/gone", mode)
        assert not through.changes
        settle(person, "rm sub; mkdir sub; echo evil >sub/changed; echo evil >sub/gone", mode)
        settle(person, f"mv sub s; ln -s {person.home} sub; cp -r s/. sub; rm -r s", mode)


@each_mode
def test_a_link_among_the_changes_is_a_link_in_the_project(person: Person, mode: Mode) -> None:
    fill(person.project / "sub")
    attack = f"rm -r sub; ln -s {person.home} sub; ln -s sub two; ln -s two/../.. three"
    report = settle_and_apply(person, attack, mode)
    assert set(states(report).values()) == {State.APPLIED}
    assert os.readlink(person.project / "sub") == str(person.home)
    flags = {item.change.path: item.change.flags for item in report.changes}
    assert "leaves-project" in [flag.value for flag in flags["sub"]]
    assert "leaves-project" in [flag.value for flag in flags["three"]]
    report = review(person, "undo", report.run_id)
    assert set(states(report).values()) == {State.UNDONE}
    assert (person.project / "sub" / "tree" / "leaf").read_text() == "old\n"


@pytest.mark.parametrize("command", ["true", ATTACK], ids=["nothing", "something"])
def test_the_project_is_moved_away_while_the_command_runs(inside: Person, command: str) -> None:
    aside = inside.project.with_name("aside")
    try:
        during(inside, command, lambda: inside.project.rename(aside), Mode.AUTO)
    except OllmSandboxError as error:
        assert command == ATTACK
        assert "the folder" in str(error)
    assert not inside.project.exists()
    aside.rename(inside.project)
    waiting = finish_leftovers(inside.paths)
    assert len(waiting) == (1 if command == ATTACK else 0)
    assert (inside.project / "outer" / "sub" / "changed").read_text() == "old\n"


def test_a_pending_folder_around_an_applied_file(person: Person) -> None:
    settle(person, "mkdir -p a/b/c; ln -s ~ a/link", Mode.REVIEW)
    report = settle(person, "echo new >a/b/c/file")
    assert set(states(report).values()) == {State.PENDING}
    report = review(person, "apply", report.run_id)
    assert states(report) == {"a/b/c/file": State.APPLIED}
    assert states(report.along[0]) == dict.fromkeys(("a", "a/b", "a/b/c"), State.APPLIED)
    assert (person.project / "a" / "b" / "c" / "file").read_text() == "new\n"
    assert not (person.project / "a" / "link").is_symlink()


def test_a_whiteout_over_a_link(person: Person) -> None:
    (person.project / "sub").symlink_to(person.home)
    (person.project / "file").symlink_to(person.home / ".bashrc")
    report = settle(person, "rm sub file")
    assert states(report) == {"sub": State.APPLIED, "file": State.APPLIED}
    assert list(person.project.iterdir()) == []
    review(person, "undo", report.run_id)
    assert os.readlink(person.project / "file") == str(person.home / ".bashrc")


def test_a_whiteout_over_a_folder_that_became_a_link(person: Person) -> None:
    fill(person.project / "sub")

    def act() -> None:
        (person.project / "sub").rename(person.project / "aside")
        (person.project / "sub").symlink_to(person.home)

    report = during(person, "rm -r sub", act, Mode.AUTO)
    assert report.changes
    assert os.readlink(person.project / "sub") == str(person.home)
    assert (person.project / "aside" / "gone").read_text() == "old\n"


def test_a_folder_that_became_a_file_with_another_name_outside(person: Person) -> None:
    # Its mode would be the other file's, too.
    fill(person.project / "sub")
    (person.project / "sub").chmod(0o555)

    def act() -> None:
        (person.project / "sub").chmod(0o755)
        (person.project / "sub").rename(person.project / "aside")
        (person.project / "sub").hardlink_to(person.home / ".bashrc")

    report = during(person, "chmod 755 sub; echo x >sub/new; chmod 511 sub", act, Mode.AUTO)
    assert State.APPLIED not in states(report).values()
    step, acted = START, True
    while acted:
        (person.project / "sub").unlink(missing_ok=True)
        shutil.rmtree(person.project / "sub", ignore_errors=True)
        shutil.rmtree(person.project / "aside", ignore_errors=True)
        (person.project / "sub").mkdir(mode=0o555)
        counter = Counter(step, act)
        settle(person, f"chmod 755 sub; echo {step} >sub/new; chmod 511 sub", step=counter)
        acted = counter.steps > step
        step += STRIDE
