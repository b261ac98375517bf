# SPDX-License-Identifier: GPL-3.0-or-later
"""asyncio on GLib's main loop."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from gi.repository import Gio, GLib
from support.person import ROOT
from support.timing import PATIENCE

from ollmsandbox import loop

pytestmark = pytest.mark.ordinary


def test_values_and_exceptions_come_back() -> None:
    async def main(is_failing: bool) -> tuple[int, int, int]:
        await asyncio.sleep(0.01)
        if is_failing:
            raise KeyError("mine")
        with pytest.raises(ZeroDivisionError):
            await loop.in_daemon("fails", divmod, 1, 0)
        ident, total = await asyncio.gather(
            asyncio.to_thread(threading.get_ident), asyncio.to_thread(sum, [1, 2])
        )
        return ident, total, await loop.in_daemon("adds", sum, [3, 4])

    for _ in range(2):
        ident, *sums = loop.run(main(is_failing=False))
        assert ident != threading.get_ident()
        assert sums == [3, 7]
    with pytest.raises(KeyError, match="mine"):
        loop.run(main(is_failing=True))


def test_a_daemon_that_hangs_delays_nobody() -> None:
    hangs, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        go_on.wait(PATIENCE)

    async def main() -> None:
        task = asyncio.ensure_future(loop.in_daemon("hangs", hang))
        await asyncio.to_thread(hangs.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.run(main())
    [thread] = [one for one in threading.enumerate() if one.name == "hangs"]
    assert thread.daemon
    go_on.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_task_that_is_left_is_cancelled_at_the_end() -> None:
    seen: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main() -> None:
        task = asyncio.ensure_future(forever())
        await asyncio.sleep(0.01)
        assert not task.done()

    loop.run(main())
    assert seen == ["cancelled"]


def test_a_time_out_is_one() -> None:
    async def main() -> None:
        async with asyncio.timeout(0.05):
            await asyncio.sleep(1000)

    with pytest.raises(TimeoutError):
        loop.run(main())


def test_a_descriptor_can_be_awaited() -> None:
    reader, writer = os.pipe()

    async def main() -> bytes:
        ready = asyncio.Event()
        asyncio.get_running_loop().add_reader(reader, ready.set)
        asyncio.get_running_loop().call_later(0.05, os.write, writer, b"x")
        await ready.wait()
        asyncio.get_running_loop().remove_reader(reader)
        return os.read(reader, 1)

    try:
        assert loop.run(main()) == b"x"
    finally:
        os.close(reader)
        os.close(writer)


def test_gio_operations_can_be_awaited(tmp_path: Path) -> None:
    # Its stubs do not know that what is asynchronous can be awaited.
    file: Any = Gio.File.new_for_path(str(tmp_path / "file"))

    async def load() -> bytes:
        _ok, content, _etag = await file.load_contents_async(None)
        return bytes(content)

    async def replace() -> bytes:
        await file.replace_contents_async(b"content", None, False, Gio.FileCreateFlags.NONE, None)
        return await load()

    with pytest.raises(GLib.Error) as caught:
        loop.run(load())
    assert caught.value.matches(Gio.io_error_quark(), Gio.IOErrorEnum.NOT_FOUND)
    assert loop.run(replace()) == b"content"


# --- applications ------------------------------------------------------------------------------


class Application(Gio.Application):
    """Starts a task when it is activated, and quits when that is done."""

    def __init__(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        super().__init__(flags=Gio.ApplicationFlags.NON_UNIQUE)
        self._work = work
        self._task: asyncio.Task[None] | None = None

    def do_activate(self) -> None:
        self.hold()
        self._task = asyncio.get_event_loop().create_task(self._whole())

    async def _whole(self) -> None:
        try:
            await self._work()
        finally:
            self.release()
            self.quit()


def test_an_application_runs_tasks_of_its_handlers() -> None:
    seen: list[str] = []

    async def work() -> None:
        seen.append("begun")
        await asyncio.sleep(0.02)
        seen.append(await asyncio.to_thread(str.upper, "thread"))
        process: Any = Gio.Subprocess.new(["sh", "-c", "exit 4"], Gio.SubprocessFlags.NONE)
        await process.wait_async(None)
        seen.append(str(process.get_exit_status()))

    assert loop.run_application(Application(work), ["name"]) == 0
    assert seen == ["begun", "THREAD", "4"]


def test_the_status_of_an_application_is_passed_on() -> None:
    class Failing(Gio.Application):
        def do_command_line(self, _line: Gio.ApplicationCommandLine) -> int:
            return 5

    flags = Gio.ApplicationFlags.NON_UNIQUE | Gio.ApplicationFlags.HANDLES_COMMAND_LINE
    assert loop.run_application(Failing(flags=flags), ["name"]) == 5


# --- without GLib ------------------------------------------------------------------------------


def python(code: str) -> subprocess.CompletedProcess[str]:
    start = "import sys; sys.path.insert(0, sys.argv[1])\n"
    return subprocess.run(
        [sys.executable, "-I", "-c", start + code, str(ROOT)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_idle_costs_nothing() -> None:
    async def main() -> float:
        before = time.process_time()
        await asyncio.sleep(1)
        return time.process_time() - before

    # A loop that never rests would take all of the second.
    assert loop.run(main()) < 0.5


def test_leaving_the_program_leaves_it_with_that_status() -> None:
    done = python(
        "import asyncio\n"
        "from ollmsandbox import loop\n"
        "async def main():\n"
        "    await asyncio.sleep(0)\n"
        "    raise SystemExit(7)\n"
        "loop.run(main())\n"
        "print('still here')\n"
    )
    assert (done.returncode, done.stdout) == (7, "")


@pytest.mark.parametrize(("can_stop", "times"), [(True, 1), (True, 2), (False, 1)])
def test_a_cancelled_thread_is_stopped_and_waited_for(can_stop: bool, times: int) -> None:
    stopped, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        stopped.wait(PATIENCE)
        go_on.wait(PATIENCE)
        ended.set()

    def stop() -> bool:
        stopped.set()
        return can_stop

    async def main() -> None:
        task = asyncio.ensure_future(loop.in_stoppable_thread("works", work, stop))
        for _ in range(times):
            await asyncio.sleep(0.01)
            task.cancel()
        await asyncio.sleep(0.01)
        assert task.done() is not can_stop
        if can_stop:
            go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set() is can_stop

    loop.run(main())
    go_on.set()
    assert ended.wait(PATIENCE)


def test_a_thread_waits_for_what_the_loop_returns_or_raises() -> None:
    ids = []

    async def main() -> None:
        @loop.on_this_loop
        async def divide(one: int, other: int) -> float:
            await asyncio.sleep(0)
            ids.append(threading.get_ident())
            return one / other

        assert await asyncio.to_thread(divide, 3, 2) == 1.5
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(divide, 1, 0)

    loop.run(main())
    assert ids == [threading.get_ident()] * 2


def test_tasks_that_are_started_at_the_end_are_cancelled_too() -> None:
    ending, seen = loop.new_loop(), []

    async def forever(name: str) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            seen.append(name)

    async def start_another() -> None:
        try:
            await forever("first")
        finally:
            ending.create_task(forever("second"))

    def on_timer() -> bool:
        ending.create_task(forever("of a timer"))
        return GLib.SOURCE_REMOVE

    asyncio.set_event_loop(ending)
    kept = ending.create_task(start_another())
    ending.run_until_complete(asyncio.sleep(0.01))
    GLib.timeout_add(0, on_timer)
    loop.end(ending)
    assert kept.cancelled()
    # A task that had not begun has nothing to clean up.
    assert seen[0] == "first" and not asyncio.all_tasks(ending)
