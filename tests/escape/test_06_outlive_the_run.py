# SPDX-License-Identifier: GPL-3.0-or-later
"""A command tries to leave processes running after its end, or refuses to end."""

from __future__ import annotations

import subprocess

import pytest
from support.escape.processes import (
    LEAVING,
    STUBBORN,
    STUBBORN_INSIDE,
    Mark,
    unsandboxed,
    within,
)
from support.person import Person
from support.timing import PATIENCE, given_time

from ollmsandbox import loop
from ollmsandbox.sandbox.process import Result

# --- what a command leaves behind ----------------------------------------------------------------


def test_nothing_is_left(person: Person, mark: Mark) -> None:
    ways = "\n".join(f"({command}\n)" for command in LEAVING.values())
    result = person.run(mark.put_into(f"{ways}\necho left"))
    assert mark.processes() == []
    assert (result.exit_code, result.stop) == (0, None)
    assert result.stdout.text == "left\n"
    assert result.duration < PATIENCE


@pytest.mark.parametrize("way", sorted(LEAVING))
def test_nothing_is_left_without_a_sandbox_of(person: Person, mark: Mark, way: str) -> None:
    result = loop.run(unsandboxed(person).exec(mark.put_into(LEAVING[way] + "\necho left")))
    assert mark.processes() == []
    assert (result.exit_code, result.stop) == (0, None)
    assert result.stdout.text == "left\n"
    assert result.duration < PATIENCE


@pytest.mark.parametrize("way", sorted(set(LEAVING) - {"a chain of children"}))
def test_without_a_supervisor_it_stays(person: Person, mark: Mark, way: str) -> None:
    # So the two above are the program's doing. A chain could not be caught again.
    subprocess.run(
        ["/bin/sh", "-c", mark.put_into(LEAVING[way] + "\necho left")],
        cwd=person.project,
        env=person.environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=PATIENCE,
        check=True,
    )
    assert within(lambda: bool(mark.processes()))


def test_the_next_run_finds_nothing_of_the_one_before(person: Person, mark: Mark) -> None:
    person.run(f"setsid -f sleep {mark.seconds}; sleep {mark.seconds} & touch /tmp/left")
    result = person.run("ls /tmp/left; echo /proc/[0-9]*")
    assert result.stdout.text == "/proc/1 /proc/2\n"


# --- a command that does not want to be over -----------------------------------------------------


@pytest.mark.parametrize(
    ("sandbox", "way"),
    [*((True, way) for way in STUBBORN_INSIDE), *((False, way) for way in STUBBORN)],
)
def test_the_time_limit_ends(person: Person, mark: Mark, sandbox: bool, way: str) -> None:
    ways = STUBBORN_INSIDE if sandbox else STUBBORN
    command = "echo so far; echo errors >&2; " + mark.put_into(ways[way])

    def attempt(seconds: float) -> Result:
        runner = person.bubble(timeout=seconds) if sandbox else unsandboxed(person, seconds)
        return loop.run(runner.exec(command))

    result = given_time(attempt, lambda ran: ran.stderr.text)
    assert mark.processes() == []
    assert result.timed_out
    assert result.exit_code == 124
    assert result.stdout.text == "so far\n"
    assert result.stderr.text.startswith("errors\n")
    assert 0.25 < result.duration < PATIENCE


def test_the_command_line_reports_the_time_limit(person: Person, mark: Mark) -> None:
    command = f"echo so far; sleep {mark.seconds}"
    done = given_time(
        lambda s: person.cli("run", "--timeout", str(s), "-c", command), lambda done: done.stdout
    )
    assert mark.gone()
    assert done.returncode == 124
    assert done.stdout == "so far\n"
    assert "time limit" in done.stderr


def test_a_command_that_closes_its_streams_runs_to_its_end(person: Person) -> None:
    result = person.run("exec <&- >&- 2>&-; sleep 0.3; : >done; exit 7")
    assert result.exit_code == 7
    assert (person.project / "done").exists()


def test_a_command_that_kills_all_it_can_ends_only_itself(person: Person, mark: Mark) -> None:
    outside = subprocess.Popen(["sleep", mark.seconds])
    try:
        result = person.run("sleep 50 & kill -9 -1; kill -9 0; kill -9 $$")
        assert result.exit_code == 137
        assert outside.poll() is None
    finally:
        outside.kill()
        outside.wait()
