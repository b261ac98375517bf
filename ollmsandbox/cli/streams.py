# SPDX-License-Identifier: GPL-3.0-or-later
"""Standard input, output and error: our own, and those of a command."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import select
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from ..errors import OllmSandboxError

# Seconds.
_PATIENCE = 2.0
_F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", 1031)
# Of a terminal's settings; the module has no name for it.
_IUTF8 = 0x4000
# LC_CTYPE, where no locale is set.
_SET_BY_PYTHON = ("C.UTF-8", "C.utf8", "UTF-8")


class Writer:
    """Writes to one of our streams. A command whose output it is waits for a slow reader."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._is_first = True

    def __call__(self, data: bytes) -> None:
        if self._is_first:
            self._is_first = False
            with contextlib.suppress(OSError):
                fcntl.fcntl(self.descriptor, _F_SETPIPE_SZ, 1 << 20)
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.descriptor, view) :]
            except BlockingIOError:
                # Another program has made the shared stream non-blocking.
                select.select([], [self.descriptor], [])
            except BrokenPipeError:
                raise
            except OSError as error:
                text = f"Cannot write the output: {error.strerror}."
                raise OllmSandboxError(text) from error


def briefly(write: Callable[[], object]) -> None:
    """Call a function that writes to our streams, without waiting long for a reader that is slow or
    gone."""

    def work() -> None:
        with contextlib.suppress(OSError, OllmSandboxError):
            write()

    writing = threading.Thread(target=work, daemon=True)
    writing.start()
    writing.join(_PATIENCE)


@contextmanager
def stdin_for(descriptor: int) -> Iterator[int | None]:
    """Yield a pipe with our standard input for a command; None if it gets no input.

    Never pass our own descriptor on: a command could open a file again for writing, walk from a
    folder to its parents, or write to a pipe that others read. A terminal is not passed on.
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
                return  # the command has stopped reading, or we cannot read


_printed: set[str] = set()


def open_streams() -> None:
    """Open closed streams as /dev/null: otherwise the next file that is opened would take their
    number, and receive our output."""
    _printed.clear()
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    _fill_in()
    # Do not fail at a name that is not valid text, or that the terminal's encoding does not have.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    for stream in (sys.stdout, sys.stderr):
        # Python takes UTF-8 where no locale is set. In another encoding, bytes of it are controls.
        if not isinstance(stream, io.TextIOWrapper) or stream.encoding != "utf-8":
            continue
        if stream.isatty() and not speaks_utf8(stream.fileno()):
            stream.reconfigure(encoding="ascii", errors="backslashreplace")


def speaks_utf8(terminal: int) -> bool:
    """Return whether the locale, or the terminal itself, says that its encoding is UTF-8."""
    everything, characters, language = map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))
    if characters in _SET_BY_PYTHON and language in (None, "", "C", "POSIX"):
        characters = None
    locale = everything or characters or language or "C"
    if "utf8" in locale.lower().replace("-", ""):
        return True
    import termios

    with contextlib.suppress(termios.error):
        return bool(termios.tcgetattr(terminal)[0] & _IUTF8)
    return False


def _fill_in() -> None:
    """Create the stream objects that Python leaves out when it starts with closed streams."""
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


def print_notices(*notices: str) -> None:
    """Print notices and errors, each only once: finishing earlier runs and the command itself may
    fail for the same reason."""
    for text in notices:
        if text not in _printed:
            _printed.add(text)
            with contextlib.suppress(OSError):  # there is no other way to report it
                print(f"ollmsandbox: {text}", file=sys.stderr)


def give_up() -> OSError | None:
    """Drop output that cannot be written, so that Python does not try again at exit; return the
    last error."""
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
