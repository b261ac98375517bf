# SPDX-License-Identifier: GPL-3.0-or-later
"""The entries of a chat, as objects that widgets show: messages, tool calls, notices.

They live as long as the session is open, whether it is shown or not. `entries_of` makes those of a
stored session.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from gi.repository import GObject

from ... import N_
from ...chat.messages import Message, Role, ToolCall
from ...chat.storage.stored import CallRecord
from ...chat.turn_end import TurnEnd
from ...i18n import _, localized
from ...project.change import Report
from ...sandbox.process import Stop
from ...text.ansi import fills_screen
from ...tools.base import Outcome, Picture, Stream, ToolError, UserQuestion
from ...tools.todo import NAME as PLAN
from ...tools.todo import TodoStep, read_steps
from ..terminal.output import OutputFile, end_of, write_readable
from ..widgets.signals import signals

if TYPE_CHECKING:
    from ...chat.storage.stored import StoredSession
    from ...permission.request import PermissionRequest, Verdict
    from ...sandbox.network.hosts import HostUse
    from ...sandbox.network.publish import CommandPorts
    from ...sandbox.plan.plan import Plan
    from ...sandbox.terminal import CommandTerminal

# Of the output, as it came: what a view that is made later has to show.
_KEPT = 4 << 20
_PIECE = 64 << 10


class ChatEntry(GObject.Object):
    # Something of it is other than before.
    __gsignals__ = signals({"changed": ()})

    # It belongs to the last turn, which is over: it can be edited or tried again.
    is_last = False

    def mark(self, *, is_last: bool) -> None:
        if is_last is not self.is_last:
            self.is_last = is_last
            self.emit("changed")


class MessageEntry(ChatEntry):
    __gsignals__ = signals({"grew": (str,), "thought": (str,)})

    def __init__(self, role: Role, *, model: str = "", at: float = 0.0) -> None:
        super().__init__()
        self.role = role
        self.model = model
        self.at = at or time.time()
        self.is_growing = role is Role.ASSISTANT
        self.partial = False
        # The text is another than the one that grew.
        self.is_replaced = False
        # It is partial because the user stopped it.
        self.is_stopped = False
        # Whether the user expanded the thinking.
        self.is_open = False
        # The model is the same as before, and is not named again.
        self.continues = False
        # It ends a turn.
        self.is_final = False
        # Attached by the user.
        self.pictures: tuple[Picture, ...] = ()
        self.text = self.thinking = ""

    @classmethod
    def of(cls, message: Message) -> MessageEntry:
        entry = cls(message.role, model=message.model, at=message.at)
        entry.finish(message)
        return entry

    def add_text(self, text: str) -> None:
        self.text += text
        self.emit("grew", text)

    def add_thinking(self, text: str) -> None:
        self.thinking += text
        self.emit("thought", text)

    def mark(self, *, is_last: bool) -> None:
        self.is_final = self.is_final or (is_last and self.role is Role.ASSISTANT)
        super().mark(is_last=is_last)

    def finish(self, message: Message) -> None:
        # A call that was written as text is no longer part of it.
        self.is_replaced = bool(self.text) and self.text != message.text
        self.text, self.thinking = message.text, message.thinking
        self.pictures = message.pictures
        # As it is stored.
        self.at = message.at or self.at
        self.partial = message.partial
        self.is_stopped = message.partial and message.end == TurnEnd.STOPPED.name
        self.model = message.model or self.model
        self.is_growing = False
        self.emit("changed")


class Activity(Enum):
    """The things that the model does while none of its words appear."""

    WAITING = N_("Waiting for the model…")
    LOADING = N_("Loading the model…")
    THINKING = N_("Thinking…")
    # It writes the arguments of a call, which are not shown.
    WRITING = N_("Writing…")


class Stage(Enum):
    WAITING = N_("Waiting")
    ASKING = N_("Needs your answer")
    RUNNING = N_("Running")
    DONE = N_("Done")


class CallEntry(ChatEntry):
    __gsignals__ = signals({"output": (object,)})

    def __init__(self, call: ToolCall, description: str, *, own: bool = False) -> None:
        super().__init__()
        self.call = call
        self.description = description
        self.own = own
        self.stage = Stage.WAITING
        # The last one, if it asked several times.
        self.request: PermissionRequest | None = None
        self.verdict: Verdict | None = None
        # A question of the model, and the user's answer: None as long as there is none.
        self.question: UserQuestion | None = None
        self.reply_text: str | None = None
        self.plan: Plan | None = None
        self.ports: CommandPorts | None = None
        self.pid = 0
        # How it ended, and the text for the model.
        self.record: CallRecord | None = None
        self.text = ""
        self.began_at = 0.0
        self.ended_at = 0.0
        self.changed_count = 0
        self.last_changed = ""
        self._kept: deque[bytearray] = deque()
        self._size = 0
        self._is_in_file = False
        # Bytes printed, whether they are kept or not.
        self.printed = 0
        # The terminal of a command of the user's own, while it runs; and whether the command wants
        # to draw on all of its screen.
        self.terminal: CommandTerminal | None = None
        self.fills_screen = False
        self.run_id = ""
        # The complete output, if it is long.
        self.output_file: Path | None = None
        # Whether its card is open, if the user has chosen.
        self.is_open: bool | None = None
        # A note for the user if the file is incomplete.
        self.output_note = ""
        self._store: OutputFile | None = None
        # Makes the file for the output, if that becomes long.
        self.new_store: Callable[[], OutputFile] | None = None

    @property
    def is_running(self) -> bool:
        """Whether its command runs, even if it waits for an answer about a host."""
        is_waiting = self.stage is Stage.ASKING and self.plan is not None
        return self.stage is Stage.RUNNING or is_waiting

    @property
    def has_network(self) -> bool:
        """Whether it may use the network, by its plan or else by its question."""
        if self.plan is not None:
            return self.plan.network
        return self.request is not None and self.request.network

    @property
    def hosts(self) -> tuple[HostUse, ...]:
        return self.record.hosts if self.record else ()

    @property
    def stop(self) -> Stop | None:
        """Why it was ended early."""
        return self.record.stop if self.record else None

    @property
    def is_interrupted(self) -> bool:
        """Whether the program ended before the call did."""
        is_recorded = self.record is not None and not self.record.is_interrupted
        return self.stage is Stage.DONE and not is_recorded

    @property
    def shown_text(self) -> str:
        """What the command printed, or the result of another tool."""
        record = self.record
        if record is None:
            return self.text
        if record.is_interrupted:
            return ""  # what the model reads then says no more than its state
        if record.output_end is None and not record.output_start:
            return localized(self.text)
        return self.text[record.output_start : record.output_end]

    def kept_output(self) -> bytes:
        before = b""
        if self.output_file is not None and (self._is_in_file or not self._kept):
            before = end_of(self.output_file, _KEPT)
        return before + b"".join(self._kept)

    def ask(self, request: PermissionRequest) -> None:
        self.request = request
        self.stage = Stage.ASKING
        self.emit("changed")

    def answer(self, verdict: Verdict) -> None:
        self.verdict = verdict
        is_last = self.request is not None and verdict.request.id == self.request.id
        if self.stage is Stage.ASKING and is_last:
            # A running command may have tried to reach a host.
            self.stage = Stage.RUNNING if self.pid else Stage.WAITING
        self.emit("changed")

    def question_user(self, question: UserQuestion) -> None:
        self.question = question
        self.stage = Stage.ASKING
        self.emit("changed")

    def reply(self, text: str | None) -> None:
        self.reply_text = text
        self.stage = Stage.WAITING
        self.emit("changed")

    @property
    def steps(self) -> tuple[TodoStep, ...]:
        """The to-do list that the call has set; empty for other calls."""
        if self.call.name != PLAN:
            return ()
        try:
            return read_steps(self.call.arguments)
        except ToolError:
            return ()

    def start(
        self,
        pid: int,
        plan: Plan | None,
        ports: CommandPorts | None = None,
        terminal: CommandTerminal | None = None,
    ) -> None:
        self.pid, self.plan, self.ports, self.terminal = pid, plan, ports, terminal
        self.began_at = time.time()
        self.stage = Stage.RUNNING
        self.emit("changed")

    def add_output(self, _stream: Stream, data: bytes) -> None:
        if self.stage is Stage.WAITING:
            # The system that the command needs is being installed.
            self.start(0, None)
        # A command may print letter by letter: joined, they take less room.
        if self._kept and len(self._kept[-1]) + len(data) <= _PIECE:
            self._kept[-1] += data
        else:
            self._kept.append(bytearray(data))
        self._size += len(data)
        self.printed += len(data)
        if self._store is not None:
            self._store.write(data)
        # No view drops a line of less.
        elif self.new_store is not None and self.printed > 4 << 10:
            self._store_all(self.new_store)
        while self._size > _KEPT and len(self._kept) > 1:
            self._size -= len(self._kept.popleft())
        is_looking = self.terminal is not None and not self.fills_screen
        # A sequence may be cut between two pieces of output.
        if is_looking and fills_screen(self._end_of_output(len(data) + 96)):
            self.fills_screen = True
            self.emit("changed")
        self.emit("output", data)

    def _end_of_output(self, size: int) -> bytearray:
        """Return this many of the last bytes, if the last two pieces have them."""
        end = self._kept[-1][-size:]
        if len(end) < size and len(self._kept) > 1:
            end = self._kept[-2][len(end) - size :] + end
        return end

    def note_files(self, count: int, last: str) -> None:
        """Note changed files without a signal, as there may be thousands per second."""
        self.changed_count, self.last_changed = count, last

    def end(self, outcome: Outcome) -> None:
        record = CallRecord.of(outcome, self.description).asked(self.verdict)
        self.record, self.text = replace(record, own=self.own), outcome.text
        self.run_id = outcome.run_id
        is_drawn = self.fills_screen or self.record.filled_screen
        self.terminal, self.fills_screen = None, False
        if self.record.reply is None:
            self.question = None
        self.close_output()
        if is_drawn:
            # What it drew is no text: only that of the result is shown.
            self._kept.clear()
            self.printed, self.output_file, self.output_note = 0, None, ""
        elif not self.output_note and self.output_file is not None:
            # What is in a file is dropped from memory.
            self._kept.clear()
            self._size = 0
            self._is_in_file = True
        self.ended_at = time.time()
        self.stage = Stage.DONE
        self.emit("changed")

    def readable_file(self) -> Path | None:
        """Write all output to a file for a text editor. Blocks; raises OSError."""
        if self.output_file is None and self.shown_text and self.new_store is not None:
            store = self.new_store()
            store.write(self.shown_text.encode("utf-8", "replace"))
            store.close()
            self.output_file = store.path
        if self.output_file is None:
            return None
        target = self.output_file.with_name(f"{self.output_file.stem}-to-read.txt")
        write_readable(self.output_file, target)
        return target

    def settle(self, report: Report) -> None:
        """Note the changes of a call that was stopped."""
        if self.record is not None:
            self.record = self.record.with_report(report)
        self.run_id = report.run_id
        self.emit("changed")

    def close_output(self) -> None:
        if self._store is not None:
            self._store.close()
            self.output_note = self._store.note
            self._store = None

    def _store_all(self, new_store: Callable[[], OutputFile]) -> None:
        self.new_store = None
        try:
            self._store = new_store()
        except OSError as error:
            self.output_note = _("Cannot save the output: {why}.").format(why=error.strerror)
            return
        self.output_file = self._store.path
        self._store.write(self.kept_output())

    @classmethod
    def stored(cls, call: ToolCall, text: str, record: CallRecord | None) -> CallEntry:
        entry = cls(
            call,
            record.description if record and record.description else _wish(call),
            own=record is not None and record.own,
        )
        entry.record, entry.text, entry.stage = record, text, Stage.DONE
        entry.run_id = record.run_id if record else ""
        if record is not None and record.reply is not None:
            entry.question = UserQuestion("", entry.description)
            entry.reply_text = record.reply
        return entry


def _wish(call: ToolCall) -> str:
    """Describe a call that was interrupted before its description was stored."""
    arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
    about = (arguments.get(name) for name in ("command", "path", "url"))
    return next((text for text in about if isinstance(text, str) and text.strip()), call.name)


class NoticeEntry(ChatEntry):
    """A sentence between messages; `can_retry` if the turn can be tried again."""

    def __init__(self, text: str, *, is_error: bool = False, can_retry: bool = False) -> None:
        super().__init__()
        self.text = text
        self.is_error = is_error
        self.can_retry = can_retry


class SummaryEntry(ChatEntry):
    """The model's summary of earlier messages, which it no longer sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        # Whether the user expanded it.
        self.is_open = False


class Story:
    """Makes the entries of messages: the same ones whether they are stored or just came."""

    def __init__(self) -> None:
        self._last: ChatEntry | None = None
        # The model that answered last: only another one is named again.
        self._speaker: str | None = None

    def note(self, entry: ChatEntry) -> None:
        """Note an entry that comes next."""
        if isinstance(entry, MessageEntry) and entry.role is Role.ASSISTANT:
            entry.continues = entry.model == self._speaker
            self._speaker = entry.model
        self._last = entry

    def withdraw(self, entry: ChatEntry, last: ChatEntry | None) -> None:
        """Take back an entry; `last` is the one that is now the last."""
        if isinstance(entry, MessageEntry) and not entry.continues:
            self._speaker = None
        self._last = last

    def tell(self, message: Message) -> ChatEntry | None:
        """Return the entry of a message; None if there is nothing to show. Calls have their own."""
        entry: ChatEntry | None = None
        if message.role is Role.SUMMARY:
            entry = SummaryEntry(message.text)
        elif message.role is Role.NOTICE:
            entry = self._notice(message)
        elif message.role in (Role.USER, Role.ASSISTANT) and (
            message.text or message.thinking or message.pictures
        ):
            entry = MessageEntry.of(message)
        if entry is not None:
            self.note(entry)
        return entry

    def _notice(self, message: Message) -> ChatEntry | None:
        if message.end == TurnEnd.STOPPED.name:
            return None if _says_stopped(self._last) else NoticeEntry(_("You stopped this answer."))
        is_error = message.end == TurnEnd.FAILED.name
        can_retry = is_error or message.end == TurnEnd.EMPTY.name
        return NoticeEntry(localized(message.text), is_error=is_error, can_retry=can_retry)


def _says_stopped(entry: ChatEntry | None) -> bool:
    if isinstance(entry, CallEntry):
        return entry.stop is Stop.PERSON
    return isinstance(entry, MessageEntry) and entry.is_stopped


def entries_of(session: StoredSession) -> list[ChatEntry]:
    found: list[ChatEntry] = []
    calls: dict[str, ToolCall] = {}
    story = Story()

    def add(entry: ChatEntry) -> None:
        story.note(entry)
        found.append(entry)

    for stored in session.entries:
        message = stored.message
        if message.role is Role.TOOL:
            call = calls.pop(message.call_id, None)
            if call is not None:
                add(CallEntry.stored(call, message.text, stored.record))
        elif stored.record is not None and stored.record.own:
            # The model reads first whose command it was; the card shows that itself.
            command = ToolCall(f"stored-{stored.number}", "run_command", {})
            add(CallEntry.stored(command, message.text, stored.record))
        else:
            if message.role is not Role.NOTICE:
                # The program ended before these did.
                for call in calls.values():
                    add(CallEntry.stored(call, "", None))
                calls = {call.id: call for call in message.calls}
            if (entry := story.tell(message)) is not None:
                found.append(entry)
    for call in calls.values():
        add(CallEntry.stored(call, "", None))
    return found
