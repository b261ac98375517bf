# SPDX-License-Identifier: GPL-3.0-or-later
"""A running command: its streams, its limits, its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable

from .output import Capture, Sink, pump
from .records import record
from .result import Result, Stop


@record(frozen=True)
class Sinks:
    """Where output goes while it comes, besides being captured."""

    stdout: Sink | None = None
    stderr: Sink | None = None
    # Told the process id of the outermost process, as soon as it is there.
    started: Callable[[int], None] | None = None


class Running:
    """A started command. Who started it says how it ends (`ended`) and how it is killed."""

    def __init__(
        self,
        *,
        stdout: int,
        stderr: int,
        ended: Awaitable[object],
        kill: Callable[[], None],
        capture: int,
        sinks: Sinks,
    ) -> None:
        self._ended = asyncio.ensure_future(ended)
        self._kill = kill
        self._stop: Stop | None = None
        self._started = asyncio.get_running_loop().time()
        self._stdout = Capture(capture, capture)
        self._stderr = Capture(capture, capture)
        self._pumps = [
            asyncio.ensure_future(pump(stdout, self._stdout, sinks.stdout)),
            asyncio.ensure_future(pump(stderr, self._stderr, sinks.stderr)),
        ]

    def stop(self, why: Stop) -> None:
        """End the command now; the first reason is the one reported."""
        if self._stop is None:
            self._stop = why
        self._kill()

    async def wait(self, limits: asyncio.Task[Stop]) -> None:
        """Until the process is gone, whatever the limits find meanwhile."""
        watched = {self._ended, limits, *self._pumps}
        try:
            while not self._ended.done() and not limits.done():
                done, watched = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                if any(task.exception() for task in done):
                    # Nobody takes the output any more.
                    self.stop(Stop.PERSON)
            if not self._ended.done():
                self.stop(limits.result())
        except asyncio.CancelledError:
            self.stop(Stop.PERSON)
            raise
        finally:
            limits.cancel()
            # Waited for and not awaited: cancelling us must not cancel that.
            await asyncio.wait({self._ended})

    async def drain(self, patience: float | None = None) -> None:
        """Until the streams end. Nobody is left to write, unless `patience` says otherwise."""
        await asyncio.wait(self._pumps, timeout=patience)
        await self.close()

    async def close(self) -> None:
        for task in self._pumps:
            if not task.done():
                task.cancel()
        for outcome in await asyncio.gather(*self._pumps, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    def result(self, exit_code: int) -> Result:
        if self._stop is Stop.TIME:
            exit_code = 124
        elif self._stop is not None:
            exit_code = 137
        duration = asyncio.get_running_loop().time() - self._started
        return Result(exit_code, self._stdout, self._stderr, duration, self._stop)


def tasks_below(pid: int, most: int) -> tuple[list[int], int]:
    """The processes below `pid`, itself included, and how many threads they have together; it is
    not looked further than `most`."""
    found, threads = [pid], 0
    for one in found:
        with contextlib.suppress(OSError):
            tasks = os.listdir(f"/proc/{one}/task")
            threads += len(tasks)
            for task in tasks:
                with open(f"/proc/{one}/task/{task}/children", "rb") as file:
                    found += map(int, file.read().split())
        if threads > most:
            break
    return found, threads
