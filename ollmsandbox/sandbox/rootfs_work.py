# SPDX-License-Identifier: GPL-3.0-or-later
"""Work in threads that tells how far it is and that can be ended."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from enum import Enum
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Step(Enum):
    """What is being done; the value says it to a person."""

    WAIT = "Waiting for another program that installs it"
    LOOK = "Looking for the newest version"
    FETCH = "Fetching"
    UNPACK = "Unpacking"
    PACKAGES = "Installing packages"
    FINISH = "Putting it into place"
    DONE = "Done"


@dataclass(frozen=True)
class Progress:
    step: Step
    # Bytes; the total is None where nobody knows it.
    done: int = 0
    total: int | None = None
    # A line that the package manager printed.
    text: str = ""


class _Stopped(Exception):
    """Cancelled while a thread was at work."""


class Work:
    def __init__(self, progress: Callable[[Progress], None] | None) -> None:
        self._progress = progress
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._told: tuple[Step, int] | None = None

    def tell(self, step: Step, done: int = 0, total: int | None = None, text: str = "") -> None:
        """From any thread. Who cancelled is not told any more, and the thread ends here."""
        if self._stop.is_set():
            raise _Stopped
        # Thousands of pieces make a hundred steps.
        now = (step, 100 * done // total if total else done)
        if self._progress is not None and (text or now != self._told):
            self._told = now
            self._loop.call_soon_threadsafe(self._pass_on, Progress(step, done, total, text))

    def _pass_on(self, progress: Progress) -> None:
        if self._progress is not None and not self._stop.is_set():
            self._progress(progress)

    async def in_thread(
        self, function: Callable[_P, _R], *given: _P.args, **named: _P.kwargs
    ) -> _R:
        """Cancelled, it is waited for: it ends soon, and nobody else may begin before."""
        task = asyncio.ensure_future(asyncio.to_thread(function, *given, **named))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._stop.set()
            await asyncio.wait({task})
            with contextlib.suppress(_Stopped, Exception):
                task.result()  # how it ended is of no interest any more
            raise

    async def online(self, function: Callable[_P, _R], *given: _P.args, **named: _P.kwargs) -> _R:
        """Cancelled, it is left behind: a line may be dead for long before that is noticed. Before
        it changes anything it asks tell(), where it ends."""
        ended: Future[_R] = Future()

        def work() -> None:
            try:
                result = function(*given, **named)
            except BaseException as error:  # noqa: BLE001  it is for who waits, not lost
                failed = error
                settle(lambda: ended.set_exception(failed))
            else:
                settle(lambda: ended.set_result(result))

        def settle(settled: Callable[[], None]) -> None:
            # Left behind, it may find that nobody waits any more, or that there is no loop.
            with contextlib.suppress(InvalidStateError, RuntimeError):
                settled()

        # Of its own: the end of the program would wait for the others.
        threading.Thread(target=work, daemon=True).start()
        try:
            return await asyncio.wrap_future(ended)
        except asyncio.CancelledError:
            self._stop.set()
            raise
