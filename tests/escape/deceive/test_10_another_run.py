# SPDX-License-Identifier: GPL-3.0-or-later
"""A run ends after the user has looked at another one, and before the user applies it."""

from __future__ import annotations

import pytest
from support.cli_inline import Done, cli_here
from support.escape.copy_back import settle
from support.person import Person

from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.ordinary


def pending(person: Person, name: str) -> str:
    """Make a change as another program does: nothing of it is shown here."""
    return settle(person, f"echo evil >{name}", Mode.REVIEW).run_id


def refused(done: Done, run: str) -> bool:
    return done.returncode != 0 and f"The last run, {run}, is not the one" in done.stderr


def test_another_run_is_not_taken(person: Person) -> None:
    person.cli("run", "--apply", "review", "-c", "echo good >seen")
    evil = pending(person, "Makefile")
    for action in ("apply", "discard", "undo"):
        for options in ((), ("--json",)):
            assert refused(cli_here(person, action, *options), evil), action
    assert not list(person.project.iterdir())
    # By its name, or after a look, it can be taken.
    assert cli_here(person, "apply", evil).returncode == 0
    assert (person.project / "Makefile").exists()


@pytest.mark.parametrize("look", ["changes", "history", "changes --all", "changes --diff"])
def test_a_run_that_was_looked_at_is_taken(person: Person, look: str) -> None:
    run = pending(person, "Makefile")
    assert refused(cli_here(person, "apply"), run)
    cli_here(person, *look.split())
    done = cli_here(person, "apply")
    assert done.returncode == 0
    # It says what it takes: the command, the run, and what needs a second look.
    assert f"(run {run}, " in done.stderr
    assert "Makefile" in done.stderr.split("\n", 1)[1]


def test_an_earlier_run_was_looked_at(person: Person) -> None:
    first, last = pending(person, "a"), pending(person, "b")
    cli_here(person, "changes")
    assert cli_here(person, "changes", first).returncode == 0
    assert refused(cli_here(person, "apply"), last)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_run_s_own_summary_counts(person: Person, options: tuple[str, ...]) -> None:
    person.cli("run", *options, "-c", "echo x >a")
    # A run that changes nothing is not on record.
    person.cli("run", "-c", "true")
    assert cli_here(person, "undo").returncode == 0
    assert not (person.project / "a").exists()


def test_a_quiet_run_shows_nothing(person: Person) -> None:
    person.cli("run", "--quiet", "-c", "echo x >a")
    assert cli_here(person, "undo").returncode != 0
    assert (person.project / "a").exists()
