# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ollmsandbox.text.diff import with_hunks
from ollmsandbox.ui.diff.colours import quiet_colour
from ollmsandbox.ui.diff.model import (
    Diff,
    DiffSection,
    Fold,
    LineKind,
    compare,
    pairs,
    word_changes,
)
from ollmsandbox.ui.terminal.style import DARK, LIGHT, contrast

SIGNS = {LineKind.SAME: " ", LineKind.ADDED: "+", LineKind.REMOVED: "-"}


def numbered(count: int) -> list[str]:
    return [f"line {number}\n" for number in range(1, count + 1)]


def written(diff: Diff) -> list[str]:
    result: list[str] = []
    for part in diff.parts:
        if isinstance(part, Fold):
            result.append(f"... {part.size}")
        else:
            result += [SIGNS[line.kind] + line.text for line in part.lines]
    return result


def without(diff: Diff, section: DiffSection) -> str:
    """Return the new text with these changes undone."""
    return "".join(with_hunks(diff.new, [hunk.inverse for hunk in section.group.hunks]))


def test_a_change_has_three_lines_around_it_and_the_rest_is_folded() -> None:
    old = numbered(20)
    new = [*old[:9], "other\n", *old[10:]]
    diff = compare("".join(old), "".join(new))
    assert written(diff) == [
        "... 6",
        " line 7",
        " line 8",
        " line 9",
        "-line 10",
        "+other",
        " line 11",
        " line 12",
        " line 13",
        "... 7",
    ]
    assert (diff.added, diff.removed) == (1, 1)
    fold = diff.parts[0]
    assert isinstance(fold, Fold)
    assert [line.text for line in diff.unfold(fold)] == [f"line {n}" for n in range(1, 7)]
    assert [line.old for line in diff.sections[0].lines] == [7, 8, 9, 10, None, 11, 12, 13]


def test_changes_that_are_close_are_one() -> None:
    old = numbered(30)
    near = [*old[:9], "x\n", *old[10:14], "y\n", *old[15:]]
    far = [*old[:4], "x\n", *old[5:24], "y\n", *old[25:]]
    assert len(compare("".join(old), "".join(near)).sections) == 1
    assert len(compare("".join(old), "".join(far)).sections) == 2


def test_one_change_can_be_undone_alone() -> None:
    old = numbered(30)
    new = ["first\n", *old[:14], *old[16:], "last"]
    diff = compare("".join(old), "".join(new))
    first, middle, last = diff.sections
    assert without(diff, first) == "".join([*old[:14], *old[16:], "last"])
    assert without(diff, middle) == "".join(["first\n", *old, "last"])
    assert without(diff, last) == "".join(["first\n", *old[:14], *old[16:]])


def test_a_missing_newline_at_the_end_is_shown() -> None:
    assert written(compare("a\nb", "a\nb\n")) == [
        " a",
        "-b",
        "-No newline at end of file",
        "+b",
    ]
    same = compare("x\na", "y\na").sections[0].lines
    assert same[-1].is_note
    assert same[-1].kind is LineKind.SAME


def test_invisible_characters_are_marked() -> None:
    diff = compare("a\r\nb\n", "a\nb\n")
    assert written(diff) == ["-a⟨CR⟩", "+a", " b"]
    assert written(compare("x\n", "x\u202e\u200b\n")) == ["-x", "+x⟨U+202E⟩⟨U+200B⟩"]
    windows = compare("a\r\nb\r\n", "a\r\nc\r\n")
    assert windows.has_crlf
    assert written(windows) == [" a", "-b", "+c"]


def test_new_and_deleted_and_equal_files() -> None:
    assert written(compare("", "a\nb\n")) == ["+a", "+b"]
    assert written(compare("a\n", "")) == ["-a"]
    assert compare("a\n", "a\n").sections == ()
    assert compare("", "").parts == ()


def test_two_columns_have_removed_beside_added() -> None:
    (hunk,) = compare("same\na\nb\nc\nend\n", "same\nA\nend\n").sections
    assert [(left and left.text, right and right.text) for left, right in pairs(hunk.lines)] == [
        ("same", "same"),
        ("a", "A"),
        ("b", None),
        ("c", None),
        ("end", "end"),
    ]


def test_the_words_that_differ_are_known() -> None:
    old, new = "result = compute(first, second)", "result = compute(first, third)"
    removed, added = word_changes(old, new)
    assert [old[a:b] for a, b in removed] == ["second"]
    assert [new[a:b] for a, b in added] == ["third"]
    assert word_changes("something else entirely", "nothing = at_all(1)") == ((), ())


def test_the_differing_part_of_a_long_line_is_shown() -> None:
    old = "word " * 40_000
    new = old[:100_000] + "HERE " + old[100_000:]
    (hunk,) = compare(f"{old}\n", f"{new}\n").sections
    line = hunk.lines[1]
    assert len(line.text) < 2100
    assert [line.text[a:b].strip() for a, b in line.spans] == ["HERE"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (numbered(20_000), [f"other {n}\n" if n % 2 else f"line {n}\n" for n in range(20_000)]),
        (["}\n" if n % 3 else "{\n" for n in range(20_000)], ["}\n"] * 20_000),
        (numbered(20_000), numbered(20_000)[::-1]),
    ],
    ids=["every second line", "always the same lines", "turned around"],
)
def test_a_large_file_is_compared_in_bounded_steps(old: list[str], new: list[str]) -> None:
    diff = compare("".join(old), "".join(new))
    (hunk, *_rest) = diff.sections
    assert without(diff, hunk) != "".join(new)
    assert len(diff.new) == 20_000


_LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "{\n", "}\n", "x"]), max_size=60)


@settings(max_examples=80, deadline=None)
@given(_LINES, _LINES)
def test_both_versions_can_be_read_from_the_parts(old: list[str], new: list[str]) -> None:
    diff = compare("".join(old), "".join(new))
    lines = [
        line
        for part in diff.parts
        for line in (part.lines if isinstance(part, DiffSection) else diff.unfold(part))
        if not line.is_note
    ]
    assert [line.text for line in lines if line.kind is not LineKind.ADDED] == [
        line.rstrip("\n") for line in diff.old
    ]
    assert [line.text for line in lines if line.kind is not LineKind.REMOVED] == [
        line.rstrip("\n") for line in diff.new
    ]
    text = "".join(new)
    # From the last on, so that the places of the others stay.
    for hunk in reversed(diff.sections):
        text = without(compare("".join(old), text), hunk)
    assert text == "".join(old)


@pytest.mark.parametrize(("high_contrast", "least"), [(False, 4.5), (True, 7.0)])
@pytest.mark.parametrize("dark", [False, True])
def test_the_numbers_of_lines_can_be_read(dark: bool, high_contrast: bool, least: float) -> None:
    red, green, blue = bytes.fromhex(quiet_colour(dark=dark, high_contrast=high_contrast)[1:])
    theme = DARK if dark else LIGHT
    assert contrast((red, green, blue), theme.ground) >= least
