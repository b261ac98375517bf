# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a stream and keep a bounded part of it: the beginning and the end."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import threading
from collections.abc import Callable, Sequence

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


class OutputStream:
    """One stream of a command, with what receives it."""

    def __init__(self, descriptor: int, capture: Capture, sink: Sink | None) -> None:
        self.descriptor = descriptor
        self._capture = capture
        self._sink = sink
        self._is_terminal = os.isatty(descriptor)
        self._view = memoryview(bytearray(_SMALL))
        os.set_blocking(descriptor, False)

    def read(self) -> bool:
        """Pass on what there is; return whether more can come."""
        view = self._view
        try:
            size = os.readv(self.descriptor, [view])
        except BlockingIOError:
            return True
        except OSError as error:
            # A terminal reports this when its other side is closed.
            if error.errno != errno.EIO:
                raise
            return False
        if size == 0:
            return False
        if self._is_terminal:
            # It gives 4 KiB at a time. With a call of the sink for each, output takes twice the
            # time.
            with contextlib.suppress(OSError):
                while size < len(view) and (more := os.readv(self.descriptor, [view[size:]])):
                    size += more
        self._capture.feed(view[:size])
        if self._sink is not None:
            self._sink(bytes(view[:size]))
        if size == _SMALL == len(view):
            # Much output: a larger pipe needs fewer turns. The kernel may refuse.
            with contextlib.suppress(OSError):
                fcntl.fcntl(self.descriptor, _F_SETPIPE_SZ, _LARGE)
            self._view = memoryview(bytearray(_LARGE))
        return True


class OutputReader:
    """Reads streams in a thread until the last writer of each has closed it.

    While a sink is busy nothing is read, so the writer blocks as with any pipe. What has come
    through two streams meanwhile is passed on in their order.
    """

    def __init__(self, streams: Sequence[OutputStream], failed: Callable[[], None]) -> None:
        """`failed` is called if a sink fails; `close` then raises its error."""
        self._error: BaseException | None = None
        self._is_closed = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        # Not kept: they lead to the run, which holds locks until nothing refers to it.
        self._thread = threading.Thread(target=self._work, args=(streams, failed), daemon=True)
        self._thread.start()

    def join(self, seconds: float | None) -> None:
        """Wait for the end of the streams, `seconds` at most."""
        self._thread.join(seconds)

    def close(self) -> None:
        """Read no more, and wait for the sinks."""
        if not self._is_closed:
            self._is_closed = True
            os.eventfd_write(self._wake, 1)
            self._thread.join()
            os.close(self._wake)
        if self._error is not None:
            raise self._error

    def _work(self, streams: Sequence[OutputStream], failed: Callable[[], None]) -> None:
        try:
            self._read(streams)
        except BaseException as error:  # noqa: BLE001 - `close` raises it
            self._error = error
            failed()

    def _read(self, streams: Sequence[OutputStream]) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        left = {stream.descriptor: stream for stream in streams}
        for descriptor in left:
            poll.register(descriptor, select.POLLIN)
        while left and not self._is_closed:
            ready = {descriptor for descriptor, _events in poll.poll()}
            for descriptor in list(left):
                if descriptor in ready and not left[descriptor].read():
                    poll.unregister(descriptor)
                    del left[descriptor]


def wait_readable(*descriptors: int, seconds: float | None = None) -> bool:
    """Wait until one of them has data or an end; for a pidfd, until the process is dead. Return
    whether one has, `seconds` later at most."""
    # Not select(), which takes no descriptor above 1023.
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))
