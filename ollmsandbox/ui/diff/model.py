# SPDX-License-Identifier: GPL-3.0-or-later
"""Prepares a comparison of two versions of a text for display: groups of changes with some lines
around each, folds between them, and the words that differ. Draws nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate, zip_longest

from ...text.diff import Hunk, HunkGroup, find_hunks, group_hunks, split_lines
from ...text.visible import mark_hidden_line
from ..widgets.readable import more_characters

# The index of the first character, and the one after the last.
Span = tuple[int, int]

_WORD = re.compile(r"\w+|\s+|[^\w\s]")
# Lines that have a smaller share in common are shown without marked words.
_LEAST_ALIKE = 0.4


def word_changes(old: str, new: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Return what differs in each of two lines; nothing if nearly everything does."""
    before, after = _WORD.findall(old), _WORD.findall(new)
    # The time for a comparison grows with the square of it.
    if max(len(before), len(after)) > 250:
        return _middle(old, new)
    hunks = find_hunks(before, after)
    alike = len(old) - sum(len(word) for hunk in hunks for word in hunk.old)
    if alike < _LEAST_ALIKE * max(len(old.strip()), len(new.strip())):
        return (), ()
    starts_old, starts_new = (
        list(accumulate(map(len, words), initial=0)) for words in (before, after)
    )
    removed = ((starts_old[hunk.old_start], starts_old[hunk.old_end]) for hunk in hunks)
    added = ((starts_new[hunk.new_start], starts_new[hunk.new_end]) for hunk in hunks)
    return _not_empty(removed), _not_empty(added)


def _middle(old: str, new: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Return what is between the same beginning and the same end of two long lines."""
    start = _same_start(old, new)
    end = _same_start(old[start:][::-1], new[start:][::-1])
    if start + end < _LEAST_ALIKE * max(len(old), len(new)):
        return (), ()
    return _not_empty([(start, len(old) - end)]), _not_empty([(start, len(new) - end)])


def _same_start(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _not_empty(spans: Iterable[Span]) -> tuple[Span, ...]:
    return tuple((start, end) for start, end in spans if start < end)


# Characters. A longer line is shown in part, because GTK becomes slow with it.
_LONGEST = 2000
_NO_NEWLINE = "No newline at end of file"


class LineKind(Enum):
    """Each with its sign beside the line."""

    SAME = " "
    REMOVED = "-"
    ADDED = "+"


@dataclass(frozen=True, slots=True)
class Line:
    kind: LineKind
    # The line numbers, from 1; a note about the line above has none.
    old: int | None
    new: int | None
    # Invisible characters are marked.
    text: str
    # The words that differ.
    spans: tuple[Span, ...] = ()

    @property
    def is_note(self) -> bool:
        return self.old is None and self.new is None


@dataclass(frozen=True)
class DiffSection:
    """A group of hunks, as lines to show."""

    index: int
    group: HunkGroup
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Fold:
    """Unchanged lines that are far from any change."""

    old_start: int
    new_start: int
    size: int


@dataclass(frozen=True)
class Diff:
    old: Sequence[str]
    new: Sequence[str]
    parts: tuple[DiffSection | Fold, ...]
    added: int
    removed: int
    # Whether every line of both versions ends with CR LF, which is then not marked on each.
    has_crlf: bool

    @property
    def sections(self) -> tuple[DiffSection, ...]:
        return tuple(part for part in self.parts if isinstance(part, DiffSection))

    def unfold(self, fold: Fold) -> tuple[Line, ...]:
        return tuple(_same(self.old, fold.old_start, fold.new_start, fold.size, self.has_crlf))


def compare(old_text: str, new_text: str) -> Diff:
    old, new = split_lines(old_text), split_lines(new_text)
    has_crlf = _is_crlf(old) and _is_crlf(new)
    hunks = find_hunks(old, new)
    # Pairs of lines whose words are compared.
    budget = 2000
    parts: list[DiffSection | Fold] = []
    at_old = at_new = 0
    for index, group in enumerate(group_hunks(hunks, len(old))):
        if group.old_start > at_old:
            parts.append(Fold(at_old, at_new, group.old_start - at_old))
        lines: list[Line] = []
        for piece in group.pieces():
            if isinstance(piece, Hunk):
                changed, budget = _changed_lines(piece, has_crlf, budget)
                lines += changed
            else:
                lines += _same(old, *piece, has_crlf)
        parts.append(DiffSection(index, group, tuple(lines)))
        at_old, at_new = group.old_end, group.new_end
    if at_old < len(old):
        parts.append(Fold(at_old, at_new, len(old) - at_old))
    return Diff(
        old,
        new,
        tuple(parts),
        added=sum(len(hunk.new) for hunk in hunks),
        removed=sum(len(hunk.old) for hunk in hunks),
        has_crlf=has_crlf,
    )


def pairs(lines: Iterable[Line]) -> Iterator[tuple[Line | None, Line | None]]:
    """Yield the rows of two columns: removed lines beside those added in their place."""
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


def _changed_lines(hunk: Hunk, has_crlf: bool, budget: int) -> tuple[list[Line], int]:
    """Return the lines of a hunk, and how many pairs of lines may still be compared by words."""
    left = [
        _line(LineKind.REMOVED, number, None, text, has_crlf)
        for number, text in enumerate(hunk.old, hunk.old_start + 1)
    ]
    right = [
        _line(LineKind.ADDED, None, number, text, has_crlf)
        for number, text in enumerate(hunk.new, hunk.new_start + 1)
    ]
    for number in range(min(len(left), len(right), budget)):
        budget -= 1
        one, other = left[number], right[number]
        before, after = word_changes(one.text, other.text)
        left[number] = replace(one, spans=before)
        right[number] = replace(other, spans=after)
    left = [_cut(line) for line in left]
    right = [_cut(line) for line in right]
    if hunk.old and not hunk.old[-1].endswith("\n"):
        left.append(Line(LineKind.REMOVED, None, None, _NO_NEWLINE))
    if hunk.new and not hunk.new[-1].endswith("\n"):
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
    return Line(kind, old, new, mark_hidden_line(text.removesuffix("\n")))


def _cut(line: Line) -> Line:
    """Return the line, cut to the part with the first difference if it is very long."""
    if len(line.text) <= _LONGEST:
        return line
    first = line.spans[0][0] if line.spans else 0
    start = max(0, min(first - _LONGEST // 4, len(line.text) - _LONGEST))
    end = start + _LONGEST
    shown = ("…" if start else "") + line.text[start:end]
    rest = len(line.text) - end
    if rest:
        shown += more_characters(rest)
    shift = start - bool(start)
    spans = tuple(
        (max(a, start) - shift, min(b, end) - shift) for a, b in line.spans if a < end and b > start
    )
    return replace(line, text=shown, spans=spans)


def _is_crlf(lines: Sequence[str]) -> bool:
    return all(line.endswith("\r\n") or not line.endswith("\n") for line in lines)
