# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes as they come, in whole lines and events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ... import N_
from .base import ProviderError

_LONGEST = 4 << 20


class LineReader:
    """Lines may end in LF, CR or both. A character that came in two pieces is whole again here:
    only whole lines are decoded."""

    def __init__(self, read: Callable[[], Awaitable[bytes]], longest: int = _LONGEST) -> None:
        self._read = read
        self._longest = longest
        self._lines: list[bytes] = []
        self._rest = bytearray()
        self._after_cr = False
        self._ended = False

    async def next(self) -> str | None:
        """None at the end."""
        while not self._lines and not self._ended:
            self._take(await self._read())
        if not self._lines:
            return None
        return self._lines.pop().decode("utf-8", "replace")

    def _take(self, data: bytes) -> None:
        if not data:
            self._ended = True
            self._lines = [bytes(self._rest)] if self._rest else []
            return
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
            self._after_cr = False
        if not data:
            return
        self._after_cr = data.endswith(b"\r")
        lines = data.splitlines(keepends=True)
        ends = lines[-1].endswith((b"\n", b"\r"))
        if len(lines) > 1 or ends:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest.clear()
        if not ends:
            self._rest += lines.pop()
        if len(self._rest) > self._longest or any(len(line) > self._longest for line in lines):
            raise ProviderError(
                N_("The server sent a line of more than {size} MiB."),
                N_("It may not be a model server."),
                size=self._longest >> 20,
            )
        # Taken from the end.
        self._lines = [line.rstrip(b"\r\n") for line in reversed(lines)]


class EventReader:
    """Server-sent events, of which only the data matters. Comments keep the line alive."""

    def __init__(self, lines: LineReader) -> None:
        self._lines = lines

    async def next(self) -> str | None:
        data: list[str] = []
        while (line := await self._lines.next()) is not None:
            if not line:
                if data:
                    break
                continue
            name, _, value = line.partition(":")
            if name == "data":
                data.append(value.removeprefix(" "))
            elif name == "error":
                # Older llama.cpp names the line itself so.
                data.append(f'{{"error": {value}}}')
            elif name.lstrip().startswith("{"):
                # Plain JSON in place of an event: an error, mostly.
                data.append(line)
        return "\n".join(data) if data else None
