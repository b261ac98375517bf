# SPDX-License-Identifier: GPL-3.0-or-later
"""An answer to each call, also where a turn is stopped.

Carries out the tool calls of a reply. Whatever a model asks for, it gets an answer.

An answer to each call, also where a turn is stopped.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from .. import N_
from ..errors import OllmSandboxError, Sentence
from ..permission.request import PermissionRequest, Verdict
from ..sandbox.monitor import FileEvent
from ..sandbox.plan.plan import Plan
from ..tools.base import Outcome, RequestBase, Stream, Tool
from .events import (
    CallBegan,
    CallEnded,
    CallSettled,
    ChatEvent,
    CommandOutput,
    CommandStarted,
    ConversationState,
    FilesChanged,
    PermissionAnswered,
    PermissionAsked,
    report,
)
from .messages import Message, Role, ToolCall
from .storage.stored import CallRecord, StoredMessage
from .storage.writer import SessionWriter

# The same call may fail so often, one time after the other, before it is refused.
_PATIENCE = 3
_MOST_SHOWN = 200
SAME_ID = N_("Two calls of this reply had the same id. Give each call an id of its own.")


@dataclass
class ActiveCall:
    """A call that is being carried out, or was."""

    call: ToolCall
    # Its answer's place in the book.
    number: int = 0
    own: bool = False
    # Its id was that of another call of the same reply.
    repeated: bool = False
    description: str = ""
    request: RequestBase | None = None
    verdict: Verdict | None = None
    outcome: Outcome | None = None
    # Why it was ended before it was done.
    stopped: str = ""
    task: asyncio.Task[Outcome] | None = None


class CallRunner:
    """For one conversation."""

    def __init__(
        self,
        tools: Sequence[Tool],
        emit: Callable[[ChatEvent], None],
        enter: Callable[[ConversationState], None],
        ended: Callable[[ActiveCall], None],
    ) -> None:
        """`ended` hears of each call that has its outcome."""
        self._tools = {tool.name: tool for tool in tools}
        self._emit = emit
        self._enter = enter
        self._ended = ended
        self._asking: set[str] = set()
        self._last_failed = ""
        self._times = 0

    async def carry_out(self, doings: Sequence[ActiveCall]) -> None:
        """One after the other; those that do not touch each other side by side."""
        waiting = list(doings)
        while waiting:
            # Read only now: what came before may have made the folder it needs.
            doing = waiting.pop(0)
            request = self._read(doing)
            if request is None:
                continue
            batch = [(doing, request)]
            while waiting and request.is_independent:
                beside = self._beside(waiting[0])
                if beside is None:
                    break
                batch.append((waiting.pop(0), beside))
            await self._side_by_side(batch)

    def begin(self) -> None:
        """The person has said something: what failed before may be tried again."""
        self._last_failed, self._times = "", 0

    def give_up(self, doing: ActiveCall, outcome: Outcome) -> None:
        """It has this outcome now, whatever is still going on."""
        if doing.task is None:
            self._began(doing)
        self._end(doing, outcome)

    def _read(self, doing: ActiveCall) -> RequestBase | None:
        """None if it is not sound; then that is its outcome."""
        try:
            request = self._sound(doing)
        except OllmSandboxError as error:
            self._began(doing)
            self._end(doing, Outcome(_as_error(error), ok=False))
            return None
        doing.description = request.describe()
        doing.request = request
        return request

    def _beside(self, doing: ActiveCall) -> RequestBase | None:
        """None if it has to wait for its turn."""
        try:
            request = self._sound(doing)
        except OllmSandboxError:
            return None  # said when its turn comes
        if not request.is_independent:
            return None
        doing.description = request.describe()
        doing.request = request
        return request

    def _sound(self, doing: ActiveCall) -> RequestBase:
        call = doing.call
        if doing.repeated:
            raise OllmSandboxError(SAME_ID)
        tool = self._tools.get(call.name)
        if tool is None:
            names = ", ".join(sorted(self._tools)) or "none"
            name = call.name[:_MOST_SHOWN]
            raise OllmSandboxError(
                N_("There is no tool {name}. The tools are: {names}."), name=repr(name), names=names
            )
        if self._times >= _PATIENCE and self._last_failed == _key(call):
            raise OllmSandboxError(
                N_(
                    "This very call failed {times} times in a row, so it was not tried again. Do "
                    "something else."
                ),
                times=self._times,
            )
        try:
            return tool.read(call.arguments, call.id)
        except OllmSandboxError:
            raise
        except Exception as error:
            report(error)
            raise OllmSandboxError(N_("The call cannot be read: {why}"), why=str(error)) from error

    async def _side_by_side(self, batch: Sequence[tuple[ActiveCall, RequestBase]]) -> None:
        self._enter(ConversationState.RUNNING)
        for doing, request in batch:
            self._began(doing)
            doing.task = asyncio.ensure_future(self._perform(doing, request))
            doing.task.add_done_callback(partial(self._finished, doing))
        await asyncio.wait([doing.task for doing, _ in batch if doing.task is not None])

    async def _perform(self, doing: ActiveCall, request: RequestBase) -> Outcome:
        try:
            return await request.execute(_Watch(self, doing))
        except OllmSandboxError as error:
            return Outcome(_as_error(error), ok=False, verdict=doing.verdict)
        except Exception as error:  # noqa: BLE001 - one tool's mistake must not end the session
            report(error)
            text = Sentence(N_("ERROR: The tool failed: {why}"), why=str(error))
            return Outcome(text, ok=False, verdict=doing.verdict)
        finally:
            self.answered(doing)

    def _finished(self, doing: ActiveCall, task: asyncio.Task[Outcome]) -> None:
        if doing.outcome is None and not task.cancelled():
            self._end(doing, task.result())

    def _began(self, doing: ActiveCall) -> None:
        doing.description = doing.description or _in_one_line(doing.call)
        self._emit(CallBegan(doing.call, doing.description, doing.own))

    def _end(self, doing: ActiveCall, outcome: Outcome) -> None:
        doing.outcome = outcome
        key = _key(doing.call)
        if outcome.ok:
            self._last_failed, self._times = "", 0
        else:
            self._times = self._times + 1 if key == self._last_failed else 1
            self._last_failed = key
        self._ended(doing)

    # --- what the watchers tell ----------------------------------------------------------------

    def watched(self, doing: ActiveCall, event: ChatEvent) -> None:
        if doing.outcome is None:
            self._emit(event)

    def asked(self, doing: ActiveCall) -> None:
        self._asking.add(doing.call.id)
        self._enter(ConversationState.ASKING)

    def answered(self, doing: ActiveCall) -> None:
        if doing.call.id in self._asking:
            self._asking.remove(doing.call.id)
            if not self._asking and doing.outcome is None:
                self._enter(ConversationState.RUNNING)


class _Watch:
    """Looks on while one call is carried out."""

    def __init__(self, caller: CallRunner, doing: ActiveCall) -> None:
        self._caller = caller
        self._doing = doing
        self._id = doing.call.id

    def asking(self, request: PermissionRequest) -> None:
        self._caller.asked(self._doing)
        self._caller.watched(self._doing, PermissionAsked(self._id, request))

    def answered(self, verdict: Verdict) -> None:
        self._doing.verdict = verdict
        self._caller.answered(self._doing)
        self._caller.watched(self._doing, PermissionAnswered(self._id, verdict))

    def started(self, pid: int, plan: Plan | None) -> None:
        self._caller.watched(self._doing, CommandStarted(self._id, pid, plan))

    def output(self, stream: Stream, data: bytes) -> None:
        self._caller.watched(self._doing, CommandOutput(self._id, stream, data))

    def changed(self, event: FileEvent) -> None:
        self._caller.watched(self._doing, FilesChanged(self._id, event))


def _key(call: ToolCall) -> str:
    return f"{call.name} {_arguments(call)}"


def _arguments(call: ToolCall) -> str:
    arguments = call.arguments
    if isinstance(arguments, str):
        return arguments
    return json.dumps({**arguments}, sort_keys=True, default=str, ensure_ascii=False)


def _in_one_line(call: ToolCall) -> str:
    """Beside its name."""
    line = _arguments(call)
    return line if len(line) <= _MOST_SHOWN else f"{line[: _MOST_SHOWN - 1]}…"


def _as_error(error: OllmSandboxError) -> str:
    text = str(error)
    return text if text.startswith("ERROR") else Sentence(N_("ERROR: {what}"), what=text)


# How long a stop waits for a command to be gone before it goes on without it.
GRACE = 0.12
STOPPED = "Stopped by the person."
OUT_OF_TIME = "Stopped: the time limit of this turn was reached."
_NO_MORE = "ERROR: Not carried out: the limit of tokens was reached."


class ToolCalls:
    def __init__(
        self,
        tools: Sequence[Tool],
        book: SessionWriter | None,
        emit: Callable[[ChatEvent], None],
        enter: Callable[[ConversationState], None],
        why_stopped: Callable[[], str] = lambda: STOPPED,
    ) -> None:
        self._why_stopped = why_stopped
        self._book = book
        self._emit = emit
        self._enter = enter
        self._caller = CallRunner(tools, emit, enter, self._ended)
        self._doings: Sequence[ActiveCall] = ()
        # Calls that were stopped and still put in order what they had changed.
        self._lingering: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """A new turn."""
        self._caller.begin()

    async def give(
        self, calls: Sequence[ToolCall], repeated: Collection[str], messages: list[Message]
    ) -> None:
        """Adds an answer to each, in the order of the calls, however it ends."""
        doings = [ActiveCall(call, self._number(), repeated=call.id in repeated) for call in calls]
        try:
            await self._carry_out(doings)
        finally:
            messages += [_answer(doing) for doing in doings]

    def refuse(self, calls: Sequence[ToolCall], messages: list[Message]) -> None:
        for call in calls:
            doing = ActiveCall(call, self._number())
            self._caller.give_up(doing, Outcome(_NO_MORE, ok=False))
            messages.append(_answer(doing))

    async def give_own(self, command: str, call: ToolCall, messages: list[Message]) -> Outcome:
        """The person's own command."""
        doing = ActiveCall(call, self._number(), own=True, description=command)
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

    async def _carry_out(self, doings: Sequence[ActiveCall]) -> None:
        self._doings = doings
        try:
            if self._lingering:
                self._enter(ConversationState.RUNNING)
                await self.settled()
            await self._caller.carry_out(doings)
        except asyncio.CancelledError:
            await self._stop(doings)
            raise
        finally:
            self._doings = ()

    async def _stop(self, doings: Sequence[ActiveCall]) -> None:
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

    def _stopped_one(self, doing: ActiveCall, _task: asyncio.Task[Outcome]) -> None:
        if doing.outcome is None:
            self._caller.give_up(doing, _stopped(doing))

    async def _linger(self, doing: ActiveCall, task: asyncio.Task[Outcome]) -> None:
        await asyncio.wait({task})
        doing.outcome = _stopped(doing)
        self._write(doing)
        if doing.outcome.report is not None:
            self._emit(CallSettled(doing.call.id, doing.outcome.report))

    def _number(self) -> int:
        return self._book.take_number() if self._book else 0

    def _ended(self, doing: ActiveCall) -> None:
        assert doing.outcome is not None
        self._emit(CallEnded(doing.call, doing.outcome))
        self._write(doing)

    def _write(self, doing: ActiveCall) -> None:
        if self._book is not None and doing.outcome is not None:
            record = CallRecord.of(doing.outcome, doing.description, own=doing.own)
            self._book.write(
                StoredMessage(doing.number, _answer(doing), record.asked(doing.verdict))
            )


def _stopped(doing: ActiveCall) -> Outcome:
    """With what it had changed by then, as far as that is known."""
    partial = doing.request.partial if doing.request else None
    if partial is None:
        return Outcome(doing.stopped, ok=False, verdict=doing.verdict)
    return replace(partial, text=f"{doing.stopped}\n{partial.text}".rstrip(), ok=False)


def _answer(doing: ActiveCall) -> Message:
    text = doing.outcome.text if doing.outcome else STOPPED
    if doing.own:
        said = f"I ran this command in the sandbox myself:\n$ {doing.description}\n{text}"
        return Message(Role.USER, said, at=time.time())
    return Message(Role.TOOL, text, call_id=doing.call.id, at=time.time())
