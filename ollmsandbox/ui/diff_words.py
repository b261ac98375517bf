# SPDX-License-Identifier: GPL-3.0-or-later
"""Which words differ in two versions of a line."""

from __future__ import annotations

import difflib
import re

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
