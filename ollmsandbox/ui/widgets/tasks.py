# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks of a widget, whose errors are always reported, and work of which only the newest counts."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from ...errors import OllmSandboxError
from ...i18n import _, localized

T = TypeVar("T")
P = ParamSpec("P")


class LatestOnly:
    """Run work on a thread, one at a time. Work that newer work overtakes is cancelled unstarted.

    Several threads at once would each take time away from the window.
    """

    def __init__(self) -> None:
        self._number = 0
        # Waiting takes no thread: there are few, and work that hangs would take them all.
        self._turn = asyncio.Lock()
        # A thread goes on after its task is cancelled.
        self._alone = threading.Lock()

    async def run(self, work: Callable[[], T]) -> T:
        self._number += 1
        number = self._number

        def in_turn() -> T:
            with self._alone:
                if number != self._number:
                    raise asyncio.CancelledError
                return work()

        async with self._turn:
            if number != self._number:
                raise asyncio.CancelledError
            return await asyncio.to_thread(in_turn)


class Tasks:
    """Keep running tasks. `tell` shows an error to the user."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._running: set[asyncio.Task[object]] = set()

    def start(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        return self.watch(asyncio.get_event_loop().create_task(work))

    def watch(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        """Add a task that was started elsewhere."""
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    @property
    def is_idle(self) -> bool:
        return not self._running

    def tell(self, text: str) -> None:
        self._tell(localized(text))

    def cancel(self) -> None:
        for task in tuple(self._running):
            task.cancel()

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._running.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, OllmSandboxError):
            self.tell(str(error))
        elif error is not None:
            self.tell(_("Something went wrong: {why}").format(why=error))
            # A bug: show it on the console, and to the tests.
            sys.excepthook(type(error), error, error.__traceback__)


class HasTasks(Protocol):
    _tasks: Tasks


Owner = TypeVar("Owner", bound=HasTasks)


def as_task(
    method: Callable[Concatenate[Owner, P], Coroutine[object, object, T]],
) -> Callable[Concatenate[Owner, P], asyncio.Task[T]]:
    """Let whoever calls an asynchronous method start it as one of its object's tasks."""

    def start(owner: Owner, /, *arguments: P.args, **options: P.kwargs) -> asyncio.Task[T]:
        return owner._tasks.start(method(owner, *arguments, **options))

    return start
