# SPDX-License-Identifier: GPL-3.0-or-later
"""The live view of what a command changes: what it tells, and what it must survive."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
from conftest import ROOT

from ollmsandbox import loop
from ollmsandbox.sandbox.monitor import Event, Kind, Monitor
from ollmsandbox.sandbox.profile import Limits
from ollmsandbox.sandbox.result import Stop
from ollmsandbox.sandbox.watch import watch

pytestmark = pytest.mark.anybody

LONGEST = 15.0


class Case:
    """A project, and a folder that stands for what an overlay puts above it."""

    def __init__(self, folder: Path) -> None:
        self.outside = folder / "outside"
        self.project = folder / "project"
        self.base = folder / "upper"
        self.upper = self.base / "overlay1"
        for made in (self.outside, self.project, self.upper):
            made.mkdir(parents=True)
        self.events: list[Event] = []
        self.monitor = self.watching()

    def watching(self, ceiling: int = 2000) -> Monitor:
        self.monitor = Monitor({"overlay1": str(self.project)}, str(self.base), ceiling)
        self.monitor.listen(self.events.append)
        return self.monitor

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

    async def settled(self) -> None:
        """Events keep their order, so all before this file have been seen when it has."""
        mark = self.upper / "zz-mark"
        path = f"{self.project}/{mark.name}"
        mark.write_text("")
        await until(lambda: any(event.path == path for event in self.events))
        os.unlink(mark)
        await until(lambda: Event(Kind.REMOVED, path, self.monitor.count) in self.events)
        self.events[:] = [event for event in self.events if event.path != path]


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < end, "it was never seen"
        await asyncio.sleep(0.01)


def whiteout(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR, 0)


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
    (case.upper / "before\udcfe").mkdir()

    async def scenario() -> None:
        (case.upper / folder).mkdir()
        await until(lambda: case.monitor.count == 1)
        (case.upper / folder / "f\udc80").write_text("")
        (case.upper / "before\udcfe" / "\udcff").write_text("")
        await until(lambda: case.monitor.count == 3)

    case.run(scenario)
    names = ("before\udcfe/\udcff", folder, f"{folder}/f\udc80")
    assert sorted(case.monitor.added) == case.real(*names)
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


def test_folders_deeper_than_a_path_is_long_are_left_out(case: Case) -> None:
    name = "d" * 200

    def make_deep() -> None:
        around = os.open(case.upper, os.O_RDONLY)
        for _ in range(30):
            os.mkdir(name, dir_fd=around)
            inner = os.open(name, os.O_RDONLY, dir_fd=around)
            os.close(around)
            around = inner
        os.close(around)

    async def scenario() -> None:
        make_deep()
        await until(lambda: case.monitor.is_partial)
        (case.upper / "a").write_text("")
        await until(lambda: f"{case.project}/a" in case.monitor.added)

    case.run(scenario)
    subprocess.run(["rm", "-rf", "--", str(case.upper)], check=True)


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


def test_the_whole_place_may_vanish(case: Case) -> None:
    async def scenario() -> None:
        (case.upper / "d").mkdir()
        (case.upper / "d" / "a").write_text("")
        await until(lambda: case.monitor.count == 2)
        shutil.rmtree(case.base)
        await until(lambda: case.monitor.count == 0)

    case.run(scenario)


def test_a_place_that_is_not_there_is_no_error(case: Case, tmp_path: Path) -> None:
    case.monitor = Monitor({"overlay1": str(case.project)}, str(tmp_path / "nothing"))

    async def scenario() -> None:
        assert case.monitor.is_partial

    case.run(scenario)


@pytest.mark.parametrize("limit", ["max_inotify_watches", "max_inotify_instances"])
def test_the_kernel_s_limits_leave_it_partial_and_working(case: Case, limit: str) -> None:
    for name in "abcdef":
        (case.upper / name).mkdir()
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from ollmsandbox.sandbox.monitor import Monitor\n"
        f"open('/proc/sys/user/{limit}', 'w').write(sys.argv[4])\n"
        "monitor = Monitor({'overlay1': sys.argv[2]}, sys.argv[3])\n"
        "monitor.start(); print(monitor.is_partial); monitor.stop()\n"
    )

    def partial(most: int) -> str:
        words = [sys.executable, "-c", code, str(ROOT), str(case.project), str(case.base)]
        return subprocess.run(
            ["unshare", "--user", "--map-root-user", *words, str(most)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.strip()

    assert partial(100) == "False"
    assert partial(4 if limit == "max_inotify_watches" else 0) == "True"


def test_a_flood_stays_quick_and_bounded(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ollmsandbox.sandbox.monitor._MOST_KEPT", 1000)
    longest = 0.0

    async def pulse() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            longest = max(longest, time.monotonic() - before)

    async def scenario() -> None:
        script = "for i in $(seq 5000); do : > f$i; done"
        maker = await asyncio.create_subprocess_exec("sh", "-c", script, cwd=case.upper)
        beating = asyncio.create_task(pulse())
        await maker.wait()
        await until(lambda: case.monitor.count == 5000)
        beating.cancel()

    begin = time.process_time()
    case.run(scenario)
    assert time.process_time() - begin < 30
    assert longest < 10
    assert len(case.monitor.added) == 1000
    assert case.monitor.count == 5000


# --- listeners and the end ---------------------------------------------------------------------


def test_a_listener_that_fails_is_recorded_and_breaks_nothing(case: Case) -> None:
    def broken(event: Event) -> None:
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


def test_it_may_end_before_it_began(case: Case) -> None:
    case.monitor.stop()
    case.monitor.start()
    assert case.monitor.count == 0


def test_importing_it_does_not_load_glib() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "import ollmsandbox.sandbox.monitor; print('gi' in sys.modules)"
    )
    words = [sys.executable, "-I", "-c", code, str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_what_is_written_has_the_disk_looked_at_sooner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ollmsandbox.sandbox.watch._INTERVAL", 600.0)
    limits = Limits(disk=1 << 20)

    async def scenario() -> Stop:
        written = asyncio.Event()
        watched = asyncio.ensure_future(watch(limits, os.getpid(), [str(tmp_path)], written))
        await asyncio.sleep(0)
        (tmp_path / "large").write_bytes(os.urandom(32 << 20))
        while not watched.done():
            written.set()
            await asyncio.sleep(0.05)
        return watched.result()

    async def limited() -> Stop:
        async with asyncio.timeout(30):
            return await scenario()

    assert loop.run(limited()) is Stop.DISK
