# SPDX-License-Identifier: GPL-3.0-or-later
"""The terminal's, or another program's, ends of a command's input and output.

Our own input, output and errors, whatever they were when the program was started.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import io
import os
import queue
import select
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from ..errors import OllmSandboxError

# How much may wait for a slow reader before the command has to wait too.
_AHEAD = 4 << 20
_F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", 1031)
_LARGE_PIPE = 1 << 20


class Writer:
    """Writes to one of our streams without ever making the main loop wait for its reader."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._waiting = 0
        self._error: OSError | None = None
        self._changed = asyncio.Event()
        self._thread: threading.Thread | None = None

    async def __call__(self, data: bytes) -> None:
        self._start()
        self._waiting += len(data)
        self._queue.put(data)
        await self._until(_AHEAD)

    async def flush(self) -> None:
        await self._until(0)

    async def _until(self, left: int) -> None:
        while self._waiting > left and self._error is None:
            self._changed.clear()
            await self._changed.wait()
        if isinstance(self._error, BrokenPipeError):
            raise self._error
        if self._error is not None:
            raise OllmSandboxError(f"Cannot write the output: {self._error.strerror}.")

    def _start(self) -> None:
        if self._thread is not None:
            return
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._descriptor, _F_SETPIPE_SZ, _LARGE_PIPE)
        # Not of a pool: those are waited for at the end, and this one may never come back.
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while True:
            data = self._queue.get()
            error: OSError | None = None
            try:
                self._write(memoryview(data))
            except OSError as caught:
                error = caught
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks any more
                self._loop.call_soon_threadsafe(self._written, len(data), error)

    def _write(self, view: memoryview) -> None:
        while view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:
                # Somebody else who has the stream open does not want to wait at it.
                select.select([], [self._descriptor], [])

    def _written(self, size: int, error: OSError | None) -> None:
        self._waiting -= size
        self._error = self._error or error
        self._changed.set()


@contextmanager
def stdin_for(descriptor: int) -> Iterator[int | None]:
    """What a command may read of our input.

    An open file is also a way to what lies around it: it can be opened again for writing, a folder
    leads to its parents, a pipe can be written for the next one who reads it. So a command gets a
    pipe of its own or nothing. A terminal is not passed on.
    """
    try:
        kind = os.fstat(descriptor).st_mode
    except OSError:
        yield None
        return
    if stat.S_ISREG(kind) or stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
        reader, writer = os.pipe()
        threading.Thread(target=_feed, args=(descriptor, writer), daemon=True).start()
        try:
            yield reader
        finally:
            os.close(reader)
    else:
        yield None


def _feed(descriptor: int, writer: int) -> None:
    with open(writer, "wb", buffering=0) as pipe:
        while True:
            try:
                data = os.read(descriptor, 1 << 16)
                if not data:
                    return
                pipe.write(data)
            except BlockingIOError:
                select.select([descriptor], [], [])
            except OSError:
                return  # the command does not read any more, or there is nothing to be read


def open_streams() -> None:
    """A stream that is closed would be taken by the next thing that is opened, and what is printed
    would end up in it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    _fill_in()
    # A name that is not text, or text that this terminal has no letters for, is no reason to fail.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _fill_in() -> None:
    """Python has none where it found none."""
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8")
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(io.BufferedWriter(io.FileIO(2, "w", closefd=False)), "utf-8")


def wants_colour(*streams: TextIO) -> bool:
    return (
        all(stream.isatty() for stream in streams)
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def complain(text: str) -> None:
    with contextlib.suppress(OSError):  # there is nobody to tell it to
        print(f"ollmsandbox: {text}", file=sys.stderr)


def give_up() -> OSError | None:
    """What cannot be written is dropped, so that Python does not try it once more at the end; the
    last reason is returned."""
    found: OSError | None = None
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError as error:
            found = error
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)
            os.close(nowhere)
    return found
