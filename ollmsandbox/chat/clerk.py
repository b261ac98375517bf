# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes into the database, one thing after the other, while nobody waits for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable

from ..errors import OllmSandboxError

Job = Callable[[], None]


class Clerk:
    """A thread of its own. What cannot be written (the database is locked, the disk is full) is
    kept and tried again with the next thing, in its order."""

    def __init__(self, failed: Callable[[str], None], done: Callable[[], None]) -> None:
        """`failed` hears, on the clerk's thread, why something could not be written, once in a
        row; `done` is called there at the end."""
        self._failed = failed
        self._done = done
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._is_closing = False
        self._is_failing = False
        # How often all of it was tried: who waits for a write waits for one more round.
        self._wanted = self._tried = 0
        self._thread: threading.Thread | None = None

    def put(self, job: Job) -> None:
        """Never waits."""
        with self._changed:
            self._jobs.append(job)
            self._wake()

    @property
    def left(self) -> int:
        """How much is not written yet."""
        with self._changed:
            return len(self._jobs)

    def flush(self, patience: float) -> bool:
        """Wait until all is written; False if that does not work."""
        give_up = time.monotonic() + patience
        with self._changed:
            if not self._jobs:
                return True
            self._wake()
            round_ = self._wanted
            self._changed.wait_for(
                lambda: not self._jobs or self._tried >= round_, give_up - time.monotonic()
            )
            return not self._jobs

    async def flushed(self, patience: float) -> bool:
        return not self.left or await asyncio.to_thread(self.flush, patience)

    def close(self) -> None:
        """Ends the thread once it has tried what is left. Does not wait for it."""
        with self._changed:
            self._is_closing = True
            if self._thread is not None:
                self._wanted += 1
                self._changed.notify_all()

    def join(self, patience: float) -> None:
        if self._thread is not None:
            self._thread.join(patience)

    def _wake(self) -> None:
        self._wanted += 1
        if self._thread is None:
            # Not of a pool: those are waited for at the end, and a database may stay locked.
            self._thread = threading.Thread(target=self._work, name="clerk", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._wanted > self._tried)
                    wanted, is_last = self._wanted, self._is_closing
                self._write()
                with self._changed:
                    self._tried = wanted
                    self._changed.notify_all()
                    if is_last:
                        return
        finally:
            self._done()

    def _write(self) -> None:
        while True:
            with self._changed:
                if not self._jobs:
                    return
                job = self._jobs[0]
            try:
                job()
            except OllmSandboxError as error:
                if not self._is_failing:
                    self._is_failing = True
                    self._failed(str(error))
                return
            self._is_failing = False
            with self._changed:
                self._jobs.popleft()
