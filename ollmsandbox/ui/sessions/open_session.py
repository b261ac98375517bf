# SPDX-License-Identifier: GPL-3.0-or-later
"""An open session: its conversation, and the entries of its chat.

It goes on while another one is shown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence

from gi.repository import GObject

from ...chat import events
from ...chat.conversation import Conversation
from ...chat.events import ChatEvent, ConversationState
from ...chat.instructions import instructions_notice
from ...chat.messages import Message, Role, ToolCall
from ...chat.providers.base import Model
from ...chat.providers.connections_file import TOUR
from ...chat.storage.stored import Spent
from ...chat.turn_end import TurnEnd
from ...errors import Sentence, UnsavedError
from ...i18n import localized, ngettext
from ...tools.base import Picture
from ...tools.todo import TodoStep
from ..terminal.output import OutputFiles
from ..widgets.signals import signals
from .entries import Activity, CallEntry, ChatEntry, MessageEntry, NoticeEntry, Stage, Story
from .followed import FollowedConversation
from .tool_text import succeeded


class OpenSession(GObject.Object):
    __gsignals__ = signals(
        {
            "state-changed": (),
            # Entries were added, these, or removed.
            "entries-changed": (object,),
            # A turn has ended: why.
            "turn-ended": (object,),
            "activity-changed": (),
            "queue-changed": (),
            "tour-changed": (),
            # A command has ended, and may have changed files of the project.
            "files-changed": (),
            "spent": (object,),
        }
    )

    def __init__(self, conversation: Conversation, project: str | None) -> None:
        super().__init__()
        self.conversation = conversation
        self.project = project
        self.entries: list[ChatEntry] = []
        self._calls: dict[str, CallEntry] = {}
        # The answer that is being received.
        self._growing: MessageEntry | None = None
        # Says that the server is asked again soon.
        self._retry_notice: NoticeEntry | None = None
        # What the session has used; and the tokens that the model read and wrote last, of those
        # that it has room for.
        self.spent = Spent()
        self.used, self.room = 0, 0
        self._story = Story()
        # Whether a turn has ended that the user has not seen yet.
        self.is_unread = False
        # Whether the model was asked for a title; a stored session has one.
        self.was_named = False
        self._last: list[ChatEntry] = []
        # The stop at which the tour waits; 0 if it does not.
        self.tour_stop = 0
        self._tour_next = asyncio.Event()
        self.activity: Activity | None = None
        # By time.monotonic(): when the model was asked, and when a word of it came last.
        self.asked_at = self.heard_at = 0.0
        self._loading: asyncio.Task[None] | None = None
        context = conversation.tool_context
        self._outputs = OutputFiles(context.paths) if context is not None else None
        # What is typed, and what of it is stored.
        self.draft = self.kept_draft = ""
        # The pictures that go with it.
        self.attached: tuple[Picture, ...] = ()
        self.keeping: asyncio.Task[None] | None = None
        self.connection = ""
        self.model_name = ""
        self._silence = conversation.listen(self._hear)

    @property
    def id(self) -> str:
        return self.conversation.session_id

    @property
    def state(self) -> ConversationState:
        return self.conversation.state

    @property
    def is_busy(self) -> bool:
        return self.state is not ConversationState.IDLE

    def __iter__(self) -> Iterator[ChatEntry]:
        return iter(self.entries)

    def entry_of(self, call_id: str) -> CallEntry | None:
        return self._calls.get(call_id)

    def asking(self) -> list[CallEntry]:
        return [entry for entry in self._calls.values() if entry.stage is Stage.ASKING]

    @property
    def steps(self) -> tuple[TodoStep, ...]:
        """The model's to-do list; empty without one."""
        for entry in reversed(self._calls.values()):
            if entry.steps and succeeded(entry):
                return entry.steps
        return ()

    @property
    def has_network(self) -> bool:
        return any(entry.is_running and entry.has_network for entry in self._calls.values())

    def show_stored(self, entries: Sequence[ChatEntry]) -> None:
        for entry in entries:
            if isinstance(entry, CallEntry):
                self._calls[entry.call.id] = entry
                if self._outputs is not None:
                    entry.new_store = self._outputs.new
            self._story.note(entry)
        self.entries = list(entries)
        self.was_named = bool(entries)
        answer: MessageEntry | None = None
        for entry in entries:
            if isinstance(entry, MessageEntry):
                if entry.role is Role.USER and answer is not None:
                    answer.is_final = True
                answer = entry if entry.role is Role.ASSISTANT and entry.text else None
        self._mark_last()

    @property
    def is_tour_over(self) -> bool:
        return self.connection == TOUR.name and not self.is_busy and bool(self.entries)

    async def pause_tour(self, number: int) -> None:
        """Wait until the user goes on."""
        self._tour_next.clear()
        self._set_activity(None)
        self._set_tour_stop(number)
        try:
            await self._tour_next.wait()
        finally:
            self._set_tour_stop(0)

    def continue_tour(self) -> None:
        self._tour_next.set()

    def _set_tour_stop(self, number: int) -> None:
        self.tour_stop = number
        self.emit("tour-changed")

    def take_back(self) -> MessageEntry:
        """Remove and return the last message, and all after it. Raise while the agent works."""
        said = next(entry for entry in reversed(self.entries) if _is_said(entry))
        assert isinstance(said, MessageEntry)
        self.conversation.take_back(said.at)
        place = self.entries.index(said)
        for entry in self.entries[place:]:
            if isinstance(entry, CallEntry):
                del self._calls[entry.call.id]
        self._replace(place, len(self.entries))
        self._mark_last()
        return said

    def _mark_last(self) -> None:
        """Mark what can be edited or tried again."""
        before, self._last = self._last, [] if self.is_busy else self._last_turn()
        for entry in (*before, *self._last):
            entry.mark(is_last=entry in self._last)

    def _last_turn(self) -> list[ChatEntry]:
        """Return the last message, its answer and why it failed, if there are such."""
        found: list[ChatEntry] = []
        has_answer = False
        for entry in reversed(self.entries):
            if _is_said(entry):
                return [*found, entry]
            if isinstance(entry, MessageEntry) and entry.text and not has_answer:
                has_answer = True
                found.append(entry)
            if isinstance(entry, NoticeEntry) and entry is self.entries[-1]:
                found += [entry] if entry.is_error or entry.can_retry else []
        # Without a message to send again.
        return []

    # --- a session that another agent leads ------------------------------------------------------

    @property
    def leader(self) -> str:
        """The name of the agent that leads it; "" if this program does."""
        followed = self.conversation
        return followed.agent if isinstance(followed, FollowedConversation) else ""

    def hear(self, event: ChatEvent) -> None:
        assert isinstance(self.conversation, FollowedConversation)
        self.conversation.hear(event)

    def forget_interrupted(self, call_id: str) -> None:
        """Forget a stored call that seems to be interrupted, because it is still running."""
        entry = self._calls.get(call_id)
        if entry is not None and entry.is_interrupted:
            del self._calls[call_id]
            self._remove(entry)

    def end_followed(self, entry: CallEntry) -> None:
        """Show a call as it was stored, in place of the entry that it had while it was running."""
        assert isinstance(self.conversation, FollowedConversation)
        before = self._calls[entry.call.id]
        place = self.entries.index(before)
        entry.request, entry.verdict = before.request, before.verdict
        before.close_output()
        self._calls[entry.call.id] = entry
        self._replace(place, place + 1, entry)
        self.conversation.note_end(entry.call.id)
        self.emit("files-changed")

    async def close(self) -> None:
        """Close the session. Raise UnsavedError if its last messages could not be stored."""
        self._silence()
        if self._loading is not None:
            self._loading.cancel()
        if self.keeping is not None:
            await asyncio.wait({self.keeping})
        is_written = await self.conversation.close()
        for entry in self._calls.values():
            entry.close_output()
        if self._outputs is not None:
            await asyncio.to_thread(self._outputs.remove)
        if not is_written:
            raise UnsavedError

    def _hear(self, event: ChatEvent) -> None:
        goes_on = isinstance(event, events.TokensUsed | events.QueueChanged)
        if self._retry_notice is not None and not goes_on:
            self._remove(self._retry_notice)
            self._retry_notice = None
        match event:
            case events.StateChanged(state):
                self._note_activity(state)
                self._mark_last()
                self.emit("state-changed")
            case events.Retrying(wait, why):
                count = max(1, round(wait))
                text = ngettext(
                    "{why} Trying again in {count} second.",
                    "{why} Trying again in {count} seconds.",
                    count,
                )
                self._retry_notice = NoticeEntry(text.format(why=localized(why), count=count))
                self._append(self._retry_notice)
            case events.QueueChanged():
                self.emit("queue-changed")
            case events.MessageAdded(message):
                self._said(message)
            case events.TextGrew(text):
                self._set_activity(None)
                self.heard_at = time.monotonic()
                self._grow().add_text(text)
            case events.ThinkingGrew(text):
                self._set_activity(Activity.THINKING)
                self._grow().add_thinking(text)
            case events.ReplyWithdrawn():
                self._withdraw()
            case events.CallQueued(call, description, own):
                self._add_call(call, description, own=own)
            case events.CallBegan(call, description, own):
                if call.id not in self._calls:
                    self._add_call(call, description, own=own)
            case events.Notice(text):
                self._said(Message(Role.NOTICE, text))
            case events.InstructionsRead(files):
                self._said(Message(Role.NOTICE, instructions_notice(files)))
            case events.TokensUsed(prompt, reply, room, cost):
                self.spent = self.spent.plus(Spent(prompt, reply, cost))
                self.used, self.room = prompt + reply, room or 0
                self.emit("spent", event)
            case events.TurnEnded(end, why):
                self._turn_ended(end, why)
            case _:
                self._hear_of_call(event)

    def _note_activity(self, state: ConversationState) -> None:
        if state is ConversationState.WAITING:
            self.asked_at = time.monotonic()
            self._set_activity(Activity.WAITING)
            if (model := self.conversation.model) is not None:
                # At once: a server lists a model as soon as it begins to load it.
                self._loading = asyncio.ensure_future(self._look_at(model))
        elif state is not ConversationState.STREAMING:
            self._set_activity(None)

    async def _look_at(self, model: Model) -> None:
        asked_at = self.asked_at
        is_loaded = await model.is_loaded()
        is_waiting = self.activity is Activity.WAITING and self.asked_at == asked_at
        if is_loaded is False and is_waiting:
            self._set_activity(Activity.LOADING)

    def _set_activity(self, activity: Activity | None) -> None:
        if activity is not self.activity:
            self.activity = activity
            self.emit("activity-changed")

    def note_silence(self) -> None:
        """Note that no word has come for a while, although the reply goes on."""
        if self.activity is None and self.state is ConversationState.STREAMING:
            self.asked_at = self.heard_at
            self._set_activity(Activity.WRITING)

    def _hear_of_call(self, event: ChatEvent) -> None:
        match event:
            case events.CallEnded(call, outcome):
                self._calls[call.id].end(outcome)
                self.emit("files-changed")
            case events.QuestionAsked(call_id, question):
                self._calls[call_id].question_user(question)
            case events.QuestionAnswered(call_id, answer):
                self._calls[call_id].reply(answer)
            case events.PermissionAsked(call_id, request):
                self._calls[call_id].ask(request)
            case events.PermissionAnswered(call_id, verdict):
                self._calls[call_id].answer(verdict)
            case events.CommandStarted(call_id, pid, plan, ports):
                terminal = self.conversation.terminal_of(call_id)
                self._calls[call_id].start(pid, plan, ports, terminal)
                if self.has_network:
                    self.emit("state-changed")
            case events.CommandOutput(call_id, stream, data):
                self._calls[call_id].add_output(stream, data)
            case events.CallSettled(call_id, report):
                self._calls[call_id].settle(report)
                self.emit("files-changed")
            case events.FilesChanged(call_id, change):
                self._calls[call_id].note_files(change.count, change.path)

    def _add_call(self, call: ToolCall, description: str, *, own: bool) -> None:
        entry = CallEntry(call, description, own=own)
        if self._outputs is not None:
            entry.new_store = self._outputs.new
        self._calls[call.id] = entry
        self._story.note(entry)
        self._append(entry)

    def _said(self, message: Message) -> None:
        if message.role is Role.SUMMARY:
            # How much the model reads from now on is known with its next answer.
            self.used = 0
        if message.role is Role.ASSISTANT and self._growing is not None:
            if message.text or message.thinking:
                self._growing.finish(message)
                self._growing = None
            else:
                self._withdraw()
            return
        if (entry := self._story.tell(message)) is not None:
            self._append(entry)

    def _grow(self) -> MessageEntry:
        if self._growing is None:
            model = self.conversation.model
            self._growing = MessageEntry(Role.ASSISTANT, model=model.name if model else "")
            self._story.note(self._growing)
            self._append(self._growing)
        return self._growing

    def _withdraw(self) -> None:
        if self._growing is not None:
            self._remove(self._growing)
            self._growing = None

    def _turn_ended(self, end: TurnEnd, why: str) -> None:
        self._growing = None
        if end is not TurnEnd.DONE:
            self._said(Message(Role.NOTICE, why or Sentence(end.value), end=end.name))
        self.emit("state-changed")
        self.emit("turn-ended", end)

    def add_notice(self, text: str, *, is_error: bool = False) -> None:
        self._append(NoticeEntry(text, is_error=is_error))

    def _append(self, entry: ChatEntry) -> None:
        self._replace(len(self.entries), len(self.entries), entry)

    def _remove(self, entry: ChatEntry) -> None:
        if entry in self.entries:
            place = self.entries.index(entry)
            self._replace(place, place + 1)
        self._story.withdraw(entry, self.entries[-1] if self.entries else None)

    def _replace(self, start: int, end: int, *entries: ChatEntry) -> None:
        self.entries[start:end] = entries
        self.emit("entries-changed", entries)


def _is_said(entry: ChatEntry) -> bool:
    return isinstance(entry, MessageEntry) and entry.role is Role.USER
