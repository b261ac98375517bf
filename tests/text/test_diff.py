# SPDX-License-Identifier: GPL-3.0-or-later
"""The unified diff of `changes --diff` turns the old text into the new one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ollmsandbox.cli.change_text import unified

pytestmark = pytest.mark.anybody

TEXTS = st.lists(st.sampled_from("abcdefgh\n"), max_size=40)
_HEADING = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n")


def patched(old: Sequence[str], diff: Sequence[str]) -> list[str]:
    made: list[str] = []
    at = 0
    for line in diff:
        if found := _HEADING.fullmatch(line):
            start, size = int(found[1]), found[2]
            begin = start if size == "0" else start - 1
            made += old[at:begin]
            at = begin
            new_start, new_size = int(found[3]), found[4]
            assert len(made) == (new_start if new_size == "0" else new_start - 1)
        elif line[0] == "+":
            made.append(line[1:])
        else:
            assert line[0] in " -"
            assert old[at] == line[1:]
            made += [line[1:]] if line[0] == " " else []
            at += 1
    return [*made, *old[at:]]


@given(TEXTS, TEXTS)
@settings(max_examples=120, deadline=None)
def test_the_diff_turns_the_old_text_into_the_new_one(old: list[str], new: list[str]) -> None:
    diff = list(unified(old, new))
    assert patched(old, diff) == new
    assert bool(diff) == (old != new)


def test_three_lines_are_shown_around_and_close_changes_stand_together() -> None:
    old = [f"{number}\n" for number in range(40)]
    new = [*old[:5], "five\n", *old[6:11], "new\n", *old[11:30], *old[31:]]
    assert list(unified(old, new)) == list(difflib.unified_diff(old, new))[2:]


def test_a_long_text_of_the_same_few_lines_is_compared_in_the_end() -> None:
    old = ["{\n", "}\n", "\n"] * 20_000
    new = [line for number, line in enumerate(old) if number % 7]
    assert patched(old, list(unified(old, new))) == new
