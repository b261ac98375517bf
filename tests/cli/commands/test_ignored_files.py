# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that git ignores are counted apart from what a user means by changes."""

from __future__ import annotations

import json

import pytest
from support.person import Person

pytestmark = pytest.mark.ordinary

_BUILD = "mkdir -p pkg/objects; echo 1 > pkg/objects/a.o; echo 2 > b.o"
_EDIT = f"{_BUILD}; echo 1 > file"


@pytest.fixture(autouse=True)
def checkout(person: Person) -> None:
    person.run_outside(
        "git init -q; mkdir pkg; echo '*.o' > .gitignore; echo 'build/' >> .gitignore"
    )


def said(person: Person, *arguments: str) -> list[str]:
    """Return what the command line prints, without the run's id."""
    done = person.cli(*arguments)
    assert done.returncode == 0, done.stderr
    return [line.split(" (run")[0] for line in (done.stdout + done.stderr).splitlines()]


def test_they_are_one_line_after_the_changes(person: Person) -> None:
    assert said(person, "run", "-c", _EDIT) == [
        "ollmsandbox: 1 change",
        "  added     file",
        "  2 files that git ignores",
    ]
    assert said(person, "changes")[1:] == ["  added     file", "  2 files that git ignores"]
    assert said(person, "history")[0].endswith("  1 applied, 2 files that git ignores")
    # Programs see each of them.
    found = json.loads(person.cli("changes", "--json").stdout)["changes"]
    flags = {change["path"]: change["flags"] for change in found}
    assert flags == {
        "b.o": ["ignored"],
        "file": [],
        "pkg/objects": [],
        "pkg/objects/a.o": ["ignored"],
    }
    said(person, "undo")
    assert said(person, "history")[0].endswith("  1 undone, 2 files that git ignores [undone]")


def test_a_run_that_changed_nothing_else_is_that_line(person: Person) -> None:
    assert said(person, "run", "-c", _BUILD) == ["ollmsandbox: 2 files that git ignores"]
    assert said(person, "changes")[1:] == ["  2 files that git ignores"]


def test_they_are_applied_and_undone_with_the_run(person: Person) -> None:
    assert said(person, "run", "--apply", "review", "-c", _EDIT)[:3] == [
        "ollmsandbox: 1 change, pending",
        "  added     file",
        "  2 files that git ignores",
    ]
    assert not (person.project / "b.o").exists()
    assert said(person, "apply")[:-1] == ["1 change applied.", "2 files that git ignores applied."]
    assert (person.project / "b.o").exists()
    assert said(person, "undo")[:-1] == ["1 change undone.", "2 files that git ignores undone."]
    assert not (person.project / "b.o").exists()
    assert not (person.project / "pkg/objects").exists()


def test_if_they_are_all_that_waits_that_is_said(person: Person) -> None:
    done = said(person, "run", "--apply", "review", "-c", _BUILD)
    assert done[0] == "ollmsandbox: 2 files that git ignores, pending"
    assert said(person, "discard")[:-1] == ["2 files that git ignores discarded."]
    assert said(person, "changes")[1:] == ["  2 files that git ignores [discarded]"]


def test_one_that_is_worth_a_second_look_is_shown(person: Person) -> None:
    command = "mkdir build; echo 1 > build/a; echo 1 > build/b; chmod +x build/b"
    assert said(person, "run", "-c", command) == [
        "ollmsandbox: 1 change",
        "Worth a second look:",
        "  added     build/b [executable]",
        "  1 file that git ignores",
    ]


def test_outside_a_checkout_they_are_files_like_others(person: Person) -> None:
    person.run_outside("rm -r .git")
    assert said(person, "run", "-c", "echo 2 > b.o") == ["ollmsandbox: 1 change", "  added     b.o"]
