# SPDX-License-Identifier: GPL-3.0-or-later
"""Run asyncio on GLib's main loop, or without GLib where the command line has to start quickly;
and start threads that never delay the end of the program."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    import asyncio

    from gi.repository import Gio

T = TypeVar("T")
P = ParamSpec("P")


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


def start_daemon(
    name: str, function: Callable[P, object], *given: P.args, **named: P.kwargs
) -> None:
    """Run a function in a thread of its own, which the end of the program does not wait for.

    For work that may block for long or forever: a dead mount, a keyring, a server. asyncio's pool
    is not for that, because it has few threads and the program waits for them at its end.
    """
    threading.Thread(target=function, args=given, kwargs=named, name=name, daemon=True).start()


async def in_daemon(name: str, function: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Return what the function returns, as `asyncio.to_thread` does, but see `start_daemon`. A
    cancellation takes effect at once, while the function goes on."""
    import asyncio
    from concurrent.futures import Future, InvalidStateError

    ended: Future[T] = Future()

    def work() -> None:
        # It is already cancelled if nobody waits for the result.
        with contextlib.suppress(InvalidStateError):
            try:
                result = function(*given, **named)
            except BaseException as error:  # noqa: BLE001  passed on to the caller
                ended.set_exception(error)
            else:
                ended.set_result(result)

    start_daemon(name, work)
    return await asyncio.wrap_future(ended)


def end(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel all tasks, let them clean up, and close the loop."""
    import asyncio

    try:
        _cancel_all(loop)
        loop.run_until_complete(loop.shutdown_asyncgens())
        # A timer of the window may have started another one just now.
        _cancel_all(loop)
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel all tasks, also those that are started meanwhile, and wait for their end."""
    import asyncio

    while tasks := asyncio.all_tasks(loop):
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
