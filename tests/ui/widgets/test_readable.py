# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time

import pytest

import ollmsandbox.ui  # noqa: F401  names Gtk's version
from ollmsandbox.ui.sessions.dialogs import _file_name
from ollmsandbox.ui.widgets.readable import day_and_time, number


def test_thousands_are_separated() -> None:
    assert [number(count) for count in (0, 999, 1000, 1234567)] == [
        "0",
        "999",
        "1,000",
        "1,234,567",
    ]


def test_dates_are_relative_and_old_ones_have_a_year() -> None:
    year, month, day, *_rest = time.localtime()

    def at(year: int, month: int, day: int) -> float:
        return time.mktime((year, month, day, 14, 2, 0, 0, 0, -1))

    assert day_and_time(at(year, month, day)) == "Today, 14:02"
    assert day_and_time(at(year, month, day - 1)) == "Yesterday, 14:02"
    assert day_and_time(at(year, month, day - 1), with_time=False) == "Yesterday"
    assert day_and_time(at(year - 2, 3, 3)) == f"3 March {year - 2}"


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Fix the parser", "Fix the parser"),
        ("../etc/passwd: a\nquestion?", "etc passwd a question"),
        ("...", "Session"),
    ],
)
def test_an_export_is_named_by_its_title(title: str, name: str) -> None:
    assert _file_name(title) == name
