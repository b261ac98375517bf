# SPDX-License-Identifier: GPL-3.0-or-later
"""Pending changes survive the loss of the database: they are found in their layer and listed
again."""

from __future__ import annotations

import json

from support.cli_inline import cli_here
from support.person import Person

from ollmsandbox.project.changes.mode import Mode
from ollmsandbox.project.review.write_file import write_file


def lose_database(person: Person) -> None:
    for file in person.paths.data.glob("ollmsandbox.db*"):
        file.write_bytes(b"garbage" * 1000)


def review(person: Person, command: str) -> None:
    done = person.cli("run", "--apply", "review", "-c", command)
    assert done.returncode == 0, done.stderr


def write(person: Person, name: str, text: str) -> None:
    """Write as a command does, in less time."""
    file = f"{person.project}/{name}"
    write_file(person.paths, str(person.project), file, text.encode(), how=Mode.REVIEW)


def waiting(person: Person) -> dict[str, tuple[str, str]]:
    runs = json.loads(cli_here(person, "changes", "--all", "--json").stdout)
    return {
        change["path"]: (change["kind"], change["state"])
        for run in runs
        for change in run["changes"]
    }


def test_pending_changes_are_listed_again_and_can_be_applied(person: Person) -> None:
    for name in ("file", "gone", "folder/leaf"):
        (person.project / name).parent.mkdir(exist_ok=True)
        (person.project / name).write_text("old\n")
    review(person, "echo new >file; rm gone; rm -r folder; mkdir made; echo new >made/new")
    before = waiting(person)
    lose_database(person)
    first = cli_here(person, "changes", "--all")
    assert "damaged" in first.stderr
    assert f"Pending changes to {person.project}" in first.stderr
    assert waiting(person) == before
    # Said once, and found once.
    again = cli_here(person, "changes", "--all")
    assert again.stderr == ""
    assert again.stdout.count("modified  file") == 1
    assert cli_here(person, "apply", "--all").returncode == 0
    assert (person.project / "file").read_text() == "new\n"
    assert (person.project / "made/new").read_text() == "new\n"
    assert not (person.project / "gone").exists()
    assert not (person.project / "folder").exists()
    assert cli_here(person, "changes", "--all", "--json").stdout == "[]\n"
    assert not list(person.paths.data.glob("pending/*/overlay*"))
    assert cli_here(person, "undo").returncode == 0
    assert (person.project / "folder/leaf").read_text() == "old\n"


def test_it_can_be_discarded(person: Person) -> None:
    write(person, "file", "new\n")
    lose_database(person)
    assert cli_here(person, "discard", "--all").returncode == 0
    assert person.cli("run", "-c", "ls").stdout == ""


def test_a_run_before_the_recovery_does_not_hide_the_rest(person: Person) -> None:
    write(person, "first", "first\n")
    lose_database(person)
    # Only after this one has ended is the database needed.
    review(person, "cat first; echo second >second")
    assert waiting(person) == {"first": ("added", "pending"), "second": ("added", "pending")}


def test_a_file_changed_since_is_not_replaced_unasked(person: Person) -> None:
    file = person.project / "file"
    file.write_text("old\n")
    write(person, "file", "new\n")
    file.write_text("mine\n")
    lose_database(person)
    assert cli_here(person, "apply", "--all").returncode == 1
    assert file.read_text() == "mine\n"


def test_a_project_that_is_not_there_is_found_when_it_is_back(person: Person) -> None:
    write(person, "file", "new\n")
    away = person.home / "away"
    person.project.rename(away)
    lose_database(person)
    other = Person(person.home, person.home / "other", person.environ)
    other.project.mkdir()
    assert waiting(other) == {}
    away.rename(person.project)
    assert waiting(person) == {"file": ("added", "pending")}
