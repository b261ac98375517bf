# SPDX-License-Identifier: GPL-3.0-or-later
"""Carries out the tool calls of a reply. Whatever a model asks for, it gets an answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from .. import N_
from ..errors import OllmSandboxError, Sentence
from ..permission.request import PermissionRequest, Verdict
from ..sandbox.monitor import Event as FileEvent
from ..sandbox.plan.plan import Plan
from ..tools.base import Outcome, RequestBase, Stream, Tool
from .events import Answered, Asking, CallBegan, Event, FilesChanged, Output, Started, State
from .listeners import report
from .messages import ToolCall

# The same call may fail so often, one time after the other, before it is refused.
_PATIENCE = 3
_MOST_SHOWN = 200
SAME_ID = N_("Two calls of this reply had the same id. Give each call an id of its own.")


@dataclass
class Doing:
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


class Caller:
    """For one conversation."""

    def __init__(
        self,
        tools: Sequence[Tool],
        emit: Callable[[Event], None],
        enter: Callable[[State], None],
        ended: Callable[[Doing], None],
    ) -> None:
        """`ended` hears of each call that has its outcome."""
        self._tools = {tool.name: tool for tool in tools}
        self._emit = emit
        self._enter = enter
        self._ended = ended
        self._asking: set[str] = set()
        self._last_failed = ""
        self._times = 0

    async def carry_out(self, doings: Sequence[Doing]) -> None:
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

    def give_up(self, doing: Doing, outcome: Outcome) -> None:
        """It has this outcome now, whatever is still going on."""
        if doing.task is None:
            self._began(doing)
        self._end(doing, outcome)

    def _read(self, doing: Doing) -> RequestBase | None:
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

    def _beside(self, doing: Doing) -> RequestBase | None:
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

    def _sound(self, doing: Doing) -> RequestBase:
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

    async def _side_by_side(self, batch: Sequence[tuple[Doing, RequestBase]]) -> None:
        self._enter(State.RUNNING)
        for doing, request in batch:
            self._began(doing)
            doing.task = asyncio.ensure_future(self._perform(doing, request))
            doing.task.add_done_callback(partial(self._finished, doing))
        await asyncio.wait([doing.task for doing, _ in batch if doing.task is not None])

    async def _perform(self, doing: Doing, request: RequestBase) -> Outcome:
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

    def _finished(self, doing: Doing, task: asyncio.Task[Outcome]) -> None:
        if doing.outcome is None and not task.cancelled():
            self._end(doing, task.result())

    def _began(self, doing: Doing) -> None:
        doing.description = doing.description or _in_one_line(doing.call)
        self._emit(CallBegan(doing.call, doing.description, doing.own))

    def _end(self, doing: Doing, outcome: Outcome) -> None:
        doing.outcome = outcome
        key = _key(doing.call)
        if outcome.ok:
            self._last_failed, self._times = "", 0
        else:
            self._times = self._times + 1 if key == self._last_failed else 1
            self._last_failed = key
        self._ended(doing)

    # --- what the watchers tell ----------------------------------------------------------------

    def watched(self, doing: Doing, event: Event) -> None:
        if doing.outcome is None:
            self._emit(event)

    def asked(self, doing: Doing) -> None:
        self._asking.add(doing.call.id)
        self._enter(State.ASKING)

    def answered(self, doing: Doing) -> None:
        if doing.call.id in self._asking:
            self._asking.remove(doing.call.id)
            if not self._asking and doing.outcome is None:
                self._enter(State.RUNNING)


class _Watch:
    """Looks on while one call is carried out."""

    def __init__(self, caller: Caller, doing: Doing) -> None:
        self._caller = caller
        self._doing = doing
        self._id = doing.call.id

    def asking(self, request: PermissionRequest) -> None:
        self._caller.asked(self._doing)
        self._caller.watched(self._doing, Asking(self._id, request))

    def answered(self, verdict: Verdict) -> None:
        self._doing.verdict = verdict
        self._caller.answered(self._doing)
        self._caller.watched(self._doing, Answered(self._id, verdict))

    def started(self, pid: int, plan: Plan | None) -> None:
        self._caller.watched(self._doing, Started(self._id, pid, plan))

    def output(self, stream: Stream, data: bytes) -> None:
        self._caller.watched(self._doing, Output(self._id, stream, data))

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
