# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks at the terminal about hosts that a command tries to reach."""

from __future__ import annotations

import asyncio
import contextlib
import os

from ..sandbox.network.proxy import Proxy
from ..sandbox.output import readable
from ..text.ansi import escape_line
from .terminal import TerminalLink

_QUESTION = "ollmsandbox: The command tries to reach {host}, port {port}{how}. Allow it? [y/N] "
_PRIVATE = (
    "ollmsandbox: {host} is at {address}, in a private network. Allow the command to reach it? "
    "[y/N] "
)


class HostAsker:
    """Asks one question after the other. Anything but a yes means no."""

    def __init__(self, link: TerminalLink | None, keyboard: int) -> None:
        self._link = link
        self._keyboard = keyboard
        self._turn = asyncio.Lock()

    @classmethod
    def at_terminal(cls, link: TerminalLink | None) -> HostAsker | None:
        """Return an asker if a user sits at a terminal. `link` connects it with the command's."""
        if link is None and not os.isatty(2):
            return None
        with contextlib.suppress(OSError):
            return cls(link, os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
        return None

    async def __call__(self, host: str, port: int, address: str) -> bool:
        text = _PRIVATE if address else _QUESTION
        proxy = Proxy.find(host, port, os.environ)
        how = f", through your proxy {escape_line(str(proxy))}" if proxy is not None else ""
        shown = text.format(host=escape_line(host), port=port, how=how, address=address)
        async with self._turn:
            if self._link is None:
                return await self._ask(shown)
            async with self._link.given_back():
                return await self._ask(shown)

    async def _ask(self, shown: str) -> bool:
        os.write(self._keyboard, f"\r\n{shown}".encode())
        await readable(self._keyboard)
        return os.read(self._keyboard, 1 << 12).strip().lower() in (b"y", b"yes")
