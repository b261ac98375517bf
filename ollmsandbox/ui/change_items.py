# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs and the files they changed, as items of a list."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from gi.repository import GObject

from ..project import records
from ..project.apply import Recorded, State
from ..project.changes import Type
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


def load(manager: ProjectManager, project: str, limit: int, text: str = "") -> list[RunData]:
    """The newest first, but what waits before all else. Not for the main thread."""
    found = manager.find_project(project)
    if found is None:
        return []
    runs = [
        RunData(run.id, run.command, run.started_at, tuple(_files_last(manager, run)))
        for run in manager.runs(found, limit, text=text)
    ]
    # Counted here, where it holds up nobody.
    return sorted(runs, key=lambda run: not run.waiting)


def _files_last(manager: ProjectManager, run: object) -> list[Recorded]:
    """In the order of a file manager, and folders only where nothing in them tells of them."""
    items = records.read_changes(manager, run)  # type: ignore[arg-type]
    inner = {item.change.path.rpartition("/")[0] for item in items}
    shown = [i for i in items if i.change.type is not Type.FOLDER or i.change.path not in inner]
    return sorted(shown, key=lambda item: (not item.is_held, item.change.path))


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
