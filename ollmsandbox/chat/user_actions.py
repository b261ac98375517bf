# SPDX-License-Identifier: GPL-3.0-or-later
"""What the user did with the changes of a session since the model last heard of them."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby

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

    # The state of nearly all changes, and those of the others, by number.
    usual: str = ""
    others: dict[str, str] = field(default_factory=dict)
    # The signatures of files that the user edited, by the number of the change.
    edited: dict[str, str] = field(default_factory=dict)

    def note(self, items: Sequence[Recorded]) -> None:
        states = Counter(item.state.value for item in items)
        self.usual = states.most_common(1)[0][0] if items else ""
        others = (item for item in items if item.state.value != self.usual)
        self.others = {str(item.number): item.state.value for item in others}

    def state_of(self, item: Recorded) -> State | None:
        """Return the state of a change that the model was told last."""
        known = self.others.get(str(item.number), self.usual)
        return State(known) if known else None


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
            self._told[report.run_id] = told = _Told()
            told.note(report.changes)

    def packed(self) -> str:
        return json.dumps({run: asdict(told) for run, told in self._told.items()})

    async def lines(self) -> list[str]:
        """Return a line for each thing that the user did, and note that the model was told."""
        runs = await asyncio.to_thread(self._history.session_runs, self._session_id)
        edits = [
            edit
            for edit in await asyncio.to_thread(self._find_edits, runs)
            if (told := self._told.get(edit.run.id)) is not None
            and edit.now != told.edited.get(str(edit.item.number))
        ]
        known = [(run, self._told.setdefault(run.id, _Told())) for run in runs]
        found = [line for run, told in known for line in _decisions(run, told)]
        found += _edited_lines(edits)
        for run, told in known:
            told.note(run.changes)
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


def _decisions(run: SessionRun, told: _Told) -> Iterator[str]:
    groups: dict[str, list[Recorded]] = {}
    for item in run.changes:
        was = told.state_of(item)
        if was is not None and (verb := _verb(was, item.state)):
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


def _unpacked(text: str) -> dict[str, _Told]:
    try:
        return {run: _Told(**told) for run, told in json.loads(text or "{}").items()}
    except (ValueError, TypeError, AttributeError):
        return {}  # of another version: begin anew
