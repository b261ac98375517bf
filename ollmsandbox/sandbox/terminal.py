# SPDX-License-Identifier: GPL-3.0-or-later
"""The terminal of a command: a pseudo-terminal, whose other side we hold.

A window or a user's own terminal gives it keys and a size, and shows what the command prints.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .output import Sink

if TYPE_CHECKING:
    from .rootfs.paths import PathRewriter


class CommandTerminal:
    """A terminal for one command, which writes to it. Starting the command closes `slave`."""

    def __init__(
        self,
        kind: str = "dumb",
        *,
        like: int | None = None,
        gives_input: bool = True,
        takes_errors: bool = True,
        drained: Callable[[], None] = lambda: None,
    ) -> None:
        """`kind` is what programs know it as: the variable TERM. It gets the settings of the
        terminal `like`. `drained` is called when the command has received everything."""
        self.kind = kind
        # Whether the command reads from it and writes errors to it, or has other streams for that.
        self.gives_input = gives_input
        self.takes_errors = takes_errors
        self._drained = drained
        self._loop = asyncio.get_running_loop()
        # What the command has not read yet.
        self.unsent = b""
        self._suspended = 0.0
        self.master, self.slave = os.openpty()
        os.set_blocking(self.master, False)
        if like is not None:
            termios.tcsetattr(self.slave, termios.TCSANOW, termios.tcgetattr(like))

    def clock(self) -> float:
        """Return the seconds for the time limit. They stand still while it is suspended."""
        return time.monotonic() - self._suspended

    def send(self, keys: bytes) -> None:
        """Type something, as soon as the command reads."""
        if self.master < 0:
            return
        self.unsent += keys
        try:
            self.unsent = self.unsent[os.write(self.master, self.unsent) :]
        except BlockingIOError:
            pass  # the command does not read now
        except OSError:
            self.unsent = b""  # it has closed the terminal
        if self.unsent:
            self._loop.add_writer(self.master, self.send, b"")
        else:
            self._loop.remove_writer(self.master)
            self._drained()

    def stop_sending(self) -> None:
        self._loop.remove_writer(self.master)

    def resize(self, size: tuple[int, int]) -> None:
        """Set the number of rows and columns."""
        termios.tcsetwinsize(self.master, size)

    def is_cooked(self) -> bool:
        """Return whether the command reads whole lines."""
        return bool(termios.tcgetattr(self.master)[3] & termios.ICANON)

    def echoes(self) -> bool:
        """Return whether it shows what is typed: not while the command asks for a password."""
        return self.master < 0 or bool(termios.tcgetattr(self.master)[3] & termios.ECHO)

    def suspend_key(self) -> bytes:
        """Return the key that suspends a job if nobody else does what it is for, or something that
        is no key."""
        settings = termios.tcgetattr(self.master)
        key: bytes = settings[6][termios.VSUSP]
        is_key = settings[3] & termios.ISIG and key != b"\0"
        return key if is_key and _stops_nobody(self._group()) else b"no key"

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Stop the job in the foreground, and the clock; continue them at the end."""
        group, began = self._group(), time.monotonic()
        _signal_group(group, signal.SIGSTOP)
        try:
            yield
        finally:
            self._suspended += time.monotonic() - began
            _signal_group(group, signal.SIGCONT)
            # A program that fills the screen draws it again.
            _signal_group(group, signal.SIGWINCH)

    def close(self) -> None:
        if self.master >= 0:
            self.stop_sending()
            os.close(self.master)
            # The number may soon be that of another file.
            self.master = -1

    def _group(self) -> int:
        """Return the job in the foreground, or 0."""
        try:
            return os.tcgetpgrp(self.master)
        except OSError:
            return 0


class LineSink:
    """Rewrites paths while the command reads and writes whole lines. A program that draws a screen
    or edits a line counts columns, which longer paths would move."""

    def __init__(self, rewriter: PathRewriter, sink: Sink, terminal: CommandTerminal) -> None:
        self._rewriter = rewriter
        self._sink = sink
        self._terminal = terminal

    async def __call__(self, data: bytes) -> None:
        if self._terminal.is_cooked():
            await self._rewriter(data)
        else:
            await self._rewriter.end()
            await self._sink(data)


def _stops_nobody(group: int) -> bool:
    """Return whether the kernel would ignore Ctrl+Z: nobody in the sandbox could continue its first
    process. If that is a shell, it ignores Ctrl+Z itself."""
    try:
        if not group or os.getsid(group) != group:
            return False
        with open(f"/proc/{group}/status", "rb") as file:
            ignored = next(line for line in file if line.startswith(b"SigIgn:")).split()[1]
    except OSError:
        return False
    return not int(ignored, 16) & 1 << (signal.SIGTSTP - 1)


def _signal_group(group: int, number: signal.Signals) -> None:
    if group:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
