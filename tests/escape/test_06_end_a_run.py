# SPDX-License-Identifier: GPL-3.0-or-later
"""The user, a signal or a crash ends a run at any moment: none of its processes survives."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.cli_server import Started
from support.escape.attack import python
from support.escape.processes import (
    CHAIN,
    MOMENTS,
    STUBBORN,
    Mark,
    children_of,
    unsandboxed,
    within,
)
from support.person import ROOT, Person
from support.timing import PATIENCE

from ollmsandbox import loop
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.sandbox.process import Result, Stop

# --- the user ends a run -----------------------------------------------------------------------


async def _over(task: asyncio.Future[Result], mark: Mark) -> bool:
    """Return whether a run ends by itself; otherwise end it, so that the test does not hang."""
    done, _ = await asyncio.wait({task}, timeout=PATIENCE)
    if not done:
        mark.kill()
        await asyncio.wait({task}, timeout=PATIENCE)
    return bool(done)


@pytest.mark.parametrize("sandbox", [True, False], ids=["sandbox", "no sandbox"])
@pytest.mark.parametrize(
    ("act", "way"),
    [
        *(("stop", way) for way in ("waiting", "ignored signals", "a daemon and its parent")),
        *(("cancel", way) for way in ("busy", "ignored signals")),
        ("cancel twice", "ignored signals"),
    ],
)
def test_the_user_ends(person: Person, mark: Mark, way: str, sandbox: bool, act: str) -> None:
    command = "echo so far; " + mark.put_into(STUBBORN[way])
    runner = person.bubble() if sandbox else unsandboxed(person)

    async def main() -> Result | None:
        task = asyncio.ensure_future(runner.exec(command))
        await asyncio.to_thread(within, mark.sleeps)
        if act == "stop":
            runner.stop()
        else:
            task.cancel()
        if act == "cancel twice":
            await asyncio.sleep(0)
            task.cancel()
        assert await _over(task, mark)
        return None if task.cancelled() else task.result()

    result = loop.run(main())
    assert mark.gone() if act == "cancel twice" else mark.processes() == []
    if act != "stop":
        assert result is None
    else:
        assert result is not None
        assert (result.stop, result.exit_code) == (Stop.PERSON, 137)
        assert result.stdout.text == "so far\n"


@pytest.mark.parametrize("act", ["stop", "cancel", "time"])
@pytest.mark.parametrize("sandbox", [True, False], ids=["sandbox", "no sandbox"])
def test_a_run_can_be_ended_at_every_moment_of_its_beginning(
    person: Person, mark: Mark, sandbox: bool, act: str
) -> None:
    # A sandbox takes some ten milliseconds to build: what is killed then must not go on without
    # us, nor leave a half-built one behind that holds the output.
    async def one(pause: float) -> None:
        timeout = pause if act == "time" else 60
        runner = person.bubble(timeout=timeout) if sandbox else unsandboxed(person, timeout)
        task = asyncio.ensure_future(runner.exec(f"sleep {mark.seconds}; true"))
        if act != "time":
            await asyncio.sleep(pause)
            for _ in range(100 if sandbox else 1):
                # There is nothing to stop before there is a process.
                if act == "stop" and not task.done():
                    runner.stop()
                    await asyncio.sleep(0.001)
            if act == "cancel":
                task.cancel()
        assert await _over(task, mark), f"after {pause} s"
        assert mark.processes() == [], f"after {pause} s"
        if not task.cancelled() and task.exception() is not None:
            assert sandbox
            assert isinstance(task.exception(), OllmSandboxError)

    async def main() -> None:
        # What is made once for all runs is made.
        await person.bubble().exec("true")
        for number in MOMENTS if sandbox else MOMENTS[::2]:
            await one(number * 0.001)

    loop.run(main())


# --- a program that is ended itself --------------------------------------------------------------


@contextmanager
def _command_line(person: Person, *arguments: str) -> Iterator[Started]:
    nowhere = subprocess.DEVNULL
    process = person.start(
        "run", *arguments, stdout=nowhere, stderr=nowhere, start_new_session=True
    )
    try:
        yield process
    finally:
        process.end()


def _is_bwrap(pid: int) -> bool:
    return Path(f"/proc/{pid}/comm").read_text().strip() == "bwrap"


def _below(pid: int, depth: int) -> list[int]:
    """Children, or their children."""
    found = [pid]
    for _ in range(depth):
        found = [child for one in found for child in children_of(one)]
    return found


@pytest.mark.parametrize(
    ("number", "way"),
    [
        (signal.SIGINT, "waiting"),
        *((signal.SIGTERM, way) for way in ("ignored signals", "a daemon and its parent")),
        (signal.SIGHUP, "ignored signals"),
        *((signal.SIGKILL, way) for way in ("ignored signals", "a daemon and its parent")),
    ],
)
def test_a_signal_to_the_command_line_ends_the_command(
    person: Person, mark: Mark, number: signal.Signals, way: str
) -> None:
    with _command_line(person, "-c", mark.put_into(STUBBORN[way])) as process:
        assert within(mark.sleeps)
        process.send_signal(number)
        expected = -number if number == signal.SIGKILL else 128 + number
        assert process.wait(PATIENCE) == expected
        assert mark.gone()


@pytest.mark.parametrize("depth", [1, 2, 3], ids=["the starter", "its child", "bwrap"])
def test_a_helper_that_is_killed_takes_the_command_with_it(
    person: Person, mark: Mark, depth: int
) -> None:
    with _command_line(person, "-c", mark.put_into(STUBBORN["ignored signals"])) as p:
        assert within(mark.sleeps)
        (helper,) = _below(p.pid, depth)
        assert _is_bwrap(helper) == (depth == 3)
        os.kill(helper, signal.SIGKILL)
        assert p.wait(PATIENCE) not in (0, None)
        assert mark.gone()


def test_a_command_line_that_is_killed_at_any_moment_leaves_nothing(
    person: Person, mark: Mark
) -> None:
    # The kernel ends a child with its parent if the child has asked for it in time.
    person.cli("run", "--", "true")
    for number in MOMENTS[::3]:
        with _command_line(person, "-c", f"sleep {mark.seconds}; true") as process:
            # Us, the starter, and its child, which starts bwrap.
            assert within(lambda: bool(_below(process.pid, 2)))
            time.sleep(number * 0.0005)
            process.kill()
            process.wait()
            assert mark.gone(), f"{number}: {mark.processes()}"


def test_a_starter_that_is_killed_at_any_moment_leaves_nothing_and_is_replaced(
    person: Person, mark: Mark
) -> None:
    async def one(pause: float) -> None:
        task = asyncio.ensure_future(person.bubble().exec(f"sleep {mark.seconds}; true"))
        await asyncio.sleep(pause)
        _kill_starters()
        # One that had not been asked yet is replaced.
        await asyncio.to_thread(within, lambda: task.done() or mark.sleeps())
        _kill_starters()
        assert await _over(task, mark), f"after {pause} s"
        assert mark.gone(), f"after {pause} s"
        results = await asyncio.gather(*[_echo(person) for _ in range(2)])
        assert results == ["fine\n"] * 2

    async def main() -> None:
        for number in MOMENTS[:8]:
            await one((number + 1) * 0.001)

    loop.run(main())


def _kill_starters() -> None:
    for pid in _below(os.getpid(), 1):
        if b"starter/server.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


async def _echo(person: Person) -> str:
    try:
        return (await person.bubble().exec("echo fine")).stdout.text
    except OllmSandboxError as error:
        return str(error)


_UNSANDBOXED = """
import sys
sys.path.insert(0, sys.argv[1])
from ollmsandbox import loop
from ollmsandbox.sandbox.spec import RunSpec
from ollmsandbox.sandbox.unsandboxed.runner import UnsandboxedRunner
async def main():
    runner = UnsandboxedRunner(RunSpec(sys.argv[2]))
    await runner.prepare()
    runner.approve()
    await runner.exec(sys.argv[3])
loop.run(main())
"""


@pytest.mark.parametrize("way", ["waiting", "ignored signals", "a daemon and its parent"])
def test_a_program_without_sandbox_that_is_killed_takes_the_command_with_it(
    person: Person, mark: Mark, way: str
) -> None:
    command = mark.put_into(STUBBORN[way])
    argv = [sys.executable, "-I", "-c", _UNSANDBOXED, str(ROOT), str(person.project), command]
    process = subprocess.Popen(argv, env=person.environ, cwd=person.project)
    try:
        assert within(mark.sleeps)
    finally:
        process.kill()
        process.wait()
    assert mark.gone()


def test_a_command_without_sandbox_cannot_stop_its_supervisor(person: Person, mark: Mark) -> None:
    # It has no wall, but the time limit is kept.
    async def main() -> Result:
        command = f"sleep {mark.seconds} & kill -STOP $PPID; sleep {mark.seconds}"
        task = asyncio.ensure_future(unsandboxed(person, timeout=0.6).exec(command))
        assert await _over(task, mark)
        return task.result()

    assert loop.run(main()).timed_out
    assert mark.gone()


@pytest.mark.parametrize("pause", [0.0, 0.001, 0.01])
def test_stopping_again_and_again_spares_nothing(person: Person, mark: Mark, pause: float) -> None:
    # The supervisor gets each of them while it ends stubborn processes.
    command = f"{mark.put_into(python(CHAIN))}; sleep {mark.seconds}"

    async def main() -> Result:
        runner = unsandboxed(person)
        task = asyncio.ensure_future(runner.exec(command))
        await asyncio.to_thread(within, mark.sleeps)
        end = time.monotonic() + PATIENCE
        while not task.done() and time.monotonic() < end:
            runner.stop()
            await asyncio.sleep(pause)
        assert await _over(task, mark)
        return task.result()

    assert loop.run(main()).stop is Stop.PERSON
    assert mark.gone()


@pytest.mark.parametrize("pause", ["0.001", "0.003", "0.01", "0.03"])
def test_a_stop_when_the_command_is_over_already_spares_nothing(
    person: Person, mark: Mark, pause: str
) -> None:
    # It comes while who watches the command is ending what that left behind.
    chain = mark.put_into(python(CHAIN))
    many = f"for i in 1 2 3 4 5 6 7 8 9; do sleep {mark.seconds} & done"
    loop.run(
        unsandboxed(person).exec(f"{many}; {chain}; (sleep {pause}; kill -TERM $PPID) & exit 0")
    )
    assert mark.gone()
