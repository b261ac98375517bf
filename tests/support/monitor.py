# SPDX-License-Identifier: GPL-3.0-or-later
"""A project, an upper folder above it, and a monitor that watches that folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Coroutine
from pathlib import Path

from support.timing import until

from ollmsandbox import loop
from ollmsandbox.sandbox.monitor import EventKind, FileEvent, Monitor


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


def whiteout(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR, 0)
