# SPDX-License-Identifier: GPL-3.0-or-later
"""Executes the tool calls of a reply. Each call gets a result, also if the turn is stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from .. import N_
from ..errors import OllmSandboxError, Sentence
from ..permission.request import PermissionRequest, Verdict
from ..sandbox.monitor import FileEvent
from ..sandbox.network.publish import CommandPorts
from ..sandbox.output import Capture
from ..sandbox.plan.plan import Plan
from ..sandbox.process import Stop
from ..sandbox.terminal import CommandTerminal
from ..text.ansi import harmless, without_screens
from ..tools.base import FILLED_SCREEN, Outcome, RequestBase, Stream, Tool, UserQuestion
from . import events
from .events import ChatEvent, ConversationState, report
from .messages import Message, Role, ToolCall
from .storage.stored import INTERRUPTED, CallRecord, StoredMessage
from .storage.writer import SessionWriter

# The seconds that a stop waits for a command to end before it goes on without it.
GRACE = 0.12
_STOP_TEXTS = {
    Stop.PERSON: "Stopped by the user.",
    Stop.TIME: "Stopped: the time limit of this turn was reached.",
}
_NO_TOKENS = "Not executed: the token limit was reached."
_MOST_SHOWN = 200
# Bytes to keep of the output of a stopped call, at its beginning and at its end.
_PRINTED = 12_000


@dataclass
class ActiveCall:
    """A call, while it is being executed and afterwards."""

    call: ToolCall
    # The number of its result in the session.
    number: int = 0
    own: bool = False
    description: str = ""
    request: RequestBase | None = None
    is_asking: bool = False
    verdict: Verdict | None = None
    outcome: Outcome | None = None
    # The size of a terminal for a command of the user's own.
    terminal_size: tuple[int, int] | None = None
    # What it printed, in case that it is stopped.
    printed: Capture = field(default_factory=lambda: Capture(_PRINTED, _PRINTED))
    # Why it was stopped: by the user, or by the time limit of the turn.
    stopped: Stop | None = None
    task: asyncio.Task[Outcome] | None = None


class _RepeatedError(OllmSandboxError):
    """The model makes the same call over and over."""


class ToolCalls:
    """Executes the calls of replies, stops them, and stores their results."""

    def __init__(
        self,
        tools: Sequence[Tool],
        writer: SessionWriter | None,
        emit: Callable[[ChatEvent], None],
        enter: Callable[[ConversationState], None],
        why_stopped: Callable[[], Stop] = lambda: Stop.PERSON,
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._writer = writer
        self.emit = emit
        self._enter = enter
        self._why_stopped = why_stopped
        self._active_calls: Sequence[ActiveCall] = ()
        # Calls that were stopped and are still settling their changes.
        self._lingering: set[asyncio.Task[None]] = set()
        self._last_failed = ""
        self._times = 0
        # How often each call had its last result, since a call changed something.
        self._repeats: dict[str, tuple[str, int]] = {}
        self._refusals = 0

    def begin(self) -> None:
        """Note a message of the user: a turn begins or goes on, and calls that were refused may be
        tried again."""
        self._last_failed, self._times = "", 0
        self._repeats = {}
        self._refusals = 0

    @property
    def is_looping(self) -> bool:
        """Whether the model goes on with calls that were refused because they repeat."""
        return self._refusals >= 3

    async def execute(self, calls: Sequence[ToolCall], messages: list[Message]) -> None:
        """Execute the calls, and add a result for each to the messages, in order, however this
        ends."""
        active_calls = [ActiveCall(call, self._number()) for call in calls]
        try:
            await self._execute(active_calls)
        finally:
            messages += [_answer(active) for active in active_calls]

    def refuse(self, calls: Sequence[ToolCall], messages: list[Message]) -> None:
        """Answer calls without executing them: the token limit was reached."""
        for call in calls:
            active = ActiveCall(call, self._number())
            self._give_up(active, Outcome.failed(_NO_TOKENS))
            messages.append(_answer(active))

    async def execute_own(
        self,
        command: str,
        call: ToolCall,
        messages: list[Message],
        terminal_size: tuple[int, int] | None,
    ) -> Outcome:
        """Execute a command of the user's own, in a terminal if that has a size."""
        active = ActiveCall(
            call, self._number(), own=True, description=command, terminal_size=terminal_size
        )
        if self._writer is not None:
            # Until its end is stored in the same place, it counts as interrupted.
            begun = Message(Role.USER, _introduction(active) + INTERRUPTED, at=time.time())
            start = len(_introduction(active))
            record = CallRecord(
                ok=False, description=command, own=True, output_start=start, is_interrupted=True
            )
            self._writer.write(StoredMessage(active.number, begun, record))
        try:
            await self._execute([active])
        except asyncio.CancelledError:
            pass  # stopped; that is its outcome
        messages.append(_answer(active))
        assert active.outcome is not None
        return active.outcome

    def stop_one(self, call_id: str) -> None:
        """Stop one call. Others go on, and the model learns that it was stopped."""
        for active in self._active_calls:
            task = active.task
            if active.call.id == call_id and task and not task.done() and not active.stopped:
                active.stopped = Stop.PERSON
                task.cancel()

    def terminal_of(self, call_id: str) -> CommandTerminal | None:
        """Return the terminal of a running command."""
        for active in self._active_calls:
            if active.call.id == call_id and active.request is not None:
                return active.request.terminal
        return None

    async def settled(self) -> None:
        """Wait until all stopped calls have settled their changes."""
        if self._lingering:
            await asyncio.wait(self._lingering)

    async def _execute(self, active_calls: Sequence[ActiveCall]) -> None:
        self._active_calls = active_calls
        try:
            # All of them, or else the first one would be known last.
            if self._lingering or len(active_calls) > 1:
                self._queue(active_calls)
            if self._lingering:
                self._enter(ConversationState.RUNNING)
                await self.settled()
            await self._execute_in_order(list(active_calls))
        except asyncio.CancelledError:
            await self._stop(active_calls)
            raise
        finally:
            self._active_calls = ()

    def _queue(self, active_calls: Sequence[ActiveCall]) -> None:
        """Announce calls that wait for their turn."""
        for active in active_calls:
            try:
                described = active.description or self._parse(active).describe()
            except OllmSandboxError:
                described = _in_one_line(active.call)  # parsed again when its turn comes
            self.emit(events.CallQueued(active.call, described, active.own))

    async def _execute_in_order(self, waiting: list[ActiveCall]) -> None:
        """Execute calls one after the other; neighbours that cannot write, concurrently."""
        while waiting:
            # Not earlier: the call before may create the folder that this one needs.
            active = waiting.pop(0)
            if not self._read(active):
                continue
            batch = [active]
            while waiting and not self._can_write(active) and self._read_beside(waiting[0]):
                batch.append(waiting.pop(0))
            self._enter(ConversationState.RUNNING)
            tasks = []
            for one in batch:
                self._began(one)
                one.task = asyncio.ensure_future(self._perform(one))
                one.task.add_done_callback(partial(self._finished, one))
                tasks.append(one.task)
            await asyncio.wait(tasks)

    # --- one call ------------------------------------------------------------------------------

    def _read(self, active: ActiveCall) -> bool:
        """Parse a call. If it is invalid, end it with the error and return False."""
        try:
            self._parse_into(active)
        except OllmSandboxError as error:
            self._began(active)
            is_repeated = isinstance(error, _RepeatedError)
            self._refusals = self._refusals + 1 if is_repeated else 0
            self._end(active, Outcome.failed(error))
            return False
        self._refusals = 0
        return True

    def _read_beside(self, active: ActiveCall) -> bool:
        """Parse a call; return whether it can run beside the one before."""
        if self._can_write(active):
            return False
        try:
            self._parse_into(active)
        except OllmSandboxError:
            return False  # reported when its turn comes
        return True

    def _can_write(self, active: ActiveCall) -> bool:
        tool = self._tools.get(active.call.name)
        return tool is None or tool.can_write

    def _parse_into(self, active: ActiveCall) -> None:
        active.request = self._parse(active)
        active.request.terminal_size = active.terminal_size
        active.description = active.request.describe()

    def _parse(self, active: ActiveCall) -> RequestBase:
        call = active.call
        tool = self._tools.get(call.name)
        if tool is None:
            names = ", ".join(sorted(self._tools)) or "none"
            name = call.name[:_MOST_SHOWN]
            raise OllmSandboxError(
                N_("There is no tool {name}. The tools are: {names}."), name=repr(name), names=names
            )
        self._refuse_repeated(_key(call))
        try:
            return tool.read(call.arguments, call.id)
        except OllmSandboxError:
            raise
        except Exception as error:
            report(error)
            raise OllmSandboxError(N_("The call is invalid: {why}"), why=str(error)) from error

    def _refuse_repeated(self, key: str) -> None:
        if self._times >= 3 and self._last_failed == key:
            raise _RepeatedError(
                N_(
                    "This call failed {times} times in a row, so it was not tried again. Do "
                    "something else."
                ),
                times=self._times,
            )
        times = self._repeats.get(key, ("", 0))[1]
        if times >= 5:
            raise _RepeatedError(
                N_(
                    "This call had the same result {times} times, and nothing has changed since. "
                    "It was not made again. Do something else, or tell the user what you need."
                ),
                times=times,
            )

    async def _perform(self, active: ActiveCall) -> Outcome:
        assert active.request is not None
        try:
            return await active.request.execute(_CallWatcher(self, active))
        except OllmSandboxError as error:
            return Outcome.failed(error, verdict=active.verdict)
        except Exception as error:  # noqa: BLE001 - one tool's mistake must not end the session
            report(error)
            text = Sentence(N_("The tool failed: {why}"), why=str(error))
            return Outcome.failed(text, verdict=active.verdict)
        finally:
            self.answered(active)

    def _finished(self, active: ActiveCall, task: asyncio.Task[Outcome]) -> None:
        if active.outcome is None:
            self._end(active, _stopped(active) if task.cancelled() else task.result())

    def _began(self, active: ActiveCall) -> None:
        active.description = active.description or _in_one_line(active.call)
        self.emit(events.CallBegan(active.call, active.description, active.own))

    def _give_up(self, active: ActiveCall, outcome: Outcome) -> None:
        """End a call with this outcome, even if its task still runs."""
        if active.task is None:
            self._began(active)
        self._end(active, outcome)

    def _end(self, active: ActiveCall, outcome: Outcome) -> None:
        active.outcome = outcome
        key = _key(active.call)
        self._note_result(active, key, outcome)
        if outcome.ok:
            self._last_failed, self._times = "", 0
        else:
            self._times = self._times + 1 if key == self._last_failed else 1
            self._last_failed = key
        self.emit(events.CallEnded(active.call, outcome))
        self._write(active, outcome)

    def _note_result(self, active: ActiveCall, key: str, outcome: Outcome) -> None:
        if self._refusals:
            return  # its result is the refusal
        if outcome.report is not None and outcome.report.changes:
            self._repeats = {}
            return
        text, times = self._repeats.get(key, ("", 0))
        tool = self._tools.get(active.call.name)
        if tool is not None and tool.can_write and not tool.is_sandboxed:
            # What it changes is not recorded.
            self._repeats = {}
        self._repeats[key] = outcome.text, times + 1 if text == outcome.text else 1

    # --- stopping ------------------------------------------------------------------------------

    async def _stop(self, active_calls: Sequence[ActiveCall]) -> None:
        tasks = [active.task for active in active_calls if active.task and not active.task.done()]
        for active in active_calls:
            # One that was stopped before is already settling its changes.
            if not active.stopped and active.task in tasks:
                active.task.cancel()
            # Set now: its task may end after the next turn has begun.
            active.stopped = active.stopped or self._why_stopped()
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE)
        for active in active_calls:
            if active.outcome is not None:
                continue
            self._give_up(active, _stopped(active))
            if active.task is not None and not active.task.done():
                lingering = asyncio.ensure_future(self._linger(active, active.task))
                self._lingering.add(lingering)
                lingering.add_done_callback(self._lingering.discard)

    async def _linger(self, active: ActiveCall, task: asyncio.Task[Outcome]) -> None:
        await asyncio.wait({task})
        outcome = active.outcome = _stopped(active)
        self._write(active, outcome)
        if outcome.report is not None:
            self.emit(events.CallSettled(active.call.id, outcome.report))

    def _number(self) -> int:
        return self._writer.take_number() if self._writer else 0

    # --- for the watchers ----------------------------------------------------------------------

    def asked(self, active: ActiveCall) -> None:
        active.is_asking = True
        self._enter(ConversationState.ASKING)

    def answered(self, active: ActiveCall) -> None:
        if active.is_asking:
            active.is_asking = False
            is_over = not any(one.is_asking for one in self._active_calls)
            if is_over and active.outcome is None:
                self._enter(ConversationState.RUNNING)

    def _write(self, active: ActiveCall, outcome: Outcome) -> None:
        if self._writer is not None:
            record = CallRecord.of(outcome, active.description).asked(active.verdict)
            if active.own:
                record = record.moved(len(_introduction(active)))
            self._writer.write(StoredMessage(active.number, _answer(active), record))


class _CallWatcher:
    """Turns what a tool reports about one call into events."""

    def __init__(self, calls: ToolCalls, active: ActiveCall) -> None:
        self._calls = calls
        self._active = active
        self._id = active.call.id

    def _tell(self, event: ChatEvent) -> None:
        if self._active.outcome is None:
            self._calls.emit(event)

    def asking(self, request: PermissionRequest) -> None:
        self._calls.asked(self._active)
        self._tell(events.PermissionAsked(self._id, request))

    def answered(self, verdict: Verdict) -> None:
        self._active.verdict = verdict
        self._calls.answered(self._active)
        self._tell(events.PermissionAnswered(self._id, verdict))

    def questioned(self, question: UserQuestion) -> None:
        self._calls.asked(self._active)
        self._tell(events.QuestionAsked(self._id, question))

    def replied(self, answer: str | None) -> None:
        self._calls.answered(self._active)
        self._tell(events.QuestionAnswered(self._id, answer))

    def started(self, pid: int, plan: Plan | None, ports: CommandPorts | None = None) -> None:
        self._tell(events.CommandStarted(self._id, pid, plan, ports))

    def output(self, stream: Stream, data: bytes) -> None:
        self._active.printed.feed(data)
        self._tell(events.CommandOutput(self._id, stream, data))

    def changed(self, event: FileEvent) -> None:
        self._tell(events.FilesChanged(self._id, event))


def _key(call: ToolCall) -> str:
    return f"{call.name} {call.arguments_text}"


def _in_one_line(call: ToolCall) -> str:
    """Return the arguments in one line, to be shown beside the tool's name."""
    line = call.arguments_text
    return line if len(line) <= _MOST_SHOWN else f"{line[: _MOST_SHOWN - 1]}…"


def _stopped(active: ActiveCall) -> Outcome:
    """Return the outcome of a stopped call, with the changes it had made, as far as known."""
    stop = active.stopped or Stop.PERSON
    partial = active.request.partial if active.request else None
    outcome = partial or stopped_outcome(stop, active.verdict)
    kept = active.printed.text
    if active.terminal_size is not None:
        kept = without_screens(kept, was_stopped=True)
    printed, filled = harmless(kept).rstrip(), kept != active.printed.text
    drawn = FILLED_SCREEN if filled else ""
    parts = [printed, drawn, _STOP_TEXTS[stop], partial.text if partial else ""]
    text = "\n".join(filter(None, parts))
    end = len(printed) if active.printed.total or active.own else None
    return replace(
        outcome, text=text, ok=False, cancelled=stop, output_end=end, filled_screen=filled
    )


def stopped_outcome(stop: Stop = Stop.PERSON, verdict: Verdict | None = None) -> Outcome:
    """Return the outcome of a call that was stopped before it had done anything."""
    return Outcome(_STOP_TEXTS[stop], ok=False, verdict=verdict, cancelled=stop)


def _answer(active: ActiveCall) -> Message:
    outcome = active.outcome or stopped_outcome()
    if active.own:
        return Message(Role.USER, _introduction(active) + outcome.text, at=time.time())
    return Message(
        Role.TOOL,
        outcome.text,
        call_id=active.call.id,
        at=time.time(),
        was_denied=outcome.was_denied,
        pictures=outcome.pictures,
    )


def _introduction(active: ActiveCall) -> str:
    """Return what the model reads before the output of a command of the user's own."""
    return f"I ran this command in the sandbox myself:\n$ {active.description}\n"
