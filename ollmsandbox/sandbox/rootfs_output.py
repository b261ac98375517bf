# SPDX-License-Identifier: GPL-3.0-or-later
"""Output for people: the project by the path that it has on this machine."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .output import Sink
from .process import Sinks
from .rootfs_environment import WORKSPACE

_NAME = WORKSPACE.encode()
_COLOUR = 12


def _after(name: bytes) -> bytes:
    """Not within another path or word; but the word may be a colour that ends there, and the path a
    file's address. The name itself comes first: it is looked for much quicker."""
    ends = [rb"(?<![\w./~-]%b)", rb"(?<=file://%b)"]
    ends += [rb"(?<=\x1b\[[0-9;]{%d}[mK]%%b)" % size for size in range(_COLOUR + 1)]
    return name + b"(?:" + b"|".join(end % name for end in ends) + b")"


_WHOLE = re.compile(_after(_NAME) + rb"(?![\w.-])")
# What may become one; whether it does is seen when all of it is there.
_HALF = re.compile(
    rb"(?:(?<![\w./~-])|(?<=[mK/]))(?:"
    + b"|".join(_NAME[:n] for n in range(len(_NAME), 0, -1))
    + rb")\Z"
)
# As far as what is before a name matters.
_CONTEXT = _COLOUR + 3


class Renamed:
    """Passes on what comes; a name that is cut in two by the pieces is put together first."""

    def __init__(self, sink: Sink, project: str) -> None:
        self._sink = sink
        self._project = os.fsencode(project)
        self._held = b""
        # What was passed on last: whether a name begins depends on it.
        self._last = b""

    async def __call__(self, data: bytes) -> None:
        text = self._last + self._held + data
        half = _HALF.search(text, max(len(self._last), len(text) - len(_NAME)))
        end = half.start() if half else len(text)
        self._held = text[end:]
        await self._pass_on(text[:end])

    async def end(self) -> None:
        text, self._held = self._last + self._held, b""
        await self._pass_on(text)

    async def _pass_on(self, text: bytes) -> None:
        at = len(self._last)
        if len(text) == at:
            return
        shown = []
        for found in _WHOLE.finditer(text, at):
            shown += [text[at : found.start()], self._project]
            at = found.end()
        shown.append(text[at:])
        self._last = text[-_CONTEXT:]
        await self._sink(b"".join(shown))


@asynccontextmanager
async def renamed(sinks: Sinks, project: str) -> AsyncIterator[Sinks]:
    """For who shows both streams while they come."""
    assert sinks.stdout is not None
    assert sinks.stderr is not None
    stdout, stderr = Renamed(sinks.stdout, project), Renamed(sinks.stderr, project)
    try:
        yield Sinks(stdout, stderr, sinks.started)
    finally:
        await stdout.end()
        await stderr.end()
