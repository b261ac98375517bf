# SPDX-License-Identifier: GPL-3.0-or-later
"""A run's changes that cannot be recorded are kept, and the user is told."""

from __future__ import annotations

import pytest
from support.cli_inline import cli_here
from support.escape.paused import run_while
from support.person import Person


@pytest.mark.parametrize("mode", ["auto", "review", "never"])
def test_changes_that_cannot_be_recorded_are_kept(person: Person, mode: str) -> None:
    database = person.paths.database
    done = run_while(person, "echo >file", lambda: database.mkdir(parents=True), "--apply", mode)
    [error] = done["errors"] if mode != "never" else [""]
    assert ("changes could not be recorded" in error) == (mode != "never")
    assert ("There is a folder where the database should be" in error) == (mode != "never")
    database.rmdir()
    assert ("1 change" in cli_here(person, "history").stderr) == (mode != "never")
    assert (person.project / "file").exists() == (mode == "auto")
