# SPDX-License-Identifier: GPL-3.0-or-later
"""The turn loop: passes on what the user says, the model's replies, and the results of its tool
calls."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from .. import N_
from ..errors import OllmSandboxError, Sentence
from ..sandbox.process import Stop
from ..sandbox.terminal import CommandTerminal
from ..tools.base import Outcome, Picture, Tool
from ..tools.context import ToolContext, ToolPreferences
from . import events
from .calls import GRACE, ToolCalls, stopped_outcome
from .events import ChatEvent, ConversationState, Listener, Notice, TurnEnded, report
from .instructions import ProjectInstructions, instructions_notice
from .messages import Message, QueuedMessage, Role, ToolCall
from .providers.base import FinishPiece, Model, ProviderError
from .providers.convert import new_call_id
from .reply import ReplyReader, StreamedReply
from .storage.history import new_session_id
from .storage.stored import Spent, StoredMessage
from .storage.writer import SessionWriter
from .text_calls import find_written_calls, looks_like_calls
from .turn_end import TurnEnd
from .user_actions import UserActions


def with_unique_ids(reply: Message, earlier: Iterable[Message]) -> Message:
    """Give each call an id that no other call has: results and runs are found by it. Some servers
    start counting again with each reply."""
    used = {call.id for message in earlier for call in message.calls}
    calls = []
    for call in reply.calls:
        is_free = call.id and call.id not in used
        calls.append(call if is_free else replace(call, id=new_call_id()))
        used.add(call.id)
    return replace(reply, calls=tuple(calls))


@dataclass(frozen=True)
class TurnLimits:
    """How far a model may go on by itself; counted from the user's last message."""

    # Replies of the model.
    turns: int = 50
    # As counted by the server, for everything that is sent and received.
    tokens: int | None = None
    seconds: float | None = None


STANDARD_LIMITS = TurnLimits()


T = TypeVar("T")
_CUT_OFF = Sentence(
    N_("The answer was cut off: it reached the maximum length, or the model's context is full.")
)
_NO_CALLS = Sentence(
    N_(
        "The model seems to have written a tool call as text. Perhaps the model, or its template "
        "in the server, cannot call tools. Try another model or update the server."
    )
)
_REPHRASE = Sentence(N_("Rephrase the request or choose another model."))
_BUG = N_("Internal error: {error}")


class Conversation:
    """One session, one turn at a time. Use it only on the thread of its event loop."""

    def __init__(
        self,
        *,
        model: Model | None,
        tools: Sequence[Tool] = (),
        writer: SessionWriter | None = None,
        limits: TurnLimits = STANDARD_LIMITS,
        prompt: str | Callable[[], str] = "",
        messages: Sequence[Message] = (),
        tool_context: ToolContext | None = None,
        notices: Callable[[], Sequence[str]] = tuple,
        user_actions: UserActions | None = None,
        instructions: ProjectInstructions | None = None,
    ) -> None:
        """If `prompt` is a function, it is called in a thread for each reply. `notices` returns
        what to tell the user about problems in the tools."""
        self.model = model
        self.tools = tuple(tools)
        self.limits = limits
        self.messages = list(messages)
        self.state = ConversationState.IDLE
        self.session_id = writer.session_id if writer else new_session_id()
        # The context of the tools; it may be changed between two turns.
        self.tool_context = tool_context
        self._notices = notices
        self._user_actions = user_actions
        self._instructions = instructions
        self._writer = writer
        self._reader = ReplyReader(tools, prompt, self._emit)
        self._tool_calls = ToolCalls(tools, writer, self._emit, self._enter, self._why_stopped)
        # By an object of its own: a listener may be added twice.
        self._listeners: dict[object, Listener] = {}
        self._task: asyncio.Task[object] | None = None
        self._ending: TurnEnd | None = None
        self._queue: list[QueuedMessage] = []
        # Whether the model works, and not a command of the user's own.
        self.is_in_turn = False
        # The number of the reply that is being read.
        self._reply_number: int | None = None
        if writer is not None:
            # Not stored: that is what fails.
            writer.notify = lambda text: self._publish(Notice(text))

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Return a function that removes the listener again; calling it twice does no harm."""
        key = object()
        self._listeners[key] = listener

        def remove() -> None:
            self._listeners.pop(key, None)

        return remove

    def _publish(self, event: ChatEvent) -> None:
        for listener in tuple(self._listeners.values()):
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - a front end's bug must not end a turn
                report(error)

    def use_model(self, model: Model | None, connection: str = "") -> None:
        """Use another model from the next reply on."""
        self.model = model
        if self._writer is not None and model is not None:
            self._writer.note_model(model.name, connection)

    def use_preferences(self, preferences: ToolPreferences) -> None:
        """Use other settings from the next call on."""
        if self.tool_context is not None:
            self.tool_context.use_preferences(preferences)

    async def say(self, text: str, pictures: Sequence[Picture] = ()) -> TurnEnded:
        """Send a message; return when the model is done, was stopped or reached a limit."""
        self._check_ready()
        self._begin(QueuedMessage(text, tuple(pictures)).title)
        # The number of a message about what the user did in the meantime, which comes first.
        number = None
        if self._writer is not None and self._user_actions and self._user_actions.may_have_some:
            number = self._writer.take_number()
        self._add(Message(Role.USER, text, pictures=tuple(pictures), at=time.time()))
        return await self._run_task(self._turn(number), TurnEnded(TurnEnd.STOPPED))

    @property
    def owes_reply(self) -> bool:
        """Whether the last turn ended before the model had answered, so that it can be tried
        again."""
        said = [message for message in self.messages if not message.partial]
        return bool(said) and said[-1].role is not Role.ASSISTANT

    async def retry(self) -> TurnEnded:
        """Try the last turn again from where it failed."""
        self._check_ready()
        if not self.owes_reply:
            raise OllmSandboxError(N_("The model has already answered."))
        self._tool_calls.begin()
        return await self._run_task(self._turn(None), TurnEnded(TurnEnd.STOPPED))

    async def summarise(self) -> None:
        """Let the model go on from its summary of everything so far."""
        await self._run_task(self._summarise(self._check_ready()), None)

    async def _summarise(self, model: Model) -> None:
        self._enter(ConversationState.WAITING)
        if (summary := await self._reader.summarise(model, self.messages)) is not None:
            self._add(summary)

    @property
    def is_busy(self) -> bool:
        """Whether the model, or a command of the user's own, works."""
        return self._task is not None

    def queue(
        self, text: str, pictures: Sequence[Picture] = (), *, waits_for_end: bool = False
    ) -> None:
        """Send a message while the model works: it reads it with its next step, unless the message
        waits for the end of the turn. What is left in the queue then is for the front end."""
        if not self.is_busy:
            raise OllmSandboxError(N_("The model is not working."))
        self._queue.append(QueuedMessage(text, tuple(pictures), waits_for_end))
        self._tell_queue()

    @property
    def queued(self) -> tuple[QueuedMessage, ...]:
        """The messages that wait, the oldest first."""
        return tuple(self._queue)

    def take_queued(self, place: int | None = None) -> list[QueuedMessage]:
        """Take one message out of the queue, or all of them."""
        taken = self._queue[:] if place is None else self._queue[place : place + 1]
        self._unqueue(taken)
        return taken

    def _unqueue(self, taken: Sequence[QueuedMessage]) -> None:
        if taken:
            # By identity: two messages may be equal.
            gone = set(map(id, taken))
            self._queue = [message for message in self._queue if id(message) not in gone]
            self._tell_queue()

    def _tell_queue(self) -> None:
        self._emit(events.QueueChanged(tuple(message.title for message in self._queue)))

    def take_back(self, at: float) -> None:
        """Forget the user's message of that time and all after it. Changes to files stay."""
        self._check_idle()
        for place, message in enumerate(self.messages):
            if message.role is Role.USER and message.at == at:
                del self.messages[place:]
                if self._writer is not None:
                    self._writer.remove_from(at)
                return

    async def run(self, command: str, *, terminal_size: tuple[int, int] | None = None) -> Outcome:
        """Run a command of the user's own, in a terminal of so many rows and columns if they are
        given. The model sees it with the next message."""
        self._check_idle()
        self._begin(f"!{command}")
        call = ToolCall(new_call_id(), "run_command", {"command": command})
        work = self._tool_calls.execute_own(command, call, self.messages, terminal_size)
        return await self._run_task(work, stopped_outcome())

    async def stop(self) -> None:
        """Stop the turn; return as soon as the user can continue."""
        self._end(TurnEnd.STOPPED)
        if self._task is not None:
            await asyncio.wait({self._task})
            # Let the task that waits for the turn have its result first.
            await asyncio.sleep(0)

    def terminal_of(self, call_id: str) -> CommandTerminal | None:
        """Return the terminal of a running command of the user's own."""
        return self._tool_calls.terminal_of(call_id)

    def stop_call(self, call_id: str) -> None:
        """Stop one call; the turn goes on."""
        self._tool_calls.stop_one(call_id)

    async def is_written(self) -> bool:
        """Wait until all messages are in the database. Return False if that fails."""
        return self._writer is None or await self._writer.is_written()

    async def close(self) -> bool:
        """Stop everything, and wait until all changes are settled and all messages are written.
        Return False if the last ones could not be."""
        await self.stop()
        await self._tool_calls.settled()
        return self._writer is None or await self._writer.close()

    # --- turns ---------------------------------------------------------------------------------

    def _check_ready(self) -> Model:
        """Return the model. Raise if there is none, or if it works."""
        if self.model is None:
            raise OllmSandboxError(N_("No model is selected."), N_("Choose a model first."))
        self._check_idle()
        return self.model

    def _check_idle(self) -> None:
        if self._task is not None:
            raise OllmSandboxError(
                N_("The model is still working."), N_("Stop it, or wait until it is done.")
            )

    def _begin(self, text: str) -> None:
        self._tool_calls.begin()
        if self._writer is not None:
            self._writer.begin(text, self.model.name if self.model else "")

    async def _run_task(self, work: Coroutine[object, object, T], if_stopped: T) -> T:
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

    def _why_stopped(self) -> Stop:
        return Stop.TIME if self._ending is TurnEnd.TIME else Stop.PERSON

    async def _turn(self, number: int | None) -> TurnEnded:
        seconds = self.limits.seconds
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, self._end, TurnEnd.TIME) if seconds is not None else None
        self.is_in_turn = True
        try:
            if number is not None and self._user_actions is not None:
                await self._tell(self._user_actions, number)
            ended = await self._exchange()
        except asyncio.CancelledError:
            ended = TurnEnded(self._ending or TurnEnd.STOPPED)
        except ProviderError as error:
            ended = TurnEnded(TurnEnd.FAILED, str(error))
        except Exception as error:  # noqa: BLE001 - reported, and the session goes on
            report(error)
            ended = TurnEnded(TurnEnd.FAILED, Sentence(_BUG, error=repr(error)))
        finally:
            self.is_in_turn = False
            if timer is not None:
                timer.cancel()
        if ended.end is not TurnEnd.DONE:
            self._store_notice(ended.why or Sentence(ended.end.value), ended.end)
        self._emit(ended)
        return ended

    async def _tell(self, actions: UserActions, number: int) -> None:
        """Tell the model what the user did with its changes, in front of the user's message."""
        try:
            lines = await actions.lines()
        except OllmSandboxError as error:
            self._emit(Notice(str(error)))
            return
        if lines:
            note = Message(Role.SYSTEM, "\n".join(lines), at=time.time())
            self.messages.insert(len(self.messages) - 1, note)
            if self._writer is not None:
                self._writer.write(StoredMessage(number, note))
        self._keep_told()

    def _keep_told(self) -> None:
        if self._user_actions is not None and self._writer is not None:
            self._writer.keep_told(self._user_actions.packed())

    async def _exchange(self) -> TurnEnded:
        # Since the user's last message.
        steps = spent = 0
        was_empty, is_first = False, True
        while steps < self.limits.turns:
            await self._prepare(is_first=is_first)
            is_first = False
            steps += 1
            reply, number = await self._reply()
            spent += self._reader.spent(reply, self.messages)
            if reply.finish.filtered:
                # They may not be whole, and the turn ends without them.
                reply.calls.clear()
            if reply.is_empty and reply.finish.filtered:
                self._withdraw(reply, number)
                return TurnEnded(TurnEnd.FILTERED, _REPHRASE)
            if reply.is_empty:
                self._withdraw(reply, number)
                if was_empty:
                    return TurnEnded(TurnEnd.EMPTY, _REPHRASE)
                was_empty = True
                continue
            was_empty = False
            message = with_unique_ids(self._with_written(reply), self.messages)
            self._add(message, number)
            if reply.finish.cut_off:
                self._emit(Notice(_CUT_OFF))
            if reply.finish.filtered:
                return TurnEnded(TurnEnd.FILTERED, _REPHRASE)
            if not message.calls:
                if self._say_queued():
                    steps = spent = 0
                    continue
                if looks_like_calls(message.text, self._tool_names):
                    self._emit(Notice(_NO_CALLS))
                return TurnEnded(TurnEnd.DONE)
            if self.limits.tokens is not None and spent >= self.limits.tokens:
                self._tool_calls.refuse(message.calls, self.messages)
                return TurnEnded(TurnEnd.TOKENS)
            if self.tool_context is not None and self.model is not None:
                self.tool_context.sees_pictures = self.model.sees_pictures
            await self._tool_calls.execute(message.calls, self.messages)
            if self._say_queued():
                steps = spent = 0
            elif self._tool_calls.is_looping:
                return TurnEnded(TurnEnd.LOOP)
        return TurnEnded(TurnEnd.TURNS)

    def _say_queued(self) -> bool:
        """Add the messages of the queue that the model reads now; return whether there were any."""
        read = list(itertools.takewhile(lambda queued: not queued.waits_for_end, self._queue))
        self._unqueue(read)
        for queued in read:
            said = Message(Role.USER, queued.text, pictures=queued.pictures, at=time.time())
            self._add(said)
        if read:
            self._tool_calls.begin()
        return bool(read)

    async def _prepare(self, *, is_first: bool) -> None:
        """Read the project's instructions: all of them at the beginning of a turn, later those of
        folders that the model has entered."""
        if self._instructions is None or self.model is None:
            return
        self._enter(ConversationState.WAITING)
        if await self._instructions.read(again=is_first):
            self._instructions.fit(await self.model.context_length())
        if files := self._instructions.take_news():
            self._emit(events.InstructionsRead(files))

    def _with_written(self, reply: StreamedReply) -> Message:
        """Return the reply; calls that it has only as text become calls."""
        message = reply.message()
        if message.calls or reply.finish != FinishPiece():
            return message
        written = find_written_calls(message.text, self._tool_names)
        return replace(message, text=written.text, calls=written.calls) if written else message

    @property
    def _tool_names(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.tools)

    async def _reply(self) -> tuple[StreamedReply, int]:
        """Return the model's reply and its number in the session."""
        model = self.model
        if model is None:
            raise ProviderError(N_("No model is selected."), N_("Choose a model first."))
        self._reply_number = self._writer.take_number() if self._writer else 0

        def save(message: Message) -> None:
            if self._reply_number is not None:
                self._save(self._reply_number, message)

        self._enter(ConversationState.WAITING)
        reply = StreamedReply(model.name, self._grew, save)
        try:
            # A summary is stored in front of the reply.
            await self._child(self._reader.read(model, reply, self.messages, self._add))
            return reply, self._reply_number
        except BaseException as error:
            # Keep what the user has already read, whatever happened.
            reply.close()
            if reply.has_begun:
                is_stopped = isinstance(error, asyncio.CancelledError)
                end = self._ending or TurnEnd.STOPPED if is_stopped else TurnEnd.FAILED
                message = replace(reply.message(partial=True), end=end.name)
                number, self._reply_number = self._reply_number, None
                self._add(message, number)
            raise
        finally:
            self._reply_number = None

    async def _child(self, work: Coroutine[object, object, None]) -> None:
        """Run in a task of its own: one that does not end must not delay a stop."""
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
            self._emit(events.ReplyWithdrawn())
        if reply.was_saved and self._writer is not None:
            self._writer.remove(number)

    # --- events and messages -------------------------------------------------------------------

    def _grew(self, event: ChatEvent) -> None:
        if not isinstance(event, events.Retrying):
            self._enter(ConversationState.STREAMING)
        self._emit(event)

    def _add(self, message: Message, number: int | None = None) -> None:
        self.messages.append(message)
        if self._writer is not None:
            place = self._take_number() if number is None else number
            self._writer.write(StoredMessage(place, message))
        self._emit(events.MessageAdded(message))

    def _take_number(self) -> int:
        """Return the number of what is added now: in front of the reply that is about to begin."""
        number = self._writer.take_number() if self._writer is not None else 0
        if self._reply_number is not None:
            number, self._reply_number = self._reply_number, number
        return number

    def _store_notice(self, text: str, end: TurnEnd | None = None) -> None:
        if self._writer is not None:
            notice = Message(Role.NOTICE, text, at=time.time(), end=end.name if end else "")
            self._writer.write(StoredMessage(self._take_number(), notice))

    def _save(self, number: int, message: Message) -> None:
        # Not if others are queued: a locked database would get one more every second.
        if self._writer is not None and not self._writer.is_behind:
            self._writer.write(StoredMessage(number, message))

    def _enter(self, state: ConversationState) -> None:
        if state is not self.state and (self._task is not None or state is ConversationState.IDLE):
            self.state = state
            self._emit(events.StateChanged(state))

    def _emit(self, event: ChatEvent) -> None:
        if isinstance(event, Notice):
            self._store_notice(event.text)
        elif isinstance(event, events.InstructionsRead):
            self._store_notice(instructions_notice(event.files))
        self._publish(event)
        report = event.outcome.report if isinstance(event, events.CallEnded) else None
        report = event.report if isinstance(event, events.CallSettled) else report
        if report is not None and self._user_actions is not None:
            self._user_actions.note_report(report)
            self._keep_told()
        if isinstance(event, events.TokensUsed) and self._writer is not None:
            self._writer.add_spent(Spent(event.prompt, event.reply, event.cost))
        if isinstance(event, events.CallEnded) and self._instructions is not None:
            self._instructions.enter(event.call, event.outcome)
        if isinstance(event, events.CallEnded | TurnEnded):
            for text in self._notices():
                self._emit(Notice(text))
