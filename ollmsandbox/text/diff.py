# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of a change to a text: which lines became which, and a text with one part more or less.
Pure: texts in, texts out.

Which lines two texts have in common, in a time that grows with their length and not its square.

Lines that each text has once are matched first, in the longest order both agree on; only what lies
between them is compared in detail.

The parts of a change to a text: which lines became which, and a text with one part more or less.
Pure: texts in, texts out.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

# Lines of one side times lines of the other, for a comparison in detail: some milliseconds.
_MOST_DETAIL = 40_000
# And for all of them together, some seconds.
_MOST_IN_ALL = 20_000_000


class Block(NamedTuple):
    """The same lines in both."""

    old: int
    new: int
    size: int


def matching_blocks(old: Sequence[str], new: Sequence[str]) -> list[Block]:
    found: list[Block] = []
    detail = _MOST_IN_ALL
    waiting = [(0, len(old), 0, len(new))]
    while waiting:
        old_start, old_end, new_start, new_end = waiting.pop()
        size = _same(old, new, old_start, old_end, new_start, new_end)
        if size:
            found.append(Block(old_start, new_start, size))
            old_start, new_start = old_start + size, new_start + size
        size = _same_at_end(old, new, old_start, old_end, new_start, new_end)
        if size:
            old_end, new_end = old_end - size, new_end - size
            found.append(Block(old_end, new_end, size))
        if old_start == old_end or new_start == new_end:
            continue
        cost = (old_end - old_start) * (new_end - new_start)
        if cost <= min(_MOST_DETAIL, detail):
            detail -= cost
            found += _in_detail(old, new, old_start, old_end, new_start, new_end)
            continue
        anchors = _anchors(old, new, old_start, old_end, new_start, new_end)
        if not anchors:
            # Too much to compare, and nothing to hold on to: it counts as replaced.
            continue
        # An anchor opens the next gap, so that it is found as the same beginning there.
        edges = [(old_start, new_start), *anchors, (old_end, new_end)]
        for (o, n), (next_o, next_n) in pairwise(edges):
            waiting.append((o, next_o, n, next_n))
    return _joined(found)


def _anchors(
    old: Sequence[str],
    new: Sequence[str],
    old_start: int,
    old_end: int,
    new_start: int,
    new_end: int,
) -> list[tuple[int, int]]:
    """Lines that are unique on both sides, in an order that is the same on both."""
    old_counts = Counter(old[old_start:old_end])
    new_counts = Counter(new[new_start:new_end])
    places = {
        new[number]: number for number in range(new_start, new_end) if new_counts[new[number]] == 1
    }
    pairs = [
        (number, places[old[number]])
        for number in range(old_start, old_end)
        if old_counts[old[number]] == 1 and old[number] in places
    ]
    # The longest run of pairs whose second numbers rise as well.
    ends: list[int] = []
    tops: list[int] = []
    before: list[int] = []
    for number, (_old, place) in enumerate(pairs):
        pile = bisect_left(ends, place)
        before.append(tops[pile - 1] if pile else -1)
        ends[pile : pile + 1] = [place]
        tops[pile : pile + 1] = [number]
    chosen: list[tuple[int, int]] = []
    number = tops[-1] if tops else -1
    while number >= 0:
        chosen.append(pairs[number])
        number = before[number]
    return chosen[::-1]


def _in_detail(
    old: Sequence[str],
    new: Sequence[str],
    old_start: int,
    old_end: int,
    new_start: int,
    new_end: int,
) -> list[Block]:
    matcher = difflib.SequenceMatcher(
        None, old[old_start:old_end], new[new_start:new_end], autojunk=False
    )
    return [
        Block(old_start + block.a, new_start + block.b, block.size)
        for block in matcher.get_matching_blocks()
        if block.size
    ]


def _same(
    old: Sequence[str],
    new: Sequence[str],
    old_start: int,
    old_end: int,
    new_start: int,
    new_end: int,
) -> int:
    most = min(old_end - old_start, new_end - new_start)
    size = 0
    while size < most and old[old_start + size] == new[new_start + size]:
        size += 1
    return size


def _same_at_end(
    old: Sequence[str],
    new: Sequence[str],
    old_start: int,
    old_end: int,
    new_start: int,
    new_end: int,
) -> int:
    most = min(old_end - old_start, new_end - new_start)
    size = 0
    while size < most and old[old_end - size - 1] == new[new_end - size - 1]:
        size += 1
    return size


def _joined(blocks: list[Block]) -> list[Block]:
    result: list[Block] = []
    for block in sorted(blocks):
        last = result[-1] if result else None
        if last and (last.old + last.size, last.new + last.size) == (block.old, block.new):
            result[-1] = Block(last.old, last.new, last.size + block.size)
        else:
            result.append(block)
    return result


# Comparing takes long then, and nobody reads it.
LARGEST = 2 << 20


@dataclass(frozen=True)
class Hunk:
    """Lines that took the place of others; both with their line ends, numbered from 0."""

    number: int
    old_start: int
    old: tuple[str, ...]
    new_start: int
    new: tuple[str, ...]

    @property
    def old_end(self) -> int:
        return self.old_start + len(self.old)

    @property
    def new_end(self) -> int:
        return self.new_start + len(self.new)


class Standing(Enum):
    """What became of a part of a change that was made."""

    THERE = "there"
    TAKEN_BACK = "taken back"
    # The same lines, or those next to them, were changed again.
    CHANGED = "changed"


def text_of(data: bytes) -> str | None:
    """Any bytes come back from it as they were; None if it is no text, or too large to compare."""
    if len(data) > LARGEST or b"\0" in data:
        return None
    return data.decode("utf-8", "surrogateescape")


def data_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def lines_of(text: str) -> list[str]:
    """At newlines alone: other characters that end a line belong to it."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])


def hunks(old: str, new: str) -> tuple[Hunk, ...]:
    before, after = lines_of(old), lines_of(new)
    found: list[Hunk] = []
    a = c = 0
    for b, d, size in (*matching_blocks(before, after), Block(len(before), len(after), 0)):
        if a < b or c < d:
            found.append(Hunk(len(found), a, tuple(before[a:b]), c, tuple(after[c:d])))
        a, c = b + size, d + size
    return tuple(found)


def with_hunks(old: str, chosen: Sequence[Hunk]) -> str:
    """The old text with these parts of the change."""
    lines = lines_of(old)
    # From the end: what comes before keeps its place.
    for hunk in sorted(chosen, key=lambda hunk: -hunk.old_start):
        lines[hunk.old_start : hunk.old_end] = hunk.new
    return "".join(lines)


def without_hunks(new: str, chosen: Sequence[Hunk]) -> str:
    """The new text without these parts of the change."""
    lines = lines_of(new)
    for hunk in sorted(chosen, key=lambda hunk: -hunk.new_start):
        lines[hunk.new_start : hunk.new_end] = hunk.old
    return "".join(lines)


def taken_back(present: str, new: str, hunk: Hunk) -> str | None:
    """The present text without this part of an earlier change that made `new`; None if the same
    lines, or those next to them, were changed again since."""
    now, then = lines_of(present), lines_of(new)
    start = _find(matching_blocks(then, now), now, then, hunk.new_start, hunk.new_end)
    if start is None:
        return None
    now[start : start + len(hunk.new)] = hunk.old
    return "".join(now)


def put_back(present: str, old: str, hunk: Hunk) -> str | None:
    """The present text with this part of an earlier change to `old` once more; None if those lines
    are not as they were before it."""
    now, then = lines_of(present), lines_of(old)
    start = _find(matching_blocks(then, now), now, then, hunk.old_start, hunk.old_end)
    if start is None:
        return None
    now[start : start + len(hunk.old)] = hunk.new
    return "".join(now)


def standings(present: str, old: str, new: str, parts: Sequence[Hunk]) -> tuple[Standing, ...]:
    """Of each part of the change from `old` to `new`."""
    now, before, after = lines_of(present), lines_of(old), lines_of(new)
    kept, lost = matching_blocks(after, now), matching_blocks(before, now)

    def of(hunk: Hunk) -> Standing:
        if _find(kept, now, after, hunk.new_start, hunk.new_end) is not None:
            return Standing.THERE
        is_back = _find(lost, now, before, hunk.old_start, hunk.old_end) is not None
        return Standing.TAKEN_BACK if is_back else Standing.CHANGED

    return tuple(of(hunk) for hunk in parts)


def _find(
    blocks: Sequence[Block], now: Sequence[str], then: Sequence[str], start: int, end: int
) -> int | None:
    """Where a stretch is now, together with a line on either side."""
    first, last = max(start - 1, 0), min(end + 1, len(then))
    for block in blocks:
        if block.old <= first and last <= block.old + block.size:
            found = block.new + start - block.old
            # What was at an edge of the text must still be there.
            keeps_start = start > 0 or found == 0
            keeps_end = end < len(then) or found + end - start == len(now)
            return found if keeps_start and keeps_end else None
    return None
