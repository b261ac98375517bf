# SPDX-License-Identifier: GPL-3.0-or-later
"""What is typed: single keys while a turn goes on, whole lines between turns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
import tty
from collections.abc import Iterator
from pathlib import Path

_MOST_LINES = 1000


class Keys:
    """Keys of a terminal, one at a time, without waiting for Enter. Ctrl+C stays a signal."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        before = termios.tcgetattr(self._descriptor)
        try:
            tty.setcbreak(self._descriptor, termios.TCSANOW)
            yield
        finally:
            # What is still typed was meant for the question.
            self.forget()
            termios.tcsetattr(self._descriptor, termios.TCSANOW, before)

    def forget(self) -> None:
        """What was typed ahead answers no question."""
        termios.tcflush(self._descriptor, termios.TCIFLUSH)

    async def key(self) -> str:
        """One key; empty at the end of input. All of what comes in one burst, as it does if it is
        pasted or from a function key: that is no key that a person pressed as an answer."""
        await self._readable()
        try:
            data = os.read(self._descriptor, 4096)
        except OSError:
            return ""  # the terminal is gone
        return "" if data == b"\x04" else data.decode("utf-8", "replace")

    async def _readable(self) -> None:
        ready = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._descriptor)


class Lines:
    """Lines with their history, as a shell has them."""

    def __init__(self, history: Path) -> None:
        self._history = history
        try:
            import readline
        except ImportError:  # a Python without it
            self._readline = None
            return
        self._readline = readline
        readline.set_history_length(_MOST_LINES)
        with contextlib.suppress(OSError):  # there is none yet
            readline.read_history_file(str(history))

    def read(self, prompt: str) -> str:
        """Raises EOFError and KeyboardInterrupt."""
        sys.stdout.flush()
        return input(prompt)

    def save(self) -> None:
        if self._readline is None:
            return
        with contextlib.suppress(OSError):  # lines typed before are worth no error
            os.close(os.open(self._history, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._readline.write_history_file(str(self._history))
