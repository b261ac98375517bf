# SPDX-License-Identifier: GPL-3.0-or-later
"""The streams of `ollmsandbox run`: input, output as it arrives, and JSON."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import time
from typing import Any

import pytest
from support.cli import assert_failed
from support.person import Person, Start, cli_argv
from support.timing import PATIENCE, given_time

pytestmark = pytest.mark.ordinary

# --- output --------------------------------------------------------------------------------------


def test_output_and_errors_stay_apart_and_whole(person: Person) -> None:
    content = os.urandom(3_000_000)
    (person.project / "file").write_bytes(content)
    done = subprocess.run(
        cli_argv("run", "-c", "cat file; cat file >&2"),
        cwd=person.project,
        env=person.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    assert done.stdout == content
    assert done.stderr == content


def test_output_arrives_while_the_command_runs(person: Person, start: Start) -> None:
    person.share_playground()
    waiting = "while ! test -e ~/playground/go; do sleep 0.02; done"
    process = start("run", "-c", f"echo wrong >&2; printf half; {waiting}; echo done")
    assert process.stdout is not None and process.stderr is not None
    assert process.stderr.readline() == b"wrong\n"
    assert os.read(process.stdout.fileno(), 100) == b"half"
    assert process.poll() is None
    (person.playground / "go").touch()
    assert process.communicate(timeout=PATIENCE) == (b"done\n", b"")
    assert process.returncode == 0


def test_without_a_reader_it_ends_as_by_a_broken_pipe(start: Start) -> None:
    process = start("run", "-c", "while :; do echo line; done")
    assert process.stdout is not None
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    assert process.wait(PATIENCE) == 128 + signal.SIGPIPE
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_a_reader_that_takes_its_time_gets_everything(start: Start) -> None:
    process = start("run", "-c", "seq 2000000")
    time.sleep(0.5)
    out, _errors = process.communicate(timeout=PATIENCE)
    assert out.count(b"\n") == 2_000_000
    assert out.endswith(b"\n2000000\n")
    assert process.returncode == 0


def test_output_that_cannot_be_written_is_an_error(start: Start) -> None:
    with open("/dev/full", "wb") as full:
        process = start("run", "-c", "echo x; sleep 0.1; echo y", stdout=full)
        _out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert b"Traceback" not in errors
    assert errors


@pytest.mark.parametrize("arguments", [["doctor"], ["--help"], ["run", "--json", "true"]])
def test_a_reader_that_is_gone_is_no_drama(start: Start, arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        process = start(*arguments, stdout=writer)
    finally:
        os.close(writer)
    _out, errors = process.communicate(timeout=PATIENCE)
    assert errors == b""
    assert process.returncode == 128 + signal.SIGPIPE


# --- JSON ----------------------------------------------------------------------------------------


KEYS = {
    *("run_id", "duration", "exit_code", "signal", "timed_out", "stopped", "stdout", "stderr"),
    *("left_running", "truncated", "changes", "conflicts", "skipped", "notices", "errors"),
    "hosts",
}


def document(person: Person, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = person.cli("run", "--json", *arguments)
    assert done.returncode == code
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    assert done.stdout.count("\n") == 1
    return found


def test_json_is_one_document_with_everything(person: Person) -> None:
    found = document(person, "-c", "echo out; echo err >&2; exit 3", code=3)
    assert set(found) == KEYS
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{8}", found.pop("run_id"))
    assert 0 < found.pop("duration") < 100
    assert found == {
        "exit_code": 3,
        "signal": None,
        "timed_out": False,
        "stopped": None,
        "left_running": 0,
        "stdout": "out\n",
        "stderr": "err\n",
        "truncated": False,
        "hosts": [],
        "changes": [],
        "conflicts": [],
        "skipped": [],
        "notices": [],
        "errors": [],
    }


def test_json_lists_what_changed_and_what_was_left_out(person: Person) -> None:
    (person.project / "old").write_text("old")
    found = document(person, "-c", "echo new >old; rm -f gone; mkfifo pipe; touch made")
    assert [(c["path"], c["kind"], c["state"]) for c in found["changes"]] == [
        ("old", "modified", "applied"),
        ("made", "added", "applied"),
    ]
    assert found["conflicts"] == []
    assert [item["path"] for item in found["skipped"]] == ["pipe"]
    assert sorted(os.listdir(person.project)) == ["made", "old"]


def test_json_says_what_ended_the_command(person: Person) -> None:
    found = document(person, "-c", "kill -TERM $$", code=143)
    assert (found["exit_code"], found["signal"], found["stopped"]) == (143, 15, None)
    command = "echo so far; sleep 1000"
    found = given_time(
        lambda s: document(person, "--timeout", str(s), "-c", command, code=124),
        lambda found: found["stdout"],
    )
    assert (found["timed_out"], found["stopped"]) == (True, "time")
    assert found["stdout"] == "so far\n"


def test_json_holds_any_output(person: Person) -> None:
    found = document(person, "-c", r"printf 'a\377\000\042\n\033[31mü'")
    assert found["stdout"] == 'a\N{REPLACEMENT CHARACTER}\0"\n\x1b[31mü'


def test_json_says_that_output_was_left_out(person: Person) -> None:
    found = document(person, "-c", "seq 1000000")
    assert found["truncated"]
    assert found["stdout"].startswith("1\n2\n")
    assert found["stdout"].endswith("\n1000000\n")
    assert "bytes left out" in found["stdout"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--profile", "other", "--", "touch", "ran"], "There is no profile 'other'"),
        (["--project", "", "--", "touch", "ran"], "is empty"),
        (["--project", "missing", "--", "touch", "ran"], "does not exist: "),
        (["--project", "/dev/null", "--", "touch", "ran"], "project"),
        (["--working-dir", "no/where", "--", "touch", "ran"], "no/where does not exist."),
        (["-c", " "], "The command is empty"),
        (["-c", ""], "The command is empty"),
        ([], "No command"),
        (["--"], "No command"),
        (["--network"], "No command"),
        (["-c", "touch ran", "--", "touch", "ran"], "either -c TEXT or -- COMMAND"),
    ],
)
def test_the_error_of_what_did_not_run(person: Person, arguments: list[str], told: str) -> None:
    assert_failed(person.cli("run", *arguments), told)
    found = document(person, *arguments, code=125)
    assert set(found) == KEYS
    assert found["exit_code"] == 125
    assert found["changes"] == []
    assert told in "\n".join(found["errors"])
    assert os.listdir(person.project) == []


# --- input ---------------------------------------------------------------------------------------


def test_input_comes_through_a_pipe_or_from_a_file(person: Person) -> None:
    text = "line\n" * 100_000
    assert person.cli("run", "--", "cat", input=text).stdout == text
    file = person.home / "input"
    file.write_text(text)
    with file.open() as opened:
        done = person.cli("run", "-c", "read -r first; echo $first; wc -l", stdin=opened)
    assert done.stdout.split() == ["line", "99999"]


def test_unread_input_does_not_delay_the_end(person: Person) -> None:
    file = person.home / "input"
    file.write_bytes(b"x" * 5_000_000)
    with file.open() as opened:
        assert person.cli("run", "--", "true", stdin=opened).returncode == 0


def test_endless_input_does_not_delay_the_end(start: Start) -> None:
    process = start("run", "--", "true", stdin=subprocess.PIPE)
    assert process.wait(PATIENCE) == 0


def test_without_input_there_is_an_end_at_once(person: Person) -> None:
    assert person.cli("run", "-c", "cat; echo done").stdout == "done\n"


def test_a_terminal_is_not_passed_on(person: Person) -> None:
    ours, theirs = pty.openpty()
    try:
        done = person.cli("run", "-c", "cat; test -t 0 || echo none", stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (done.returncode, done.stdout) == (0, "none\n")
