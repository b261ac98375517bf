# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the keyboard: single keys during a turn, whole lines between turns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from pathlib import Path

from ...loop import readable

_MOST_LINES = 1000


class KeyReader:
    """Reads single keys of a terminal without waiting for Enter. Ctrl+C stays a signal."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        before = termios.tcgetattr(self._descriptor)
        try:
            tty.setcbreak(self._descriptor, termios.TCSANOW)
            yield
        finally:
            # What was typed since was meant for the question.
            self.forget()
            termios.tcsetattr(self._descriptor, termios.TCSANOW, before)

    def forget(self) -> None:
        """Drop what was typed so far."""
        termios.tcflush(self._descriptor, termios.TCIFLUSH)

    async def key(self) -> str:
        """Return one key; "" at the end of input. Pasted text and function keys come in one burst,
        and are returned as a whole: nobody typed them as an answer."""
        await readable(self._descriptor)
        try:
            data = os.read(self._descriptor, 4096)
        except OSError:
            return ""  # the terminal was closed
        return "" if data == b"\x04" else data.decode("utf-8", "replace")

    async def line(self) -> str | None:
        """Return a line that ends with Enter, while the terminal is not `taken`; None at the end of
        input."""
        await readable(self._descriptor)
        return _read_line(self._descriptor)


class TypedLines:
    """Passes on what the user types during a turn, line by line."""

    def __init__(self, descriptor: int = 0) -> None:
        self.heard: Callable[[str], None] = lambda _line: None
        self._descriptor = descriptor
        self._is_wanted = self._is_reading = False

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        self._is_wanted = True
        self.resume()
        try:
            yield
        finally:
            self._is_wanted = False
            self.pause()

    def pause(self) -> None:
        """Leave the keyboard to a question."""
        if self._is_reading:
            self._is_reading = False
            asyncio.get_running_loop().remove_reader(self._descriptor)

    def resume(self) -> None:
        if self._is_wanted and not self._is_reading:
            self._is_reading = True
            asyncio.get_running_loop().add_reader(self._descriptor, self._read)

    def _read(self) -> None:
        line = _read_line(self._descriptor)
        if line is None:
            self._is_wanted = False
            self.pause()
        elif line.strip():
            self.heard(line.strip())


def _read_line(descriptor: int) -> str | None:
    try:
        data = os.read(descriptor, 4096)
    except OSError:
        return None  # the terminal was closed
    return data.decode("utf-8", "replace") if data else None


class KeyboardReader:
    """Reads lines with a history, like a shell."""

    def __init__(self, history: Path) -> None:
        self._history = history
        try:
            import readline
        except ImportError:  # a Python without it
            self._readline = None
            return
        self._readline = readline
        readline.set_history_length(_MOST_LINES)
        with contextlib.suppress(OSError):  # there is no history yet
            readline.read_history_file(str(history))

    def read(self, prompt: str) -> str:
        """Return a line, or raise EOFError or KeyboardInterrupt."""
        sys.stdout.flush()
        return input(prompt)

    def save(self) -> None:
        if self._readline is None:
            return
        with contextlib.suppress(OSError):  # losing the history is not worth an error
            os.close(os.open(self._history, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._readline.write_history_file(str(self._history))
