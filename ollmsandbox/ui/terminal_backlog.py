# SPDX-License-Identifier: GPL-3.0-or-later
"""Output that waits to be shown. Only so much of it: what nobody could read is counted."""

from __future__ import annotations

import time
from collections import deque

from .terminal import MOST_LINES, Screen

# What is left after a cut: about as much as the screen keeps.
_KEPT = 1 << 18
_MOST = 1 << 20
# The slowest kind of output, nothing but line ends, takes some milliseconds for this much.
_PIECE = 1 << 11


class Backlog:
    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._waiting: deque[bytes] = deque()
        self._size = 0

    def __bool__(self) -> bool:
        return self._size > 0

    def add(self, data: bytes) -> None:
        if data:
            self._waiting.append(data)
            self._size += len(data)
        if self._size > _MOST:
            self._cut()

    def work(self, until: float) -> None:
        """Pass on what there is, but no longer than `until` on the monotonic clock."""
        while self._waiting:
            data = self._waiting.popleft()
            for start in range(0, len(data), _PIECE):
                if time.monotonic() >= until:
                    self._waiting.appendleft(data[start:])
                    return
                piece = data[start : start + _PIECE]
                self._screen.feed(piece)
                self._size -= len(piece)

    def _cut(self) -> None:
        """All but the end goes; at the end of a line, if there is one."""
        lines = 0
        # What goes as a whole is only counted: to join all first would take longer than this.
        while self._size - len(self._waiting[0]) >= _KEPT:
            piece = self._waiting.popleft()
            self._size -= len(piece)
            lines += piece.count(b"\n")
        data = b"".join(self._waiting)
        rest = data[-_KEPT:]
        if rest.count(b"\n") > MOST_LINES:
            rest = rest[len(rest.rsplit(b"\n", MOST_LINES)[0]) + 1 :]
        else:
            rest = rest[rest.find(b"\n") + 1 :]
        self._screen.skip(lines + data.count(b"\n", 0, len(data) - len(rest)))
        self._waiting = deque([rest] if rest else [])
        self._size = len(rest)
