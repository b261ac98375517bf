# SPDX-License-Identifier: GPL-3.0-or-later
"""Run asyncio on GLib's main loop, or without GLib where the command line has to start quickly."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import asyncio

    from gi.repository import Gio

T = TypeVar("T")


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a loop on the default main context.

    Created without an event loop policy: Python 3.16 removes policies, while the class is the same
    in PyGObject 3.50 and later.
    """
    from gi.events import GLibEventLoop
    from gi.repository import GLib

    loop: asyncio.AbstractEventLoop = GLibEventLoop(GLib.MainContext.default())
    return loop


def run(main: Coroutine[object, object, T]) -> T:
    """Run a coroutine to its end, as asyncio.run does, on GLib's main loop."""
    import asyncio

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)


def run_bare(main: Coroutine[object, object, T]) -> T:
    """Run a coroutine to its end without GLib, for a command line that needs nothing of it."""
    import asyncio

    return asyncio.run(main)


def run_application(application: Gio.Application, arguments: Sequence[str]) -> int:
    """Run a GApplication, whose signal handlers may create tasks."""
    import asyncio

    loop = new_loop()
    asyncio.set_event_loop(loop)
    try:
        with loop.running(application.quit):  # type: ignore[attr-defined]
            return int(application.run(list(arguments)))
    finally:
        end(loop)


def end(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel all tasks, let them clean up, and close the loop."""
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
