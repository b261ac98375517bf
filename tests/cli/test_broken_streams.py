# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line when its own streams are closed, full, or no longer read."""

from __future__ import annotations

import subprocess

import pytest
from support.person import Person, cli_argv
from support.timing import PATIENCE

pytestmark = pytest.mark.ordinary


def redirected(person: Person, streams: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return person.cli(*arguments, around=["sh", "-c", f'exec "$@" {streams}', "sh"])


@pytest.mark.parametrize("streams", ["<&-", "2>&-", "<&- 2>&-"])
def test_a_closed_stream_is_no_mistake(person: Person, streams: str) -> None:
    done = redirected(person, streams, "settings", "keep-runs-days")
    assert (done.returncode, done.stdout, done.stderr) == (0, "30\n", "")


def test_a_command_runs_without_input_and_errors(person: Person) -> None:
    done = redirected(person, "<&- 2>&-", "run", "-c", "cat; echo ran")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


@pytest.mark.parametrize("streams", [">&-", "<&- >&- 2>&-"])
def test_without_output_a_command_runs_or_an_error_is_the_end(person: Person, streams: str) -> None:
    done = redirected(person, streams, "run", "-c", "echo x; touch ran")
    assert "Traceback" not in done.stderr
    assert (done.returncode == 0) == (person.project / "ran").exists()


def test_an_error_is_not_printed_among_the_output(person: Person) -> None:
    done = redirected(person, "2>&-", "changes", "nothing")
    assert (done.returncode, done.stdout) == (125, "")


@pytest.mark.parametrize("arguments", [["history"], ["--help"], ["run", "--json", "--", "true"]])
def test_a_full_disk_behind_the_output_is_reported(person: Person, arguments: list[str]) -> None:
    person.capabilities()
    done = redirected(person, ">/dev/full", *arguments)
    assert done.returncode == 125
    assert done.stderr.startswith("ollmsandbox: ")
    assert done.stderr.endswith(": No space left on device.\n")


def test_an_error_that_cannot_be_printed_is_in_the_exit_status(person: Person) -> None:
    assert redirected(person, "2>/dev/full", "changes", "nothing").returncode == 125


def test_a_command_keeps_its_exit_status_if_the_summary_cannot_be_written(person: Person) -> None:
    person.capabilities()
    done = redirected(person, "2>/dev/full", "run", "-c", "touch made; exit 7")
    assert done.returncode == 7
    assert (person.project / "made").exists()


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_turn_ends_with_its_reader(person: Person, more: list[str]) -> None:
    """It does not continue without a reader, and prints no traceback."""
    person.capabilities()
    process = subprocess.Popen(
        cli_argv("tour", "--yes-to-nothing", *more),
        cwd=person.project,
        env=person.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        assert process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(PATIENCE) == 128 + 13
    assert "Traceback" not in said
    # The last thing that the tour does.
    assert (person.paths.data.parent / "OLLM Sandbox Tour" / "old-notes.txt").exists()
