# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs and the files they changed, as items of a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from gi.repository import GObject

from ..project.changes.change import Kind, Recorded, State, Type
from ..project.database import runs as records
from ..project.database.models import Project, Run
from ..project.manager import ProjectManager

WAITS = (State.PENDING, State.CONFLICT, State.FAILED)


@dataclass(frozen=True)
class RunData:
    id: str
    command: str
    started_at: float
    items: tuple[Recorded, ...]

    @cached_property
    def states(self) -> Counter[State]:
        """Of how many it is so: once, as there may be very many."""
        return Counter(item.state for item in self.items)

    @cached_property
    def waiting(self) -> int:
        return sum(self.states[state] for state in WAITS)

    def places(self, *states: State) -> set[tuple[str, str, bool]]:
        """Of what is so: where it is. What lies aside is another version, to be chosen from."""
        if not any(self.states[state] for state in states):
            return set()
        return {(i.change.root, i.change.path, i.is_aside) for i in self.items if i.state in states}


@dataclass(frozen=True)
class Found:
    runs: tuple[RunData, ...] = ()
    # How many changes wait, whatever is listed: what several runs changed waits once.
    waiting: int = 0
    # And how many of these can be applied together, without a choice for each.
    ready: int = 0
    has_older: bool = False


def load(
    manager: ProjectManager, project: str, limit: int, text: str = "", asked: Iterable[str] = ()
) -> Found:
    """The newest first, but what waits before all else. That, and the runs that were asked for, are
    listed however old they are, unless a text is looked for. Not for the main thread."""
    found = manager.find_project(project)
    if found is None:
        return Found()
    newest = manager.runs(found, limit + 1, text=text)
    waiting = {run.id: run for run in manager.runs(found, -1, only_waiting=True)}
    listed = {run.id: run for run in newest[:limit]}
    if not text:
        listed |= waiting | {run.id: run for run in manager.known_runs(asked)}
    data = {run.id: _read(manager, run) for run in (waiting | listed).values()}
    runs = sorted((data[id_] for id_ in listed), key=lambda run: -run.started_at)
    return Found(
        # Counted here, where it holds up nobody.
        tuple(sorted(runs, key=lambda run: not run.waiting)),
        _count((data[id_] for id_ in waiting), *WAITS),
        _count((data[id_] for id_ in waiting), State.PENDING, State.FAILED),
        len(newest) > limit,
    )


def count_waiting(manager: ProjectManager, project: Project) -> int:
    runs = manager.runs(project, -1, only_waiting=True)
    return _count((_read(manager, run) for run in runs), *WAITS)


def _count(runs: Iterable[RunData], *states: State) -> int:
    return len(set().union(*(run.places(*states) for run in runs)))


def _read(manager: ProjectManager, run: Run) -> RunData:
    return RunData(run.id, run.command, run.started_at, tuple(_files_last(manager, run)))


def _files_last(manager: ProjectManager, run: Run) -> list[Recorded]:
    """In the order of a file manager, what is gone before all else; and folders only where nothing
    in them tells of them."""
    items = records.read_changes(manager, run)
    inner = {item.change.path.rpartition("/")[0] for item in items}
    shown = [i for i in items if i.change.type is not Type.FOLDER or i.change.path not in inner]
    return sorted(shown, key=_order)


def _order(item: Recorded) -> tuple[bool, bool, str]:
    is_lost = item.change.kind in (Kind.DELETED, Kind.REPLACED)
    return not item.is_held, not is_lost, item.change.path


class RunItem(GObject.Object):
    __gtype_name__ = "OllmRunItem"

    def __init__(self, data: RunData, *, is_open: bool = False) -> None:
        super().__init__()
        self.data = data
        self.is_open = is_open


class FileItem(GObject.Object):
    __gtype_name__ = "OllmFileItem"

    def __init__(self, run: RunData, recorded: Recorded) -> None:
        super().__init__()
        self.run = run
        self.recorded = recorded
