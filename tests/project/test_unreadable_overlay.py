# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run left behind whose map cannot be read."""

from __future__ import annotations

import pytest
from support.person import Person

from ollmsandbox.paths import make_folder
from ollmsandbox.project.recover import finish_leftovers

pytestmark = pytest.mark.anybody


def test_changes_of_an_unknown_project_are_reported_once_and_kept(person: Person) -> None:
    left = make_folder(person.paths.cache / "overlay-left1" / "upper" / "0")
    (left / "file").write_text("work of hours\n")
    (left.parents[1] / "map.json").write_text("{half")
    [report] = finish_leftovers(person.paths)
    assert "it is unknown which project they belong to" in report.errors[0]
    assert finish_leftovers(person.paths) == []
    assert (left / "file").read_text() == "work of hours\n"
