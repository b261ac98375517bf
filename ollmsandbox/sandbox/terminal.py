# SPDX-License-Identifier: GPL-3.0-or-later
"""The terminal of a command: a pseudo-terminal, whose other side we hold.

A window or a user's own terminal gives it keys and a size, and shows what the command prints.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import termios
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from .output import Sink

if TYPE_CHECKING:
    from .rootfs.paths import PathRewriter

# Milliseconds between two looks whether the terminal was closed.
_PAUSE = 200


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
        terminal `like`. `drained` is called when the command has received everything, perhaps by
        another thread."""
        self.kind = kind
        # Whether the command reads from it and writes errors to it, or has other streams for that.
        self.gives_input = gives_input
        self.takes_errors = takes_errors
        self._drained = drained
        # What the command has not read yet, and who sends it once the command reads.
        self.unsent = b""
        self._sending = threading.RLock()
        self._sender: threading.Thread | None = None
        # Seconds in which it was suspended, and since when it is.
        self._suspended = 0.0
        self._suspended_at: float | None = None
        self.master, self.slave = os.openpty()
        os.set_blocking(self.master, False)
        if like is not None:
            termios.tcsetattr(self.slave, termios.TCSANOW, termios.tcgetattr(like))

    def clock(self) -> float:
        """Return the seconds for the time limit. They stand still while it is suspended."""
        now = self._suspended_at
        return (time.monotonic() if now is None else now) - self._suspended

    def send(self, keys: bytes) -> None:
        """Type something, as soon as the command reads."""
        with self._sending:
            if self.master < 0:
                return
            self.unsent += keys
            if not self._send_now() and self._sender is None:
                self._sender = threading.Thread(target=self._send_later, daemon=True)
                self._sender.start()

    def stop_sending(self) -> None:
        with self._sending:
            self.unsent = b""

    def _send_now(self) -> bool:
        """Send what the command reads now; return whether that is all."""
        try:
            self.unsent = self.unsent[os.write(self.master, self.unsent) :]
        except BlockingIOError:
            pass  # the command does not read now
        except OSError:
            self.unsent = b""  # it has closed the terminal
        if self.unsent:
            return False
        self._drained()
        return True

    def _send_later(self) -> None:
        while True:
            with self._sending:
                if self.master < 0 or self._send_now():
                    self._sender = None
                    return
                poll = select.poll()
                poll.register(self.master, select.POLLOUT)
            if any(event & select.POLLHUP for _number, event in poll.poll(_PAUSE)):
                time.sleep(_PAUSE / 1000)  # the command has closed the terminal, or not opened it

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

    def suspend(self, *, with_us: bool = False) -> Callable[[], None]:
        """Stop the job in the foreground; return the function that continues it. The time until
        then does not count. `with_us`: this program is about to be stopped, too. Otherwise the time
        limit still ends a command that is never continued."""
        group, began = self._group(), time.monotonic()
        if with_us:
            # Who watches the limit may be continued first.
            self._suspended_at = began
        _signal_group(group, signal.SIGSTOP)

        def go_on() -> None:
            self._suspended += time.monotonic() - began
            self._suspended_at = None
            _signal_group(group, signal.SIGCONT)
            # A program that fills the screen draws it again.
            _signal_group(group, signal.SIGWINCH)

        return go_on

    def close(self) -> None:
        with self._sending:
            if self.master >= 0:
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

    def __call__(self, data: bytes) -> None:
        if self._terminal.is_cooked():
            self._rewriter(data)
        else:
            self._rewriter.end()
            self._sink(data)


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
