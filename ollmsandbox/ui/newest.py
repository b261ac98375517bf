# SPDX-License-Identifier: GPL-3.0-or-later
"""Work on a thread of which only the newest counts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Newest:
    """One after the other: several at once would each take turns away from the window. What was
    overtaken while it waited is never done."""

    def __init__(self) -> None:
        self._number = 0
        # Who waits takes no thread: there are few, and work that hangs would take them all.
        self._turn = asyncio.Lock()
        # It goes on where nobody waits for it any more.
        self._alone = threading.Lock()

    async def run(self, work: Callable[[], T]) -> T:
        self._number += 1
        number = self._number

        def in_turn() -> T:
            with self._alone:
                if number != self._number:
                    raise asyncio.CancelledError
                return work()

        async with self._turn:
            if number != self._number:
                raise asyncio.CancelledError
            return await asyncio.to_thread(in_turn)
