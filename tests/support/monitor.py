# SPDX-License-Identifier: GPL-3.0-or-later
"""A project, an upper folder above it, and a monitor that watches that folder."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

from ollmsandbox import loop
from ollmsandbox.sandbox.monitor import EventKind, FileEvent, Monitor

LONGEST = 100.0


class Case:
    """A project, and a folder in the place of an overlay's upper folder."""

    def __init__(self, folder: Path) -> None:
        self.outside = folder / "outside"
        self.project = folder / "project"
        self.base = folder / "upper"
        self.upper = self.base / "overlay1"
        for made in (self.outside, self.project, self.upper):
            made.mkdir(parents=True)
        self.events: list[FileEvent] = []
        self.monitor = self.watching()

    def watching(self, ceiling: int = 2000) -> Monitor:
        self.monitor = Monitor({"overlay1": str(self.project)}, str(self.base), ceiling)
        self.monitor.listen(self.events.append)
        return self.monitor

    def real(self, *names: str) -> list[str]:
        return [f"{self.project}/{name}" for name in names]

    def run(self, scenario: Callable[[], Coroutine[object, object, None]]) -> None:
        async def watched() -> None:
            self.monitor.start()
            try:
                await scenario()
            finally:
                self.monitor.stop()

        loop.run(watched())

    async def settled(self) -> None:
        """Wait for all earlier events: they keep their order, so this file's event comes last."""
        mark = self.upper / "zz-mark"
        path = f"{self.project}/{mark.name}"
        mark.write_text("")
        await until(lambda: any(event.path == path for event in self.events))
        os.unlink(mark)
        await until(lambda: FileEvent(EventKind.REMOVED, path, self.monitor.count) in self.events)
        self.events[:] = [event for event in self.events if event.path != path]


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < end, "it was never seen"
        await asyncio.sleep(0.01)


def whiteout(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR, 0)
