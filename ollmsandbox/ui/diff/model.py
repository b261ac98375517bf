# SPDX-License-Identifier: GPL-3.0-or-later
"""Two versions of a text as changes with some lines around each: data to show, nothing drawn.

Which words differ in two versions of a line.

Two versions of a text as changes with some lines around each: data to show, nothing drawn.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import zip_longest

from ...text.ansi import mark_all
from ...text.diff import Block, matching_blocks

# From the first character to the one after the last.
Span = tuple[int, int]

_WORD = re.compile(r"\w+|\s+|[^\w\s]")
# Comparing takes the square of it.
_MOST_WORDS = 250
# Two lines that have less than this in common are simply two lines.
_LEAST_ALIKE = 0.4


def word_changes(old: str, new: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Where to look in each; nothing where nearly all is different, or too much to compare."""
    before, after = _WORD.findall(old), _WORD.findall(new)
    if max(len(before), len(after)) > _MOST_WORDS:
        return _middle(old, new)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    blocks = matcher.get_matching_blocks()
    alike = sum(len(word) for block in blocks for word in before[block.a : block.a + block.size])
    if alike < _LEAST_ALIKE * max(len(old.strip()), len(new.strip())):
        return (), ()
    removed: list[Span] = []
    added: list[Span] = []
    at_old = at_new = 0
    starts_old, starts_new = _starts(before), _starts(after)
    for block in blocks:
        _append(removed, (starts_old[at_old], starts_old[block.a]))
        _append(added, (starts_new[at_new], starts_new[block.b]))
        at_old, at_new = block.a + block.size, block.b + block.size
    return tuple(removed), tuple(added)


def _middle(old: str, new: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """A long line: what is between the same beginning and the same end."""
    start = _same_start(old, new)
    end = _same_start(old[start:][::-1], new[start:][::-1])
    if start + end < _LEAST_ALIKE * max(len(old), len(new)):
        return (), ()
    removed: list[Span] = []
    added: list[Span] = []
    _append(removed, (start, len(old) - end))
    _append(added, (start, len(new) - end))
    return tuple(removed), tuple(added)


def _same_start(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _starts(words: list[str]) -> list[int]:
    result = [0]
    for word in words:
        result.append(result[-1] + len(word))
    return result


def _append(spans: list[Span], span: Span) -> None:
    if span[0] < span[1]:
        spans.append(span)


CONTEXT = 3
# For words: pairs of lines in a whole comparison.
_MOST_PAIRS = 2000
# A longer line is shown in part; what draws text becomes slow with it.
_LONGEST = 2000
_NO_NEWLINE = "No newline at end of file"


class LineKind(Enum):
    SAME = "same"
    REMOVED = "removed"
    ADDED = "added"


@dataclass(frozen=True, slots=True)
class Line:
    kind: LineKind
    # From 1, as people count; a note about the line above has none.
    old: int | None
    new: int | None
    # As it may be shown: what cannot be seen in it is marked.
    text: str
    # The words that differ.
    spans: tuple[Span, ...] = ()

    @property
    def is_note(self) -> bool:
        return self.old is None and self.new is None


@dataclass(frozen=True)
class DiffHunk:
    """Changes that are close together. The numbers are indices into the lines of each version, with
    the lines around the changes."""

    index: int
    old_start: int
    old_end: int
    new_start: int
    new_end: int
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Fold:
    """Lines that are the same and far from any change."""

    old_start: int
    new_start: int
    size: int


@dataclass(frozen=True)
class Diff:
    old: tuple[str, ...]
    new: tuple[str, ...]
    parts: tuple[DiffHunk | Fold, ...]
    added: int
    removed: int
    # Every line of both versions ends as on Windows: not marked on each of them.
    has_crlf: bool

    @property
    def hunks(self) -> tuple[DiffHunk, ...]:
        return tuple(part for part in self.parts if isinstance(part, DiffHunk))

    def unfold(self, fold: Fold) -> tuple[Line, ...]:
        return tuple(_same(self.old, fold.old_start, fold.new_start, fold.size, self.has_crlf))


def decode(data: bytes) -> str | None:
    """None if it is no text."""
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def compare(old_text: str, new_text: str, context: int = CONTEXT) -> Diff:
    old, new = _split(old_text), _split(new_text)
    has_crlf = _is_crlf(old) and _is_crlf(new)
    ends = Block(len(old), len(new), 0)
    changes = list(_changes([*matching_blocks(old, new), ends]))
    budget = _MOST_PAIRS
    parts: list[DiffHunk | Fold] = []
    at_old = at_new = 0
    for index, group in enumerate(_grouped(changes, context)):
        first, last = group[0], group[-1]
        before = min(context, first[0] - at_old)
        after = min(context, len(old) - last[1])
        old_start, new_start = first[0] - before, first[2] - before
        old_end, new_end = last[1] + after, last[3] + after
        _add_fold(parts, at_old, at_new, old_start - at_old)
        lines: list[Line] = []
        o, n = old_start, new_start
        for removed_start, removed_end, added_start, added_end in group:
            lines += _same(old, o, n, removed_start - o, has_crlf)
            block, budget = _block(
                old, new, (removed_start, removed_end, added_start, added_end), has_crlf, budget
            )
            lines += block
            o, n = removed_end, added_end
        lines += _same(old, o, n, old_end - o, has_crlf)
        parts.append(DiffHunk(index, old_start, old_end, new_start, new_end, tuple(lines)))
        at_old, at_new = old_end, new_end
    _add_fold(parts, at_old, at_new, len(old) - at_old)
    return Diff(
        old,
        new,
        tuple(parts),
        added=sum(change[3] - change[2] for change in changes),
        removed=sum(change[1] - change[0] for change in changes),
        has_crlf=has_crlf,
    )


def pairs(lines: Iterable[Line]) -> Iterator[tuple[Line | None, Line | None]]:
    """For two columns: removed lines beside those added in their place."""
    removed: list[Line] = []
    added: list[Line] = []
    for line in lines:
        if line.kind is LineKind.SAME:
            yield from zip_longest(removed, added)
            removed, added = [], []
            yield line, line
        else:
            (removed if line.kind is LineKind.REMOVED else added).append(line)
    yield from zip_longest(removed, added)


_Change = tuple[int, int, int, int]


def _changes(blocks: Sequence[Block]) -> Iterator[_Change]:
    old = new = 0
    for block in blocks:
        if block.old > old or block.new > new:
            yield old, block.old, new, block.new
        old, new = block.old + block.size, block.new + block.size


def _grouped(changes: Sequence[_Change], context: int) -> Iterator[list[_Change]]:
    group: list[_Change] = []
    for change in changes:
        if group and change[0] - group[-1][1] > 2 * context:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _block(
    old: Sequence[str], new: Sequence[str], change: _Change, has_crlf: bool, budget: int
) -> tuple[list[Line], int]:
    removed = [(number, old[number]) for number in range(change[0], change[1])]
    added = [(number, new[number]) for number in range(change[2], change[3])]
    left = [_line(LineKind.REMOVED, n + 1, None, text, has_crlf) for n, text in removed]
    right = [_line(LineKind.ADDED, None, n + 1, text, has_crlf) for n, text in added]
    for number in range(min(len(left), len(right), budget)):
        budget -= 1
        one, other = left[number], right[number]
        before, after = word_changes(one.text, other.text)
        left[number] = replace(one, spans=before)
        right[number] = replace(other, spans=after)
    left = [_cut(line) for line in left]
    right = [_cut(line) for line in right]
    if removed and not removed[-1][1].endswith("\n"):
        left.append(Line(LineKind.REMOVED, None, None, _NO_NEWLINE))
    if added and not added[-1][1].endswith("\n"):
        right.append(Line(LineKind.ADDED, None, None, _NO_NEWLINE))
    return left + right, budget


def _same(
    old: Sequence[str], old_start: int, new_start: int, size: int, has_crlf: bool
) -> Iterator[Line]:
    for step in range(size):
        o, n = old_start + step, new_start + step
        yield _cut(_line(LineKind.SAME, o + 1, n + 1, old[o], has_crlf))
        if not old[o].endswith("\n"):
            yield Line(LineKind.SAME, None, None, _NO_NEWLINE)


def _line(kind: LineKind, old: int | None, new: int | None, text: str, has_crlf: bool) -> Line:
    text = text.removesuffix("\r\n") if has_crlf else text
    return Line(kind, old, new, mark_all(text.removesuffix("\n")))


def _cut(line: Line) -> Line:
    """Of a very long line, the part where the first difference is."""
    if len(line.text) <= _LONGEST:
        return line
    first = line.spans[0][0] if line.spans else 0
    start = max(0, min(first - _LONGEST // 4, len(line.text) - _LONGEST))
    end = start + _LONGEST
    shown = ("…" if start else "") + line.text[start:end]
    rest = len(line.text) - end
    if rest:
        shown += f"… {rest:,} more characters"
    shift = start - bool(start)
    spans = tuple(
        (max(a, start) - shift, min(b, end) - shift) for a, b in line.spans if a < end and b > start
    )
    return replace(line, text=shown, spans=spans)


def _add_fold(parts: list[DiffHunk | Fold], old: int, new: int, size: int) -> None:
    if size > 0:
        parts.append(Fold(old, new, size))


def _split(text: str) -> tuple[str, ...]:
    """With their ends. Only at line feeds: other signs that end a line somewhere are shown."""
    lines = text.split("\n")
    last = lines.pop()
    return (*(f"{line}\n" for line in lines), *([last] if last else []))


def _is_crlf(lines: Sequence[str]) -> bool:
    return all(line.endswith("\r\n") or not line.endswith("\n") for line in lines)
