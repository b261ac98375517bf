# SPDX-License-Identifier: GPL-3.0-or-later
"""The live view of what a command changes: what it tells."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.monitor import Case, until, whiteout

from ollmsandbox.sandbox.monitor import Event, Kind, Monitor

pytestmark = pytest.mark.anybody


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


# --- what is told ------------------------------------------------------------------------------


def test_a_new_file_is_added_and_stays_so_when_it_is_written_again(case: Case) -> None:
    async def scenario() -> None:
        (case.upper / "a").write_text("1")
        await until(lambda: case.monitor.added == case.real("a"))
        before = len(case.events)
        (case.upper / "a").write_text("2")
        await until(lambda: len(case.events) > before)

    case.run(scenario)
    assert case.monitor.added == case.real("a")
    assert (case.monitor.updated, case.monitor.removed) == ([], [])
    assert case.events[0] == Event(Kind.ADDED, f"{case.project}/a", 1)
    assert {event.kind for event in case.events[1:]} == {Kind.UPDATED}
    assert case.monitor.count == 1


def test_what_is_in_the_project_is_updated_when_it_appears_above(case: Case) -> None:
    (case.project / "a").write_text("old")

    async def scenario() -> None:
        (case.upper / "a").write_text("new")
        await until(lambda: case.monitor.count == 1)

    case.run(scenario)
    assert case.monitor.updated == case.real("a")
    assert case.monitor.added == []


def test_what_was_above_before_is_updated_or_removed_but_not_told_by_itself(case: Case) -> None:
    for name in ("left", "written", "deleted"):
        (case.upper / name).write_text("old")

    async def scenario() -> None:
        (case.upper / "written").write_text("new")
        (case.upper / "deleted").unlink()
        await case.settled()

    case.run(scenario)
    assert case.monitor.updated == case.real("written")
    assert case.monitor.removed == case.real("deleted")
    assert case.monitor.added == []


def test_a_whiteout_is_a_removal_also_of_what_was_updated_first(case: Case) -> None:
    for name in ("a", "b"):
        (case.project / name).write_text("old")

    async def scenario() -> None:
        whiteout(case.upper / "a")
        (case.upper / "b").write_text("new")
        await until(lambda: case.monitor.updated == case.real("b"))
        whiteout(case.outside / "w")
        os.rename(case.outside / "w", case.upper / "b")
        await until(lambda: case.monitor.removed == case.real("a", "b"))
        # And back again: the project had it, so it is no addition.
        os.unlink(case.upper / "a")
        (case.upper / "a").write_text("again")
        await until(lambda: case.monitor.updated == case.real("a"))

    case.run(scenario)
    assert case.monitor.removed == case.real("b")
    assert case.monitor.added == []
    assert case.monitor.count == 2


def test_another_device_is_no_removal(case: Case) -> None:
    async def scenario() -> None:
        os.mkfifo(case.upper / "pipe")
        await until(lambda: case.monitor.added == case.real("pipe"))

    case.run(scenario)
    assert case.monitor.removed == []


def test_what_was_only_added_and_is_removed_again_was_never_there(case: Case) -> None:
    async def scenario() -> None:
        (case.upper / "a").write_text("")
        (case.upper / "d").mkdir()
        (case.upper / "d" / "b").write_text("")
        await until(lambda: case.monitor.count == 3)
        (case.upper / "a").unlink()
        shutil.rmtree(case.upper / "d")
        await until(lambda: case.monitor.count == 0)

    case.run(scenario)
    assert (case.monitor.added, case.monitor.updated, case.monitor.removed) == ([], [], [])
    removed = {event.path for event in case.events if event.kind is Kind.REMOVED}
    assert removed == {*case.real("a", "d", "d/b")}


def test_every_root_has_its_own_place_and_other_folders_have_none(case: Case) -> None:
    roots = {"overlay1": str(case.project), "overlay2": str(case.outside)}
    case.monitor = Monitor(roots, str(case.base))
    (case.base / "other").mkdir()

    async def scenario() -> None:
        (case.base / "other" / "c").write_text("")
        # This root's folder is made after the start.
        (case.base / "overlay2").mkdir()
        (case.base / "overlay2" / "b").write_text("")
        await until(lambda: case.monitor.count == 1)
        (case.upper / "a").write_text("")
        await until(lambda: case.monitor.count == 2)

    case.run(scenario)
    assert case.monitor.added == [f"{case.outside}/b", *case.real("a")]


# --- folders -----------------------------------------------------------------------------------


def test_nested_new_folders_are_entered_as_they_appear(case: Case) -> None:
    async def scenario() -> None:
        deep = case.upper / "a" / "b" / "c"
        deep.mkdir(parents=True)
        (deep / "file").write_text("")
        await until(lambda: case.monitor.count == 4)
        (deep / "later").write_text("")
        await until(lambda: case.monitor.count == 5)

    case.run(scenario)
    assert case.monitor.added == case.real("a", "a/b", "a/b/c", "a/b/c/file", "a/b/c/later")


def test_a_folder_that_comes_with_its_content_is_told_whole(case: Case) -> None:
    tree = case.outside / "tree"
    (tree / "in").mkdir(parents=True)
    (tree / "in" / "a").write_text("")
    whiteout(tree / "gone")

    async def scenario() -> None:
        os.rename(tree, case.upper / "tree")
        await until(lambda: case.monitor.count == 4)
        (case.upper / "tree" / "in" / "b").write_text("")
        await until(lambda: case.monitor.count == 5)

    case.run(scenario)
    names = ("tree", "tree/in", "tree/in/a", "tree/in/b")
    assert sorted(case.monitor.added) == case.real(*names)
    assert case.monitor.removed == case.real("tree/gone")


def test_a_folder_that_is_only_on_the_way_is_no_change(case: Case) -> None:
    (case.project / "src").mkdir()
    (case.project / "src" / "a.c").write_text("old")

    async def scenario() -> None:
        (case.upper / "src").mkdir()
        (case.upper / "src" / "a.c").write_text("new")
        await until(lambda: case.monitor.count == 1)
        await case.settled()

    case.run(scenario)
    assert case.monitor.updated == case.real("src/a.c")
    assert case.monitor.added == []


def test_a_folder_that_is_moved_is_followed_under_its_new_name(case: Case) -> None:
    async def scenario() -> None:
        (case.upper / "old" / "in").mkdir(parents=True)
        (case.upper / "to").mkdir()
        (case.upper / "old" / "in" / "a").write_text("")
        await until(lambda: case.monitor.count == 4)
        os.rename(case.upper / "old", case.upper / "to" / "new")
        await until(lambda: f"{case.project}/to/new/in/a" in case.monitor.added)
        (case.upper / "to" / "new" / "in" / "b").write_text("")
        await until(lambda: f"{case.project}/to/new/in/b" in case.monitor.added)
        os.rename(case.upper / "to" / "new", case.upper / "to" / "newer")
        (case.upper / "to" / "newer" / "in" / "c").write_text("")
        await until(lambda: f"{case.project}/to/newer/in/c" in case.monitor.added)
        (case.upper / "to" / "newer" / "in" / "d").write_text("")
        await until(lambda: f"{case.project}/to/newer/in/d" in case.monitor.added)

    case.run(scenario)
    inside = [f"to/newer/in/{name}" for name in "abcd"]
    assert sorted(case.monitor.added) == case.real("to", "to/newer", "to/newer/in", *inside)
    assert case.monitor.removed == []


def test_a_folder_made_again_under_the_same_name_is_watched_again(case: Case) -> None:
    async def turn(name: str) -> None:
        (case.upper / "d").mkdir()
        (case.upper / "d" / name).write_text("")
        await until(lambda: case.monitor.added == case.real("d", f"d/{name}"))
        shutil.rmtree(case.upper / "d")

    async def scenario() -> None:
        for number in range(5):
            await turn(f"{number}")

    case.run(scenario)


def test_a_folder_replaced_by_a_whiteout_takes_with_it_what_was_in_it(case: Case) -> None:
    (case.project / "d").mkdir()
    (case.project / "d" / "a").write_text("old")

    async def scenario() -> None:
        (case.upper / "d").mkdir()
        (case.upper / "d" / "a").write_text("new")
        (case.upper / "d" / "b").write_text("new")
        await until(lambda: case.monitor.count == 2)
        os.rename(case.upper / "d", case.outside / "d")
        whiteout(case.upper / "d")
        await until(lambda: len(case.monitor.removed) == 2)

    case.run(scenario)
    assert sorted(case.monitor.removed) == case.real("d", "d/a")
    assert (case.monitor.added, case.monitor.updated) == ([], [])


# --- what a command may try --------------------------------------------------------------------
