# SPDX-License-Identifier: GPL-3.0-or-later
"""Of several readings in threads only the newest counts, and no two run at once."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest
from support.timing import PATIENCE

from ollmsandbox.ui.widgets.tasks import LatestOnly


def test_an_outdated_task_is_never_run() -> None:
    begun, may_end = threading.Event(), threading.Event()
    done: list[str] = []

    def first() -> str:
        begun.set()
        assert may_end.wait(PATIENCE)
        done.append("first")
        return "first"

    def later(name: str) -> str:
        done.append(name)
        return name

    async def play() -> list[str | BaseException]:
        newest = LatestOnly()
        tasks = [asyncio.ensure_future(newest.run(first))]
        await asyncio.to_thread(begun.wait, PATIENCE)
        for name in ("second", "third"):
            tasks.append(asyncio.ensure_future(newest.run(partial(later, name))))
            # It has its number; whether its thread has begun makes no difference.
            await asyncio.sleep(0)
        may_end.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first_result, second_result, third_result = asyncio.run(play())
    assert done == ["first", "third"]
    assert (first_result, third_result) == ("first", "third")
    assert isinstance(second_result, asyncio.CancelledError)


def test_an_exception_is_reported_and_the_next_task_runs() -> None:
    def fails() -> str:
        raise ValueError("no such thing")

    async def play() -> str:
        newest = LatestOnly()
        with pytest.raises(ValueError, match="no such thing"):
            await newest.run(fails)
        return await newest.run(lambda: "found")

    assert asyncio.run(play()) == "found"
