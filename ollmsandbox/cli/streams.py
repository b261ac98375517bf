# SPDX-License-Identifier: GPL-3.0-or-later
"""The terminal's, or another program's, ends of a command's input and output."""

from __future__ import annotations

import asyncio
import os
import select
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..sandbox.output import Sink

# A pipe that can be written at all takes this much without waiting.
_AT_ONCE = select.PIPE_BUF


def writer_to(descriptor: int) -> Sink:
    """Writes all; while the other side does not read, only the command waits, not the program."""

    async def write(data: bytes) -> None:
        if len(data) <= _AT_ONCE and select.select([], [descriptor], [], 0)[1]:
            os.write(descriptor, data)
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()

        def work() -> None:
            error: OSError | None = None
            try:
                _write_all(descriptor, data)
            except OSError as caught:
                error = caught
            loop.call_soon_threadsafe(finish, error)

        def finish(error: OSError | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        # Not of a pool: those are waited for at the end, and this one may never come back.
        threading.Thread(target=work, daemon=True).start()
        await done

    return write


@contextmanager
def stdin_for(descriptor: int) -> Iterator[int | None]:
    """What a command may read of our input.

    An open file is also a way to what lies around it: it can be opened again for writing, a folder
    leads to its parents. So a command gets a pipe or nothing. A terminal is not passed on.
    """
    try:
        kind = os.fstat(descriptor).st_mode
    except OSError:
        yield None
        return
    if stat.S_ISFIFO(kind):
        yield descriptor
    elif stat.S_ISREG(kind) or stat.S_ISSOCK(kind):
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
        while data := os.read(descriptor, 1 << 16):
            try:
                pipe.write(data)
            except BrokenPipeError:
                return


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
