# SPDX-License-Identifier: GPL-3.0-or-later
"""What the user did with the changes of a session since the model last heard of them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from ..project.change import PENDING_STATES, Recorded, Report, State, Type
from ..project.run import signature
from ..project.short_list import count_files, ignored_text, shown_name, split_ignored
from ..text.ansi import escape_line
from .storage.history import History, SessionRun

# Marks a line as a fact from this program, not the user's words.
MARK = "[OLLM Sandbox]"
_MOST_PATHS = 10
_MOST_OF_COMMAND = 60
# The files that are looked at, those of the last runs first: it delays each turn.
_MOST_FILES = 10_000


@dataclass
class _Told:
    """What the model knows about the changes of one run."""

    # Each state with the first and the last number of the changes that have it: nearly always one
    # item, however many changes there are.
    states: list[tuple[int, int, str]] = field(default_factory=list)
    # The signatures of files that the user edited, by the number of the change.
    edited: dict[str, str] = field(default_factory=dict)

    def by_number(self) -> dict[int, State]:
        return {
            number: State(state)
            for first, last, state in self.states
            for number in range(first, last + 1)
        }


@dataclass(frozen=True)
class _Edit:
    run: SessionRun
    item: Recorded
    # Of the file as the user left it; "" if it is gone.
    now: str


class UserActions:
    """Compares what the model was told with what is recorded and on disk now."""

    def __init__(self, history: History, session_id: str, stored: str = "") -> None:
        """`stored` is what `packed` returned."""
        self._history = history
        self._session_id = session_id
        self._told = _unpacked(stored)

    @property
    def may_have_some(self) -> bool:
        """Whether there are changes that the user may have done something with."""
        return bool(self._told)

    def note_report(self, report: Report) -> None:
        """Note what the model reads about a run in the result of its call."""
        if report.changes:
            self._told[report.run_id] = _Told(_ranges(report.changes))

    def packed(self) -> str:
        return json.dumps({run: [told.states, told.edited] for run, told in self._told.items()})

    async def lines(self) -> list[str]:
        """Return a line for each thing that the user did, and note that the model was told."""
        runs = await asyncio.to_thread(self._history.session_runs, self._session_id)
        before = {run: told.by_number() for run, told in self._told.items()}
        edits = [
            edit
            for edit in await asyncio.to_thread(self._find_edits, runs)
            if (told := self._told.get(edit.run.id)) is not None
            and edit.now != told.edited.get(str(edit.item.number))
        ]
        found = [line for run in runs for line in _decisions(run, before.get(run.id, {}))]
        found += _edited_lines(edits)
        for run in runs:
            self._told.setdefault(run.id, _Told()).states = _ranges(run.changes)
        for edit in edits:
            self._told[edit.run.id].edited[str(edit.item.number)] = edit.now
        return [f"{MARK} Since your last turn, the user {line}." for line in found]

    def _find_edits(self, runs: Sequence[SessionRun]) -> list[_Edit]:
        """Find files that are not as the last run left them, nor as any other run did."""
        last: dict[tuple[str, str], tuple[SessionRun, Recorded]] = {}
        for run in reversed(runs):
            for item in run.changes:
                if item.state is State.APPLIED and len(last) < _MOST_FILES:
                    last.setdefault((item.change.root, item.change.path), (run, item))
        found = []
        for (root, path), (run, item) in last.items():
            if not item.after or item.change.type is Type.FOLDER:
                continue  # what it left cannot be told from something else
            try:
                now = signature(os.lstat(f"{root}/{path}"))
            except OSError:
                now = ""
            if now != item.after and not self._history.is_left_by_a_run(root, path, now):
                found.append(_Edit(run, item, now))
        return found


def _decisions(run: SessionRun, before: Mapping[int, State]) -> Iterator[str]:
    groups: dict[str, list[Recorded]] = {}
    for item in run.changes:
        was = before.get(item.number)
        if was is None:
            continue
        if verb := _verb(was, item.state):
            groups.setdefault(verb, []).append(item)
    command = escape_line(run.command)
    if len(command) > _MOST_OF_COMMAND:
        command = f"{command[:_MOST_OF_COMMAND]}…"
    for verb, group in groups.items():
        items, ignored = split_ignored(group)
        if len(items) == 1:
            yield f"{verb} {shown_name(items[0], run.project)}"
        elif items:
            yield f"{verb} {len(items):,} changes of `{command}`: {_listed(run, items)}"
        if ignored:
            yield f"{verb} {ignored_text(count_files(ignored))}, of `{command}`"


def _verb(was: State, now: State) -> str:
    if was is State.APPLIED and now is State.UNDONE:
        return "undid"
    if was is State.UNDONE and now is State.APPLIED:
        return "redid"
    if was in PENDING_STATES and now is State.DISCARDED:
        return "discarded"
    if now is State.APPLIED and was is not State.APPLIED:
        return "applied"
    return ""


def _edited_lines(edits: Sequence[_Edit]) -> Iterator[str]:
    for (_id, is_gone), group in groupby(edits, lambda edit: (edit.run.id, not edit.now)):
        same = list(group)
        run = same[0].run
        items, ignored = split_ignored([edit.item for edit in same])
        verb = "deleted" if is_gone else "edited"
        if len(items) == 1:
            yield f"{verb} {shown_name(items[0], run.project)}, which you had changed"
        elif items:
            yield f"{verb} {len(items):,} files that you had changed: {_listed(run, items)}"
        if ignored:
            yield f"{verb} {ignored_text(count_files(ignored))}, which you had changed"


def _listed(run: SessionRun, items: Sequence[Recorded]) -> str:
    names = [shown_name(item, run.project) for item in items[:_MOST_PATHS]]
    more = len(items) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "")


def _ranges(items: Sequence[Recorded]) -> list[tuple[int, int, str]]:
    found: list[tuple[int, int, str]] = []
    # Without a call for each of 20,000, which the window would wait for.
    for item in sorted(items, key=attrgetter("number")):
        number, state = item.number, item.state._value_
        if found and found[-1][1:] == (number - 1, state):
            found[-1] = (found[-1][0], number, state)
        else:
            found.append((number, number, state))
    return found


def _unpacked(text: str) -> dict[str, _Told]:
    try:
        stored = json.loads(text) if text else {}
        return {
            str(run): _Told(
                [(int(first), int(last), State(state).value) for first, last, state in states],
                {str(number): str(now) for number, now in edited.items()},
            )
            for run, (states, edited) in stored.items()
        }
    except (ValueError, TypeError, AttributeError):
        return {}  # of another version: begin anew
