# SPDX-License-Identifier: GPL-3.0-or-later
"""Exports a whole session as Markdown or JSON."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Sequence

from ...project.change import Recorded
from ...project.short_list import count_files, ignored_text, split_ignored
from ...tools.base import Picture
from ..messages import Role, ToolCall
from .history import History
from .stored import CallRecord, Spent, StoredMessage, StoredSession

_TICKS = re.compile(r"`+")


def as_json(history: History, session_id: str, *, with_pictures: bool = True) -> str:
    session = history.load(session_id)
    info = session.info
    document = {
        "id": info.id,
        "title": info.title,
        "project": info.project,
        "model": info.model,
        "connection": info.connection,
        "created": info.created_at,
        "updated": info.updated_at,
        "tokens": {"prompt": info.spent.prompt, "reply": info.spent.reply},
        "cost": info.spent.cost,
        "messages": [
            _message(history, entry, with_pictures=with_pictures) for entry in session.entries
        ],
        "questions": [
            {
                "call_id": question.call_id,
                "tool": question.tool,
                "question": question.question,
                "subject": question.subject,
                "asked": question.asked_at,
                "answer": question.answer,
                "source": question.source,
                "answered": question.answered_at,
            }
            for question in history.questions(info.id)
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def spent_words(spent: Spent) -> list[str]:
    """Return the tokens and the cost as words, as far as they are known."""
    words = [f"{spent.tokens:,} tokens"] if spent.tokens else []
    return words if spent.cost is None else [*words, f"cost {spent.cost:.4f}"]


def as_markdown(history: History, session_id: str, *, with_pictures: bool = True) -> str:
    """Return the session as text that people can read, with its pictures at the end."""
    session = history.load(session_id)
    parts = list(_markdown(history, session, with_pictures=with_pictures))
    if with_pictures:
        shown = [picture for entry in session.entries for picture in entry.message.pictures]
        parts += dict.fromkeys(
            f"[{_label(one)}]: data:{one.media_type};base64,{one.in_base64}" for one in shown
        )
    return "\n\n".join(parts) + "\n"


def _shown(pictures: Sequence[Picture], *, with_pictures: bool) -> Iterator[str]:
    for picture in pictures:
        name = _escape(picture.name or "Picture")
        yield f"![{name}][{_label(picture)}]" if with_pictures else f"*{name}*"


def _label(picture: Picture) -> str:
    return f"picture-{hashlib.sha256(picture.data).hexdigest()[:12]}"


def _message(history: History, entry: StoredMessage, *, with_pictures: bool) -> dict[str, object]:
    message, record = entry.message, entry.record
    document: dict[str, object] = {
        "number": entry.number,
        "role": message.role.value,
        "text": message.text,
        "thinking": message.thinking,
        "model": message.model,
        "at": message.at,
        "partial": message.partial,
    }
    if message.calls:
        document["calls"] = [
            {
                "id": call.id,
                "name": call.name,
                "arguments": call.arguments
                if isinstance(call.arguments, str)
                else dict(call.arguments),
            }
            for call in message.calls
        ]
    if message.pictures:
        document["pictures"] = [
            {
                "name": picture.name,
                "media_type": picture.media_type,
                **({"data": picture.in_base64} if with_pictures else {}),
            }
            for picture in message.pictures
        ]
    if message.call_id:
        document["call_id"] = message.call_id
    if record is not None:
        document["result"] = _result(history, record)
    return document


def _result(history: History, record: CallRecord) -> dict[str, object]:
    return {
        "ok": record.ok,
        "description": record.description,
        "own": record.own,
        "exit_code": record.exit_code,
        "duration": record.duration,
        "answer": record.answer.value if record.answer else None,
        "source": record.source.value if record.source else None,
        "run_id": record.run_id or None,
        "hosts": [use.document() for use in record.hosts],
        "changes": [
            {
                "path": _path(item),
                "kind": item.change.kind.value,
                "state": item.state.value,
            }
            for item in _changes(history, record)
        ],
    }


def _markdown(history: History, session: StoredSession, *, with_pictures: bool) -> Iterator[str]:
    info = session.info
    yield f"# {_escape(info.title or 'Session')}"
    about = [time.strftime("%Y-%m-%d %H:%M", time.localtime(info.created_at))]
    about += [_code(part) for part in (info.project, info.model) if part]
    yield ", ".join([*about, *spent_words(info.spent)])
    for entry in session.entries:
        message, record = entry.message, entry.record
        if message.role is Role.TOOL or (record is not None and record.own):
            yield from _call_result(history, entry, with_pictures=with_pictures)
            continue
        if message.role is Role.SYSTEM:
            yield _fenced(message.text)
            continue
        if message.role is Role.NOTICE:
            yield f"*{_escape(message.text)}*"
            continue
        if message.role is Role.SUMMARY:
            yield f"## Summary of the conversation so far\n\n{_fenced(message.text)}"
            continue
        yield f"## {'You' if message.role is Role.USER else _escape(message.model or 'Model')}"
        if message.thinking:
            yield "\n".join(f"> {line}" for line in message.thinking.splitlines())
        yield from _shown(message.pictures, with_pictures=with_pictures)
        if message.text:
            yield message.text
        if message.partial:
            yield "*(interrupted)*"
        for call in message.calls:
            yield f"**{_escape(call.name)}**\n\n{_fenced(_arguments(call))}"


def _call_result(history: History, entry: StoredMessage, *, with_pictures: bool) -> Iterator[str]:
    record = entry.record
    if record is not None and record.own:
        yield f"## Your command\n\n{_fenced(record.description)}"
    if record is not None and record.answer is not None and record.source is not None:
        yield f"Permission: {record.answer.value} ({record.source.value})"
    if entry.message.text:
        yield _fenced(entry.message.text)
    yield from _shown(entry.message.pictures, with_pictures=with_pictures)
    if record is not None:
        shown, ignored = split_ignored(_changes(history, record))
        lines = [
            f"- {item.change.kind.value} {_code(_path(item))} ({item.state.value})"
            for item in shown
        ]
        if ignored:
            lines.append(f"- {ignored_text(count_files(ignored))}")
        if lines:
            yield "\n".join((f"Changes (run {record.run_id}):", "", *lines))


def _changes(history: History, record: CallRecord) -> list[Recorded]:
    return history.changes(record.run_id) if record.run_id else []


def _path(item: Recorded) -> str:
    # A file name need not be valid UTF-8.
    return item.change.path.encode("utf-8", "backslashreplace").decode("utf-8")


def _arguments(call: ToolCall) -> str:
    if isinstance(call.arguments, str):
        return call.arguments
    if set(call.arguments) == {"command"}:
        return str(call.arguments["command"])
    return json.dumps(dict(call.arguments), indent=2, ensure_ascii=False)


def _fenced(text: str) -> str:
    """Return the text in a fence that is longer than any in the text itself."""
    fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
    return f"{fence}\n{text.rstrip()}\n{fence}"


def _code(text: str) -> str:
    line = " ".join(text.split("\n"))
    ticks = "`" * (1 + max(map(len, _TICKS.findall(line)), default=0))
    return f"{ticks} {line} {ticks}" if "`" in line else f"`{line}`"


def _escape(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>#])", r"\\\1", text)
