# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares two versions of a text, given as sequences of lines.

The same two versions always give the same hunks. The work is bounded: where two versions are too
long and too different to compare in detail, the lines between two matches count as replaced.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

# Bytes. Comparing larger files takes long, and nobody reads the result.
LARGEST = 2 << 20

# Lines of one side times lines of the other, for one comparison in detail: some milliseconds.
_MOST_DETAIL = 40_000
# Steps of a whole comparison: some seconds, also for texts that are made to take long.
_MOST_STEPS = 20_000_000


class MatchingBlock(NamedTuple):
    """Lines that are the same in both versions; indices from 0."""

    old: int
    new: int
    size: int


@dataclass(frozen=True)
class Hunk:
    """Lines of one version that take the place of lines of the other; indices from 0."""

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

    @property
    def inverse(self) -> Hunk:
        """Return the hunk that undoes this one."""
        return Hunk(self.new_start, self.new, self.old_start, self.old)


@dataclass(frozen=True)
class HunkGroup:
    """Hunks that are shown together; the indices include the unchanged lines around them."""

    hunks: tuple[Hunk, ...]
    old_start: int
    old_end: int
    new_start: int
    new_end: int

    def pieces(self) -> Iterator[MatchingBlock | Hunk]:
        """Yield the unchanged lines and the hunks in order."""
        old, new = self.old_start, self.new_start
        for hunk in self.hunks:
            yield MatchingBlock(old, new, hunk.old_start - old)
            yield hunk
            old, new = hunk.old_end, hunk.new_end
        yield MatchingBlock(old, new, self.old_end - old)


class HunkState(Enum):
    """The state of a hunk in a later version of the text."""

    PRESENT = "present"
    UNDONE = "undone"
    # The same lines, or those next to them, were changed again.
    CHANGED = "changed"
    # It was pending, and is no longer.
    DISCARDED = "discarded"


def decode_text(data: bytes) -> str | None:
    """Return the text; None if it is not UTF-8, or contains NUL characters as binary files do."""
    try:
        return None if b"\0" in data else data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def split_lines(text: str) -> list[str]:
    """Return the lines with their ends. Only a newline ends a line: other characters that some
    programs treat as line ends are content."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])


def matching_blocks(old: Sequence[str], new: Sequence[str]) -> list[MatchingBlock]:
    """Return what both versions have in common, in order.

    Lines that occur once in each version are matched first, in the longest order that both have
    in common. Only what is between them is compared in detail.
    """
    found: list[MatchingBlock] = []
    steps = _MOST_STEPS
    gaps = [(0, len(old), 0, len(new))]
    while gaps:
        old_start, old_end, new_start, new_end = gaps.pop()
        before, after = old[old_start:old_end], new[new_start:new_end]
        head = _count_equal(before, after)
        tail = _count_equal(reversed(before[head:]), reversed(after[head:]))
        found.append(MatchingBlock(old_start, new_start, head))
        found.append(MatchingBlock(old_end - tail, new_end - tail, tail))
        before, after = before[head : len(before) - tail], after[head : len(after) - tail]
        old_start, new_start = old_start + head, new_start + head
        in_detail = len(before) * len(after) <= _MOST_DETAIL
        # Finding anchors takes about four steps a line.
        steps -= len(before) * len(after) if in_detail else 4 * (len(before) + len(after))
        if steps < 0 or not before or not after:
            continue
        if in_detail:
            pairs = _longest_common(before, after)
            found += (MatchingBlock(old_start + a, new_start + b, 1) for a, b in pairs)
        elif anchors := _anchors(before, after):
            # Each anchor begins a gap, and is found as the head of it.
            edges = [(0, 0), *anchors, (len(before), len(after))]
            gaps += (
                (old_start + a, old_start + next_a, new_start + b, new_start + next_b)
                for (a, b), (next_a, next_b) in pairwise(edges)
            )
    return _joined(found)


def _count_equal(old: Iterable[str], new: Iterable[str]) -> int:
    size = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        size += 1
    return size


def _longest_common(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the indices of the longest common subsequence. Always takes as many steps as both have
    lines, multiplied; `difflib` may take 100 times as long, with lines that repeat."""
    # How many lines the rest of both has in common, from each pair of indices on.
    lengths = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for a in reversed(range(len(old))):
        row, below, line = lengths[a], lengths[a + 1], old[a]
        for b in reversed(range(len(new))):
            if line == new[b]:
                row[b] = below[b + 1] + 1
            else:
                row[b] = below[b] if below[b] > row[b + 1] else row[b + 1]
    a = b = 0
    while a < len(old) and b < len(new):
        if old[a] == new[b]:
            yield a, b
            a, b = a + 1, b + 1
        elif lengths[a + 1][b] >= lengths[a][b + 1]:
            a += 1
        else:
            b += 1


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Return the indices of lines that occur once on each side, in rising order on both."""
    old_counts, new_counts = Counter(old), Counter(new)
    places = {line: index for index, line in enumerate(new) if new_counts[line] == 1}
    pairs = [
        (index, places[line])
        for index, line in enumerate(old)
        if old_counts[line] == 1 and line in places
    ]
    # The longest rising subsequence of the places, by patience sorting.
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


def _joined(blocks: Iterable[MatchingBlock]) -> list[MatchingBlock]:
    """Return the blocks in order, without empty ones, and adjacent ones as one."""
    result: list[MatchingBlock] = []
    for block in sorted(block for block in blocks if block.size):
        last = result[-1] if result else None
        if last and (last.old + last.size, last.new + last.size) == (block.old, block.new):
            result[-1] = last._replace(size=last.size + block.size)
        else:
            result.append(block)
    return result


def find_hunks(old: Sequence[str], new: Sequence[str]) -> tuple[Hunk, ...]:
    """Return the changes that turn the old version into the new one, in order."""
    found: list[Hunk] = []
    a = c = 0
    for b, d, size in (*matching_blocks(old, new), MatchingBlock(len(old), len(new), 0)):
        if a < b or c < d:
            found.append(Hunk(a, tuple(old[a:b]), c, tuple(new[c:d])))
        a, c = b + size, d + size
    return tuple(found)


def group_hunks(hunks: Iterable[Hunk], old_size: int, context: int = 3) -> Iterator[HunkGroup]:
    """Yield groups of hunks whose surrounding lines touch or overlap. `old_size` is the number of
    lines of the old version."""
    group: list[Hunk] = []
    for hunk in hunks:
        if group and hunk.old_start - group[-1].old_end > 2 * context:
            yield _group(group, old_size, context)
            group = []
        group.append(hunk)
    if group:
        yield _group(group, old_size, context)


def _group(hunks: Sequence[Hunk], old_size: int, context: int) -> HunkGroup:
    first, last = hunks[0], hunks[-1]
    before, after = min(context, first.old_start), min(context, old_size - last.old_end)
    return HunkGroup(
        tuple(hunks),
        first.old_start - before,
        last.old_end + after,
        first.new_start - before,
        last.new_end + after,
    )


def unified_diff(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a unified diff, each with a newline, without the names of the files."""
    for group in group_hunks(find_hunks(old, new), len(old)):
        was = _range(group.old_start, group.old_end)
        now = _range(group.new_start, group.new_end)
        yield f"@@ -{was} +{now} @@\n"
        for piece in group.pieces():
            if isinstance(piece, Hunk):
                yield from _marked("-", piece.old)
                yield from _marked("+", piece.new)
            else:
                yield from _marked(" ", old[piece.old : piece.old + piece.size])


def _range(start: int, end: int) -> str:
    # An empty range names the line before it.
    size = end - start
    return f"{start + 1}" if size == 1 else f"{start + 1 if size else start},{size}"


def _marked(mark: str, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if line.endswith("\n"):
            yield f"{mark}{line}"
        else:
            yield f"{mark}{line}\n"
            yield "\\ No newline at end of file\n"


def with_hunks(old: Sequence[str], chosen: Iterable[Hunk]) -> list[str]:
    """Return the old version with only these of its changes."""
    lines = list(old)
    # From the end, so that the lines before keep their places.
    for hunk in sorted(chosen, key=lambda hunk: (-hunk.old_start, -hunk.old_end)):
        lines[hunk.old_start : hunk.old_end] = hunk.new
    return lines


def hunk_states(
    later: Sequence[str], old: Sequence[str], new: Sequence[str], hunks: Sequence[Hunk]
) -> tuple[HunkState, ...]:
    """Return what became of each change from the old to the new version in a later version."""
    from_new, from_old = matching_blocks(new, later), matching_blocks(old, later)

    def state(hunk: Hunk) -> HunkState:
        if _find_later(from_new, later, new, hunk.inverse) is not None:
            return HunkState.PRESENT
        is_undone = _find_later(from_old, later, old, hunk) is not None
        return HunkState.UNDONE if is_undone else HunkState.CHANGED

    return tuple(state(hunk) for hunk in hunks)


def _find_later(
    blocks: Iterable[MatchingBlock], later: Sequence[str], old: Sequence[str], hunk: Hunk
) -> int | None:
    """Return where the hunk's old lines begin in the later version, if they and a line on either
    side are unchanged."""
    start, end = hunk.old_start, hunk.old_end
    first, last = max(start - 1, 0), min(end + 1, len(old))
    for block in blocks:
        if block.old <= first and last <= block.old + block.size:
            found = block.new + start - block.old
            # What was at an edge of the text must still be there.
            keeps_start = start > 0 or found == 0
            keeps_end = end < len(old) or found + end - start == len(later)
            return found if keeps_start and keeps_end else None
    return None
