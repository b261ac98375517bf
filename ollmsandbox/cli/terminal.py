# SPDX-License-Identifier: GPL-3.0-or-later
"""The user's terminal while a command runs that has a terminal of its own.

The user's terminal is never passed on. A command at a terminal gets another one, whose other side
we hold: keys go from one to the other, and output comes back through a filter.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
import tty
from collections.abc import AsyncIterator

from ..sandbox.terminal import CommandTerminal
from ..text.terminal import TerminalFilter
from .streams import Writer, speaks_utf8

# Bytes to buffer for the screen.
_AHEAD = 1 << 16
_KEYS = 4096
# Seconds between two looks whether the shell has put us into the foreground.
_PAUSE = 0.3


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
        self.theirs = CommandTerminal(
            _kind(),
            like=self._keyboard,
            gives_input=os.isatty(0),
            takes_errors=os.isatty(2),
            drained=self._listen,
        )
        self._resize()

    def connect(self) -> None:
        self._is_connected = True
        self._take()
        self._loop.add_signal_handler(signal.SIGWINCH, self._resize)
        self._loop.add_signal_handler(signal.SIGCONT, self._continued)
        self._loop.add_signal_handler(signal.SIGTSTP, self._suspend)

    def close(self) -> None:
        self.disconnect()
        self.theirs.close()
        if self._keyboard:
            os.close(self._keyboard)

    def disconnect(self) -> None:
        """Give the user's terminal back as it was."""
        if self._is_connected:
            self._is_connected = False
            for number in (signal.SIGWINCH, signal.SIGCONT, signal.SIGTSTP):
                self._loop.remove_signal_handler(number)
            self.theirs.stop_sending()
            self._give_back()

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
        if self._keyboard is not None and self._settings is not None and not self.theirs.unsent:
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
        before, key, after = keys.partition(self.theirs.suspend_key())
        self._send(before)
        if key:
            self._suspend()
            self._send(after)

    def _continued(self) -> None:
        """Go on after somebody else has stopped us."""
        if self._suspending is not None or self._keyboard is None:
            return
        if not _is_foreground(self._keyboard):
            # The shell has set up the terminal for itself.
            self._loop.remove_reader(self._keyboard)
            self._settings = None
        self._take()

    def _answer(self, text: bytes) -> None:
        # A command that asks again and again, and does not read, must not fill our memory.
        if not self.theirs.unsent:
            self._send(text)

    def _send(self, keys: bytes) -> None:
        if not self._is_connected:
            return
        self.theirs.send(keys)
        if self.theirs.unsent and self._keyboard is not None:
            self._loop.remove_reader(self._keyboard)

    def _resize(self) -> None:
        size = (24, 80)
        for descriptor in (1, self._keyboard):
            if descriptor is not None and os.isatty(descriptor):
                size = termios.tcgetwinsize(descriptor)
                break
        self.theirs.resize(size)

    @contextlib.asynccontextmanager
    async def given_back(self) -> AsyncIterator[None]:
        """Give the user's terminal back for a while, in which the command stands still."""
        with self.theirs.suspended():
            if self._screen is not None:
                await self._screen.end()
            self._give_back()
            try:
                yield
            finally:
                self._take()
            if self._screen is not None and self._is_connected:
                await self._screen.go_on()

    def _suspend(self) -> None:
        if self._suspending is None:
            self._suspending = self._loop.create_task(self._stop_and_go_on())

    async def _stop_and_go_on(self) -> None:
        """Stop the command and ourselves; go on when the shell continues us."""
        try:
            async with self.given_back():
                self._loop.remove_signal_handler(signal.SIGTSTP)
                # As the terminal would have done it: with all that is in the user's pipeline.
                os.killpg(0, signal.SIGTSTP)
                if self._is_connected:
                    self._loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        finally:
            self._suspending = None


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
