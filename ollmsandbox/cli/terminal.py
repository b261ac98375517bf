# SPDX-License-Identifier: GPL-3.0-or-later
"""The user's terminal while a command runs, and the command's own terminal.

The user's terminal is never passed on. A command at a terminal gets another one, whose other side
we hold: keys go from one to the other, and output comes back through a filter.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
import time
import tty
from typing import TYPE_CHECKING

from ..sandbox.output import Sink
from ..sandbox.process import CommandTerminal
from ..text.terminal import TerminalFilter
from .streams import Writer, speaks_utf8

if TYPE_CHECKING:
    from ..sandbox.rootfs.paths import PathRewriter

# Bytes to buffer for the screen.
_AHEAD = 1 << 16
_KEYS = 4096
# Seconds between two looks whether the shell has put us into the foreground.
_PAUSE = 0.3
_UNKNOWN_SIZE = (24, 80)


class ScreenWriter:
    """A sink that writes to the user's terminal what may pass."""

    def __init__(self, writer: Writer, *, raw: bool) -> None:
        self.filter = TerminalFilter(
            raw=raw, dumb=_kind() == "dumb", utf8=speaks_utf8(writer.descriptor)
        )
        self._writer = writer
        # Few: what the user sees must not be far behind what happens.
        writer.ahead = _AHEAD

    async def __call__(self, data: bytes) -> None:
        if shown := self.filter.feed(data):
            await self._writer(shown)

    async def end(self) -> None:
        """Make sure that what is printed next can be seen."""
        if reset := self.filter.reset():
            await self._writer(reset)
        await self._writer.flush()

    async def go_on(self) -> None:
        """Undo `end`."""
        if modes := self.filter.modes():
            await self._writer(modes)


class TerminalLink:
    """Connects the user's terminal with one for the command. The user's is in raw mode from
    `connect` to `disconnect`: Ctrl+C and other keys are for the command's."""

    def __init__(self, screen: ScreenWriter | None) -> None:
        """`screen` shows the output, unless that does not go to a terminal."""
        self._screen = screen
        if screen is not None:
            screen.filter.answer = self._answer
        self._loop = asyncio.get_running_loop()
        self._keyboard = _open_keyboard()
        self._settings: list[int | list[bytes | int]] | None = None
        self._is_connected = False
        self._waiting: asyncio.TimerHandle | None = None
        self._suspending: asyncio.Task[None] | None = None
        self._unsent = b""
        self._suspended = 0.0
        self._master, slave = os.openpty()
        os.set_blocking(self._master, False)
        self.theirs = CommandTerminal(
            self._master,
            slave,
            _kind(),
            gives_input=os.isatty(0),
            takes_errors=os.isatty(2),
            clock=lambda: time.monotonic() - self._suspended,
        )
        if self._keyboard is not None:
            termios.tcsetattr(slave, termios.TCSANOW, termios.tcgetattr(self._keyboard))
        self._resize()

    def connect(self) -> None:
        self._is_connected = True
        self._take()
        self._loop.add_signal_handler(signal.SIGWINCH, self._resize)
        self._loop.add_signal_handler(signal.SIGCONT, self._continued)
        self._loop.add_signal_handler(signal.SIGTSTP, self._suspend)

    def close(self) -> None:
        self.disconnect()
        os.close(self._master)
        if self._keyboard:
            os.close(self._keyboard)

    def disconnect(self) -> None:
        """Give the user's terminal back as it was."""
        if self._is_connected:
            self._is_connected = False
            for number in (signal.SIGWINCH, signal.SIGCONT, signal.SIGTSTP):
                self._loop.remove_signal_handler(number)
            self._loop.remove_writer(self._master)
            self._give_back()

    # --- the user's terminal -------------------------------------------------------------------

    def _take(self) -> None:
        """Take the keys, or wait until we may: a job in the background must not."""
        if self._waiting is not None:
            self._waiting.cancel()
        if self._keyboard is None or not self._is_connected:
            return
        if not _is_foreground(self._keyboard):
            self._waiting = self._loop.call_later(_PAUSE, self._take)
            return
        with contextlib.suppress(termios.error):  # it was closed
            if self._settings is None:
                self._settings = termios.tcgetattr(self._keyboard)
            tty.setraw(self._keyboard, termios.TCSANOW)
            self._resize()
            self._listen()

    def _give_back(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        if self._keyboard is None or self._settings is None:
            return
        self._loop.remove_reader(self._keyboard)
        settings, self._settings = self._settings, None
        # The terminal may have been closed.
        with contextlib.suppress(termios.error):
            if self._screen is not None and self._screen.filter.may_be_answered():
                # Nothing else than the user's typing may answer a question, or reach the shell.
                termios.tcflush(self._keyboard, termios.TCIFLUSH)
            termios.tcsetattr(self._keyboard, termios.TCSANOW, settings)

    def _listen(self) -> None:
        if self._keyboard is not None and self._settings is not None and not self._unsent:
            self._loop.add_reader(self._keyboard, self._read_keys)

    def _read_keys(self) -> None:
        assert self._keyboard is not None
        try:
            keys = os.read(self._keyboard, _KEYS)
        except BlockingIOError:
            return  # another program has made the shared stream non-blocking
        except OSError:
            keys = b""
        if not keys:
            # The terminal was closed.
            self._loop.remove_reader(self._keyboard)
            return
        before, key, after = keys.partition(self._suspend_key())
        if key and _stops_nobody(self._group()):
            self._send(before)
            self._suspend()
            self._send(after)
        else:
            self._send(keys)

    def _continued(self) -> None:
        """Go on after somebody else has stopped us."""
        if self._suspending is not None or self._keyboard is None:
            return
        if not _is_foreground(self._keyboard):
            # The shell has set up the terminal for itself.
            self._loop.remove_reader(self._keyboard)
            self._settings = None
        self._take()

    # --- the command's terminal ----------------------------------------------------------------

    def _answer(self, text: bytes) -> None:
        # A command that asks again and again, and does not read, must not fill our memory.
        if not self._unsent:
            self._send(text)

    def _send(self, keys: bytes) -> None:
        if not self._is_connected:
            return
        self._unsent += keys
        try:
            self._unsent = self._unsent[os.write(self._master, self._unsent) :]
        except BlockingIOError:
            pass  # the command does not read now
        except OSError:
            self._unsent = b""  # it has closed the terminal
        if self._unsent:
            if self._keyboard is not None:
                self._loop.remove_reader(self._keyboard)
            self._loop.add_writer(self._master, self._send, b"")
        else:
            self._loop.remove_writer(self._master)
            self._listen()

    def _resize(self) -> None:
        size = _UNKNOWN_SIZE
        for descriptor in (1, self._keyboard):
            if descriptor is not None and os.isatty(descriptor):
                size = termios.tcgetwinsize(descriptor)
                break
        termios.tcsetwinsize(self._master, size)

    def is_cooked(self) -> bool:
        """Return whether the command reads whole lines."""
        return bool(termios.tcgetattr(self._master)[3] & termios.ICANON)

    def _suspend_key(self) -> bytes:
        """Return the key that suspends a job, or something that is no key."""
        settings = termios.tcgetattr(self._master)
        key: bytes = settings[6][termios.VSUSP]
        return key if settings[3] & termios.ISIG and key != b"\0" else b"no key"

    def _group(self) -> int:
        """Return the job in the foreground of the command's terminal, or 0."""
        try:
            return os.tcgetpgrp(self._master)
        except OSError:
            return 0

    def _suspend(self) -> None:
        if self._suspending is None:
            self._suspending = self._loop.create_task(self._stop_and_go_on())

    async def _stop_and_go_on(self) -> None:
        """Stop the command and ourselves; go on when the shell continues us."""
        group = self._group()
        began = time.monotonic()
        _signal_group(group, signal.SIGSTOP)
        try:
            if self._screen is not None:
                await self._screen.end()
            self._give_back()
            self._loop.remove_signal_handler(signal.SIGTSTP)
            # As the terminal would have done it: with all that is in the user's pipeline.
            os.killpg(0, signal.SIGTSTP)
        finally:
            self._suspended += time.monotonic() - began
            self._suspending = None
            if self._is_connected:
                self._loop.add_signal_handler(signal.SIGTSTP, self._suspend)
                self._take()
        if self._screen is not None and self._is_connected:
            await self._screen.go_on()
        _signal_group(group, signal.SIGCONT)
        # A program that fills the screen draws it again.
        _signal_group(group, signal.SIGWINCH)


class LineSink:
    """Rewrites paths while the command reads and writes whole lines. A program that draws a screen
    or edits a line counts columns, which longer paths would move."""

    def __init__(self, rewriter: PathRewriter, plain: Sink, link: TerminalLink) -> None:
        self._rewriter = rewriter
        self._plain = plain
        self._link = link

    async def __call__(self, data: bytes) -> None:
        if self._link.is_cooked():
            await self._rewriter(data)
        else:
            await self._rewriter.end()
            await self._plain(data)


def _kind() -> str:
    return os.environ.get("TERM") or "dumb"


def _open_keyboard() -> int | None:
    """Return the terminal that the user types at: our standard input, or where our output goes."""
    if os.isatty(0):
        return 0
    if os.isatty(1):
        with contextlib.suppress(OSError):
            return os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    return None


def _is_foreground(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return True  # it controls no jobs of ours


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
