# SPDX-License-Identifier: GPL-3.0-or-later
"""Sessions that nobody looks at: closed once nothing has happened in them for a while. Another
program may want them, and they take room."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..widgets.tasks import Tasks

if TYPE_CHECKING:
    from .open_session import OpenSession

# Seconds. Who goes to and fro between two of them finds both as they were.
AFTER = 60.0


class Resting:
    """`close` is called with one that may be closed."""

    def __init__(self, close: Callable[[OpenSession], Awaitable[None]]) -> None:
        self._close = close
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks = Tasks(_say)

    def left(self, session: OpenSession) -> None:
        """It is not shown any more."""
        self.taken(session.id)
        loop = asyncio.get_running_loop()
        self._timers[session.id] = loop.call_later(AFTER, self._look, session)

    def taken(self, session_id: str) -> None:
        """It is shown, or closed."""
        timer = self._timers.pop(session_id, None)
        if timer is not None:
            timer.cancel()

    def _look(self, session: OpenSession) -> None:
        self._tasks.start(self._rest(session, self._timers[session.id]))

    async def _rest(self, session: OpenSession, timer: asyncio.TimerHandle) -> None:
        may_rest = session.is_at_rest and await session.conversation.is_written()
        if self._timers.get(session.id) is not timer:
            return  # somebody came back
        if may_rest and session.is_at_rest:
            self.taken(session.id)
            await self._close(session)
        else:
            self.left(session)


def _say(text: str) -> None:
    print(f"ollmsandbox: {text}", file=sys.stderr)
