# SPDX-License-Identifier: GPL-3.0-or-later
"""asyncio on GLib's main loop, for the window and the command line; and bare, where a command
line has nothing to do with GLib and shall start quickly."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import asyncio

    from gi.repository import Gio

T = TypeVar("T")


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop on the default main context.

    Made directly and not through an event loop policy: policies end with Python 3.16, the class
    is the same in PyGObject 3.50 and later.
    """
    from gi.events import GLibEventLoop
    from gi.repository import GLib

    loop: asyncio.AbstractEventLoop = GLibEventLoop(GLib.MainContext.default())
    return loop


def run(main: Coroutine[object, object, T]) -> T:
    """Run one coroutine to its end, as asyncio.run does."""
    import asyncio

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)


def run_bare(main: Coroutine[object, object, T]) -> T:
    """The same without GLib, for a process that does nothing else."""
    hidden = "asyncio" not in sys.modules and "ssl" not in sys.modules
    if hidden:
        # A fifth of the start-up time goes into TLS, which asyncio can do without.
        sys.modules["ssl"] = None  # type: ignore[assignment]
    import asyncio

    if hidden:
        del sys.modules["ssl"]
    return asyncio.run(main)


def run_application(application: Gio.Application, arguments: Sequence[str]) -> int:
    """Run a GApplication; tasks may be created from its signal handlers."""
    import asyncio

    loop = new_loop()
    asyncio.set_event_loop(loop)
    try:
        with loop.running(application.quit):  # type: ignore[attr-defined]
            return int(application.run(list(arguments)))
    finally:
        end(loop)


def end(loop: asyncio.AbstractEventLoop) -> None:
    """Close a loop for good: what is still under way is cancelled, and may put its things away."""
    import asyncio

    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    try:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
