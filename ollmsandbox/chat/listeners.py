# SPDX-License-Identifier: GPL-3.0-or-later
"""Who hears of a conversation. Their mistakes are told to the loop and change nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .events import Event

Listener = Callable[[Event], None]


class Listeners:
    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> Callable[[], None]:
        """Call what it returns to stop listening; twice does no harm."""
        # One that listens twice is two.
        one = _One(listener)
        self._listeners.append(one)

        def remove() -> None:
            if one in self._listeners:
                self._listeners.remove(one)

        return remove

    def tell(self, event: Event) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - a front's mistake must not end a turn
                report(error)


class _One:
    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def __call__(self, event: Event) -> None:
        self._listener(event)


def report(error: Exception) -> None:
    """A mistake in the program: told where the loop tells such things."""
    asyncio.get_running_loop().call_exception_handler(
        {"message": "A mistake in the program", "exception": error}
    )
