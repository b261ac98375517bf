# SPDX-License-Identifier: GPL-3.0-or-later
"""Fold neighbouring calls that need no attention into one entry of the chat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ...chat.messages import Role
from ...i18n import ngettext
from ...tools.todo import NAME as PLAN
from . import tool_text
from .entries import CallEntry, ChatEntry, MessageEntry, Stage


class CallGroup(ChatEntry):
    """Finished calls, and the model's reasoning between them."""

    def __init__(self, entries: Sequence[ChatEntry]) -> None:
        super().__init__()
        self.entries = tuple(entries)
        # Whether the user opened it.
        self.is_open = False

    @property
    def calls(self) -> list[CallEntry]:
        return [entry for entry in self.entries if isinstance(entry, CallEntry)]

    def replace(self, entries: Sequence[ChatEntry]) -> None:
        self.entries = tuple(entries)
        self.emit("changed")


def is_quiet(entry: ChatEntry) -> bool:
    """Return whether a call is over and needs no attention. A command of the user's own does: they
    want to see its output. So does their answer to a question."""
    return (
        isinstance(entry, CallEntry)
        and entry.stage is Stage.DONE
        and not entry.own
        and not entry.is_open
        and entry.question is None
        and tool_text.succeeded(entry)
        and not tool_text.is_denied(entry)
        and not tool_text.has_changes(entry)
        and not entry.hosts
    )


def _is_silent(entry: ChatEntry) -> bool:
    """Return whether the entry is the reasoning before a call, without an answer."""
    return (
        isinstance(entry, MessageEntry)
        and entry.role is Role.ASSISTANT
        and not entry.is_growing
        and not entry.text
    )


def fold(entries: Iterable[ChatEntry]) -> list[ChatEntry]:
    """Return the entries with each run of two or more quiet calls in a group of its own."""
    found: list[ChatEntry] = []
    run: list[ChatEntry] = []
    for entry in entries:
        if is_quiet(entry) or (run and _is_silent(entry)):
            run.append(entry)
        else:
            found += _folded_run(run)
            found.append(entry)
            run = []
    return found + _folded_run(run)


def _folded_run(run: list[ChatEntry]) -> list[ChatEntry]:
    end = len(run)
    while end and not isinstance(run[end - 1], CallEntry):
        end -= 1
    if sum(isinstance(entry, CallEntry) for entry in run) < 2:
        return run
    return [CallGroup(run[:end]), *run[end:]]


def group_text(calls: Sequence[CallEntry]) -> str:
    """Return what the calls did, in one line."""
    counts = Counter(call.call.name for call in calls)
    ran, read, searched, fetched, planned = (
        counts.pop(name, 0) for name in ("run_command", "read_file", "search", "web_fetch", PLAN)
    )
    others = counts.total()
    # Translators: these stand in one line, the first with a capital: "Ran 4 commands, read 2 files"
    parts = (
        (ran, ngettext("ran {} command", "ran {} commands", ran)),
        (read, ngettext("read {} file", "read {} files", read)),
        (searched, ngettext("searched {} time", "searched {} times", searched)),
        (fetched, ngettext("read {} web page", "read {} web pages", fetched)),
        (planned, ngettext("updated the plan", "updated the plan {} times", planned)),
        (others, ngettext("used {} other tool", "used {} other tools", others)),
    )
    text = ", ".join(words.format(count) for count, words in parts if count)
    return text[:1].upper() + text[1:]


def group_duration(calls: Sequence[CallEntry]) -> str:
    """Return how long the calls took together, or "" if that is unknown."""
    records = [call.record for call in calls if call.record is not None]
    known = [record.duration for record in records if record.duration is not None]
    return tool_text.duration(sum(known)) if known else ""
