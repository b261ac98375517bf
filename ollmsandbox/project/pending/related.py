# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pending changes depend on each other, as commits do.

A change needs the earlier ones at its path, the folders that it is in, and, if it ends a folder,
all that was done in there. Applying it applies these as well; discarding it discards those that
need it.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence

from ...files.dirfd import folders_above
from ..changes.change import Change, Kind, Recorded, Type


class RelatedChanges:
    """Pending changes, each with the id of its run; the runs in the order of the chain."""

    def __init__(self, rows: Sequence[tuple[str, Recorded]]) -> None:
        self._rows = rows
        runs = {run_id: order for order, run_id in enumerate(dict.fromkeys(run for run, _ in rows))}
        self._order = [runs[run_id] for run_id, _ in rows]
        self._places: dict[tuple[str, str], list[int]] = {}
        for number, (_, item) in enumerate(rows):
            self._places.setdefault((item.change.root, item.change.path), []).append(number)
        self._sorted = sorted(self._places)

    def with_needed(self, chosen: Iterable[int]) -> list[int]:
        """Return the positions of these changes and of all that they need, in order."""
        return self._closure(chosen, self._needed)

    def with_dependent(self, chosen: Iterable[int]) -> list[int]:
        """Return the positions of these changes and of all that need them, in order."""
        return self._closure(chosen, self._dependent)

    def touches(self, change: Change) -> bool:
        """Return whether a change on top of all these would need one of them."""
        root, path = change.root, change.path
        if (root, path) in self._places:
            return True
        above = (number for folder in folders_above(path) for number in self._at(root, folder))
        if any(not _is_mode(self._change(number)) for number in above):
            return True
        return ends_folder(change) and any(True for _ in self._inside(root, path))

    def _closure(self, chosen: Iterable[int], step: Callable[[int], Iterator[int]]) -> list[int]:
        found = set(chosen)
        waiting = list(found)
        while waiting:
            number = waiting.pop()
            more = {n for n in step(number) if self._is_near(number, n)} - found
            found |= more
            waiting += more
        return sorted(found)

    def _is_near(self, one: int, other: int) -> bool:
        """Return whether a change, and what is between both at the path, was made by commands that
        saw the other."""
        if self._order[one] == self._order[other]:
            return True
        first, last = sorted((one, other), key=lambda number: self._order[number])
        run_id, (_, item) = self._rows[first][0], self._rows[last]
        between = (
            number
            for number in self._at(item.change.root, item.change.path)
            if self._order[first] < self._order[number] <= self._order[last]
        )
        return not any(run_id in self._rows[number][1].apart_from for number in between)

    def _needed(self, number: int) -> Iterator[int]:
        change, order = self._change(number), self._order[number]
        yield from (n for n in self._at(change.root, change.path) if self._order[n] < order)
        for folder in folders_above(change.path):
            for other in self._at(change.root, folder):
                if self._order[other] <= order and _makes_folder(self._change(other)):
                    yield other
        if ends_folder(change):
            inside = self._inside(change.root, change.path)
            yield from (n for n in inside if self._order[n] <= order)

    def _dependent(self, number: int) -> Iterator[int]:
        change, order = self._change(number), self._order[number]
        yield from (n for n in self._at(change.root, change.path) if self._order[n] > order)
        for folder in folders_above(change.path):
            for other in self._at(change.root, folder):
                if self._order[other] >= order and ends_folder(self._change(other)):
                    yield other
        # What a file replaced goes with the file.
        if _makes_folder(change) or change.kind is Kind.REPLACED:
            inside = self._inside(change.root, change.path)
            yield from (n for n in inside if self._order[n] >= order)

    def _change(self, number: int) -> Change:
        return self._rows[number][1].change

    def _at(self, root: str, path: str) -> Sequence[int]:
        return self._places.get((root, path), ())

    def _inside(self, root: str, path: str) -> Iterator[int]:
        start = f"{path}/"
        position = bisect(self._sorted, (root, start))
        while position < len(self._sorted):
            place = self._sorted[position]
            if place[0] != root or not place[1].startswith(start):
                return
            yield from self._places[place]
            position += 1


def _makes_folder(change: Change) -> bool:
    return change.type is Type.FOLDER and change.kind in (Kind.ADDED, Kind.REPLACED)


def _is_mode(change: Change) -> bool:
    return change.type is Type.FOLDER and change.kind is Kind.MODIFIED


def ends_folder(change: Change) -> bool:
    return change.old_type is Type.FOLDER and change.kind in (Kind.DELETED, Kind.REPLACED)
