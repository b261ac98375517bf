# SPDX-License-Identifier: GPL-3.0-or-later
"""An answer to each call, also where a turn is stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from ..tools.base import Outcome, Tool
from .book import Book
from .calls import Caller, Doing
from .events import CallEnded, Event, Settled, State
from .messages import Message, Role, ToolCall
from .stored import CallRecord, Entry

# How long a stop waits for a command to be gone before it goes on without it.
GRACE = 0.12
STOPPED = "Stopped by the person."
OUT_OF_TIME = "Stopped: the time limit of this turn was reached."
_NO_MORE = "ERROR: Not carried out: the limit of tokens was reached."


class Answers:
    def __init__(
        self,
        tools: Sequence[Tool],
        book: Book | None,
        emit: Callable[[Event], None],
        enter: Callable[[State], None],
        why_stopped: Callable[[], str] = lambda: STOPPED,
    ) -> None:
        self._why_stopped = why_stopped
        self._book = book
        self._emit = emit
        self._enter = enter
        self._caller = Caller(tools, emit, enter, self._ended)
        self._doings: Sequence[Doing] = ()
        # Calls that were stopped and still put in order what they had changed.
        self._lingering: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """A new turn."""
        self._caller.begin()

    async def give(
        self, calls: Sequence[ToolCall], repeated: Collection[str], messages: list[Message]
    ) -> None:
        """Adds an answer to each, in the order of the calls, however it ends."""
        doings = [Doing(call, self._number(), repeated=call.id in repeated) for call in calls]
        try:
            await self._carry_out(doings)
        finally:
            messages += [_answer(doing) for doing in doings]

    def refuse(self, calls: Sequence[ToolCall], messages: list[Message]) -> None:
        for call in calls:
            doing = Doing(call, self._number())
            self._caller.give_up(doing, Outcome(_NO_MORE, ok=False))
            messages.append(_answer(doing))

    async def give_own(self, command: str, call: ToolCall, messages: list[Message]) -> Outcome:
        """The person's own command."""
        doing = Doing(call, self._number(), own=True, description=command)
        try:
            await self._carry_out([doing])
        except asyncio.CancelledError:
            pass  # stopped; that is its outcome
        messages.append(_answer(doing))
        assert doing.outcome is not None
        return doing.outcome

    def stop_one(self, call_id: str) -> None:
        """What runs beside it goes on, and the model hears what became of it."""
        for doing in self._doings:
            task = doing.task
            if doing.call.id == call_id and task and not task.done() and not doing.stopped:
                doing.stopped = STOPPED
                task.add_done_callback(partial(self._stopped_one, doing))
                task.cancel()

    async def settled(self) -> None:
        """What was stopped has put everything in order."""
        if self._lingering:
            await asyncio.wait(self._lingering)

    async def _carry_out(self, doings: Sequence[Doing]) -> None:
        self._doings = doings
        try:
            if self._lingering:
                self._enter(State.RUNNING)
                await self.settled()
            await self._caller.carry_out(doings)
        except asyncio.CancelledError:
            await self._stop(doings)
            raise
        finally:
            self._doings = ()

    async def _stop(self, doings: Sequence[Doing]) -> None:
        tasks = [doing.task for doing in doings if doing.task and not doing.task.done()]
        for doing in doings:
            # One that was stopped by itself puts in order what it changed.
            if not doing.stopped and doing.task in tasks:
                doing.task.cancel()
            # Known now: it may end when the next turn has begun.
            doing.stopped = doing.stopped or self._why_stopped()
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE)
        for doing in doings:
            if doing.outcome is not None:
                continue
            self._caller.give_up(doing, _stopped(doing))
            if doing.task is not None and not doing.task.done():
                lingering = asyncio.ensure_future(self._linger(doing, doing.task))
                self._lingering.add(lingering)
                lingering.add_done_callback(self._lingering.discard)

    def _stopped_one(self, doing: Doing, _task: asyncio.Task[Outcome]) -> None:
        if doing.outcome is None:
            self._caller.give_up(doing, _stopped(doing))

    async def _linger(self, doing: Doing, task: asyncio.Task[Outcome]) -> None:
        await asyncio.wait({task})
        doing.outcome = _stopped(doing)
        self._write(doing)
        if doing.outcome.report is not None:
            self._emit(Settled(doing.call.id, doing.outcome.report))

    def _number(self) -> int:
        return self._book.take_number() if self._book else 0

    def _ended(self, doing: Doing) -> None:
        assert doing.outcome is not None
        self._emit(CallEnded(doing.call, doing.outcome))
        self._write(doing)

    def _write(self, doing: Doing) -> None:
        if self._book is not None and doing.outcome is not None:
            record = CallRecord.of(doing.outcome, doing.description, own=doing.own)
            self._book.write(Entry(doing.number, _answer(doing), record.asked(doing.verdict)))


def _stopped(doing: Doing) -> Outcome:
    """With what it had changed by then, as far as that is known."""
    partial = doing.request.partial if doing.request else None
    if partial is None:
        return Outcome(doing.stopped, ok=False, verdict=doing.verdict)
    return replace(partial, text=f"{doing.stopped}\n{partial.text}".rstrip(), ok=False)


def _answer(doing: Doing) -> Message:
    text = doing.outcome.text if doing.outcome else STOPPED
    if doing.own:
        said = f"I ran this command in the sandbox myself:\n$ {doing.description}\n{text}"
        return Message(Role.USER, said, at=time.time())
    return Message(Role.TOOL, text, call_id=doing.call.id, at=time.time())
