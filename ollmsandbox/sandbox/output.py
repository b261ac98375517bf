# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a stream and keep a bounded part of it: the beginning and the end."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import threading
from collections.abc import Callable

# Called in a thread. It may block, which makes the command wait.
Sink = Callable[[bytes], None]

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


class OutputReader:
    """Reads a stream in a thread until the last writer has closed it.

    While the sink is busy nothing is read, so the writer blocks as with any pipe.
    """

    def __init__(
        self, descriptor: int, capture: Capture, sink: Sink | None, failed: Callable[[], None]
    ) -> None:
        """`failed` is called if the sink fails; `close` then raises its error."""
        self._descriptor = descriptor
        self._capture = capture
        self._sink = sink
        self._error: BaseException | None = None
        self._is_closed = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        # Not kept: `failed` leads to the run, which holds locks until nothing refers to it.
        self._thread = threading.Thread(target=self._work, args=(failed,), daemon=True)
        self._thread.start()

    def join(self, seconds: float | None) -> None:
        """Wait for the end of the stream, `seconds` at most."""
        self._thread.join(seconds)

    def close(self) -> None:
        """Read no more, and wait for the sink."""
        if not self._is_closed:
            self._is_closed = True
            os.eventfd_write(self._wake, 1)
            self._thread.join()
            os.close(self._wake)
        if self._error is not None:
            raise self._error

    def _work(self, failed: Callable[[], None]) -> None:
        try:
            self._read()
        except BaseException as error:  # noqa: BLE001 - `close` raises it
            self._error = error
            failed()

    def _read(self) -> None:
        os.set_blocking(self._descriptor, False)
        view = memoryview(bytearray(_SMALL))
        is_terminal = os.isatty(self._descriptor)
        while not self._is_closed:
            try:
                size = os.readv(self._descriptor, [view])
            except BlockingIOError:
                wait_readable(self._descriptor, self._wake)
                continue
            except OSError as error:
                # A terminal reports this when its other side is closed.
                if error.errno != errno.EIO:
                    raise
                return
            if size == 0:
                return
            if is_terminal:
                # It gives 4 KiB at a time. With a call of the sink for each, output takes twice as
                # long.
                with contextlib.suppress(OSError):
                    while size < len(view) and (more := os.readv(self._descriptor, [view[size:]])):
                        size += more
            self._capture.feed(view[:size])
            if self._sink is not None:
                self._sink(bytes(view[:size]))
            if size == _SMALL == len(view):
                # Much output: a larger pipe needs fewer turns. The kernel may refuse.
                with contextlib.suppress(OSError):
                    fcntl.fcntl(self._descriptor, _F_SETPIPE_SZ, _LARGE)
                view = memoryview(bytearray(_LARGE))


def wait_readable(*descriptors: int, seconds: float | None = None) -> bool:
    """Wait until one of them has data or an end; for a pidfd, until the process is dead. Return
    whether one has, `seconds` later at most."""
    # Not select(), which takes no descriptor above 1023.
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))
