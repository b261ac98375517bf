# SPDX-License-Identifier: GPL-3.0-or-later
"""Comparing two versions of a text: blocks, hunks, and the unified diff, for any two texts."""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.timing import PATIENCE

from ollmsandbox.text import diff
from ollmsandbox.text.diff import (
    HunkState,
    decode_text,
    find_hunks,
    hunk_states,
    matching_blocks,
    split_lines,
    unified_diff,
    with_hunks,
)

pytestmark = pytest.mark.ordinary

TEXTS = st.text("abc{}\n", max_size=80)
OLD = [f"line {number}\n" for number in range(30)]
NEW = [*OLD[:3], "changed 3\n", *OLD[4:15], *OLD[16:28], "a\n", "b\n", *OLD[29:]]
_HEADING = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n")
_NO_NEWLINE = "\\ No newline at end of file\n"


def patched(old: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Apply a unified diff, and check everything that it says of the old text."""
    made: list[str] = []
    at = 0
    for line, following in pairwise((*lines, "")):
        text = line[1:-1] if following == _NO_NEWLINE else line[1:]
        if found := _HEADING.fullmatch(line):
            start, size = int(found[1]), found[2]
            begin = start if size == "0" else start - 1
            made += old[at:begin]
            at = begin
            new_start, new_size = int(found[3]), found[4]
            assert len(made) == (new_start if new_size == "0" else new_start - 1)
        elif line[0] == "+":
            made.append(text)
        elif line != _NO_NEWLINE:
            assert line[0] in " -"
            assert old[at] == text
            made += [text] if line[0] == " " else []
            at += 1
    return [*made, *old[at:]]


@given(TEXTS, TEXTS)
@settings(max_examples=300, deadline=None)
def test_a_unified_diff_makes_the_new_text_of_the_old_one(before: str, after: str) -> None:
    old, new = split_lines(before), split_lines(after)
    lines = list(unified_diff(old, new))
    assert patched(old, lines) == new
    assert bool(lines) == (old != new)


def test_three_lines_are_shown_around_and_close_changes_stand_together() -> None:
    old = [f"{number}\n" for number in range(40)]
    new = [*old[:5], "five\n", *old[6:11], "new\n", *old[11:30], *old[31:]]
    assert list(unified_diff(old, new)) == list(difflib.unified_diff(old, new))[2:]


def test_binary_files_are_not_text() -> None:
    assert decode_text("grün\n".encode()) == "grün\n"
    assert decode_text(b"a\0b") is None
    assert decode_text(b"\xff\xfe") is None


@given(TEXTS, TEXTS)
@settings(max_examples=60, deadline=None)
def test_blocks_are_the_same_lines_in_rising_order(before: str, after: str) -> None:
    old, new = split_lines(before), split_lines(after)
    at_old = at_new = 0
    for block in matching_blocks(old, new):
        assert block.size > 0
        assert block.old >= at_old
        assert block.new >= at_new
        assert old[block.old : block.old + block.size] == new[block.new : block.new + block.size]
        at_old, at_new = block.old + block.size, block.new + block.size


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("".join(OLD), "".join(NEW)),
        ("", "a"),
        ("a", ""),
        ("a\nb", "a\nb\n"),
        ("a\r\nb\x0c\u2028c\n", "a\nb\x0c\u2028d\n"),
        ("\udcff\n", "\udcfe\n"),
        ("same\n" * 3000, "same\n" * 1500 + "other\n" + "same\n" * 1500),
    ],
)
def test_all_hunks_together_are_the_change(before: str, after: str) -> None:
    old, new = split_lines(before), split_lines(after)
    assert "".join(old) == before
    hunks = find_hunks(old, new)
    assert with_hunks(old, hunks) == new
    assert with_hunks(new, [hunk.inverse for hunk in hunks]) == old


def test_what_became_of_a_hunk_is_found_in_a_text_whose_other_lines_have_changed() -> None:
    hunks = first, second, third = find_hunks(OLD, NEW)
    later = ["new first line\n", *NEW]
    later[later.index("line 20\n")] = "by hand\n"
    text = "".join(later)

    def states(text: str, chosen: Sequence[diff.Hunk] = hunks) -> list[HunkState]:
        return list(hunk_states(split_lines(text), OLD, NEW, chosen))

    assert states(text) == [HunkState.PRESENT] * 3
    undone = text.replace("line 14\n", "line 14\nline 15\n")
    assert states(undone) == [HunkState.PRESENT, HunkState.UNDONE, HunkState.PRESENT]
    assert states(text.replace("changed 3\n", "again\n"), [first]) == [HunkState.CHANGED]
    assert states(text.replace("line 16\n", "again\n"), [second]) == [HunkState.CHANGED]
    assert states("".join(NEW) + "more\n", [third]) == [HunkState.PRESENT]
    old, new = ["a\n"], ["a\n", "b\n"]
    assert hunk_states(["a\n", "b\n", "c\n"], old, new, find_hunks(old, new)) == (
        HunkState.CHANGED,
    )


def _repeating() -> tuple[list[str], list[str]]:
    """Each line is there some hundred times."""
    old = [f"{number * number * 7 % 211}\n" for number in range(60_000)]
    return old, [f"{n}\n" if n % 97 == 0 else line for n, line in enumerate(old)]


def _few_lines() -> tuple[list[str], list[str]]:
    old = ["{\n", "}\n", "\n"] * 20_000
    return old, [line for number, line in enumerate(old) if number % 7]


def _nested_anchors() -> tuple[list[str], list[str]]:
    """Only one line is unique at first, and next to it one more, as often as there are lines."""
    old = [f"{number}\n" for n in range(20_000) for number in (n + 1, n)]
    return old, [line for one in old for line in (one, "other\n")]


def _combs() -> tuple[list[str], list[str]]:
    """Between unique lines, the same line again and again, and on one side another between."""
    old: list[str] = []
    new: list[str] = []
    for number in range(1000):
        old += (f"{number}\n", "first\n", *(["a\n"] * 190), "last\n")
        new += (f"{number}\n", *(["x\n", "a\n"] * 95))
    return old, new


@pytest.mark.parametrize("make", [_repeating, _few_lines, _nested_anchors, _combs])
def test_no_text_takes_long_to_compare(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], tuple[list[str], list[str]]]
) -> None:
    # A third of it, so that the test does not take long; without a limit they take minutes.
    monkeypatch.setattr(diff, "_MOST_STEPS", diff._MOST_STEPS // 3)
    old, new = make()
    found: list[list[str]] = []
    work = threading.Thread(
        target=lambda: found.append(with_hunks(old, find_hunks(old, new))), daemon=True
    )
    work.start()
    work.join(PATIENCE)
    assert found == [new]
