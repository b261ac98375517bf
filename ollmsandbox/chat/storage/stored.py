# SPDX-License-Identifier: GPL-3.0-or-later
"""A session as it is kept, and how its parts become JSON and come back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from ...permission.request import Answer, Source, Verdict
from ..messages import Message, Role, ToolCall

if TYPE_CHECKING:
    from ...tools.base import Outcome

INTERRUPTED = "ERROR: The program ended before this call was answered."


@dataclass(frozen=True)
class CallRecord:
    """What is kept of a call besides the text that the model got."""

    ok: bool
    # The call in one line, for a person.
    description: str = ""
    run_id: str = ""
    exit_code: int | None = None
    duration: float | None = None
    # What the person or a rule said, if it was asked for.
    answer: Answer | None = None
    source: Source | None = None
    # The person's own command, not the model's.
    own: bool = False

    @classmethod
    def of(cls, outcome: Outcome, description: str, *, own: bool = False) -> CallRecord:
        result, verdict = outcome.result, outcome.verdict
        return cls(
            ok=outcome.ok,
            description=description,
            run_id=outcome.run_id,
            exit_code=result.exit_code if result else None,
            duration=round(result.duration, 3) if result else None,
            answer=verdict.answer if verdict else None,
            source=verdict.source if verdict else None,
            own=own,
        )

    def asked(self, verdict: Verdict | None) -> CallRecord:
        if verdict is None:
            return self
        return replace(self, answer=verdict.answer, source=verdict.source)


@dataclass(frozen=True)
class StoredMessage:
    """A message, and what came of the call if it is the answer to one."""

    number: int
    message: Message
    record: CallRecord | None = None


@dataclass(frozen=True)
class SessionInfo:
    id: str
    title: str
    # The project's folder; empty without one.
    project: str
    model: str
    connection: str
    created_at: float
    updated_at: float


@dataclass(frozen=True)
class StoredSession:
    info: SessionInfo
    entries: tuple[StoredMessage, ...]
    draft: str = ""

    @property
    def messages(self) -> list[Message]:
        return [entry.message for entry in self.entries]


def calls_to_json(calls: Sequence[ToolCall]) -> str:
    return json.dumps([asdict(call) for call in calls])


def calls_from_json(text: str) -> tuple[ToolCall, ...]:
    calls = []
    for item in _list(text):
        arguments = item.get("arguments")
        if not isinstance(arguments, Mapping):
            arguments = str(arguments or "")
        calls.append(ToolCall(str(item.get("id", "")), str(item.get("name", "")), arguments))
    return tuple(calls)


def record_to_json(record: CallRecord | None) -> str:
    if record is None:
        return ""
    return json.dumps(
        {
            "ok": record.ok,
            "description": record.description,
            "run_id": record.run_id,
            "exit_code": record.exit_code,
            "duration": record.duration,
            "answer": record.answer.value if record.answer else None,
            "source": record.source.value if record.source else None,
            "own": record.own,
        }
    )


def record_from_json(text: str) -> CallRecord | None:
    """None where there is none, or where somebody else wrote something else there."""
    try:
        kept = json.loads(text) if text else None
        if not isinstance(kept, dict):
            return None
        code, duration = kept.get("exit_code"), kept.get("duration")
        return CallRecord(
            ok=bool(kept.get("ok")),
            description=str(kept.get("description", "")),
            run_id=str(kept.get("run_id", "")),
            exit_code=code if isinstance(code, int) else None,
            duration=float(duration) if isinstance(duration, int | float) else None,
            answer=Answer(kept["answer"]) if kept.get("answer") else None,
            source=Source(kept["source"]) if kept.get("source") else None,
            own=bool(kept.get("own")),
        )
    except ValueError:
        return None


def repair(entries: Iterable[StoredMessage]) -> list[StoredMessage]:
    """With an answer to each call, as servers demand it: the program may have been ended between
    the two, and an answer without a call may be left of a session written by two."""
    found: list[StoredMessage] = []
    open_calls: dict[str, ToolCall] = {}

    def close() -> None:
        for call in open_calls.values():
            answer = Message(Role.TOOL, INTERRUPTED, call_id=call.id, at=found[-1].message.at)
            found.append(StoredMessage(found[-1].number, answer, CallRecord(ok=False)))
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


def _list(text: str) -> list[dict[str, object]]:
    try:
        found = json.loads(text)
    except ValueError:
        return []
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
