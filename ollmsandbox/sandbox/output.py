# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a stream and keep a bounded part of it: the beginning and the end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import select
from collections.abc import Awaitable, Callable

Sink = Callable[[bytes], Awaitable[None]]

_SMALL, _LARGE = 1 << 16, 1 << 20
_F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", 1031)


class Capture:
    """Keeps the first `head` and the last `tail` bytes of any amount, and counts the rest."""

    def __init__(self, head: int = 1 << 20, tail: int = 1 << 20) -> None:
        self._head_limit = head
        self._tail_limit = tail
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def feed(self, data: bytes | memoryview) -> None:
        self.total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        if len(data) >= self._tail_limit:
            self._tail[:] = data[len(data) - self._tail_limit :]
            return
        self._tail += data
        # Cut only now and then: removing the front moves everything behind it.
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: -self._tail_limit]

    @property
    def left_out(self) -> int:
        return self.total - len(self._head) - min(len(self._tail), self._tail_limit)

    @property
    def truncated(self) -> bool:
        return self.left_out > 0

    @property
    def text(self) -> str:
        """The bytes that were kept. Those that are not UTF-8 become U+FFFD."""
        tail = self._tail[max(0, len(self._tail) - self._tail_limit) :]
        if not self.truncated:
            return (self._head + tail).decode("utf-8", "replace")
        middle = f"\n[... {self.left_out} bytes left out ...]\n"
        return self._head.decode("utf-8", "replace") + middle + tail.decode("utf-8", "replace")


async def pump(descriptor: int, capture: Capture, sink: Sink | None) -> None:
    """Read until the last writer has closed the stream.

    While the sink is busy nothing is read, so the writer blocks as with any pipe. A terminal
    reports an error when its other side is closed.
    """
    os.set_blocking(descriptor, False)
    view = memoryview(bytearray(_SMALL))
    is_terminal = os.isatty(descriptor)
    while True:
        try:
            size = os.readv(descriptor, [view])
        except BlockingIOError:
            await readable(descriptor)
            continue
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return
        if size == 0:
            return
        if is_terminal:
            # It gives 4 KiB at a time. With a turn of the main loop for each, output takes twice
            # as long.
            with contextlib.suppress(OSError):
                while size < len(view) and (more := os.readv(descriptor, [view[size:]])):
                    size += more
        capture.feed(view[:size])
        if sink is not None:
            await sink(bytes(view[:size]))
        else:
            # Let other tasks run: endless output must not starve the time limit.
            await asyncio.sleep(0)
        if size == _SMALL == len(view):
            # Much output: a larger pipe needs fewer turns of the main loop. The kernel may refuse.
            with contextlib.suppress(OSError):
                fcntl.fcntl(descriptor, _F_SETPIPE_SZ, _LARGE)
            view = memoryview(bytearray(_LARGE))


async def readable(descriptor: int) -> None:
    """Wait until there is data or the end of it; for a pidfd, until the process is dead."""
    # Not select(), which takes no descriptor above 1023.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if poll.poll(0):
        return
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
