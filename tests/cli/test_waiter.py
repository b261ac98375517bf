# SPDX-License-Identifier: GPL-3.0-or-later
"""The main thread serves signals, descriptors and timers while another one works."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from functools import partial

import pytest
from support.timing import PATIENCE

from ollmsandbox.cli.waiter import Waiter

pytestmark = pytest.mark.ordinary


def nothing() -> None:
    """Stop nothing."""


@pytest.fixture
def waiter() -> Iterator[Waiter]:
    before = signal.getsignal(signal.SIGUSR1)
    yield Waiter()
    assert signal.getsignal(signal.SIGUSR1) in (before, signal.SIG_DFL)
    signal.signal(signal.SIGUSR1, before)


def test_what_the_function_returns_or_raises_comes_back(waiter: Waiter) -> None:
    assert waiter.wait_for(threading.get_ident, nothing) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        waiter.wait_for(lambda: divmod(1, 0), nothing)
    assert waiter.wait_for(lambda: 3, nothing) == 3


def test_signals_are_served_in_order_while_the_function_blocks(waiter: Waiter) -> None:
    seen: list[int] = []
    both = threading.Event()

    def served(number: int) -> None:
        seen.append(number)
        if len(seen) == 2:
            both.set()

    for number in (signal.SIGUSR1, signal.SIGUSR2):
        waiter.add_signal_handler(number, partial(served, number))

    def work() -> bool:
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR2)
        return both.wait(PATIENCE)

    assert waiter.wait_for(work, nothing)
    assert sorted(seen) == sorted([signal.SIGUSR1, signal.SIGUSR2])


def test_a_signal_that_comes_before_the_wait_is_served(waiter: Waiter) -> None:
    served = threading.Event()
    waiter.add_signal_handler(signal.SIGUSR1, served.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert waiter.wait_for(lambda: served.wait(PATIENCE), nothing)


def test_a_signal_is_what_it_was_afterwards(waiter: Waiter) -> None:
    before = signal.getsignal(signal.SIGINT)
    waiter.add_signal_handler(signal.SIGINT, lambda: None)
    waiter.wait_for(lambda: None, nothing)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_a_reader_may_remove_another_that_has_something_too(waiter: Waiter) -> None:
    pipes = [os.pipe() for _ in range(2)]
    served: list[int] = []
    ended = threading.Event()

    def serve(number: int) -> None:
        served.append(number)
        for reader, _writer in pipes:
            waiter.remove_reader(reader)
        ended.set()

    for number, (reader, writer) in enumerate(pipes):
        os.write(writer, b"x")
        waiter.add_reader(reader, partial(serve, number))
    assert waiter.wait_for(lambda: ended.wait(PATIENCE), nothing)
    assert len(served) == 1
    for descriptor in (*pipes[0], *pipes[1]):
        os.close(descriptor)


def test_timers_fire_in_order_and_calls_come_from_any_thread(waiter: Waiter) -> None:
    seen: list[object] = []
    ended = threading.Event()
    waiter.call_later(0.02, ended.set)
    waiter.call_later(0.01, lambda: seen.append("first"))

    def work() -> None:
        # More than the pipe that wakes the main thread takes.
        for _ in range(100_000):
            waiter.call(lambda: seen.append(threading.get_ident()))
        ended.wait(PATIENCE)

    waiter.wait_for(work, nothing)
    assert seen.count("first") == 1
    assert seen.count(threading.get_ident()) == 100_000


def test_if_a_callback_fails_the_function_is_stopped(waiter: Waiter) -> None:
    stopped, ended = threading.Event(), threading.Event()
    waiter.call(lambda: divmod(1, 0))

    def work() -> None:
        stopped.wait(PATIENCE)
        ended.set()

    with pytest.raises(ZeroDivisionError):
        waiter.wait_for(work, stopped.set)
    assert ended.is_set()
