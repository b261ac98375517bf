# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line, as a process of its own: what it takes, says, and ends with."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Person, cli_argv

import ollmsandbox


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.fixture
def start(person: Person) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts the command line and lets it run; ends what is left at the end."""
    started = []

    def starter(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        options = {
            "cwd": person.project,
            "env": person.environ,
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **options,
        }
        started.append(subprocess.Popen(cli_argv(*arguments), **options))
        return started[-1]

    yield starter
    for process in started:
        process.kill()
        process.communicate()


def failed(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    """It did not run, and a sentence says why."""
    assert done.returncode == 125
    assert done.stdout == ""
    assert done.stderr.startswith("ollmsandbox: ")
    assert "Traceback" not in done.stderr
    for part in parts:
        assert part in done.stderr


# --- the command -------------------------------------------------------------------------------


def test_words_after_two_dashes_are_run(person: Person) -> None:
    done = person.cli("run", "--", "printf", "[%s]", "a b", "$HOME", "--json", "--", "")
    assert (done.returncode, done.stdout) == (0, "[a b][$HOME][--json][--][]")
    assert done.stderr == ""


def test_the_two_dashes_may_be_left_out(person: Person) -> None:
    done = person.cli("run", "--network", "echo", "-n", "--quiet", "x")
    assert (done.returncode, done.stdout) == (0, "--quiet x")


def test_a_text_is_run_by_the_shell(person: Person) -> None:
    done = person.cli("run", "-c", "echo one | tr o O; exit 3")
    assert (done.returncode, done.stdout) == (3, "One\n")


def test_a_text_may_begin_with_a_dash(person: Person) -> None:
    done = person.cli("run", "-c", "-x; echo ran")
    assert done.stdout == "ran\n"


def test_a_command_of_any_bytes_is_run_as_it_is(person: Person) -> None:
    word = os.fsdecode(b"caf\xe9 \xff")
    done = subprocess.run(
        cli_argv("run", "--", "printf", "%s", word),
        cwd=person.project,
        env=person.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"caf\xe9 \xff"


def test_two_commands_are_one_too_many(person: Person) -> None:
    done = person.cli("run", "-c", "touch one", "--", "touch", "two")
    failed(done, "There are two commands.", "either -c TEXT or -- COMMAND")
    assert os.listdir(person.project) == []


@pytest.mark.parametrize("arguments", [[], ["--"], ["--network"], ["-c", ""], ["-c", "  "]])
def test_no_command_is_told(person: Person, arguments: list[str]) -> None:
    failed(person.cli("run", *arguments), "command")


def test_the_working_folder_can_be_chosen(person: Person) -> None:
    (person.project / "src").mkdir()
    assert person.cli("run", "--working-dir", "src", "pwd").stdout == f"{person.project}/src\n"
    done = person.cli("run", "--working-dir", "playground", "--", "touch", "made")
    assert done.returncode == 0
    assert (person.playground / "made").exists()


def test_a_working_folder_that_is_not_there_is_told_in_exact_words(person: Person) -> None:
    done = person.cli("run", "--working-dir", "no/where", "--", "touch", "ran")
    assert done.returncode == 125
    assert "ERROR: Working directory does not exist: no/where\n" in done.stderr
    assert os.listdir(person.project) == []


# --- how it ends -------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 42, 255])
def test_the_status_is_the_commands(person: Person, code: int) -> None:
    done = person.cli("run", "-c", f"exit {code}")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


@pytest.mark.parametrize("number", [2, 9, 15], ids=signal.strsignal)
def test_a_signal_that_ended_the_command_is_added_to_128(person: Person, number: int) -> None:
    assert person.cli("run", "-c", f"kill -{number} $$").returncode == 128 + number


def test_a_command_that_is_not_there_ends_with_127(person: Person) -> None:
    done = person.cli("run", "--", "no-such-command-here")
    assert done.returncode == 127
    assert "not found" in done.stderr


def test_a_time_out_ends_with_124_and_is_told(person: Person) -> None:
    done = person.cli("run", "--timeout", "0.5", "-c", "echo before; sleep 60")
    assert (done.returncode, done.stdout) == (124, "before\n")
    assert done.stderr == (
        "ollmsandbox: The command was ended. It took longer than the time limit.\n"
    )


def test_quiet_says_nothing_besides_the_command(person: Person) -> None:
    done = person.cli("run", "--quiet", "--timeout", "0.5", "-c", "echo said >&2; sleep 60")
    assert (done.returncode, done.stdout, done.stderr) == (124, "", "said\n")


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "x", ""])
def test_a_time_that_is_none_is_refused(person: Person, given: str) -> None:
    done = person.cli("run", f"--timeout={given}", "--", "touch", "ran")
    assert done.returncode == 2
    assert f"{given!r} is not a number of seconds" in done.stderr
    assert os.listdir(person.project) == []


def test_an_unknown_profile_lists_the_choice(person: Person) -> None:
    done = person.cli("run", "--profile", "other", "--", "touch", "ran")
    failed(done, "There is no profile 'other'.", "standard, strict")
    assert os.listdir(person.project) == []


def test_a_mistake_in_a_profile_is_told_and_nothing_runs(person: Person) -> None:
    person.paths.profiles.mkdir(parents=True)
    file = person.paths.profiles / "standard.yaml"
    file.write_text("limits:\n  tiem: 5\n")
    done = person.cli("run", "--", "touch", "ran")
    failed(done, f"{file}, line 2, key limits.tiem", "'time'")
    assert os.listdir(person.project) == []


def test_a_profile_of_the_persons_own_is_used(person: Person) -> None:
    person.paths.profiles.mkdir(parents=True)
    (person.paths.profiles / "mine.yaml").write_text("environment: {set: {FROM: mine}}")
    assert person.cli("run", "--profile", "mine", "-c", "echo $FROM").stdout == "mine\n"
    (person.paths.profiles / "mine.yaml").write_text("environment: {set: {FROM: changed}}")
    assert person.cli("run", "--profile", "mine", "-c", "echo $FROM").stdout == "changed\n"


@pytest.mark.parametrize("base", ["mine", "strict"])
def test_a_change_of_the_profile_another_stands_on_counts_at_once(
    person: Person, base: str
) -> None:
    (person.home / "letters").write_text("secret")
    person.paths.profiles.mkdir(parents=True)
    (person.paths.profiles / "mine.yaml").write_text("description: Mine.")
    assert person.cli("run", "--profile", base, "-c", "cat ~/letters").stdout == "secret"
    (person.paths.profiles / "standard.yaml").write_text("masks: [~/letters]")
    assert person.cli("run", "--profile", base, "-c", "cat ~/letters").stdout == ""


@pytest.mark.parametrize("arguments", [["nonsense"], ["--nonsense"], ["run", "--nonsense", "x"]])
def test_arguments_that_are_not_known_are_refused(person: Person, arguments: list[str]) -> None:
    done = person.cli(*arguments)
    assert done.returncode == 2
    assert "usage:" in done.stderr


# --- output ------------------------------------------------------------------------------------


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


Start = Callable[..., subprocess.Popen[bytes]]


def test_output_arrives_while_the_command_runs(person: Person, start: Start) -> None:
    waiting = "while ! test -e ~/playground/go; do sleep 0.02; done"
    process = start("run", "-c", f"echo begun; echo wrong >&2; {waiting}; echo done")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"begun\n"
    assert process.stderr.readline() == b"wrong\n"
    assert process.poll() is None
    (person.playground / "go").touch()
    assert process.communicate(timeout=60) == (b"done\n", b"")
    assert process.returncode == 0


def test_half_a_line_arrives_too(person: Person, start: Start) -> None:
    waiting = "while ! test -e ~/playground/go; do sleep 0.02; done"
    process = start("run", "-c", f"printf half; {waiting}")
    assert process.stdout is not None
    assert os.read(process.stdout.fileno(), 100) == b"half"
    (person.playground / "go").touch()
    assert process.wait(60) == 0


def test_when_nobody_reads_any_more_it_ends_as_by_a_broken_pipe(start: Start) -> None:
    process = start("run", "-c", "while :; do echo line; done")
    assert process.stdout is not None
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    assert process.wait(60) == 128 + signal.SIGPIPE
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_a_reader_that_takes_its_time_gets_everything(start: Start) -> None:
    process = start("run", "-c", "seq 2000000")
    time.sleep(0.5)
    out, _errors = process.communicate(timeout=60)
    assert out.count(b"\n") == 2_000_000
    assert out.endswith(b"\n2000000\n")
    assert process.returncode == 0


def test_output_that_cannot_be_written_is_an_error(start: Start) -> None:
    with open("/dev/full", "wb") as full:
        process = start("run", "-c", "echo x; sleep 0.1; echo y", stdout=full)
        _out, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert b"Traceback" not in errors
    assert errors


# --- JSON --------------------------------------------------------------------------------------


def document(person: Person, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = person.cli("run", "--json", *arguments)
    assert done.returncode == code
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    assert done.stdout.count("\n") == 1
    return found


def test_json_is_one_document_with_everything(person: Person) -> None:
    found = document(person, "-c", "echo out; echo err >&2; exit 3", code=3)
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{8}", found.pop("run_id"))
    assert 0 < found.pop("duration") < 100
    assert found == {
        "exit_code": 3,
        "signal": None,
        "timed_out": False,
        "stopped": None,
        "stdout": "out\n",
        "stderr": "err\n",
        "truncated": False,
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
    found = document(person, "--timeout", "0.5", "-c", "echo so far; sleep 60", code=124)
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
        (["--project", "/missing", "--", "touch", "ran"], "does not exist: /missing"),
        (["--working-dir", "no", "--", "touch", "ran"], "Working directory does not exist: no"),
        (["-c", ""], "The command is empty"),
        ([], "There is no command"),
        (["-c", "touch ran", "--", "touch", "ran"], "There are two commands"),
    ],
)
def test_json_holds_the_error_of_what_did_not_run(
    person: Person, arguments: list[str], told: str
) -> None:
    found = document(person, *arguments, code=125)
    assert set(found) == set(document(person, "--", "true"))
    assert found["exit_code"] == 125
    assert found["changes"] == []
    assert told in "\n".join(found["errors"])
    assert os.listdir(person.project) == []


# --- input -------------------------------------------------------------------------------------


def test_input_comes_through_a_pipe(person: Person) -> None:
    text = "line\n" * 100_000
    assert person.cli("run", "--", "cat", input=text).stdout == text


def test_input_comes_from_a_file(person: Person) -> None:
    file = person.home / "input"
    file.write_text("line\n" * 100_000)
    with file.open() as opened:
        done = person.cli("run", "-c", "head -1; wc -l", stdin=opened)
    assert done.stdout.split() == ["line", "99999"] or done.stdout.startswith("line\n")
    with file.open() as opened:
        assert person.cli("run", "--", "cat", stdin=opened).stdout == file.read_text()


def test_input_that_is_not_read_keeps_nothing_waiting(person: Person) -> None:
    file = person.home / "input"
    file.write_bytes(b"x" * 5_000_000)
    with file.open() as opened:
        assert person.cli("run", "--", "true", stdin=opened).returncode == 0
    assert person.cli("run", "--", "true", input="x" * 1000).returncode == 0


def test_input_that_never_ends_keeps_nothing_waiting(start: Start) -> None:
    process = start("run", "--", "true", stdin=subprocess.PIPE)
    assert process.wait(60) == 0


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


@pytest.mark.parametrize("closed", ["<&-", "<&- 2>&-"])
def test_without_any_input_stream_a_command_runs(person: Person, closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *cli_argv("run", "-c", "cat; echo ran")],
        cwd=person.project,
        env=person.environ,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ran\n", b"")


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_without_any_output_stream_a_command_runs_or_an_error_is_the_end(
    person: Person, closed: str
) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *cli_argv("run", "-c", "echo x; touch ran")],
        cwd=person.project,
        env=person.environ,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert b"Traceback" not in done.stderr
    assert (done.returncode == 0) == (person.project / "ran").exists()


# --- signals -----------------------------------------------------------------------------------

# In the playground, where what a command writes is there at once.
BEATING = "cd ~/playground; date >beat; echo begun; while :; do date +%N >beat; done"


def stands_still(file: Path) -> bool:
    last = file.read_text()
    time.sleep(0.2)
    return file.read_text() == last


@pytest.mark.parametrize(
    ("number", "options"),
    [
        (signal.SIGINT, []),
        (signal.SIGINT, ["--json"]),
        (signal.SIGTERM, []),
        (signal.SIGHUP, ["--quiet"]),
    ],
)
def test_an_interrupted_run_ends_with_all_of_it(
    person: Person, start: Start, number: signal.Signals, options: list[str]
) -> None:
    process = start("run", *options, "-c", BEATING)
    wait_for((person.playground / "beat").exists)
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    assert stands_still(person.playground / "beat")
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()


def test_ctrl_c_of_a_terminal_ends_the_run_even_if_the_command_ignores_it(
    person: Person, start: Start
) -> None:
    process = start("run", "-c", f"trap '' INT TERM; {BEATING}", start_new_session=True)
    wait_for((person.playground / "beat").exists)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) == 130
    assert stands_still(person.playground / "beat")


def test_an_interrupted_run_does_not_wait_for_who_does_not_read(
    person: Person, start: Start
) -> None:
    process = start("run", "-c", "touch ~/playground/beat; yes")
    wait_for((person.playground / "beat").exists)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130


def test_when_the_program_is_killed_the_command_dies_too(person: Person, start: Start) -> None:
    process = start("run", "-c", BEATING)
    wait_for((person.playground / "beat").exists)
    process.kill()
    process.wait(60)
    wait_for(lambda: stands_still(person.playground / "beat"))


# --- the project -------------------------------------------------------------------------------


def project_of(person: Person, folder: Path) -> str:
    """The outermost folder that a command can write."""
    look = "while touch ../.writable 2>/dev/null && rm ../.writable; do cd ..; done; pwd -P"
    done = person.cli("run", "-c", look, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


def test_a_command_starts_in_the_current_folder_of_a_project(person: Person) -> None:
    deep = person.project / "a/b"
    deep.mkdir(parents=True)
    (person.project / ".git").mkdir()
    assert person.cli("run", "--", "pwd", cwd=deep).stdout == f"{deep}\n"
    elsewhere = person.cli("run", "--project", str(person.project), "--", "pwd", cwd="/")
    assert elsewhere.stdout == f"{person.project}\n"


def test_the_project_is_the_current_folder(person: Person) -> None:
    deep = person.project / "a/b"
    deep.mkdir(parents=True)
    assert project_of(person, deep) == str(deep)


def test_the_project_is_the_git_checkout_around_the_current_folder(person: Person) -> None:
    deep = person.project / "a/b"
    deep.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", person.project], env=person.environ, check=True)
    assert project_of(person, deep) == str(person.project)
    assert project_of(person, person.project) == str(person.project)


def test_the_project_of_a_work_tree_is_that_tree(person: Person) -> None:
    deep = person.project / "tree/a"
    deep.mkdir(parents=True)
    (person.project / ".git").mkdir()
    (person.project / "tree/.git").write_text("gitdir: ../.git/worktrees/tree\n")
    assert project_of(person, deep) == str(person.project / "tree")


def test_the_project_is_found_without_running_git(person: Person) -> None:
    programs = person.home / "programs"
    programs.mkdir()
    git = programs / "git"
    git.write_text(f"#!/bin/sh\ntouch {person.home}/ran\n")
    git.chmod(0o755)
    person.environ["PATH"] = f"{programs}:{person.environ['PATH']}"
    (person.project / ".git").mkdir()
    assert project_of(person, person.project) == str(person.project)
    assert not (person.home / "ran").exists()


def test_a_checkout_that_is_the_home_folder_is_not_the_project(person: Person) -> None:
    (person.home / ".git").mkdir()
    (person.home.parent / ".git").mkdir()
    assert project_of(person, person.project) == str(person.project)


def test_the_home_folder_is_not_taken_for_a_project(person: Person) -> None:
    done = person.cli("run", "--", "touch", "ran", cwd=person.home)
    failed(done, "your whole home folder", "Choose a folder inside it.")
    assert not (person.home / "ran").exists()


def test_a_current_folder_that_is_gone_is_told(person: Person) -> None:
    gone = person.home / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *cli_argv("run", "--", "true")],
        cwd=gone,
        env=person.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    failed(done, "The current folder does not exist any more.", "Go to another one.")


def test_a_project_can_be_named_from_a_folder_that_is_gone(person: Person) -> None:
    gone = person.home / "gone"
    gone.mkdir()
    argv = cli_argv("run", "--project", str(person.project), "--", "pwd")
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *argv],
        cwd=gone,
        env=person.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{person.project}\n")


@pytest.mark.parametrize("name", ["missing", "file", ""])
def test_a_project_that_is_none_is_told(person: Person, name: str) -> None:
    (person.project / "file").write_text("")
    done = person.cli("run", "--project", name, "--", "touch", "ran")
    failed(done, "project")
    assert os.listdir(person.project) == ["file"]


def test_a_project_is_named_from_the_current_folder(person: Person) -> None:
    done = person.cli("run", "--project", "project", "--", "pwd", cwd=person.home)
    assert done.stdout == f"{person.project}\n"


@pytest.mark.parametrize("name", ["we,ird:na\\me \"q\" 'ü'", "end\n", os.fsdecode(b"\xff"), "-x"])
def test_the_current_folder_may_have_any_name(person: Person, name: str) -> None:
    project = person.home / name
    project.mkdir()
    done = person.cli("run", "--quiet", "--", "touch", "made", cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(project) == ["made"]
    done = person.cli("run", f"--project={name}", "--", "touch", "more", cwd=person.home)
    assert done.returncode == 0
    assert re.fullmatch(
        r"ollmsandbox: 1 change \(run \S+\)\n  added     more\n",
        done.stderr,
    )
    assert sorted(os.listdir(project)) == ["made", "more"]


HOSTILE = "raise SystemExit('code of the project was loaded')\n"


def test_code_of_the_project_is_never_loaded(person: Person) -> None:
    names = ("json", "os", "asyncio", "yaml", "sitecustomize", "usercustomize", "array", "gi")
    for name in names:
        (person.project / f"{name}.py").write_text(HOSTILE)
    for name in ("ollmsandbox", "encodings"):
        (person.project / name).mkdir()
        (person.project / name / "__init__.py").write_text(HOSTILE)
    person.environ |= {
        "PYTHONPATH": str(person.project),
        "PYTHONSTARTUP": str(person.project / "json.py"),
        "PYTHONHOME": str(person.project),
        "PYTHONINSPECT": "1",
    }
    done = person.cli("run", "--", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    assert person.cli("doctor").returncode == 0
    assert not list(person.project.rglob("__pycache__"))


# --- the folders of the program ----------------------------------------------------------------


def test_the_folders_are_where_the_person_wants_them(person: Person, tmp_path: Path) -> None:
    for name in ("DATA", "CACHE", "CONFIG"):
        person.environ[f"XDG_{name}_HOME"] = str(tmp_path / name)
    before = os.listdir(person.home)
    profiles = tmp_path / "CONFIG/ollmchat/profiles"
    profiles.mkdir(parents=True)
    (profiles / "mine.yaml").write_text("environment: {set: {FROM: mine}}")
    command = "echo $FROM; touch ~/playground/made"
    done = person.cli("run", "--profile", "mine", "-c", command)
    assert (done.returncode, done.stdout) == (0, "mine\n")
    assert (tmp_path / "DATA/ollmchat/playground/made").exists()
    assert os.listdir(tmp_path / "CACHE/ollmchat")
    assert person.cli("playground", "path").stdout == f"{tmp_path}/DATA/ollmchat/playground\n"
    assert os.listdir(person.home) == before


def test_relative_folders_are_ignored_as_the_specification_says(person: Person) -> None:
    person.environ["XDG_DATA_HOME"] = "relative"
    expected = f"{person.home}/.local/share/ollmchat/playground\n"
    assert person.cli("playground", "path").stdout == expected


def test_a_cache_that_cannot_be_written_is_told_for_changes_go_there(person: Person) -> None:
    person.environ["XDG_CACHE_HOME"] = "/proc/nowhere"
    failed(person.cli("run", "--", "touch", "ran"), "/proc/nowhere")
    assert os.listdir(person.project) == []


def test_a_playground_that_cannot_be_made_is_told(person: Person) -> None:
    person.environ["XDG_DATA_HOME"] = "/proc/nowhere"
    failed(person.cli("run", "--", "touch", "ran"), "/proc/nowhere")
    assert os.listdir(person.project) == []


def test_a_home_folder_that_is_not_absolute_is_told(person: Person) -> None:
    person.environ["HOME"] = "relative"
    failed(person.cli("run", "--", "touch", "ran"), "HOME")
    failed(person.cli("playground", "path"), "HOME")


# --- doctor ------------------------------------------------------------------------------------


def test_doctor_prints_a_checklist(person: Person) -> None:
    done = person.cli("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"OLLM Sandbox {ollmsandbox.__version__}, ")
    assert done.stdout.endswith("\nCommands are sandboxed here.\n")
    for title in ("Bubblewrap is installed", "Secrets are not there", "The project can be written"):
        assert re.search(rf"^  ok +{title}", done.stdout, re.MULTILINE)
    assert "MISSING" not in done.stdout
    assert "\033" not in done.stdout
    assert all(len(line) <= 100 for line in done.stdout.splitlines())


def test_doctor_prints_one_json_document(person: Person) -> None:
    done = person.cli("doctor", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["version"] == ollmsandbox.__version__
    assert found["sandboxed"] is True
    assert found["overlay"] in ("unshare", "bwrap", "none")
    assert os.path.isabs(found["bwrap"])
    for check in found["checks"]:
        assert set(check) == {"key", "title", "ok", "needed", "detail", "cause", "remedy"}
        assert bool(check["cause"]) == bool(check["remedy"]) == (not check["ok"])
    keys = [check["key"] for check in found["checks"]]
    assert len(keys) == len(set(keys))
    assert {"bwrap", "sandbox", "network", "seccomp", "secrets", "outside", "rights"} <= set(keys)


def test_doctor_says_what_is_missing_and_what_to_do(person: Person) -> None:
    person.environ["PATH"] = f"{person.home}/nowhere"
    done = person.cli("doctor")
    assert done.returncode == 1
    assert re.search(r"^  MISSING +Bubblewrap is installed", done.stdout, re.MULTILINE)
    assert "bubblewrap is not installed." in done.stdout
    assert "nstall it" in done.stdout
    assert "Commands cannot be sandboxed here." in done.stdout
    found = json.loads(person.cli("doctor", "--json").stdout)
    assert found["sandboxed"] is False
    assert found["bwrap"] == ""


def test_doctor_has_colours_only_on_a_terminal(person: Person) -> None:
    def on_terminal() -> str:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            cli_argv("doctor"), cwd=person.project, env=person.environ, stdout=theirs
        )
        os.close(theirs)
        said = b""
        with open(ours, "rb", buffering=0) as terminal:
            try:
                while piece := terminal.read(1000):
                    said += piece
            except OSError:
                pass  # how a terminal ends
        assert process.wait(60) == 0
        return said.decode()

    assert "\033[32mok" in on_terminal()
    person.environ["NO_COLOR"] = "1"
    assert "\033" not in on_terminal()


def test_doctor_leaves_nothing_behind(person: Person) -> None:
    person.environ["TMPDIR"] = str(person.home / "tmp")
    (person.home / "tmp").mkdir()
    assert person.cli("doctor").returncode == 0
    assert os.listdir(person.home / "tmp") == []
    assert os.listdir(person.project) == []
    assert os.listdir(person.playground) == []


@pytest.mark.parametrize("folder", ["/", "/usr", "/usr/bin"])
def test_doctor_works_from_a_folder_that_can_be_no_project(person: Person, folder: str) -> None:
    done = person.cli("doctor", cwd=folder)
    assert done.returncode == 0, done.stdout
    assert "ok       Bubblewrap is installed" in done.stdout


def test_doctor_works_from_a_folder_that_is_gone(person: Person) -> None:
    gone = person.home / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *cli_argv("doctor")],
        cwd=gone,
        env=person.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


# --- playground --------------------------------------------------------------------------------


def test_the_path_of_the_playground_is_told_before_it_is_there(person: Person) -> None:
    assert person.cli("playground", "path").stdout == f"{person.playground}\n"
    assert person.cli("playground", "size").stdout == "0 bytes in 0 files\n"
    assert person.cli("playground", "clear").returncode == 0
    assert not person.playground.exists()


def test_the_size_of_the_playground_is_told(person: Person) -> None:
    person.cli("run", "-c", "head -c 3M /dev/urandom >~/playground/big")
    assert re.fullmatch(r"3\.\d MiB in 1 file\n", person.cli("playground", "size").stdout)
    person.cli("run", "-c", "mkdir ~/playground/sub; ln -s / ~/playground/sub/link")
    assert re.fullmatch(r"3\.\d MiB in 2 files\n", person.cli("playground", "size").stdout)


def test_clearing_removes_everything_and_nothing_else(person: Person) -> None:
    keep = person.home / "keep"
    keep.mkdir()
    (keep / "file").write_text("kept")
    keep.chmod(0o555)
    command = (
        "cd ~/playground; touch file .hidden; mkdir -p a/b/c; ln -s ../../../../keep link;"
        "ln -s ../../../../keep a/b/link; ln -s nowhere dangling; mkfifo fifo;"
        "touch -- -rf 'new\nline'"
    )
    assert person.cli("run", "-c", command).returncode == 0
    done = person.cli("playground", "clear")
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(person.playground) == []
    assert (keep / "file").read_text() == "kept"
    assert keep.stat().st_mode & 0o777 == 0o555


def test_clearing_removes_what_was_left_without_permissions(person: Person) -> None:
    command = (
        "cd ~/playground; mkdir -p a/b/c a/d/e f; touch a/file a/b/file a/b/c/file a/d/e/x f/file;"
        "chmod 000 a/b/c; chmod 000 a/b; chmod 555 a/d/e a/d; chmod 000 a f"
    )
    assert person.cli("run", "-c", command).returncode == 0
    assert person.cli("playground", "size").returncode == 0
    done = person.cli("playground", "clear")
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(person.playground) == []


def test_clearing_a_deep_playground_works(person: Person) -> None:
    command = "mkdir -p ~/playground/$(printf 'd/%.0s' $(seq 1200))"
    assert person.cli("run", "-c", command).returncode == 0
    done = person.cli("playground", "clear")
    if (person.playground / "d").exists():
        subprocess.run(["rm", "-rf", person.playground / "d"], check=True)
        pytest.fail(f"a deep folder is left: {done.stderr[-500:]}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("YES", 0), ("n", 1), ("", 1)])
def test_at_a_terminal_clearing_asks_first(person: Person, answer: str, code: int) -> None:
    person.cli("run", "-c", "touch ~/playground/file")
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        done = person.cli("playground", "clear", stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == code
    assert f"Delete everything in {person.playground} (1 file" in done.stdout
    assert (person.playground / "file").exists() == (code == 1)


def test_an_unknown_wish_for_the_playground_is_refused(person: Person) -> None:
    assert person.cli("playground", "burn").returncode == 2
    assert person.cli("playground").returncode == 2


# --- help --------------------------------------------------------------------------------------


def test_the_version_is_told(person: Person) -> None:
    done = person.cli("--version")
    assert (done.returncode, done.stdout) == (0, f"OLLM Sandbox {ollmsandbox.__version__}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"]])
def test_help_names_every_command(person: Person, arguments: list[str]) -> None:
    done = person.cli(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    commands = ("run", "changes", "apply", "discard", "undo", "history", "doctor", "playground")
    for name in ("usage: ollmsandbox", *commands, "--version"):
        assert name in done.stdout


def test_help_of_run_names_every_option_and_status(person: Person) -> None:
    done = person.cli("run", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    options = ("project", "working-dir", "network", "timeout", "profile", "apply", "json")
    for part in (
        *(f"--{name}" for name in options),
        "--quiet",
        "-c",
        "124",
        "125",
        "128",
        "examples",
    ):
        assert part in done.stdout


@pytest.mark.parametrize("arguments", [["doctor"], ["--help"], ["run", "--json", "true"]])
def test_a_reader_that_is_gone_is_no_drama(start: Start, arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        process = start(*arguments, stdout=writer)
    finally:
        os.close(writer)
    _out, errors = process.communicate(timeout=60)
    assert errors == b""
    assert process.returncode == 128 + signal.SIGPIPE


def test_help_and_version_change_nothing(person: Person) -> None:
    for arguments in (["--help"], ["--version"], ["run", "--help"], ["playground", "path"]):
        person.cli(*arguments)
    assert os.listdir(person.home) == ["project"]
    shutil.rmtree(person.project)
