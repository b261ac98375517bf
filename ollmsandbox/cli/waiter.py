# SPDX-License-Identifier: GPL-3.0-or-later
"""Serves the user while a command runs in another thread: signals, the keyboard, and timers.

asyncio would do that, too, but to load it takes longer than all else that `run` does.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

# Seconds.
_PATIENCE = 5.0
T = TypeVar("T")
Callback = Callable[[], object]


class Waiter:
    """Waits in the main thread for a function that another one runs. Only `call` is for other
    threads."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._readers: dict[int, Callback] = {}
        self._handlers: dict[int, Callback] = {}
        # When each is due, a number that keeps their order, and what to call.
        self._timers: list[tuple[float, int, Callback]] = []
        self._count = 0
        self._calls: deque[Callback] = deque()
        # Python writes the number of each signal to it, and we write a 0 for each call.
        self._awake, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.add_reader(self._awake, self._wake)

    def wait_for(self, function: Callable[[], T], stop: Callback) -> T:
        """Return what the function returns, or raise what it raises. If something fails here,
        `stop` is called, and the function has a moment to end."""
        results: list[T] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                results.append(function())
            except BaseException as error:  # noqa: BLE001 - raised below
                errors.append(error)
            self.call(lambda: None)

        working = threading.Thread(target=work, daemon=True)
        working.start()
        try:
            while not results and not errors:
                self._turn()
        except BaseException:
            stop()
            working.join(_PATIENCE)
            raise
        finally:
            for number in list(self._handlers):
                self.remove_signal_handler(number)
        if errors:
            raise errors[0]
        return results[0]

    def add_reader(self, descriptor: int, callback: Callback) -> None:
        """Have the callback called whenever there is something to read."""
        self._readers[descriptor] = callback
        self._poll.register(descriptor, select.POLLIN)

    def remove_reader(self, descriptor: int) -> None:
        if self._readers.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def add_signal_handler(self, number: int, callback: Callback) -> None:
        self._handlers[number] = callback
        # From now on: one that arrives before `wait_for` is served by it.
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        # Python's own handler: without one, it writes no number.
        signal.signal(number, lambda *_: None)
        # Other threads go on with what they are waiting for.
        signal.siginterrupt(number, False)  # noqa: FBT003 - it takes no name

    def remove_signal_handler(self, number: int) -> None:
        if self._handlers.pop(number, None) is not None:
            is_interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)
        if not self._handlers:
            signal.set_wakeup_fd(-1)

    def call_later(self, seconds: float, callback: Callback) -> None:
        self._count += 1
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._count, callback))

    def call(self, callback: Callback) -> None:
        """Have the main thread call it soon."""
        self._calls.append(callback)
        # If the pipe is full, the main thread is about to be woken up.
        with contextlib.suppress(BlockingIOError):
            os.write(self._waker, b"\0")

    def _turn(self) -> None:
        """Wait for the next event, and serve it."""
        pause = None
        if self._timers:
            pause = max(0.0, self._timers[0][0] - time.monotonic()) * 1000
        for descriptor, _events in self._poll.poll(pause):
            # One of those before it may have removed it.
            if (react := self._readers.get(descriptor)) is not None:
                react()
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()

    def _wake(self) -> None:
        for number in os.read(self._awake, 1 << 12):
            if (handle := self._handlers.get(number)) is not None:
                handle()
        while self._calls:
            self._calls.popleft()()
