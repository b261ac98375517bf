# SPDX-License-Identifier: GPL-3.0-or-later
"""The stored form of a session, and its conversion from and to JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from ...errors import Sentence, sentence
from ...permission.request import Answer, Source, Verdict
from ...project.change import Kind
from ...project.short_list import count_files, count_kinds, split_ignored
from ...sandbox.network.hosts import HostUse
from ...sandbox.process import Stop
from ..messages import Message, Role, ServerFields, ToolCall

if TYPE_CHECKING:
    from ...project.change import Report
    from ...tools.base import Outcome

INTERRUPTED = "ERROR: The program ended before this call was answered."


@dataclass(frozen=True)
class CallRecord:
    """The stored data of a call, besides the text for the model."""

    ok: bool
    # The call in one line, for the user.
    description: str = ""
    run_id: str = ""
    exit_code: int | None = None
    duration: float | None = None
    # The answer of the user or a rule, if there was a question.
    answer: Answer | None = None
    source: Source | None = None
    # Why it was ended early.
    stop: Stop | None = None
    # The number of changes of each kind, without files that git ignores; and of such files.
    changes: Mapping[Kind, int] = field(default_factory=dict)
    ignored: int = 0
    # The user's own command, not the model's.
    own: bool = False
    # Where the output of a command begins in the text for the model, and where it ends.
    output_start: int = 0
    output_end: int | None = None
    # The processes that its command left running, and what the sandbox refused to it.
    left_running: int = 0
    refusals: tuple[str, ...] = ()
    # What it drew on the whole screen of its terminal is not kept.
    filled_screen: bool = False
    # The user's answer to a question of the model; "" if the model decides, None without one.
    reply: str | None = None
    # The program ended before the call.
    is_interrupted: bool = False
    # The hosts that a command tried to reach.
    hosts: tuple[HostUse, ...] = ()

    @property
    def was_denied(self) -> bool:
        return self.answer is not None and not self.answer.allows

    @classmethod
    def of(cls, outcome: Outcome, description: str) -> CallRecord:
        result, verdict = outcome.result, outcome.verdict
        record = cls(
            ok=outcome.ok,
            description=description,
            exit_code=result.exit_code if result else None,
            duration=round(result.duration, 3) if result else None,
            answer=verdict.answer if verdict else None,
            source=verdict.source if verdict else None,
            stop=outcome.stop,
            output_end=outcome.output_end,
            left_running=result.left_running if result else 0,
            refusals=result.refusals if result else (),
            filled_screen=outcome.filled_screen,
            reply=outcome.reply,
            hosts=outcome.hosts,
        )
        return record.with_report(outcome.report) if outcome.report else record

    def with_report(self, report: Report) -> CallRecord:
        shown, ignored = split_ignored(report.changes)
        return replace(
            self,
            run_id=report.run_id,
            changes=count_kinds(shown),
            ignored=count_files(ignored),
        )

    def asked(self, verdict: Verdict | None) -> CallRecord:
        """Return the record with the answer that kept the call from running. An answer to a command
        that runs is about something else, such as a host."""
        if verdict is None or self.exit_code is not None:
            return self
        return replace(self, answer=verdict.answer, source=verdict.source)

    def moved(self, start: int) -> CallRecord:
        """Return the record of a command of the user's own, whose output begins at `start`."""
        end = None if self.output_end is None else self.output_end + start
        return replace(self, own=True, output_start=start, output_end=end)


@dataclass(frozen=True)
class StoredMessage:
    """A message, with the record of the call if it is the result of one."""

    number: int
    message: Message
    record: CallRecord | None = None


@dataclass(frozen=True)
class Spent:
    """The tokens that a session has sent and received, as its servers counted them."""

    prompt: int = 0
    reply: int = 0
    # By the prices of its connections; None without one.
    cost: float | None = None

    @property
    def tokens(self) -> int:
        return self.prompt + self.reply

    def plus(self, other: Spent) -> Spent:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Spent(
            self.prompt + other.prompt, self.reply + other.reply, sum(costs) if costs else None
        )


@dataclass(frozen=True)
class SessionInfo:
    """A session without its messages, as the list of sessions shows it."""

    id: str
    title: str
    # The project's folder, or "" without one.
    project: str
    model: str
    connection: str
    created_at: float
    updated_at: float
    spent: Spent = Spent()


@dataclass(frozen=True)
class StoredSession:
    """A session as it is in the database."""

    info: SessionInfo
    entries: tuple[StoredMessage, ...]
    draft: str = ""

    @property
    def messages(self) -> list[Message]:
        """The messages for a model."""
        found = (entry.message for entry in self.entries)
        return [message for message in found if message.role is not Role.NOTICE]


def calls_to_json(calls: Sequence[ToolCall]) -> str:
    return json.dumps([asdict(call) for call in calls])


def calls_from_json(text: str) -> tuple[ToolCall, ...]:
    try:
        return tuple(ToolCall(**call) for call in json.loads(text))
    except (ValueError, TypeError):
        return ()


def extra_to_json(message: Message) -> str:
    kept: dict[str, object] = {}
    if message.fields is not None:
        kept["fields"] = asdict(message.fields)
    if message.keeps:
        kept["keeps"] = message.keeps
    if message.end:
        kept["end"] = message.end
    # What a command printed is stored once, as text.
    if isinstance(message.text, Sentence) and len(message.text) <= 1000:
        kept["sentence"] = _sentence_to_json(message.text)
    return json.dumps(kept) if kept else ""


def with_extra(message: Message, text: str) -> Message:
    """Return the message with what `extra_to_json` made of another one."""
    try:
        kept = json.loads(text) if text else {}
        fields, said = None, _sentence_from_json(kept.get("sentence"))
        if given := kept.get("fields"):
            others = dict(given["others"])
            fields = ServerFields(str(given["origin"]), str(given["thinking"]), others)
        return replace(
            message,
            # A sentence stays one.
            text=said if isinstance(said, str) else message.text,
            keeps=int(kept.get("keeps", 0)),
            end=str(kept.get("end", "")),
            fields=fields,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return message  # it can do without


def _sentence_to_json(field: object) -> object:
    """Return what a sentence is made of, so that the window can translate it later, too."""
    if isinstance(field, Sentence):
        (template,), fields = field.__getnewargs_ex__()
        return {"text": template, "fields": {k: _sentence_to_json(v) for k, v in fields.items()}}
    return field if isinstance(field, int | float) else str(field)


def _sentence_from_json(kept: object) -> object:
    if not isinstance(kept, dict):
        return kept
    fields = {name: _sentence_from_json(field) for name, field in kept["fields"].items()}
    return sentence(str(kept["text"]), **fields)


def record_to_json(record: CallRecord | None) -> str:
    if record is None:
        return ""
    kept = {one.name: _field_to_json(getattr(record, one.name)) for one in fields(record)}
    return json.dumps(kept)


def _field_to_json(field: object) -> object:
    match field:
        case Enum():
            return field.value
        case HostUse():
            return field.document()
        case Mapping():
            return {kind.value: count for kind, count in field.items()}
        case tuple():
            return [_field_to_json(item) for item in field]
        case Sentence():
            return _sentence_to_json(field)
        case _:
            return field


# What is not stored as it is, unless it is None.
_READERS: Mapping[str, Callable[[Any], object]] = {
    "answer": Answer,
    "source": Source,
    "stop": lambda value: next((stop for stop in Stop if stop.value == value), None),
    "changes": lambda counts: {Kind(kind): int(count) for kind, count in counts.items()},
    "refusals": lambda said: tuple(map(_sentence_from_json, said)),
    "hosts": lambda uses: tuple(map(HostUse.from_document, uses)),
}


def record_from_json(text: str) -> CallRecord | None:
    """Return the record, or None if there is none or it is invalid."""
    try:
        kept = {} if not text else json.loads(text)
        for name in _READERS.keys() & kept.keys():
            kept[name] = None if kept[name] is None else _READERS[name](kept[name])
        known = {one.name for one in fields(CallRecord)}
        return CallRecord(**{name: kept[name] for name in known & kept.keys()})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def repair(entries: Iterable[StoredMessage]) -> list[StoredMessage]:
    """Add missing results of calls and remove results without a call, because servers refuse both.
    They are left behind if the program was killed, or two programs wrote to the session."""
    found: list[StoredMessage] = []
    open_calls: dict[str, ToolCall] = {}

    def close() -> None:
        for call in open_calls.values():
            answer = Message(Role.TOOL, INTERRUPTED, call_id=call.id, at=found[-1].message.at)
            record = CallRecord(ok=False, is_interrupted=True)
            found.append(StoredMessage(found[-1].number, answer, record))
        open_calls.clear()

    for entry in entries:
        message = entry.message
        if message.role is Role.TOOL:
            if open_calls.pop(message.call_id, None) is None:
                continue
        else:
            close()
            open_calls.update((call.id, call) for call in message.calls)
        found.append(entry)
    close()
    return found
