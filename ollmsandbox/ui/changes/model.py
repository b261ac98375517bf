# SPDX-License-Identifier: GPL-3.0-or-later
"""The list model of changes: runs, and below each open run its files.

A run may have changed very many files, so an item is created only for a row that exists. Rows are
added and removed in small steps, because a list view creates far more of them at once than can be
seen.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from gi.repository import Gio, GObject

from ...chat.storage.history import History
from ...project.change import PENDING_STATES, Kind, Recorded, State, Type
from ...project.short_list import is_bookkeeping, severity, split_ignored
from ..widgets.weak import weak_reference

if TYPE_CHECKING:
    from ...database.tables import Project, Run
    from ...project.projects import ProjectManager


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


@dataclass
class _Group:
    item: RunItem
    # The last row of an open run, with files of its own.
    ignored: IgnoredItem | None = None
    # How many of its files are in the list. In the end it is all or none of them.
    shown: int = 0
    # The items that still exist: a list view expects the same item for the same position.
    made: dict[int, Callable[[], FileItem | None]] = field(default_factory=dict)

    @property
    def wanted(self) -> int:
        if not self.item.is_open:
            return 0
        data = self.item.data
        if self.ignored is None:
            return len(data.items or data.ignored)
        return len(data.items) + 1 + (len(data.ignored) if self.ignored.is_open else 0)

    def place_of(self, number: int) -> int | None:
        """Return the position of a file, by the number of its change."""
        data = self.item.data
        for first, items in ((0, data.items), (len(data.items) + bool(data.items), data.ignored)):
            numbers = [item.number for item in items]
            if number in numbers:
                place = first + numbers.index(number)
                return place if place < self.shown else None
        return None

    def row(self, number: int) -> FileItem | IgnoredItem:
        data = self.item.data
        own = len(data.items)
        if self.ignored is not None and number == own:
            return self.ignored
        found = self.made[number]() if number in self.made else None
        if found is None:
            if number < own:
                found = FileItem(data, data.items[number])
            else:
                inner = number - own - bool(own)
                found = FileItem(data, data.ignored[inner], is_ignored=bool(own))
            self.made[number] = weak_reference(found)
        return found


class ChangeList(GObject.Object, Gio.ListModel):  # type: ignore[misc]  # GObject has both
    def __init__(self) -> None:
        super().__init__()
        self._groups: list[_Group] = []
        # Groups that are not in the list yet, last first.
        self._coming: list[_Group] = []
        # The position of each group, and the length of the list.
        self._starts = [0]

    def do_get_item_type(self) -> GObject.GType:
        return GObject.type_from_name("GObject")

    def do_get_n_items(self) -> int:
        return self._starts[-1]

    def do_get_item(self, place: int) -> GObject.Object | None:
        if place >= self._starts[-1]:
            return None
        number = bisect_right(self._starts, place) - 1
        group, inner = self._groups[number], place - self._starts[number]
        return group.row(inner - 1) if inner else group.item

    def _find(self, run_id: str) -> tuple[_Group, int] | None:
        groups = zip(self._groups, self._starts, strict=False)
        return next((found for found in groups if found[0].item.data.id == run_id), None)

    def place_of(self, run_id: str) -> int | None:
        found = self._find(run_id)
        return found[1] if found is not None else None

    def place_of_file(self, run_id: str, number: int) -> int | None:
        """Return the position of a file's row, or of its run's if that is folded; None if neither
        is listed."""
        if (found := self._find(run_id)) is None:
            return None
        group, start = found
        inner = group.place_of(number)
        return start if inner is None else start + 1 + inner

    def place_of_ignored(self, run_id: str) -> int | None:
        """Return the position of the row for the run's files that git ignores."""
        if (found := self._find(run_id)) is None:
            return None
        group, start = found
        own = len(group.item.data.items)
        return start + 1 + own if group.ignored is not None and group.shown > own else None

    def show(
        self,
        runs: Iterable[RunData],
        open_runs: Collection[str],
        open_ignored: Collection[str] = (),
    ) -> None:
        """Replace the content by the first few rows; each `grow` adds more."""
        old = self._starts[-1]
        self._groups = []
        self._coming = [
            _Group(
                RunItem(run, is_open=run.id in open_runs),
                IgnoredItem(run, is_open=run.id in open_ignored)
                if run.items and run.ignored
                else None,
            )
            for run in runs
        ]
        self._coming.reverse()
        self._take(_FIRST)
        self._changed(0, old, self._count())

    def shrink(self) -> bool:
        """Remove one step's rows at the end, down to as many as are shown at first. Return whether
        there was something to do."""
        count = self._starts[-1]
        left = rest = max(_FIRST, min(_ROWS, count - _REMOVED))
        if rest >= count:
            return False
        self._coming = self._groups[::-1]
        self._groups = []
        while left > 0:
            group = self._coming.pop()
            group.shown = min(group.shown, left - 1)
            self._groups.append(group)
            left -= 1 + group.shown
        self._coming.clear()
        self._changed(rest, count - rest, 0)
        return True

    def fold(self, place: int) -> None:
        """Open or close the run, or the files that git ignores, at this position."""
        number = bisect_right(self._starts, place) - 1
        group = self._groups[number]
        # A new item, so that the row is created anew.
        if place == self._starts[number]:
            group.item = RunItem(group.item.data, is_open=not group.item.is_open)
        elif group.ignored is not None:
            group.ignored = IgnoredItem(group.item.data, is_open=not group.ignored.is_open)
        self._changed(place, 1, 1)

    def grow(self) -> bool:
        """Add or remove one step's rows. Return whether there was something to do."""
        for group, start in zip(self._groups, self._starts, strict=False):
            if group.shown != group.wanted:
                self._resize(group, start + 1)
                return True
        if not self._coming:
            return False
        before = self._starts[-1]
        self._take(_FEW if before < _ROWS else sum(1 + one.wanted for one in self._coming))
        self._changed(before, 0, self._count() - before)
        return True

    def _resize(self, group: _Group, first: int) -> None:
        before, wanted = group.shown, group.wanted
        if before < wanted:
            group.shown = wanted if first + before > _ROWS else min(wanted, before + _FEW)
            self._changed(first + before, 0, group.shown - before)
        else:
            group.shown = max(wanted, min(_ROWS, before - _FEW))
            self._changed(first + group.shown, before - group.shown, 0)

    def _take(self, count: int) -> None:
        """Move rows from the coming groups into the list."""
        while count > 0 and self._coming:
            group = self._coming.pop()
            group.shown = min(group.wanted, count - 1)
            self._groups.append(group)
            count -= 1 + group.shown

    def _count(self) -> int:
        return sum(1 + group.shown for group in self._groups)

    def _changed(self, place: int, removed: int, added: int) -> None:
        self._starts = list(accumulate((1 + group.shown for group in self._groups), initial=0))
        self.items_changed(place, removed, added)
