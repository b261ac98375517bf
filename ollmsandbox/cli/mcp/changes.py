# SPDX-License-Identifier: GPL-3.0-or-later
"""The tools with which an agent looks at recorded changes, and decides about its own.

What is not applied yet is the user's to decide, so `apply_changes` always asks. Discarding and
undoing ask unless the run is one of the same session.
"""

from __future__ import annotations

import asyncio
import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from ... import N_
from ...database.tables import Run
from ...project.change import Report, State
from ...project.review import Review, choose
from ...project.short_list import counted
from ...project.state import read_current
from ...text.ansi import escape_line, harmless
from ...tools import questions
from ...tools.base import Outcome, RequestBase, Tool, ToolError, Watcher
from ...tools.context import ToolContext
from ...tools.parameters import DeclaredTool, parameter
from ..changes import diff_lines, listing

# Runs that are listed.
_MOST_RUNS = 20
_RUN = "The id of the run, as run_command and list_changes return it."
_PATHS = "Only these files and folders of it: absolute, or relative to the project."


@dataclass(frozen=True)
class ListParameters:
    run: str = parameter(f"{_RUN} Without it, the last runs are listed.", default="", longest=100)


@dataclass(frozen=True)
class ChosenParameters:
    run: str = parameter(_RUN, longest=100)
    paths: tuple[str, ...] = parameter(_PATHS, default=(), longest=4096)


Chosen = ListParameters | ChosenParameters


def change_tools(context: ToolContext) -> list[Tool]:
    return [
        made(context) for made in (ListChanges, ShowDiff, ApplyChanges, DiscardChanges, UndoRun)
    ]


class _ChangeTool(DeclaredTool[Chosen]):
    """A tool for recorded changes of the project; those of other projects do not exist for it."""

    declared: type[Chosen] = ChosenParameters
    description = ""

    def request(self, given: Chosen, call_id: str) -> ChangeRequest:
        return ChangeRequest(self, self._context, self._context.folder(), given, call_id)

    @abstractmethod
    async def perform(self, call: ChangeRequest, watcher: Watcher) -> Outcome: ...


@dataclass
class ChangeRequest(RequestBase):
    _tool: _ChangeTool
    context: ToolContext
    project: str
    given: Chosen
    call_id: str

    def describe(self) -> str:
        return escape_line(" ".join([self.given.run, *self.chosen])).strip()

    async def perform(self, watcher: Watcher) -> Outcome:
        return await self._tool.perform(self, watcher)

    @property
    def chosen(self) -> tuple[str, ...]:
        paths = self.given.paths if isinstance(self.given, ChosenParameters) else ()
        return tuple(os.path.normpath(os.path.join(self.project, path)) for path in paths)

    def find(self, review: Review) -> Run:
        """Return the run that the call names, or raise an error if it is of another project."""
        run = review.manager.run(self.given.run)
        if run.project.path != self.project:
            raise ToolError(
                N_("There is no run {run} in this project."),
                N_("list_changes lists the runs."),
                run=escape_line(self.given.run),
            )
        return run

    def is_own(self, run: Run) -> bool:
        """Return whether the run is one of the same session."""
        return run.session_id == self.context.session_id


class ListChanges(_ChangeTool):
    name = "list_changes"
    can_write = False
    declared = ListParameters
    description = (
        "List the last runs in this project, and what each of them changed: applied, pending, "
        "undone or discarded. A run is one call of run_command, write_file or edit_file."
    )

    async def perform(self, call: ChangeRequest, watcher: Watcher) -> Outcome:
        return Outcome(await asyncio.to_thread(self._listed, call), ok=True)

    def _listed(self, call: ChangeRequest) -> str:
        with closing(Review(call.context.paths)) as review:
            if call.given.run:
                return "\n".join(self._lines(call, review, call.find(review)))
            project = review.manager.find_project(call.project)
            runs = review.manager.runs(project, _MOST_RUNS) if project is not None else []
            lines = [line for run in runs for line in self._lines(call, review, run)]
            return "\n".join(lines) or "No command has changed anything in this project yet."

    def _lines(self, call: ChangeRequest, review: Review, run: Run) -> Iterator[str]:
        whose = "" if call.is_own(run) else ", of another session"
        yield f"{run.id}  {escape_line(run.command)[:200]}{whose}"
        yield from listing(read_current(review.manager, run), call.project)


class ShowDiff(_ChangeTool):
    name = "show_diff"
    can_write = False
    description = "Show what a run changed in files, as a unified diff."

    async def perform(self, call: ChangeRequest, watcher: Watcher) -> Outcome:
        return Outcome(await asyncio.to_thread(self._difference, call), ok=True)

    def _difference(self, call: ChangeRequest) -> str:
        with closing(Review(call.context.paths)) as review:
            run, size = call.find(review), 0
            parts: list[str] = []
            items = choose(read_current(review.manager, run), call.chosen)
            for line in diff_lines(items, review, run, colour=False):
                size += len(line)
                if size > 60_000:
                    parts.append("The rest is left out. Name `paths` to see a part of it.\n")
                    break
                parts.append(line)
            return harmless("".join(parts))


class _DecisionTool(_ChangeTool):
    """Applies, discards or undoes changes. The user is asked about what is listed."""

    # The question, marked for translation; what the call does, for the model; and its result.
    wording: str
    what: str
    done: State
    asks_always = False

    @abstractmethod
    def decide(self, review: Review, run: Run, chosen: Sequence[str]) -> Report: ...

    def affected(self, review: Review, run: Run, chosen: Sequence[str]) -> list[Report]:
        """Return changes of other runs that are affected, too."""
        return []

    async def perform(self, call: ChangeRequest, watcher: Watcher) -> Outcome:
        shown = await asyncio.to_thread(self._shown, call)
        is_again = False
        while self.asks_always or not shown.is_own:
            question = questions.decision_question(
                call.context, self.wording, shown.lines, call.call_id, again=is_again
            )
            await questions.ask_or_end(call.context, watcher, call, question, self.what)
            now = await asyncio.to_thread(self._shown, call)
            if now == shown:
                break
            # Only what the user has seen may be done.
            shown, is_again = now, True
        return await asyncio.to_thread(self._decide, call)

    def _shown(self, call: ChangeRequest) -> _Shown:
        with closing(Review(call.context.paths)) as review:
            run = call.find(review)
            items = choose(read_current(review.manager, run), call.chosen)
            lines = [escape_line(run.command), *listing(items, call.project)]
            others = self.affected(review, run, call.chosen)
            for report in others:
                lines.append(escape_line(review.manager.run(report.run_id).command))
                lines += listing(report.changes, call.project)
            return _Shown(tuple(lines), is_own=call.is_own(run) and not others)

    def _decide(self, call: ChangeRequest) -> Outcome:
        with closing(Review(call.context.paths)) as review:
            report = self.decide(review, call.find(review), call.chosen)
        items = [item for one in (*report.along, report) for item in one.changes]
        done = [item for item in items if item.state is self.done]
        missed = [item for item in items if item.state is not self.done]
        lines = [f"{counted(len(done), 'change')} {self.done.value}."]
        lines += [*listing(missed, call.project), *report.errors]
        ok = not missed and not report.errors
        return Outcome("\n".join(lines), ok, report=report, verdict=call.verdict)


@dataclass(frozen=True)
class _Shown:
    """What the user is asked about."""

    lines: Sequence[str]
    # Whether only changes of the same session are affected.
    is_own: bool


class ApplyChanges(_DecisionTool):
    name = "apply_changes"
    description = (
        "Put pending or undone changes of a run into the project. The user is asked each time, and "
        "sees what is applied. Your commands see pending changes anyway: use it only if the user "
        "wants it."
    )
    wording = N_("Apply changes to the project?")
    what = "Applying the changes"
    done = State.APPLIED
    asks_always = True

    def affected(self, review: Review, run: Run, chosen: Sequence[str]) -> list[Report]:
        return review.also_applied(run, chosen)

    def decide(self, review: Review, run: Run, chosen: Sequence[str]) -> Report:
        return review.apply(run, chosen)


class DiscardChanges(_DecisionTool):
    name = "discard_changes"
    description = (
        "Drop pending changes of a run. The user is asked if another session made them, or if "
        "others build on them."
    )
    wording = N_("Discard pending changes?")
    what = "Discarding the changes"
    done = State.DISCARDED

    def affected(self, review: Review, run: Run, chosen: Sequence[str]) -> list[Report]:
        return review.also_discarded(run, chosen)

    def decide(self, review: Review, run: Run, chosen: Sequence[str]) -> Report:
        return review.discard(run, chosen)


class UndoRun(_DecisionTool):
    name = "undo_run"
    description = (
        "Take the applied changes of a run out of the project again. Later edits of the same files "
        "stay; where both changed the same lines, nothing is done. The user is asked if another "
        "session made the run."
    )
    wording = N_("Undo applied changes?")
    what = "Undoing the changes"
    done = State.UNDONE

    def decide(self, review: Review, run: Run, chosen: Sequence[str]) -> Report:
        return review.undo(run, chosen)
