# SPDX-License-Identifier: GPL-3.0-or-later
"""The live view of what a command changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.monitor import Case, until, whiteout
from support.person import ROOT

from ollmsandbox.sandbox.monitor import EventKind, FileEvent, Monitor

pytestmark = pytest.mark.anybody


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


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
    assert case.events[0] == FileEvent(EventKind.ADDED, f"{case.project}/a", 1)
    assert {event.kind for event in case.events[1:]} == {EventKind.UPDATED}
    assert case.monitor.count == 1


def test_what_is_in_the_project_is_updated_when_it_appears_above(case: Case) -> None:
    (case.project / "a").write_text("old")

    async def scenario() -> None:
        (case.upper / "a").write_text("new")
        await until(lambda: case.monitor.count == 1)

    case.run(scenario)
    assert case.monitor.updated == case.real("a")
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
    removed = {event.path for event in case.events if event.kind is EventKind.REMOVED}
    assert removed == {*case.real("a", "d", "d/b")}


def test_every_root_has_its_own_place_and_other_folders_have_none(case: Case) -> None:
    roots = {"overlay1": str(case.project), "overlay2": str(case.outside)}
    case.monitor = Monitor(roots, str(case.base))
    (case.base / "other").mkdir()
    (case.base / "overlay2").mkdir()

    async def scenario() -> None:
        (case.base / "other" / "c").write_text("")
        (case.base / "overlay2" / "b").write_text("")
        await until(lambda: case.monitor.count == 1)
        (case.upper / "a").write_text("")
        await until(lambda: case.monitor.count == 2)

    case.run(scenario)
    assert case.monitor.added == [f"{case.outside}/b", *case.real("a")]


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


def test_a_link_to_a_folder_outside_is_not_entered(case: Case) -> None:
    (case.outside / "secret").write_text("")
    (case.upper / "before").symlink_to(case.outside)

    async def scenario() -> None:
        (case.upper / "link").symlink_to(case.outside)
        (case.upper / "d").mkdir()
        await until(lambda: case.monitor.count == 2)
        (case.upper / "d").rmdir()
        (case.upper / "d").symlink_to(case.outside)
        (case.outside / "later").write_text("")
        await case.settled()

    case.run(scenario)
    assert sorted(case.monitor.added) == case.real("d", "link")
    assert not case.monitor.is_partial


def test_names_that_are_no_text_come_out_as_they_are(case: Case) -> None:
    folder = os.fsdecode(b"d\xff\n")

    async def scenario() -> None:
        (case.upper / folder).mkdir()
        await until(lambda: case.monitor.count == 1)
        (case.upper / folder / "f\udc80").write_text("")
        await until(lambda: case.monitor.count == 2)

    case.run(scenario)
    assert case.monitor.added == case.real(folder, f"{folder}/f\udc80")
    assert os.fsencode(case.real(folder)[0]).endswith(b"/d\xff\n")


def test_above_the_ceiling_no_folder_is_added_and_it_says_so(case: Case) -> None:
    case.watching(ceiling=3)  # the root is one of them

    async def scenario() -> None:
        for name in ("1", "2"):
            (case.upper / name).mkdir()
            (case.upper / name / "in").write_text("")
        await until(lambda: case.monitor.count == 4)
        assert not case.monitor.is_partial
        (case.upper / "3").mkdir()
        (case.upper / "3" / "in").write_text("")
        await until(lambda: case.monitor.is_partial)
        # One that goes makes room.
        shutil.rmtree(case.upper / "1")
        await case.settled()
        (case.upper / "4").mkdir()
        (case.upper / "4" / "in").write_text("")
        await until(lambda: f"{case.project}/4/in" in case.monitor.added)

    case.run(scenario)
    assert f"{case.project}/3" in case.monitor.added
    assert f"{case.project}/3/in" not in case.monitor.added


def test_a_closed_folder_is_told_and_entered_once_it_is_open(case: Case) -> None:
    closed = case.upper / "d"

    async def scenario() -> None:
        closed.mkdir(mode=0)
        await until(lambda: case.monitor.added == case.real("d"))
        # Nothing is closed to root.
        assert case.monitor.is_partial is not os.access(closed, os.R_OK)
        closed.chmod(0o700)
        (closed / "a").write_text("")
        await until(lambda: case.monitor.added == case.real("d", "d/a"))

    case.run(scenario)


def test_a_place_that_is_not_there_is_no_error(case: Case, tmp_path: Path) -> None:
    case.monitor = Monitor({"overlay1": str(case.project)}, str(tmp_path / "nothing"))

    async def scenario() -> None:
        assert case.monitor.is_partial

    case.run(scenario)


def test_a_flood_is_bounded_and_the_folder_is_watched_again_after_it(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ollmsandbox.sandbox.monitor._MOST_KEPT", 2000)

    async def scenario() -> None:
        # The main loop does nothing meanwhile, so all events come at once.
        for number in range(1500):
            (case.upper / f"{number}").write_text("")
        (case.upper / "folder").mkdir()
        for number in range(500):
            (case.upper / f"{number}").unlink()
        await until(lambda: case.monitor.count == 1001)
        assert not case.monitor.is_partial
        assert max(event.count for event in case.events) <= 1501
        (case.upper / "folder" / "a").write_text("")
        (case.upper / "1499").unlink()
        await until(lambda: case.real("folder/a")[0] in case.monitor.added)
        await until(lambda: case.monitor.count == 1001)
        for number in range(2000):
            (case.upper / "folder" / f"{number}").write_text("")
        await until(lambda: case.monitor.is_partial and case.monitor.count == 2000)
        before = len(case.events)
        (case.upper / "last").write_text("")
        # The disk watch hears of it, although nothing more is kept.
        await until(lambda: case.real("last")[0] in {e.path for e in case.events[before:]})
        shutil.rmtree(case.upper / "folder")
        await until(lambda: case.monitor.count == 999)

    case.run(scenario)


def test_a_folder_that_is_renamed_in_a_flood_is_followed(case: Case) -> None:
    async def scenario() -> None:
        (case.upper / "before").mkdir()
        await until(lambda: case.monitor.added == case.real("before"))
        for number in range(1000):
            (case.upper / f"{number}").write_text("")
        (case.upper / "before").rename(case.upper / "after")
        await until(lambda: case.monitor.count == 1001)
        await until(lambda: case.real("after")[0] in case.monitor.added)
        (case.upper / "after" / "a").write_text("")
        await until(lambda: case.real("after/a")[0] in case.monitor.added)

    case.run(scenario)
    assert case.real("before")[0] not in case.monitor.added


def test_a_listener_that_fails_is_recorded_and_breaks_nothing(case: Case) -> None:
    def broken(event: FileEvent) -> None:
        raise ValueError(event.path)

    case.monitor = Monitor({"overlay1": str(case.project)}, str(case.base))
    case.monitor.listen(broken)
    case.monitor.listen(case.events.append)

    async def scenario() -> None:
        for number in range(30):
            (case.upper / f"{number}").write_text("")
        await until(lambda: len({event.path for event in case.events}) == 30)

    case.run(scenario)
    assert len(case.monitor.errors) == 10
    assert isinstance(case.monitor.errors[0], ValueError)


def test_a_listener_may_stop_it(case: Case) -> None:
    case.monitor.listen(lambda event: case.monitor.stop())

    async def scenario() -> None:
        (case.upper / "d").mkdir()
        (case.upper / "d" / "a").write_text("")
        await until(lambda: bool(case.events))

    case.run(scenario)
    assert case.monitor.errors == []


def test_the_end_is_final_and_may_be_said_twice(case: Case) -> None:
    async def scenario() -> None:
        case.monitor.start()
        (case.upper / "a").write_text("")
        await until(lambda: case.monitor.count == 1)
        case.monitor.stop()
        case.monitor.stop()
        case.monitor.start()
        other = Case.__new__(Case)
        other.__dict__.update(case.__dict__, events=[])
        other.watching().start()
        (case.upper / "b").write_text("")
        await until(lambda: other.monitor.count == 1)
        other.monitor.stop()

    before = case.monitor
    case.run(scenario)
    assert before.added == case.real("a")


def test_importing_it_does_not_load_glib() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "import ollmsandbox.sandbox.monitor; print('gi' in sys.modules)"
    )
    words = [sys.executable, "-I", "-c", code, str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
