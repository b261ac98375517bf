# SPDX-License-Identifier: GPL-3.0-or-later
"""The live view of what a command changes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.monitor import Case, whiteout
from support.timing import until

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


def test_a_file_of_the_project_is_updated_when_it_appears_in_the_upper_folder(case: Case) -> None:
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
        # There is room again: if a late event of "last" comes only now, it is kept.
        await until(lambda: case.monitor.count in (999, 1000))

    case.run(scenario)


def test_files_that_go_while_nothing_more_is_kept_make_room(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ollmsandbox.sandbox.monitor._MOST_KEPT", 500)

    async def scenario() -> None:
        for number in range(700):
            (case.upper / f"{number}").write_text("")
        await until(lambda: case.monitor.is_partial and case.monitor.count == 500)
        # All at once: too many events to look at each.
        for number in range(700):
            (case.upper / f"{number}").unlink()
        (case.upper / "last").write_text("")
        await until(lambda: case.monitor.added == case.real("last"))

    case.run(scenario)


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
