# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs and the files of those that are open, one below the other, for a list view.

A run may have changed very many files: an item is made only for a row that is. And they come and go
in pieces, because a list view makes rows of far more than can be seen, at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import accumulate

from gi.repository import Gio, GObject

from .change_items import FileItem, RunData, RunItem
from .weakly import weak_reference

# Of so many a list view makes rows. Of these so many come at first, and with each further piece:
# a few milliseconds' work, so that a frame is never late for them.
_ROWS, _FIRST, _FEW = 240, 6, 3


@dataclass
class _Group:
    item: RunItem
    # How many files of it are in the list; all or none of them shall be.
    shown: int = 0
    # What others hold of its files: a list view expects the same item at each question.
    made: dict[int, Callable[[], FileItem | None]] = field(default_factory=dict)

    @property
    def wanted(self) -> int:
        return len(self.item.data.items) if self.item.is_open else 0

    def file(self, number: int) -> FileItem:
        found = self.made[number]() if number in self.made else None
        if found is None:
            data = self.item.data
            found = FileItem(data, data.items[number])
            self.made[number] = weak_reference(found)
        return found


class ChangeList(GObject.Object, Gio.ListModel):  # type: ignore[misc]  # GObject has both
    __gtype_name__ = "OllmChangeList"

    def __init__(self) -> None:
        super().__init__()
        self._groups: list[_Group] = []
        # Of which nothing is in the list yet.
        self._coming: list[_Group] = []
        # Where each group begins, and where one more would.
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
        return group.file(inner - 1) if inner else group.item

    def place_of(self, run_id: str) -> int | None:
        for group, start in zip(self._groups, self._starts, strict=False):
            if group.item.data.id == run_id:
                return start
        return None

    def show(self, runs: Iterable[RunData], open_runs: Collection[str]) -> None:
        """Instead of what there was: the first of them, and more with each `grow`."""
        old = self._starts[-1]
        self._groups = []
        self._coming = [_Group(RunItem(run, is_open=run.id in open_runs)) for run in runs]
        self._coming.reverse()
        self._take(_FIRST)
        self._changed(0, old, self._count())

    def fold(self, place: int) -> None:
        """Opens the run there, or closes it."""
        number = self._starts.index(place)
        group = self._groups[number]
        # Another item, so that its row is made anew.
        group.item = RunItem(group.item.data, is_open=not group.item.is_open)
        self._changed(place, 1, 1)

    def grow(self) -> bool:
        """One piece more of what shall be there, or less of what shall not; whether there was."""
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
        """So many more, of those that are coming."""
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
