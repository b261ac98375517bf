# SPDX-License-Identifier: GPL-3.0-or-later
"""The user's terminal while a command runs that has a terminal of its own.

The user's terminal is never passed on. A command at a terminal gets another one, whose other side
we hold: keys go from one to the other, and output comes back through a filter.
"""

from __future__ import annotations

import contextlib
import os
import signal
import termios
import threading
import tty
from collections.abc import Callable

from ..sandbox.terminal import CommandTerminal
from ..text.terminal import TerminalFilter
from .streams import Writer, briefly, speaks_utf8
from .waiter import Waiter

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
        # The command's output comes from another thread than what `end` and `go_on` write.
        self._writing = threading.Lock()

    def __call__(self, data: bytes) -> None:
        with self._writing:
            if shown := self.filter.feed(data):
                self._writer(shown)

    def end(self) -> None:
        """Make sure that what is printed next can be seen."""
        with self._writing:
            if reset := self.filter.reset():
                self._writer(reset)

    def go_on(self) -> None:
        """Undo `end`."""
        with self._writing:
            if modes := self.filter.modes():
                self._writer(modes)


class TerminalLink:
    """Connects the user's terminal with one for the command. The user's is in raw mode from
    `connect` to `disconnect`: Ctrl+C and other keys are for the command's."""

    def __init__(self, screen: ScreenWriter | None, waiter: Waiter) -> None:
        """`screen` shows the output, unless that does not go to a terminal."""
        self._screen = screen
        if screen is not None:
            # The filter calls it in another thread.
            screen.filter.answer = lambda text: waiter.call(lambda: self._answer(text))
        self._waiter = waiter
        self._keyboard = _open_keyboard()
        self._settings: list[int | list[bytes | int]] | None = None
        self._is_connected = False
        self._is_waiting = self._is_suspending = self._is_given_back = False
        self.theirs = CommandTerminal(
            _kind(),
            like=self._keyboard,
            gives_input=os.isatty(0),
            takes_errors=os.isatty(2),
            drained=lambda: waiter.call(self._listen),
        )
        self._resize()

    def connect(self) -> None:
        self._is_connected = True
        self._take()
        self._waiter.add_signal_handler(signal.SIGWINCH, self._resize)
        self._waiter.add_signal_handler(signal.SIGCONT, self._continued)
        self._waiter.add_signal_handler(signal.SIGTSTP, self._suspend)

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
                self._waiter.remove_signal_handler(number)
            self.theirs.stop_sending()
            self._give_back()

    def _take(self) -> None:
        """Take the keys, or wait until we may: a job in the background must not."""
        if self._keyboard is None or not self._is_connected or self._is_given_back:
            return
        if not _is_foreground(self._keyboard):
            if not self._is_waiting:
                self._is_waiting = True
                self._waiter.call_later(_PAUSE, self._try_again)
            return
        with contextlib.suppress(termios.error):  # it was closed
            if self._settings is None:
                self._settings = termios.tcgetattr(self._keyboard)
            tty.setraw(self._keyboard, termios.TCSANOW)
            self._resize()
            self._listen()

    def _try_again(self) -> None:
        self._is_waiting = False
        self._take()

    def _give_back(self) -> None:
        if self._keyboard is None or self._settings is None:
            return
        self._waiter.remove_reader(self._keyboard)
        settings, self._settings = self._settings, None
        # The terminal may have been closed.
        with contextlib.suppress(termios.error):
            if self._screen is not None and self._screen.filter.may_be_answered():
                # Nothing else than the user's typing may answer a question, or reach the shell.
                termios.tcflush(self._keyboard, termios.TCIFLUSH)
            termios.tcsetattr(self._keyboard, termios.TCSANOW, settings)

    def _listen(self) -> None:
        if self._keyboard is not None and self._settings is not None and not self.theirs.unsent:
            self._waiter.add_reader(self._keyboard, self._read_keys)

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
            self._waiter.remove_reader(self._keyboard)
            return
        before, key, after = keys.partition(self.theirs.suspend_key())
        self._send(before)
        if key:
            self._suspend()
            self._send(after)

    def _continued(self) -> None:
        """Go on after somebody else has stopped us."""
        if self._is_suspending or self._keyboard is None:
            return
        if not _is_foreground(self._keyboard):
            # The shell has set up the terminal for itself.
            self._waiter.remove_reader(self._keyboard)
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
            self._waiter.remove_reader(self._keyboard)

    def _resize(self) -> None:
        size = (24, 80)
        for descriptor in (1, self._keyboard):
            if descriptor is not None and os.isatty(descriptor):
                size = termios.tcgetwinsize(descriptor)
                break
        self.theirs.resize(size)

    def give_back(self, *, with_us: bool = False) -> Callable[[], None]:
        """Give the user's terminal back for a while, in which the command stands still; return the
        function that takes it again. `with_us`: we are about to be stopped."""
        continue_job = self.theirs.suspend(with_us=with_us)
        if self._screen is not None:
            briefly(self._screen.end)
        self._give_back()
        self._is_given_back = True

        def take() -> None:
            self._is_given_back = False
            self._take()
            if self._screen is not None and self._is_connected:
                briefly(self._screen.go_on)
            continue_job()

        return take

    def _suspend(self) -> None:
        """Stop the command and ourselves; go on when the shell continues us."""
        if self._is_suspending or self._is_given_back:
            return
        self._is_suspending = True
        take = self.give_back(with_us=True)
        self._waiter.remove_signal_handler(signal.SIGTSTP)
        # As the terminal would have done it: with all that is in the user's pipeline.
        os.killpg(0, signal.SIGTSTP)
        self._waiter.add_signal_handler(signal.SIGTSTP, self._suspend)
        take()
        self._is_suspending = False


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
