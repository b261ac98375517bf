# SPDX-License-Identifier: GPL-3.0-or-later
"""Which lines two texts have in common, in a time that grows with their length and not its square.

Lines that each text has once are matched first, in the longest order both agree on; only what lies
between them is compared in detail.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
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
