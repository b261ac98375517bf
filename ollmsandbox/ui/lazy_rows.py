# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the rows of a column are, built or not: pure numbers, without a widget."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Generic, TypeVar

T = TypeVar("T")
W = TypeVar("W")

_FIRST_GUESS = 96


@dataclass(eq=False)
class Row(Generic[T, W]):
    item: T
    widget: W | None = None
    # As measured last, if ever; for the width that there was, and the one that it takes.
    height: int | None = None
    given: int = 0
    width: int = 0
    pinned: bool = False


@dataclass
class Rows(Generic[T, W]):
    """By identity: two messages may be equal."""

    spacing: int
    rows: list[Row[T, W]] = field(default_factory=list)
    _by_item: dict[int, Row[T, W]] = field(default_factory=dict)
    _tops: list[int] | None = None
    _guess: int = _FIRST_GUESS
    _measured: int = 0
    _next_guess_at: int = 1

    def insert(self, index: int, item: T) -> Row[T, W]:
        if id(item) in self._by_item:
            raise ValueError("The item is in the column already.")
        row: Row[T, W] = Row(item)
        self.rows.insert(index, row)
        self._by_item[id(item)] = row
        self._tops = None
        return row

    def remove(self, item: T) -> Row[T, W]:
        row = self.of(item)
        self.rows.remove(row)
        del self._by_item[id(item)]
        self._tops = None
        return row

    def clear(self) -> None:
        self.rows.clear()
        self._by_item.clear()
        self._tops = None

    def of(self, item: T) -> Row[T, W]:
        return self._by_item[id(item)]

    def height(self, row: Row[T, W]) -> int:
        return self._guess if row.height is None else row.height

    def set_height(self, row: Row[T, W], height: int) -> None:
        if row.height == height:
            return
        if row.height is None:
            self._measured += 1
        row.height = height
        self._tops = None
        # A better guess moves every row that was never seen, so there are few of them.
        if self._measured >= self._next_guess_at:
            self._next_guess_at = 2 * self._measured
            known = [one.height for one in self.rows if one.height is not None]
            self._guess = sum(known) // max(1, len(known))

    @property
    def tops(self) -> Sequence[int]:
        """Where each row begins, and where one more would."""
        if self._tops is None:
            self._tops = list(
                accumulate((self.height(row) + self.spacing for row in self.rows), initial=0)
            )
        return self._tops

    @property
    def total(self) -> int:
        return max(0, self.tops[-1] - self.spacing)

    def top_of(self, row: Row[T, W]) -> int:
        return self.tops[self.rows.index(row)]

    def index_at(self, place: float) -> int:
        """Of the row that is there, or of the nearest."""
        return max(0, min(bisect_right(self.tops, place) - 1, len(self.rows) - 1))

    def between(self, first: float, last: float) -> Iterator[Row[T, W]]:
        """From the middle outwards: what is looked at comes first."""
        if not self.rows:
            return
        low, high = self.index_at(first), self.index_at(last)
        middle = self.index_at((first + last) / 2)
        for distance in range(high - low + 1):
            for index in {middle - distance, middle + distance}:
                if low <= index <= high:
                    yield self.rows[index]
