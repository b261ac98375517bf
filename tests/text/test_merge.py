# SPDX-License-Identifier: GPL-3.0-or-later
"""Merging a change into a text that the user changed too."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from ollmsandbox.text.diff import LARGEST, find_hunks, split_lines, with_hunks
from ollmsandbox.text.merge import keep_both, merge_change

pytestmark = pytest.mark.ordinary

TEN = b"".join(b"line %d\n" % number for number in range(1, 11))


def changed(text: bytes, old: bytes, new: bytes) -> bytes:
    assert text.count(old) == 1
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(b"line 2\n", b"second\n", id="a line above"),
        pytest.param(b"line 9\n", b"ninth\n", id="a line below"),
        pytest.param(b"line 2\n", b"", id="a deleted line"),
        pytest.param(b"line 10\n", b"line 10\nmine\n", id="a line at the end"),
        pytest.param(b"line 10\n", b"line 10", id="no newline at the end"),
        pytest.param(b"line 1\n", b"mine\nline 1\n", id="a line at the beginning"),
        pytest.param(b"line 4\n", b"fourth\n", id="the line before"),
    ],
)
def test_an_edit_elsewhere_stays_when_a_change_is_applied_and_undone(
    old: bytes, new: bytes
) -> None:
    after = changed(TEN, b"line 5\n", b"fifth\nand more\n")
    mine = changed(TEN, old, new)
    merged = merge_change(TEN, after, mine)
    assert merged == changed(after, old, new)
    assert merge_change(after, TEN, merged) == mine


@pytest.mark.parametrize(
    ("before", "after", "mine"),
    [
        pytest.param(b"a\n", b"b\n", b"c\n", id="the same line"),
        pytest.param(b"a\n", b"", b"c\n", id="deleted and changed"),
        pytest.param(b"a\n", b"a\nb\n", b"a\nc\n", id="both added at the end"),
        pytest.param(b"a\nc\n", b"a\nb\nc\n", b"b\nc\n", id="the same new line in two ways"),
        pytest.param(
            b"a\na\na\nb\nb\nb\na",
            b"a\na\na\na\nb\nb\nb",
            b"a\na\na\nb\nc\nb\nb\na",
            id="other lines match without a newline at the end",
        ),
        pytest.param(b"\0a\n", b"\0b\n", b"\0a\nc\n", id="no text"),
        pytest.param(b"a\nb\nc\n", b"\0", b"a\nb\nd\n", id="text became none"),
        pytest.param(
            "a\nb\n".encode("utf-16"),
            "c\nb\n".encode("utf-16"),
            "a\nd\n".encode("utf-16"),
            id="an encoding with NULs",
        ),
        pytest.param(
            b"a\n" * LARGEST, b"b\n" + b"a\n" * LARGEST, b"a\n" * LARGEST + b"c\n", id="large"
        ),
    ],
)
def test_a_conflict(before: bytes, after: bytes, mine: bytes) -> None:
    assert merge_change(before, after, mine) is None


def test_both_versions_of_lines_that_both_changed() -> None:
    after = changed(TEN, b"line 5\n", b"command's\n")
    mine = changed(TEN, b"line 5\n", b"mine\n")
    assert keep_both(TEN, after, mine) == changed(TEN, b"line 5\n", b"mine\ncommand's\n")


def test_both_versions_without_the_one_from_before() -> None:
    after = changed(TEN, b"line 5\n", b"command's\n")
    mine = changed(TEN, b"line 9\n", b"mine\n")
    both = keep_both(None, after, mine)
    assert both == changed(
        changed(TEN, b"line 5\n", b"line 5\ncommand's\n"), b"line 9\n", b"mine\nline 9\n"
    )
    assert keep_both(None, b"\0", mine) is None


def test_what_is_already_so_stays() -> None:
    after = changed(TEN, b"line 5\n", b"fifth\n")
    assert merge_change(TEN, after, after) == after
    assert merge_change(TEN, after, TEN) == after
    assert merge_change(TEN, TEN, after) == after


def test_a_part_of_the_change_that_is_there_already_stays() -> None:
    after = changed(changed(TEN, b"line 2\n", b"second\n"), b"line 8\n", b"")
    mine = changed(changed(TEN, b"line 2\n", b"second\n"), b"line 5\n", b"mine\n")
    whole = changed(after, b"line 5\n", b"mine\n")
    assert merge_change(TEN, after, mine, has_hunks=True) == whole
    assert merge_change(after, TEN, mine, has_hunks=True) == changed(TEN, b"line 5\n", b"mine\n")


def test_line_ends_that_the_user_converted_stay_converted() -> None:
    after = changed(TEN, b"line 5\n", b"fifth\n")
    mine = TEN.replace(b"\n", b"\r\n")
    merged = merge_change(TEN, after, mine)
    assert merged == after.replace(b"\n", b"\r\n")
    assert merge_change(after, TEN, merged) == mine


def test_line_ends_that_a_command_converted_are_converted_in_lines_of_the_user() -> None:
    after = TEN.replace(b"\n", b"\r\n")
    mine = changed(TEN, b"line 5\n", b"mine\n")
    assert merge_change(TEN, after, mine) == mine.replace(b"\n", b"\r\n")


def test_a_last_line_without_its_end_gets_that_of_the_others() -> None:
    merged = merge_change(b"a\r\nb\r\n", b"a\r\nb\r\nc\r\n", b"a\r\nb")
    assert merged == b"a\r\nb\r\nc"


def test_bytes_that_are_no_encoding_come_out_as_they_went_in() -> None:
    odd = bytes(range(1, 256)).replace(b"\n", b"")
    before = b"1\n" + odd + b"\n3\n"
    assert merge_change(before, before + b"4\n", b"0\n" + before) == b"0\n" + before + b"4\n"
    assert merge_change(before, before + b"4\n", before + b"\0") is None


# --- for any texts -------------------------------------------------------------------------------

# Few words, so that lines repeat and a merge has to choose between them.
_WORDS = some.sampled_from([b"a", b"b", b"", b"}", b"x y"])
_TEXTS = some.lists(_WORDS, max_size=12)


@some.composite
def edits(draw: some.DrawFn, lines: Sequence[bytes], word: bytes | None) -> list[bytes]:
    """Return the lines after some edits; with a `word`, new lines begin with it and are unlike all
    others."""
    result, count = list(lines), 0
    for _ in range(draw(some.integers(1, 3))):
        place = draw(some.integers(0, len(result)))
        removed = draw(some.integers(0, 2))
        added = []
        for _ in range(draw(some.integers(0, 2))):
            count += 1
            added.append(b"%b %d" % (word, count) if word else draw(_WORDS))
        result[place : place + removed] = added
    return result


@some.composite
def versions(draw: some.DrawFn) -> tuple[bytes, bytes, bytes]:
    before = draw(_TEXTS)
    lines = (before, draw(edits(before, None)), draw(edits(before, b"mine")))
    end, last = draw(some.sampled_from([b"\n", b"\r\n"])), draw(some.booleans())
    one, other, third = (end.join(part) + (end if last and part else b"") for part in lines)
    return one, other, third


@settings(max_examples=1000, deadline=None)
@given(versions(), some.randoms(use_true_random=False))
def test_a_merge_of_any_texts(given_versions: tuple[bytes, bytes, bytes], random: Random) -> None:
    before, after, mine = given_versions
    merged = merge_change(before, after, mine)
    if merged is None:
        return
    # No line of the user is lost or moved.
    assert _own(merged) == _own(mine)
    undone = merge_change(after, before, merged)
    if mine != after:
        assert undone == mine
    # Hunk by hunk, in any order, it is the same text.
    old, new = (split_lines(text.decode("utf-8", "surrogateescape")) for text in (before, after))
    hunks = list(find_hunks(old, new))
    random.shuffle(hunks)
    current: bytes | None = mine
    steps = [
        "".join(with_hunks(old, hunks[:number])).encode("utf-8", "surrogateescape")
        for number in range(len(hunks) + 1)
    ]
    for one, other in pairwise(steps):
        assert current is not None
        current = merge_change(one, other, current)
        if current is None:
            # A single hunk may be a conflict where the whole is none, but never another text.
            return
    assert current == merged or not hunks


def _own(text: bytes) -> list[bytes]:
    return [line.strip() for line in text.splitlines() if line.startswith(b"mine")]
