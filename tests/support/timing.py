# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait for things and measure them on a machine of any speed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Seconds after which something counts as stuck, on a machine with ten times as much to do as well.
PATIENCE = 600.0


def leave_the_disk_to_the_kernel() -> None:
    """Have nothing in this process wait until its files are on disk: nobody pulls the plug, and it
    takes a tenth of the CPU and a quarter of the time of a command that changes something."""
    vars(os)["fsync"] = lambda _file: None


def wait_for(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition while the event loop runs."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - it may be a file's being there
            await asyncio.sleep(0.005)


def given_time(attempt: Callable[[float], T], began: Callable[[T], object]) -> T:
    """Run a command with growing time limits until it got far enough before the limit ended it: a
    busy machine may not even start it within the short ones."""
    for seconds in (0.3, 3.0, 30.0, PATIENCE / 2):
        result = attempt(seconds)
        if began(result):
            break
    return result


def assert_linear(work: Callable[[int], object], size: int) -> None:
    """Assert that 16 times the size takes nowhere near 256 times as long, as quadratic time would.

    It compares CPU time, of which a busy machine may still take its share."""
    short, long = (_cpu_seconds(work, number) for number in (size, 16 * size))
    # The constant is for work that takes no time at all.
    assert long < 80 * short + 0.05


def _cpu_seconds(work: Callable[[int], object], size: int) -> float:
    def once() -> float:
        began = time.process_time()
        work(size)
        return time.process_time() - began

    return min(once() for _ in range(3))
