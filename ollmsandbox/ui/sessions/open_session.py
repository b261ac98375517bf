# SPDX-License-Identifier: GPL-3.0-or-later
"""A session that is open: its conversation, and what stands in its chat. It goes on while another
one is shown.

What of a session is not stored, and is there again if it is opened once more meanwhile: its
calls with all that they printed and were asked, the sentences between the messages, and the answers
that hold for the session.

A session that is open: its conversation, and what stands in its chat. It goes on while another
one is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..chat.entries import CallEntry, Entry, NoticeEntry
from ..terminal.output_file import OutputFiles

if TYPE_CHECKING:
    from ...permission.provider import Answers
import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from gettext import gettext as _

from gi.repository import Gio, GObject

from ...chat import events
from ...chat.conversation import Conversation
from ...chat.events import ChatEvent, ConversationState, TurnEnd
from ...chat.messages import Message, Role
from ...chat.storage.writer import LOST
from ...errors import OllmSandboxError
from ...permission.provider import Provider
from ...project.changes.change import State as ChangeState
from ..chat import tool_text
from ..chat.entries import MessageEntry, Speaker, Stage
from ..i18n import spoken
from ..markdown.stream import Cutter
from ..widgets.signals import signals


@dataclass(frozen=True)
class Remains:
    files: OutputFiles | None
    answers: Answers
    # As they were: by id, and the person's own, which have another id when they are stored, by
    # their place among those.
    calls: dict[str, CallEntry]
    own_calls: dict[int, CallEntry]
    # Each with the number of other entries that stand before it.
    notices: tuple[tuple[int, NoticeEntry], ...]

    @classmethod
    def of(cls, entries: Iterable[Entry], files: OutputFiles | None, answers: Answers) -> Remains:
        calls: dict[str, CallEntry] = {}
        own_calls: dict[int, CallEntry] = {}
        notices: list[tuple[int, NoticeEntry]] = []
        count = own_count = 0
        for entry in entries:
            if isinstance(entry, NoticeEntry):
                notices.append((count, entry))
                continue
            count += 1
            if isinstance(entry, CallEntry):
                # One that was stored before is stored still.
                if entry.outcome is not None or entry.output_file is not None:
                    entry.rest()
                    if entry.own:
                        own_calls[own_count] = entry
                    else:
                        calls[entry.call.id] = entry
                own_count += entry.own
        return cls(files, answers, calls, own_calls, tuple(notices))

    def __bool__(self) -> bool:
        return bool(self.answers or self.calls or self.own_calls or self.notices)

    def added_to(self, stored: Sequence[Entry]) -> list[Entry]:
        whole: list[Entry] = []
        own_count = 0
        for entry in stored:
            kept: Entry | None = None
            if isinstance(entry, CallEntry) and entry.own:
                kept = self.own_calls.get(own_count)
                own_count += 1
            elif isinstance(entry, CallEntry):
                kept = self.calls.get(entry.call.id)
            whole.append(kept or entry)
        # Another program may have added some entries, behind these.
        for place, notice in reversed(self.notices):
            if place <= len(stored):
                whole.insert(place, notice)
        return whole

    def remove(self) -> None:
        """Blocks: for a thread."""
        if self.files is not None:
            self.files.remove()


class OpenSession(GObject.Object):
    __gtype_name__ = "OllmOpenSession"

    __gsignals__ = signals(
        {
            "state-changed": (),
            # A command ended, and something in the project may be other than before.
            "files-changed": (),
            "spent": (object,),
        }
    )

    def __init__(
        self,
        conversation: Conversation,
        project: str | None,
        remains: Remains | None = None,
    ) -> None:
        """`remains`: of the time before."""
        super().__init__()
        self.conversation = conversation
        self.project = project
        self.entries = Gio.ListStore.new(Entry)
        # The same: to get one from the store takes long.
        self._listed: list[Entry] = []
        self._calls: dict[str, CallEntry] = {}
        # What is being said, in several pieces if it is long.
        self._growing: list[MessageEntry] = []
        self._cutter = Cutter()
        self._speaker = Speaker()
        bench = conversation.bench
        self._outputs = remains.files if remains is not None else None
        if self._outputs is None and bench is not None:
            self._outputs = OutputFiles(bench.paths)
        permissions = bench.permissions if bench is not None else None
        self._permissions = permissions if isinstance(permissions, Provider) else None
        if remains is not None and self._permissions is not None:
            self._permissions.go_on_with(remains.answers)
        # What is typed, and what of it is stored.
        self.draft = self.kept_draft = ""
        self.keeping: asyncio.Task[None] | None = None
        # Something happened in it since it was opened. Its output is not stored as it was.
        self.is_used = False
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

    @property
    def is_at_rest(self) -> bool:
        """Nothing goes on in it, nothing is asked, and what was typed is stored."""
        is_kept = self.draft == self.kept_draft and (self.keeping is None or self.keeping.done())
        return not self.is_busy and not self.asking() and is_kept

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._listed)

    def entry_of(self, call_id: str) -> CallEntry | None:
        return self._calls.get(call_id)

    def asking(self) -> list[CallEntry]:
        return [entry for entry in self._calls.values() if entry.stage is Stage.ASKING]

    @property
    def has_network(self) -> bool:
        """A command has it right now."""
        return any(
            entry.stage is Stage.RUNNING and entry.has_network for entry in self._calls.values()
        )

    def show_stored(self, entries: Sequence[Entry]) -> None:
        """What was said before the session was opened."""
        for entry in entries:
            if isinstance(entry, CallEntry):
                self._calls[entry.call.id] = entry
                if self._outputs is not None:
                    entry.keep_output(self._outputs.new)
            elif isinstance(entry, MessageEntry):
                self._speaker.note(entry)
        self._listed = list(entries)
        self.entries.splice(0, self.entries.get_n_items(), self._listed)

    def note_states(self, states: Mapping[str, frozenset[ChangeState]]) -> None:
        """By run: how what it changed stands now."""
        for entry in self._calls.values():
            if entry.run_id in states:
                entry.note_states(states[entry.run_id])

    def remains(self) -> Remains:
        """What is lost when it is closed, unless somebody keeps it. The files are theirs then."""
        answers = self._permissions.session_answers if self._permissions is not None else {}
        found = Remains.of(self, self._outputs, answers)
        if found:
            self._outputs = None
        return found

    async def close(self) -> None:
        """Raises, when all is done, if the end of what was said is lost."""
        self._silence()
        if self.keeping is not None:
            await asyncio.wait({self.keeping})
        is_written = await self.conversation.close()
        for entry in self._calls.values():
            entry.close_output()
        if self._outputs is not None:
            await asyncio.to_thread(self._outputs.remove)
        if not is_written:
            raise OllmSandboxError(LOST)

    def _hear(self, event: ChatEvent) -> None:
        self.is_used = True
        match event:
            case events.StateChanged():
                self.emit("state-changed")
            case events.MessageAdded(message):
                self._said(message)
            case events.TextGrew(text):
                self._add_text(text)
            case events.ThinkingGrew(text):
                self._grow().add_thinking(text)
            case events.ReplyWithdrawn():
                self._withdraw()
            case events.CallBegan(call, description, own):
                entry = CallEntry(call, description, own=own)
                if self._outputs is not None:
                    entry.keep_output(self._outputs.new)
                self._calls[call.id] = entry
                self._append(entry)
            case events.Notice(text):
                self._append(NoticeEntry(spoken(text)))
            case events.TokensUsed():
                self.emit("spent", event)
            case events.TurnEnded(end, why):
                self._turn_ended(end, why)
            case _:
                self._hear_of_call(event)

    def _hear_of_call(self, event: ChatEvent) -> None:
        match event:
            case events.CallEnded(call, outcome):
                self._calls[call.id].end(outcome)
                self.emit("files-changed")
            case events.PermissionAsked(call_id, request):
                self._calls[call_id].ask(request)
            case events.PermissionAnswered(call_id, verdict):
                self._calls[call_id].answer(verdict)
            case events.CommandStarted(call_id, pid, plan):
                self._calls[call_id].start(pid, plan)
                if self.has_network:
                    self.emit("state-changed")
            case events.CommandOutput(call_id, stream, data):
                self._calls[call_id].add_output(stream, data)
            case events.CallSettled(call_id, report):
                self._calls[call_id].settle(report)
                self.emit("files-changed")
            case events.FilesChanged(call_id, change):
                self._calls[call_id].note_files(change.count, change.path)

    def _said(self, message: Message) -> None:
        if message.role is Role.TOOL:
            return
        if message.role is Role.ASSISTANT and self._growing:
            if message.text or message.thinking:
                *parts, last = self._growing
                if parts:
                    message = replace(message, text=last.text, thinking=last.thinking)
                last.finish(message)
                self._growing = []
            else:
                self._withdraw()
            return
        if message.text or message.thinking:
            for entry in MessageEntry.of(message):
                self._speaker.note(entry)
                self._append(entry)

    def _add_text(self, text: str) -> None:
        entry = self._grow()
        while (place := self._cutter.feed(text)) is not None:
            entry.add_text(text[:place])
            entry.end_part()
            entry, text = self._begin_part(), text[place:]
        entry.add_text(text)

    def _grow(self) -> MessageEntry:
        if not self._growing:
            self._cutter = Cutter()
            self._begin_part()
        return self._growing[-1]

    def _begin_part(self) -> MessageEntry:
        model = self.conversation.model
        entry = MessageEntry(Role.ASSISTANT, model=model.name if model else "")
        self._speaker.note(entry)
        self._growing.append(entry)
        self._append(entry)
        return entry

    def _withdraw(self) -> None:
        for entry in reversed(self._growing):
            self._remove(entry)
        self._growing = []

    def _turn_ended(self, end: TurnEnd, why: str) -> None:
        self._growing = []
        text = spoken(why) or (_(end.value) if end.value else "")
        if end is TurnEnd.STOPPED and self._says_stopped():
            text = ""
        if text:
            self._append(NoticeEntry(text, is_error=end is TurnEnd.FAILED))
        self.emit("state-changed")

    def _says_stopped(self) -> bool:
        """What stands last says it already."""
        last = self._listed[-1] if self._listed else None
        if isinstance(last, CallEntry):
            return tool_text.is_stopped(last)
        return isinstance(last, MessageEntry) and last.partial

    def _append(self, entry: Entry) -> None:
        self._listed.append(entry)
        self.entries.append(entry)

    def _remove(self, entry: Entry) -> None:
        if isinstance(entry, MessageEntry):
            self._speaker.forget(entry)
        found, position = self.entries.find(entry)
        if found:
            del self._listed[position]
            self.entries.remove(position)
