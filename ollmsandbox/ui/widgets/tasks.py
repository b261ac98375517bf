# SPDX-License-Identifier: GPL-3.0-or-later
"""What a widget has under way. Whatever goes wrong in it is told, never lost.

Work on a thread of which only the newest counts.

What a widget has under way. Whatever goes wrong in it is told, never lost.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from gettext import gettext as _
from typing import TypeVar

from ...errors import OllmSandboxError
from ..i18n import spoken

T = TypeVar("T")


class Newest:
    """One after the other: several at once would each take turns away from the window. What was
    overtaken while it waited is never done."""

    def __init__(self) -> None:
        self._number = 0
        # Who waits takes no thread: there are few, and work that hangs would take them all.
        self._turn = asyncio.Lock()
        # It goes on where nobody waits for it any more.
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
    """`tell` shows a sentence to the person."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._running: set[asyncio.Task[object]] = set()

    def start(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        return self.watch(asyncio.get_event_loop().create_task(work))

    def watch(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        """One that was started elsewhere."""
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    @property
    def is_idle(self) -> bool:
        return not self._running

    def tell(self, text: str) -> None:
        self._tell(spoken(text))

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
            # A mistake of ours: seen on the console, and by the tests.
            sys.excepthook(type(error), error, error.__traceback__)
