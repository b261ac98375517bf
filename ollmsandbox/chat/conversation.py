# SPDX-License-Identifier: GPL-3.0-or-later
"""The turn loop: what the person says, what the model answers, what its tools do.

Each call of a session has an id of its own, whatever a model sends: answers and runs are found
by it.

How far a model may go on by itself.

The turn loop: what the person says, what the model answers, what its tools do.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from .. import N_
from ..errors import OllmSandboxError, Sentence
from ..tools.base import Outcome, Tool
from ..tools.context import ToolContext
from .events import (
    CallEnded,
    ChatEvent,
    ConversationState,
    Listeners,
    MessageAdded,
    Notice,
    ReplyWithdrawn,
    StateChanged,
    TurnEnd,
    TurnEnded,
    report,
)
from .messages import Message, Role, ToolCall
from .providers.base import Model, ProviderError
from .reply import ReplyReader, StreamedReply
from .storage.history import new_session_id
from .storage.stored import StoredMessage
from .storage.writer import SessionWriter
from .tool_calls import GRACE, OUT_OF_TIME, STOPPED, ToolCalls

OWN = "own"


def with_unique_ids(reply: Message, earlier: Iterable[Message]) -> tuple[Message, frozenset[str]]:
    """Some servers begin to count anew with each answer; that is no mistake of the model's. The ids
    that came twice in this one are returned, as they are now called."""
    used = _used(earlier)
    here: set[str] = set()
    repeated: set[str] = set()
    calls: list[ToolCall] = []
    for call in reply.calls:
        new = call.id if call.id and call.id not in used else _unused(call.id or "call", used)
        if call.id and call.id in here:
            repeated.add(new)
        here.add(call.id)
        used.add(new)
        calls.append(replace(call, id=new))
    return replace(reply, calls=tuple(calls)), frozenset(repeated)


def new_call_id(earlier: Iterable[Message]) -> str:
    """For a command of the person's own. Drawn, not counted: no message keeps the id of such a
    command, and those of before have their runs."""
    used = _used(earlier)
    while (drawn := f"{OWN}-{secrets.token_hex(4)}") in used:
        continue
    return drawn


def _used(messages: Iterable[Message]) -> set[str]:
    used: set[str] = set()
    for message in messages:
        used.update(call.id for call in message.calls)
        used.add(message.call_id)
    return used


def _unused(name: str, used: set[str]) -> str:
    number = 2
    while f"{name}-{number}" in used:
        number += 1
    return f"{name}-{number}"


@dataclass(frozen=True)
class TurnLimits:
    """Each counts from what the person said last."""

    # Answers of the model.
    turns: int = 50
    # As the server counts them: all that is sent and all that comes back.
    tokens: int | None = None
    seconds: float | None = None


STANDARD_LIMITS = TurnLimits()


T = TypeVar("T")
_CUT_OFF = Sentence(N_("The answer was cut off: the model has no room for more."))
_OTHERWISE = Sentence(N_("Say it in other words, or take another model."))
_OUR_FAULT = N_("Something went wrong in this program: {error}")


class Conversation:
    """One session. Everything happens on the loop's own thread; one turn at a time."""

    def __init__(
        self,
        *,
        model: Model | None,
        tools: Sequence[Tool] = (),
        book: SessionWriter | None = None,
        limits: TurnLimits = STANDARD_LIMITS,
        prompt: str | Callable[[], str] = "",
        messages: Sequence[Message] = (),
        tool_context: ToolContext | None = None,
        notices: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """A prompt that is a function is called at each turn, in a thread; `notices` gives what
        the person should know of what happened in the tools."""
        self.model = model
        self.tools = tuple(tools)
        self.limits = limits
        self.messages = list(messages)
        self.state = ConversationState.IDLE
        self.session_id = book.session_id if book else new_session_id()
        # What the tools work with; it may be changed between two turns.
        self.tool_context = tool_context
        self._notices = notices
        self._book = book
        self._replies = ReplyReader(tools, prompt, self._emit)
        self._answers = ToolCalls(tools, book, self._emit, self._enter, self._why_stopped)
        self._listeners = Listeners()
        self._task: asyncio.Task[object] | None = None
        self._ending: TurnEnd | None = None
        if book is not None:
            book.tell = lambda text: self._emit(Notice(text))

    def listen(self, listener: Callable[[ChatEvent], None]) -> Callable[[], None]:
        """Call what it returns to stop listening."""
        return self._listeners.add(listener)

    def use_model(self, model: Model | None, connection: str = "") -> None:
        """From the next answer on."""
        self.model = model
        if self._book is not None and model is not None:
            self._book.note_model(model.name, connection)

    async def say(self, text: str) -> TurnEnded:
        """Returns when the model is done, was stopped or reached a limit."""
        if self.model is None:
            raise OllmSandboxError(N_("No model is chosen."), N_("Choose one first."))
        self._check_idle()
        self._begin(text)
        message = Message(Role.USER, text, at=time.time())
        self._add(message)
        self._emit(MessageAdded(message))
        return await self._alone(self._turn(), TurnEnded(TurnEnd.STOPPED))

    async def run(self, command: str, *, network: bool = False, working_dir: str = "") -> Outcome:
        """The person's own command; the model hears of it with what is said next."""
        self._check_idle()
        self._begin(f"!{command}")
        arguments: dict[str, object] = {"command": command, "network": network}
        if working_dir:
            arguments["working_dir"] = working_dir
        call = ToolCall(new_call_id(self.messages), "run_command", arguments)
        work = self._answers.give_own(command, call, self.messages)
        return await self._alone(work, Outcome(STOPPED, ok=False))

    async def stop(self) -> None:
        """Returns when the next thing can be said; that is, at once."""
        self._end(TurnEnd.STOPPED)
        if self._task is not None:
            await asyncio.wait({self._task})
            # Let who waits for the turn have its result first.
            await asyncio.sleep(0)

    def stop_call(self, call_id: str) -> None:
        """This one only: the turn goes on without it."""
        self._answers.stop_one(call_id)

    async def is_written(self) -> bool:
        """All that was said is in the database; False if that does not work just now."""
        return self._book is None or await self._book.is_written()

    async def close(self) -> bool:
        """Everything that goes on is ended, and what was changed and said is in its place; False
        if the end of it could not be written."""
        await self.stop()
        await self._answers.settled()
        return self._book is None or await self._book.close()

    # --- turns ---------------------------------------------------------------------------------

    def _check_idle(self) -> None:
        if self._task is not None:
            raise OllmSandboxError(
                N_("The last turn is not over."), N_("Stop it, or wait for its end.")
            )

    def _begin(self, text: str) -> None:
        self._answers.begin()
        if self._book is not None:
            self._book.begin(text, self.model.name if self.model else "")

    async def _alone(self, work: Coroutine[object, object, T], if_stopped: T) -> T:
        task = self._task = asyncio.ensure_future(work)
        self._ending = None
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            self._end(TurnEnd.STOPPED)
            await asyncio.wait({task})
            raise
        finally:
            self._task = None
            self._enter(ConversationState.IDLE)
        return if_stopped if task.cancelled() else task.result()

    def _end(self, why: TurnEnd) -> None:
        if self._task is not None and self._ending is None:
            self._ending = why
            self._task.cancel()

    def _why_stopped(self) -> str:
        return OUT_OF_TIME if self._ending is TurnEnd.TIME else STOPPED

    async def _turn(self) -> TurnEnded:
        seconds = self.limits.seconds
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, self._end, TurnEnd.TIME) if seconds is not None else None
        try:
            ended = await self._exchange()
        except asyncio.CancelledError:
            ended = TurnEnded(self._ending or TurnEnd.STOPPED)
        except ProviderError as error:
            ended = TurnEnded(TurnEnd.FAILED, str(error))
        except Exception as error:  # noqa: BLE001 - said, and the session goes on
            report(error)
            ended = TurnEnded(TurnEnd.FAILED, Sentence(_OUR_FAULT, error=repr(error)))
        finally:
            if timer is not None:
                timer.cancel()
        self._emit(ended)
        return ended

    async def _exchange(self) -> TurnEnded:
        spent = 0
        was_empty = False
        for _ in range(self.limits.turns):
            reply, number = await self._reply()
            spent += self._replies.spent(reply, self.messages)
            if reply.is_empty:
                self._withdraw(reply, number)
                if was_empty:
                    return TurnEnded(TurnEnd.EMPTY, _OTHERWISE)
                was_empty = True
                continue
            was_empty = False
            message, repeated = with_unique_ids(reply.message(), self.messages)
            self._add(message, number)
            self._emit(MessageAdded(message))
            if reply.cut_off:
                self._emit(Notice(_CUT_OFF))
            if not message.calls:
                return TurnEnded(TurnEnd.DONE)
            if self.limits.tokens is not None and spent >= self.limits.tokens:
                self._answers.refuse(message.calls, self.messages)
                return TurnEnded(TurnEnd.TOKENS)
            await self._answers.give(message.calls, repeated, self.messages)
        return TurnEnded(TurnEnd.TURNS)

    async def _reply(self) -> tuple[StreamedReply, int]:
        """What the model answers, and the number it has in the book."""
        model = self.model
        if model is None:
            raise ProviderError(N_("No model is chosen."), N_("Choose one first."))
        number = self._book.take_number() if self._book else 0
        self._enter(ConversationState.WAITING)
        growing = StreamedReply(model.name, self._grew, lambda m: self._save(number, m))
        try:
            await self._child(self._replies.read(model, growing, self.messages))
        except BaseException:
            # Whatever it was: what the person has read is kept.
            growing.close()
            if growing.has_begun:
                message = growing.message(partial=True)
                self._add(message, number)
                self._emit(MessageAdded(message))
            raise
        return growing, number

    async def _child(self, work: Coroutine[object, object, None]) -> None:
        """As a task of its own: one that does not end must not hold up a stop."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task}, timeout=GRACE)
            raise
        task.result()

    def _withdraw(self, reply: StreamedReply, number: int) -> None:
        if reply.has_begun:
            self._emit(ReplyWithdrawn())
        if reply.was_saved and self._book is not None:
            self._book.remove(number)

    # --- what is heard and kept ----------------------------------------------------------------

    def _grew(self, event: ChatEvent) -> None:
        self._enter(ConversationState.STREAMING)
        self._emit(event)

    def _add(self, message: Message, number: int | None = None) -> None:
        self.messages.append(message)
        if self._book is not None:
            place = self._book.take_number() if number is None else number
            self._book.write(StoredMessage(place, message))

    def _save(self, number: int, message: Message) -> None:
        # Not behind others that wait: a database that is locked would get one more every second.
        if self._book is not None and not self._book.is_behind:
            self._book.write(StoredMessage(number, message))

    def _enter(self, state: ConversationState) -> None:
        if state is not self.state and (self._task is not None or state is ConversationState.IDLE):
            self.state = state
            self._emit(StateChanged(state))

    def _emit(self, event: ChatEvent) -> None:
        self._listeners.tell(event)
        if isinstance(event, CallEnded | TurnEnded):
            for text in self._notices():
                self._listeners.tell(Notice(text))
