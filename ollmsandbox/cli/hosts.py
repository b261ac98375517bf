# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks at the terminal about hosts that a command tries to reach."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable

from ..sandbox.network.proxy import Proxy
from ..text.ansi import escape_line
from .terminal import TerminalLink
from .waiter import Waiter

_QUESTION = "ollmsandbox: The command tries to reach {host}, port {port}{how}. Allow it? [y/N] "
_PRIVATE = (
    "ollmsandbox: {host} is at {address}, in a private network. Allow the command to reach it? "
    "[y/N] "
)


class HostAsker:
    """Asks one question after the other. Anything but a yes means no."""

    def __init__(self, waiter: Waiter, link: TerminalLink | None, keyboard: int) -> None:
        self._waiter = waiter
        self._link = link
        self._keyboard = keyboard
        # Questions with what receives the answer; the first one is being asked.
        self._open: deque[tuple[str, Callable[[bool], None]]] = deque()

    @classmethod
    def at_terminal(cls, waiter: Waiter, link: TerminalLink | None) -> HostAsker | None:
        """Return an asker if a user sits at a terminal. `link` connects it with the command's."""
        if link is None and not os.isatty(2):
            return None
        with contextlib.suppress(OSError):
            keyboard = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
            return cls(waiter, link, keyboard)
        return None

    def __call__(
        self, host: str, port: int, address: str, answered: Callable[[bool], None]
    ) -> Callable[[], None]:
        text = _PRIVATE if address else _QUESTION
        proxy = Proxy.find(host, port, os.environ)
        how = f", through your proxy {escape_line(str(proxy))}" if proxy is not None else ""
        shown = text.format(host=escape_line(host), port=port, how=how, address=address)
        self._waiter.call(lambda: self._add(shown, answered))
        # A question that is open at the end of the command is in nobody's way.
        return lambda: None

    def _add(self, shown: str, answered: Callable[[bool], None]) -> None:
        self._open.append((shown, answered))
        if len(self._open) == 1:
            self._ask()

    def _ask(self) -> None:
        take_again = self._link.give_back() if self._link is not None else None
        shown, answered = self._open[0]

        def read() -> None:
            answer = b""
            with contextlib.suppress(OSError):  # the terminal was closed
                answer = os.read(self._keyboard, 1 << 12).strip().lower()
            self._waiter.remove_reader(self._keyboard)
            if take_again is not None:
                take_again()
            answered(answer in (b"y", b"yes"))
            self._open.popleft()
            if self._open:
                self._ask()

        with contextlib.suppress(OSError):  # as above
            os.write(self._keyboard, f"\r\n{shown}".encode())
        self._waiter.add_reader(self._keyboard, read)
