# SPDX-License-Identifier: GPL-3.0-or-later
"""The list model of changes: runs, and below each open run its files.

A run may have changed very many files, so an item is created only for a row that exists. Rows are
added and removed in small steps, because a list view creates far more of them at once than can be
seen.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, repeat
from typing import NamedTuple

from gi.repository import Gio, GObject

from ...chat.storage.history import History
from ...database.tables import Project, Run
from ...project.change import PENDING_STATES, Kind, Recorded, State, Type
from ...project.projects import ProjectManager
from ...project.short_list import is_bookkeeping, severity, split_ignored
from ..widgets.weak import weak_reference


@dataclass(frozen=True)
class RunData:
    """A run with its changes, as the list shows it."""

    id: str
    command: str
    started_at: float
    items: tuple[Recorded, ...]
    # What the model said before it; "" if nothing is known.
    said: str = ""
    # Files that git ignores, and full paths that choose exactly these and their folders.
    ignored: tuple[Recorded, ...] = ()
    ignored_paths: tuple[str, ...] = ()

    @cached_property
    def states(self) -> Counter[State]:
        """Return the number of files per state (cached, because there may be very many). Files that
        git ignores count only if there are no others."""
        return Counter(item.state for item in self.items or self.ignored)

    @cached_property
    def ignored_states(self) -> Counter[State]:
        return Counter(item.state for item in self.ignored)

    @cached_property
    def pending(self) -> int:
        return sum(self.states[state] for state in PENDING_STATES)

    @property
    def has_one_state(self) -> bool:
        """Return whether all files are in one state, which the row of the run tells."""
        return len({*self.states, *self.ignored_states}) == 1

    @cached_property
    def has_held(self) -> bool:
        """Return whether a pending change needs the user's approval."""
        return any(item.is_held and item.state in PENDING_STATES for item in self.items)


class RunSearch(NamedTuple):
    runs: tuple[RunData, ...] = ()
    # Pending changes of the project, whatever is listed; and pending files that git ignores.
    pending: int = 0
    ignored: int = 0
    # How many of them can be applied together, without a decision for each.
    ready: int = 0
    # Whether the user should look at one of them first.
    has_held: bool = False
    has_older: bool = False


def load(
    manager: ProjectManager,
    project: str,
    limit: int,
    text: str = "",
    asked: Iterable[str] = (),
    session_id: str = "",
) -> RunSearch:
    """Return the runs, newest first, but pending ones before all others. Pending runs and those in
    `asked` are included however old they are, and of whichever session, unless a text is searched
    for. Slow: call it from a thread."""
    found = manager.find_project(project)
    if found is None:
        return RunSearch()
    newest = manager.runs(found, limit + 1, text=text, session_id=session_id, only_changed=True)
    pending = {run.id: run for run in manager.runs(found, -1, only_pending=True)}
    listed = {run.id: run for run in newest[:limit]}
    if not text:
        listed |= pending | {run.id: run for run in manager.known_runs(asked)}
    every = (pending | listed).values()
    said = History(manager).said_before(every)
    data = {run.id: _read(manager, run, said.get(run.id, "")) for run in every}
    runs = sorted((data[id_] for id_ in listed), key=lambda run: -run.started_at)
    waiting = [data[id_] for id_ in pending]
    # Of each one, because its row asks, too.
    held = [run.has_held for run in waiting]
    ignored = sum(run.ignored_states[State.PENDING] for run in waiting)
    return RunSearch(
        # Sorted here, off the main thread.
        tuple(sorted(runs, key=lambda run: not run.pending)),
        _count(waiting, *PENDING_STATES),
        ignored,
        _count(waiting, State.PENDING, State.FAILED) + ignored,
        any(held),
        len(newest) > limit,
    )


def load_runs(manager: ProjectManager, run_ids: Sequence[str]) -> list[RunData]:
    """Return these runs, the oldest first. Slow: call it from a thread."""
    runs = sorted(manager.known_runs(run_ids), key=lambda run: run.started_at)
    return [_read(manager, run, "") for run in runs]


def are_same(runs: Sequence[RunData], others: Sequence[RunData]) -> bool:
    """Return whether the runs are the same, with the same changes.

    `==` would hold the interpreter until the last change: the window would stand still.
    """
    return len(runs) == len(others) and all(
        _without_items(one) == _without_items(other)
        and len(one.items) == len(other.items)
        and len(one.ignored) == len(other.ignored)
        and all(item == old for item, old in zip(one.items, other.items, strict=True))
        and all(item == old for item, old in zip(one.ignored, other.ignored, strict=True))
        for one, other in zip(runs, others, strict=True)
    )


def _without_items(run: RunData) -> RunData:
    return replace(run, items=(), ignored=(), ignored_paths=())


def count_pending(manager: ProjectManager, project: Project) -> int:
    runs = manager.runs(project, -1, only_pending=True)
    return _count((_read(manager, run, "") for run in runs), *PENDING_STATES)


def _count(runs: Iterable[RunData], *states: State) -> int:
    return sum(run.states[state] for run in runs if run.items for state in states)


def _read(manager: ProjectManager, run: Run, said: str) -> RunData:
    from ...project.state import read_current  # not needed for the first frame

    items = read_current(manager, run)
    shown, ignored = split_ignored(items)
    listed = _listed(items)
    numbers = {item.number for item in ignored}
    return RunData(
        run.id,
        run.command,
        run.started_at,
        tuple(item for item in listed if item.number not in numbers),
        said_line(said),
        tuple(item for item in listed if item.number in numbers),
        tuple(_paths_of(ignored, shown)),
    )


def _paths_of(items: Iterable[Recorded], others: Iterable[Recorded]) -> Iterator[str]:
    """Yield the full paths of changes. A path stands for everything in it, so folders in which
    there are others are left out."""
    around = {(item.change.root, item.change.path) for item in others}
    for root, path in tuple(around):
        folder = path
        while (folder := folder.rpartition("/")[0]) and (root, folder) not in around:
            around.add((root, folder))
    for item in items:
        if (item.change.root, item.change.path) not in around:
            yield f"{item.change.root}/{item.change.path}"


def said_line(text: str) -> str:
    """Return the first line of the last paragraph of what a model said, which is the one about its
    call, without the marks of Markdown."""
    paragraphs = [part for part in text.split("\n\n") if part.strip(" #*>`-_\n")]
    lines = paragraphs[-1].splitlines() if paragraphs else []
    line = next((line for line in lines if line.strip(" #*>`-_")), "")
    return re.sub(r"[*`]+|^[\s#>-]+", "", line).strip().rstrip(":")


def _listed(items: Sequence[Recorded]) -> list[Recorded]:
    """Return the changes in the order of a file manager, with those first that need
    a second look, then deleted ones; git's own come last. Folders are left out if a change inside
    them is listed."""
    inner = {item.change.path.rpartition("/")[0] for item in items}
    shown = [i for i in items if i.change.type is not Type.FOLDER or i.change.path not in inner]
    return sorted(shown, key=_order)


def _order(item: Recorded) -> tuple[int, bool, bool, str]:
    is_lost = item.change.kind in (Kind.DELETED, Kind.REPLACED)
    return severity(item), is_bookkeeping(item), not is_lost, item.change.path


class FoldItem(GObject.Object):
    """A row for files of a run, which opens to show them."""

    def __init__(self, data: RunData, *, is_open: bool = False) -> None:
        super().__init__()
        self.data = data
        self.is_open = is_open


class RunItem(FoldItem):
    """A run, with all of its files."""


class FileItem(GObject.Object):
    def __init__(self, run: RunData, recorded: Recorded, *, is_ignored: bool = False) -> None:
        super().__init__()
        self.run = run
        self.recorded = recorded
        self.is_ignored = is_ignored


class IgnoredItem(FoldItem):
    """All files of a run that git ignores, if it has others, too."""


# The number of rows that a list view creates ahead.
_ROWS = 240
# The rows that are added at first, and in each further step, and those that a step removes. A step
# takes a few milliseconds, so that no frame is late.
_FIRST, _FEW, _REMOVED = 6, 3, 12

# A row: the id of its run, and its place there. The row of the run itself is at -1. After its files
# comes the row of those that git ignores, if it has others, and then these. Plain tuples, because
# making 20,000 objects would take longer than a frame.
_Row = tuple[str, int]


class ChangeList(GObject.Object, Gio.ListModel):  # type: ignore[misc]  # GObject has both
    def __init__(self) -> None:
        super().__init__()
        self._runs: dict[str, RunData] = {}
        self._open_runs: set[str] = set()
        self._open_ignored: set[str] = set()
        # What is in the list; where each row is when all are there; and how many of them are.
        self._rows: list[_Row] = []
        self._wanted: dict[_Row, int] = {}
        self._same = 0
        # The items that still exist: a list view expects the same item for the same position.
        self._made: dict[_Row, Callable[[], FoldItem | FileItem | None]] = {}

    def do_get_item_type(self) -> GObject.GType:
        return GObject.type_from_name("GObject")

    def do_get_n_items(self) -> int:
        return len(self._rows)

    def do_get_item(self, place: int) -> GObject.Object | None:
        if place >= len(self._rows):
            return None
        row = self._rows[place]
        found = self._made[row]() if row in self._made else None
        if found is None:
            found = self._make(*row)
            self._made[row] = weak_reference(found)
        return found

    def _make(self, run_id: str, place: int) -> FoldItem | FileItem:
        run = self._runs[run_id]
        own = len(run.items)
        if place < 0:
            return RunItem(run, is_open=run_id in self._open_runs)
        if place < own:
            return FileItem(run, run.items[place])
        if place == own > 0:
            return IgnoredItem(run, is_open=run_id in self._open_ignored)
        return FileItem(run, run.ignored[place - own - bool(own)], is_ignored=own > 0)

    def _find(self, run_id: str, place: int) -> int | None:
        row = (run_id, place)
        return self._rows.index(row) if row in self._rows else None

    def place_of(self, run_id: str) -> int | None:
        return self._find(run_id, -1)

    def place_of_file(self, run_id: str, number: int) -> int | None:
        """Return the position of a file's row, or of its folded run; None if neither is listed."""
        if (run := self._runs.get(run_id)) is None:
            return None
        files = (*run.items, *([None] if run.items else []), *run.ignored)
        inner = next((n for n, item in enumerate(files) if item and item.number == number), -1)
        place = self._find(run_id, inner)
        return self.place_of(run_id) if place is None else place

    def place_of_ignored(self, run_id: str) -> int | None:
        run = self._runs.get(run_id)
        return self._find(run_id, len(run.items)) if run is not None and run.items else None

    def show(
        self,
        runs: Iterable[RunData],
        open_runs: set[str],
        open_ignored: set[str] | None = None,
    ) -> None:
        """Replace the content by the first few rows; each `grow` adds more. `fold` changes which
        runs are open, and of which the files that git ignores."""
        self._runs = {run.id: run for run in runs}
        self._open_runs = open_runs
        self._open_ignored = set() if open_ignored is None else open_ignored
        self._made.clear()
        self._plan()
        self._replace(0, len(self._rows), [*islice(self._wanted, _FIRST)])

    def shrink(self) -> bool:
        """Remove one step's rows at the end, down to a few. Return whether there were any."""
        count = len(self._rows)
        rest = max(_FIRST, min(_ROWS, count - _REMOVED))
        if rest >= count:
            return False
        self._replace(rest, count)
        return True

    def fold(self, place: int) -> None:
        """Open or close the run, or the files that git ignores, at this position."""
        row = self._rows[place]
        opened = self._open_runs if row[1] < 0 else self._open_ignored
        opened ^= {row[0]}
        self._plan()
        # A new item, so that the row is created anew.
        self._made.pop(row, None)
        self.items_changed(place, 1, 1)

    def grow(self) -> bool:
        """Add or remove one step's rows. Return whether there was something to do."""
        rows, wanted = self._rows, self._wanted
        while self._same < len(rows) and wanted.get(rows[self._same]) == self._same:
            self._same += 1
        first = gone = self._same
        while gone < len(rows) and rows[gone] not in wanted:
            gone += 1
        if gone > first:
            self._replace(first + max(0, min(_ROWS, gone - first - _FEW)), gone)
            return True
        missing = wanted[rows[first]] if first < len(rows) else len(wanted)
        if missing > first:
            until = missing if first > _ROWS else min(missing, first + _FEW)
            self._replace(first, first, [*islice(wanted, first, until)])
        return missing > first

    def _plan(self) -> None:
        """Find out which rows are to be in the list."""
        rows: list[_Row] = []
        for run in self._runs.values():
            count = len(run.items)
            if run.id not in self._open_runs:
                count = 0
            elif not count or run.id in self._open_ignored:
                count += bool(count and run.ignored) + len(run.ignored)
            elif run.ignored:
                count += 1
            rows += zip(repeat(run.id), range(-1, count))
        self._wanted = dict(zip(rows, range(len(rows)), strict=True))
        self._same = 0

    def _replace(self, start: int, end: int, rows: Sequence[_Row] = ()) -> None:
        self._rows[start:end] = rows
        self._same = min(self._same, start)
        self.items_changed(start, end - start, len(rows))
