# SPDX-License-Identifier: GPL-3.0-or-later
"""The live view of what a command changes: what it must survive, and its end."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.monitor import Case, until
from support.person import ROOT

from ollmsandbox import loop
from ollmsandbox.sandbox.limits import _disk, watch
from ollmsandbox.sandbox.monitor import Event, Monitor
from ollmsandbox.sandbox.process import Stop
from ollmsandbox.sandbox.profile.profile import Limits

pytestmark = pytest.mark.anybody


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


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


class Counted(Monitor):
    """How often it was told of something."""

    times = 0

    def _queue(self, *given: Any) -> None:
        self.times += 1
        super()._queue(*given)


def test_what_comes_all_at_once_is_listed_instead(case: Case) -> None:
    case.monitor = monitor = Counted({"overlay1": str(case.project)}, str(case.base))
    monitor.listen(case.events.append)

    async def scenario() -> None:
        # The main loop does nothing meanwhile, and has it all to do then.
        for number in range(3000):
            (case.upper / f"{number}").write_text("")
        (case.upper / "folder").mkdir()
        for number in range(1000):
            (case.upper / f"{number}").unlink()
        await until(lambda: monitor.count == 2001)
        assert 0 < monitor.times < 1000
        assert max(event.count for event in case.events) <= 3001
        # What is in there is seen, and what happens later.
        (case.upper / "folder" / "a").write_text("")
        (case.upper / "later").write_text("")
        (case.upper / "2999").unlink()
        await until(lambda: case.real("folder/a")[0] in monitor.added)
        await until(lambda: case.real("later")[0] in monitor.added)
        await until(lambda: monitor.count == 2002)
        await until(lambda: not monitor._flooded)
        (case.upper / "last").write_text("")
        await until(lambda: case.events[-1].path == case.real("last")[0])

    case.run(scenario)
    assert not monitor.is_partial
    assert monitor.count == 2003


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


def test_what_is_in_a_flooded_folder_goes_with_it(case: Case) -> None:
    async def scenario() -> None:
        (case.upper / "folder").mkdir()
        await until(lambda: case.monitor.count == 1)
        for number in range(1000):
            (case.upper / "folder" / f"{number}").write_text("")
        await until(lambda: case.monitor.count == 1001)
        shutil.rmtree(case.upper / "folder")
        await until(lambda: case.monitor.count == 0)

    case.run(scenario)


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


def test_a_listener_may_stop_it_when_it_hears_of_too_many(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ollmsandbox.sandbox.monitor._MOST_KEPT", 5)
    monitor = case.monitor
    monitor.listen(lambda event: monitor.stop() if event.count > 6 else None)

    async def scenario() -> None:
        for number in range(6):
            (case.upper / f"{number}").write_text("")
        # The last of them makes it a folder that is listed, as a whole.
        await until(lambda: bool(monitor._flooded))
        for number in range(6, 30):
            (case.upper / f"{number}").write_text("")
        await until(lambda: not monitor._folders)

    case.run(scenario)
    assert monitor.errors == []
    assert monitor.count > 6


def test_a_folder_that_goes_while_it_is_listed_leaves_nothing(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ollmsandbox.sandbox.monitor._MOST_KEPT", 5)
    folder = case.upper / "folder"

    async def scenario() -> None:
        folder.mkdir()
        for number in range(1000):
            (folder / f"{number}").write_text("")
        await until(lambda: case.monitor.count == 1001)
        case.monitor._listing = listing = case.monitor._list(str(folder))
        for _ in range(3):
            next(listing)
        shutil.rmtree(folder)
        await until(lambda: case.monitor.count == 0)
        await case.settled()

    case.run(scenario)
    assert case.monitor.count == 0


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
    monkeypatch.setattr("ollmsandbox.sandbox.limits._INTERVAL", 600.0)
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


def test_what_was_there_before_is_not_held_against_a_command(tmp_path: Path) -> None:
    earlier = tmp_path / "earlier"
    earlier.write_bytes(os.urandom(4 << 20))
    began = os.stat(earlier).st_ctime_ns + 1

    def is_too_much() -> Stop | None:
        # As if somebody else had filled all of the disk meanwhile.
        return loop.run(_disk(Limits(disk=1 << 20), {str(tmp_path): 0}, began, os.getpid()))

    assert is_too_much() is None
    tick = tmp_path / "tick"
    tick.touch()
    while os.stat(tick).st_ctime_ns < began:
        tick.touch()
    (tmp_path / "large").write_bytes(os.urandom(4 << 20))
    assert is_too_much() is Stop.DISK
