# SPDX-License-Identifier: GPL-3.0-or-later
"""asyncio on GLib's main loop, for the command line and for the window."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TypeVar

from gi.events import GLibEventLoop
from gi.repository import Gio, GLib

T = TypeVar("T")


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop on the default main context.

    Made directly and not through an event loop policy: policies end with Python 3.16, the class
    is the same in PyGObject 3.50 and later.
    """
    loop: asyncio.AbstractEventLoop = GLibEventLoop(GLib.MainContext.default())
    return loop


def run(main: Coroutine[object, object, T]) -> T:
    """Run one coroutine to its end, as asyncio.run does."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)


def run_application(application: Gio.Application, arguments: Sequence[str]) -> int:
    """Run a GApplication; tasks may be created from its signal handlers."""
    loop = new_loop()
    asyncio.set_event_loop(loop)
    try:
        with loop.running(application.quit):  # type: ignore[attr-defined]
            return int(application.run(list(arguments)))
    finally:
        asyncio.set_event_loop(None)
        loop.close()
