# SPDX-License-Identifier: GPL-3.0-or-later
"""Merges a change into a file that somebody else has changed too: a three-way merge by lines.

A change is given by the version from before it and the version from after it. To undo a change,
merge the change from after to before. Nothing here reads or writes files.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

from merge3 import Merge3

from . import diff

# Each byte is a character, so any text whose line feeds are single bytes comes out as it went in.
_BYTES = "latin-1"


def merge_change(
    before: bytes,
    after: bytes,
    current: bytes,
    *,
    has_hunks: bool = False,
) -> bytes | None:
    """Return `current` with the change from `before` to `after`; None if that is a conflict.

    It is a conflict if the change and `current` changed the same lines, if a version is no text,
    or if merging the change out again would not give `current` back: then the merge had to guess
    which of several equal lines were meant. With `has_hunks`, some hunks of the change may be
    merged already, or all.
    """
    if before in (after, current):
        return current if before == after else after
    if current == after:
        return current
    merged = _merge(before, after, current)
    if merged is None or (has_hunks and merged == current):
        return merged
    if _merge(after, before, merged) == current:
        return merged
    # What is merged already was merged out, too.
    with_part = _with_present_hunks(before, after, current) if has_hunks else None
    if with_part is None:
        return None
    is_same = _merge(with_part, after, current) == merged
    return merged if is_same and _merge(after, with_part, merged) == current else None


def _with_present_hunks(before: bytes, after: bytes, current: bytes) -> bytes | None:
    """Return `before` with the hunks of the change that `current` has already; None if it has
    none."""
    texts = [version.decode(_BYTES) for version in (before, after, current)]
    old, new, now = map(_ended_lines, texts)
    hunks = diff.find_hunks(old, new)
    states = zip(hunks, diff.hunk_states(now, old, new, hunks), strict=True)
    present = [hunk for hunk, state in states if state is diff.HunkState.PRESENT]
    if not present:
        return None
    # Whether the last line ends with a newline goes with the hunk at the end.
    is_at_end = (present[-1].old_end, present[-1].new_end) == (len(old), len(new))
    text = "".join(diff.with_hunks(old, present))
    is_ended = _is_ended(texts[1] if is_at_end else texts[0])
    return (text if is_ended else text.removesuffix("\n")).encode(_BYTES)


def keep_both(before: bytes | None, after: bytes, current: bytes) -> bytes | None:
    """Return `current` with the change from `before` to `after`, and both versions of lines that
    both changed; None if a version is no text. Without `before`, the lines that both have are
    taken for it."""
    if before is None:
        old, new = (diff.split_lines(version.decode(_BYTES)) for version in (after, current))
        common: list[str] = []
        for block in diff.matching_blocks(old, new):
            common += old[block.old : block.old + block.size]
        before = "".join(common).encode(_BYTES)
    return _merge(before, after, current, keep_both=True)


def _ended_lines(text: str) -> list[str]:
    return diff.split_lines(text if _is_ended(text) else f"{text}\n")


def _is_ended(text: str) -> bool:
    return not text or text.endswith("\n")


def _merge(before: bytes, after: bytes, current: bytes, *, keep_both: bool = False) -> bytes | None:
    versions = (before, after, current)
    if any(b"\0" in version or len(version) > diff.LARGEST for version in versions):
        return None
    texts = [version.decode(_BYTES) for version in versions]
    ends = [_line_ends(text) for text in texts]
    is_converted = "" not in ends and "\r\n" in ends
    if is_converted:
        # The kind of line ends is merged by itself. So is whether there is one at the end, which
        # therefore has to be the same everywhere.
        texts = [text.replace("\r\n", "\n") for text in texts]
    merged = _merge_texts(*texts, keep_both=keep_both)
    if merged is not None and is_converted and _three_way(*ends) == "\r\n":
        merged = merged.replace("\n", "\r\n")
    return None if merged is None else merged.encode(_BYTES)


def _merge_texts(before: str, after: str, current: str, *, keep_both: bool) -> str | None:
    texts = (before, after, current)
    if not current and not all(map(_is_ended, texts)):
        return None  # without a line, it has no newline to be merged either
    if not keep_both and not _has_shown_hunks(before, after):
        return None
    lines = _merge_both_ways(*map(_ended_lines, texts), keep_both=keep_both)
    if lines is None:
        return None
    # Whether the last line ends with a newline is merged by itself.
    is_ended = _three_way(*map(_is_ended, texts))
    return "".join(lines) if is_ended else "".join(lines).removesuffix("\n")


def _has_shown_hunks(before: str, after: str) -> bool:
    """Return whether the change matches the same lines with a newline at the end as without, as in
    the hunks that users see. If not, merging it hunk by hunk could give another text."""
    if _is_ended(before) and _is_ended(after):
        return True
    shown = _matching_lines(diff.split_lines(before), diff.split_lines(after))
    return shown <= _matching_lines(_ended_lines(before), _ended_lines(after))


def _matching_lines(old: Sequence[str], new: Sequence[str]) -> set[tuple[int, int]]:
    return {
        (block.old + line, block.new + line)
        for block in diff.matching_blocks(old, new)
        for line in range(block.size)
    }


T = TypeVar("T")


def _three_way(before: T, after: T, current: T) -> T:
    """Merge something that has two values."""
    return after if current == before else current


def _merge_both_ways(
    before: Sequence[str], after: Sequence[str], current: Sequence[str], *, keep_both: bool
) -> list[str] | None:
    """Merge from the first line on and from the last; None if that differs. Then equal lines can be
    matched in several ways."""
    versions = (before, after, current)
    lines = _merge_lines(*versions, keep_both=keep_both)
    if lines is None or keep_both:
        return lines
    backwards = _merge_lines(*(version[::-1] for version in versions), keep_both=False)
    return lines if backwards is not None and backwards[::-1] == lines else None


def _merge_lines(
    before: Sequence[str], after: Sequence[str], current: Sequence[str], *, keep_both: bool
) -> list[str] | None:
    merged: list[str] = []
    merge3 = Merge3(before, current, after, sequence_matcher=_Matcher)
    for what, *places in merge3.merge_regions():
        if what == "unchanged":
            merged += before[slice(*places)]
        elif what in ("a", "same"):
            merged += current[slice(*places)]
        elif what == "b":
            merged += after[slice(*places)]
        else:
            old, mine, theirs = (
                version[slice(*places[number : number + 2])]
                for number, version in ((0, before), (2, current), (4, after))
            )
            both = _merge_neighbours(old, mine, theirs)
            if both is None and not keep_both:
                return None
            merged += [*mine, *theirs] if both is None else both
    return merged


def _merge_neighbours(
    before: Sequence[str], current: Sequence[str], after: Sequence[str]
) -> list[str] | None:
    """Merge changes of lines next to each other, which Merge3 takes for a conflict; None if both
    changed the same line, inserted lines at the same place, or have a new line in common: that may
    be the same one."""
    hunks = [*diff.find_hunks(before, current), *diff.find_hunks(before, after)]
    hunks.sort(key=lambda hunk: (hunk.old_start, hunk.old_end))
    for one, other in pairwise(hunks):
        starts_together = one.old_start == other.old_start and bool(one.old) == bool(other.old)
        if other.old_start < one.old_end or starts_together:
            return None
        # Where lines are inserted beside replaced ones, their order would be a guess.
        is_guess = not (one.old and other.old) or not set(one.new).isdisjoint(other.new)
        if other.old_start == one.old_end and is_guess:
            return None
    return diff.with_hunks(before, hunks)


class _Matcher:
    """Compares lines for Merge3, in the way of the diff and with its bound on the work."""

    def __init__(self, _is_junk: object, old: Sequence[str], new: Sequence[str]) -> None:
        self._blocks = diff.matching_blocks(old, new)

    def get_matching_blocks(self) -> list[tuple[int, int, int]]:
        return [(block.old, block.new, block.size) for block in self._blocks]


def _line_ends(text: str) -> str:
    """Return what ends the lines of a text: "" if that differs from line to line."""
    total, with_return = text.count("\n"), text.count("\r\n")
    if with_return == 0:
        return "\n"
    return "\r\n" if with_return == total else ""
