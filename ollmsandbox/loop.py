# SPDX-License-Identifier: GPL-3.0-or-later
"""Run asyncio on GLib's main loop, and start threads that never delay the end of the program."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
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
    return await _future_of(name, partial(function, *given, **named), is_daemon=True)


async def in_stoppable_thread(name: str, function: Callable[[], T], stop: Callable[[], bool]) -> T:
    """Return what a function returns that runs in a thread of its own.

    A cancellation calls `stop`. If that returns True, the cancellation takes effect when the
    function has returned; if it has failed, its error is raised instead. The program waits for the
    function at its end.
    """
    import asyncio

    working = _future_of(name, function, is_daemon=False)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        if not stop():
            raise
        # However often it is cancelled: the function may still wait for this loop.
        while not working.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({working})
        if (error := working.exception()) is not None:
            raise error from None
        raise


def _future_of(name: str, function: Callable[[], T], *, is_daemon: bool) -> asyncio.Future[T]:
    """Start a function in a thread, and return its future result."""
    import asyncio
    from concurrent.futures import Future, InvalidStateError

    ended: Future[T] = Future()

    def work() -> None:
        # It is already cancelled if nobody waits for the result.
        with contextlib.suppress(InvalidStateError):
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001  passed on to the caller
                ended.set_exception(error)
            else:
                ended.set_result(result)

    threading.Thread(target=work, name=name, daemon=is_daemon).start()
    return asyncio.wrap_future(ended)


def on_this_loop(function: Callable[P, Coroutine[object, object, T]]) -> Callable[P, T]:
    """Return a function for other threads, which runs a coroutine on this thread's loop and waits
    for what it returns."""
    import asyncio

    loop = asyncio.get_running_loop()

    def call(*given: P.args, **named: P.kwargs) -> T:
        return asyncio.run_coroutine_threadsafe(function(*given, **named), loop).result()

    return call


async def readable(descriptor: int) -> None:
    """Wait until there is data or the end of it; for a pidfd, until the process is dead."""
    import asyncio

    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


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
