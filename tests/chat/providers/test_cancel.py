# SPDX-License-Identifier: GPL-3.0-or-later
"""Stopping a request: it ends at once, whatever the server does, and leaves no thread or socket."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from support.provider import HELLO, gather, openai, said, tls_server
from support.servers.http import Replay, Reply, Stall, delta, events, finish, sse, stream
from support.timing import wait_for

from ollmsandbox import loop
from ollmsandbox.chat.providers.base import Model, Piece

pytestmark = pytest.mark.anybody

CHAT = "/v1/chat/completions"


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "http"]


def sockets() -> set[str]:
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue  # the one of the listing itself
        if target.startswith("socket:"):
            found.add(target)
    return found


def assert_nothing_is_left(server: Replay, before: set[str]) -> None:
    wait_for(lambda: server.hung_up == 1)
    wait_for(lambda: not threads())
    wait_for(lambda: sockets() <= before)


async def cancel_when(is_time: Callable[[], object], model: Model) -> None:
    """Ask a model, and cancel that at a certain time."""
    task = asyncio.create_task(gather(model))
    await asyncio.to_thread(wait_for, is_time)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


STATES = {
    "before the head": Reply([Stall()], raw=True),
    "before the first piece": stream([Stall()]),
    "in the middle": stream([*events(delta(content="a"), done=False), Stall()]),
}


@pytest.mark.parametrize("state", [*STATES, "on a secure line"])
def test_cancelling_the_reader_closes_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    context = None
    if state not in STATES:
        context, certificate = tls_server(tmp_path)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    with Replay({CHAT: STATES.get(state, STATES["in the middle"])}, context) as server:
        before = sockets()
        loop.run(cancel_when(lambda: server.seen, openai(server.address)))
        assert_nothing_is_left(server, before)
        assert len(server.seen) == 1


def test_closing_the_iterator_cuts_the_line() -> None:
    async def main() -> None:
        async with aclosing(openai(server.address).reply(HELLO, ())) as pieces:  # type: ignore[type-var]
            async for _ in pieces:
                break

    with Replay({CHAT: STATES["in the middle"]}) as server:
        before = sockets()
        loop.run(main())
        assert_nothing_is_left(server, before)


def test_an_unclosed_iterator_ends_with_the_loop() -> None:
    kept: list[AsyncIterator[Piece]] = []

    async def main() -> None:
        kept.append(openai(server.address).reply(HELLO, ()))
        await anext(kept[0])

    with Replay({CHAT: STATES["in the middle"]}) as server:
        before = sockets()
        loop.run(main())
        assert_nothing_is_left(server, before)


def test_a_reader_that_stops_reading_stops_the_server_and_can_still_be_cut() -> None:
    """Megabytes wait; the thread waits with them, and not in memory."""
    piece = b"data: " + b" " * 60_000 + b'{"choices": [{"delta": {"content": "x"}}]}\n\n'
    endless = stream([piece] * 2000)

    async def main() -> None:
        async with aclosing(openai(server.address).reply(HELLO, ())) as pieces:  # type: ignore[type-var]
            await anext(pieces)
            await asyncio.to_thread(wait_for, is_full)

    def is_full() -> bool:
        frame = sys._current_frames().get(threads()[0].ident or 0)
        while frame is not None and frame.f_code.co_name != "wait_for":
            frame = frame.f_back
        return frame is not None

    with Replay({CHAT: endless}) as server:
        before = sockets()
        loop.run(main())
        assert_nothing_is_left(server, before)


def test_after_a_stop_the_next_answer_comes() -> None:
    async def main() -> str:
        model = openai(server.address)
        await cancel_when(lambda: server.seen, model)
        return said(await gather(model))

    with Replay({CHAT: [STATES["in the middle"], sse(delta(content="b"), finish())]}) as server:
        assert loop.run(main()) == "b"


def test_stopping_during_the_pause_before_a_retry() -> None:
    with Replay({CHAT: Reply([b"{}"], 503, {"Retry-After": "20"})}) as server:
        loop.run(cancel_when(lambda: server.seen and not threads(), openai(server.address)))
        assert len(server.seen) == 1


def test_many_at_once_end_and_leave_nothing_behind() -> None:
    async def main() -> set[str]:
        models: list[Model] = [openai(server.address) for _ in range(20)]
        return {said(pieces) for pieces in await asyncio.gather(*map(gather, models))}

    numbers = [str(number) for number in range(20)]
    with Replay({CHAT: [sse(delta(content=number), finish()) for number in numbers]}) as server:
        before = sockets()
        assert loop.run(main()) == set(numbers)
        wait_for(lambda: not threads())
        wait_for(lambda: sockets() <= before)
