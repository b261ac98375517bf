# SPDX-License-Identifier: GPL-3.0-or-later
"""The live view of what a command changes."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
from support.timing import until

from ollmsandbox import loop
from ollmsandbox.sandbox.monitor import EventKind, FileEvent, Monitor

pytestmark = pytest.mark.ordinary


class Case:
    """A project, and a folder in the place of an overlay's upper folder."""

    def __init__(self, folder: Path) -> None:
        self.outside = folder / "outside"
        self.project = folder / "project"
        self.upper = folder / "upper" / "overlay1"
        for made in (self.outside, self.project, self.upper):
            made.mkdir(parents=True)
        self.events: list[FileEvent] = []
        self.monitor = Monitor({"overlay1": str(self.project)}, str(folder / "upper"))
        self.monitor.listen(self.events.append)

    def real(self, *names: str) -> list[str]:
        return [f"{self.project}/{name}" for name in names]

    def run(self, scenario: Callable[[], Coroutine[object, object, None]]) -> None:
        async def watched() -> None:
            self.monitor.start()
            try:
                await scenario()
            finally:
                self.monitor.stop()

        loop.run(watched())


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def whiteout(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR, 0)


async def nothing() -> None:
    pass


def test_a_new_file_is_added_and_stays_so_when_it_is_written_again(case: Case) -> None:
    async def scenario() -> None:
        (case.upper / "a").write_text("1")
        await until(lambda: case.monitor.added == case.real("a"))
        (case.upper / "a").write_text("2")
        await until(lambda: len(case.events) > 1)

    case.run(scenario)
    assert case.monitor.added == case.real("a")
    assert (case.monitor.updated, case.monitor.removed) == ([], [])
    assert case.events[0] == FileEvent(EventKind.ADDED, f"{case.project}/a", 1)
    assert {event.kind for event in case.events[1:]} == {EventKind.UPDATED}
    assert case.monitor.count == 1


def test_a_whiteout_is_a_removal_also_of_what_was_updated_first(case: Case) -> None:
    for name in ("a", "b"):
        (case.project / name).write_text("old")

    async def scenario() -> None:
        whiteout(case.upper / "a")
        (case.upper / "b").write_text("new")
        await until(lambda: case.monitor.updated == case.real("b"))
        whiteout(case.outside / "w")
        os.rename(case.outside / "w", case.upper / "b")
        await until(lambda: sorted(case.monitor.removed) == case.real("a", "b"))
        # And back again: the project had it, so it is no addition.
        os.unlink(case.upper / "a")
        (case.upper / "a").write_text("again")
        await until(lambda: case.monitor.updated == case.real("a"))

    case.run(scenario)
    assert case.monitor.removed == case.real("b")
    assert case.monitor.added == []
    assert case.monitor.count == 2


def test_what_a_command_makes_and_removes_is_no_change(case: Case) -> None:
    async def scenario() -> None:
        (case.upper / "a").write_text("")
        await until(lambda: case.events)
        (case.upper / "a").unlink()
        await until(lambda: case.monitor.count == 0)

    case.run(scenario)
    assert case.events[-1] == FileEvent(EventKind.REMOVED, f"{case.project}/a", 0)


def test_nested_and_moved_folders_are_followed(case: Case) -> None:
    async def scenario() -> None:
        (case.upper / "old" / "in").mkdir(parents=True)
        (case.upper / "old" / "in" / "a").write_text("")
        await until(lambda: case.monitor.count == 3)
        os.rename(case.upper / "old", case.upper / "new")
        await until(lambda: f"{case.project}/new/in/a" in case.monitor.added)
        (case.upper / "new" / "in" / "b").write_text("")

    case.run(scenario)
    assert sorted(case.monitor.added) == case.real("new", "new/in", "new/in/a", "new/in/b")


def test_a_folder_that_is_only_on_the_way_is_no_change(case: Case) -> None:
    (case.project / "src").mkdir()
    (case.project / "src" / "a.c").write_text("old")
    (case.upper / "src").mkdir()
    (case.upper / "src" / "a.c").write_text("new")
    case.run(nothing)
    assert case.monitor.updated == case.real("src/a.c")
    assert case.monitor.added == []


def test_a_link_to_a_folder_outside_is_not_entered(case: Case) -> None:
    (case.outside / "secret").write_text("")
    (case.upper / "link").symlink_to(case.outside)
    case.run(nothing)
    assert case.monitor.added == case.real("link")


def test_names_that_are_no_text_come_out_as_they_are(case: Case) -> None:
    folder = os.fsdecode(b"d\xff\n")
    (case.upper / folder).mkdir()
    (case.upper / folder / "f\udc80").write_text("")
    case.run(nothing)
    assert case.monitor.added == case.real(folder, f"{folder}/f\udc80")


def test_only_so_many_changes_are_counted(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ollmsandbox.sandbox.monitor._MOST", 20)
    for number in range(30):
        (case.upper / f"{number}").write_text("")
    case.run(nothing)
    assert case.monitor.count == 20
