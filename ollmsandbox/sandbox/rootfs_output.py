# SPDX-License-Identifier: GPL-3.0-or-later
"""Output for people: the project by the path that it has on this machine."""

from __future__ import annotations

import os
import re

from .output import Sink
from .rootfs_environment import WORKSPACE

_NAME = WORKSPACE.encode()
# Not within another path or word.
_BEFORE = rb"(?<![\w./~-])"
_WHOLE = re.compile(_BEFORE + _NAME + rb"(?![\w.-])")
_HALF = re.compile(
    _BEFORE + b"(?:" + b"|".join(_NAME[:n] for n in range(len(_NAME), 0, -1)) + rb")\Z"
)


class Renamed:
    """Passes on what comes; a name that is cut in two by the pieces is put together first."""

    def __init__(self, sink: Sink, project: str) -> None:
        self._sink = sink
        self._project = os.fsencode(project)
        self._held = b""
        # The last byte that was passed on: whether a name begins depends on it.
        self._last = b""

    async def __call__(self, data: bytes) -> None:
        text = self._last + self._held + data
        half = _HALF.search(text, len(self._last))
        end = half.start() if half else len(text)
        self._held = text[end:]
        await self._pass_on(text[:end])

    async def end(self) -> None:
        text, self._held = self._last + self._held, b""
        await self._pass_on(text)

    async def _pass_on(self, text: bytes) -> None:
        start = len(self._last)
        if len(text) > start:
            self._last = text[-1:]
            await self._sink(_WHOLE.sub(lambda _found: self._project, text)[start:])
