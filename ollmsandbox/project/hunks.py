# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of a change to a text: which lines became which, and a text with one part more or less.
Pure: texts in, texts out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from .common_lines import Block, matching_blocks

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
