# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox run`: how the command, its folder and its exit status are chosen."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest
from support.cli import assert_failed
from support.person import Person, Start, cli_argv
from support.timing import PATIENCE, given_time, wait_for

pytestmark = pytest.mark.ordinary

# --- the command ---------------------------------------------------------------------------------


def test_words_after_two_dashes_are_run(person: Person) -> None:
    done = person.cli("run", "--", "printf", "[%s]", "a b", "$HOME", "--json", "--", "")
    assert (done.returncode, done.stdout) == (0, "[a b][$HOME][--json][--][]")
    assert done.stderr == ""


def test_the_two_dashes_may_be_left_out(person: Person) -> None:
    done = person.cli("run", "--network=all", "echo", "-n", "--quiet", "x")
    assert (done.returncode, done.stdout) == (0, "--quiet x")


def test_a_text_is_run_by_the_shell(person: Person) -> None:
    done = person.cli("run", "-c", "echo one | tr o O; exit 3")
    assert (done.returncode, done.stdout) == (3, "One\n")


def test_a_text_may_begin_with_a_dash(person: Person) -> None:
    done = person.cli("run", "-c", "-x; echo ran")
    assert done.stdout == "ran\n"


def test_a_command_of_any_bytes_runs_unchanged(person: Person) -> None:
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
    assert_failed(done, "either -c TEXT or -- COMMAND")
    assert os.listdir(person.project) == []


@pytest.mark.parametrize("arguments", [[], ["--"], ["--network"], ["-c", ""], ["-c", "  "]])
def test_a_missing_command_is_reported(person: Person, arguments: list[str]) -> None:
    assert_failed(person.cli("run", *arguments), "command")


@pytest.mark.parametrize("umask", [0o000, 0o027, 0o077])
def test_modes_follow_the_umask_but_those_of_the_program_s_folders(
    person: Person, umask: int
) -> None:
    done = person.cli("run", "-c", "mkdir folder; : >file", umask=umask)
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE((person.project / "folder").stat().st_mode) == 0o777 & ~umask
    assert stat.S_IMODE((person.project / "file").stat().st_mode) == 0o666 & ~umask
    own = person.paths.data
    made = (own, own.parent, own.parent.parent)
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in made} == {0o700}


def test_the_working_folder_can_be_chosen(person: Person) -> None:
    (person.project / "src").mkdir()
    assert person.cli("run", "--working-dir", "src", "pwd").stdout == f"{person.project}/src\n"
    done = person.cli("run", "--working-dir", "playground", "--", "touch", "made")
    assert done.returncode == 0
    assert (person.playground / "made").exists()


def test_a_missing_working_folder_is_reported(person: Person) -> None:
    done = person.cli("run", "--working-dir", "no/where", "--", "touch", "ran")
    assert done.returncode == 125
    assert done.stderr == "ollmsandbox: no/where does not exist.\n"
    assert os.listdir(person.project) == []
    (person.project / "file").touch()
    done = person.cli("run", "--working-dir", "file", "--", "true")
    assert (done.returncode, done.stderr) == (125, "ollmsandbox: file is not a folder.\n")
    done = person.cli("run", "--working-dir", "/proc/self", "--", "true")
    assert (done.returncode, done.stderr) == (
        125,
        "ollmsandbox: Commands cannot enter /proc/self.\n",
    )


# --- how it ends ---------------------------------------------------------------------------------


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
    assert "-c TEXT" not in done.stderr


def test_shell_text_in_the_place_of_a_program_is_explained(person: Person) -> None:
    done = person.cli("run", "--", "echo one; echo two")
    assert done.returncode == 127
    assert done.stderr.endswith("ollmsandbox: To run shell text, use -c TEXT.\n")


def test_a_time_out_ends_with_124_and_is_reported(person: Person) -> None:
    command = "echo before; sleep 1000"
    done = given_time(
        lambda s: person.cli("run", "--timeout", str(s), "-c", command), lambda done: done.stdout
    )
    assert (done.returncode, done.stdout) == (124, "before\n")
    assert "time limit" in done.stderr


def test_quiet_says_nothing_besides_the_command(person: Person) -> None:
    command = "echo said >&2; sleep 1000"
    done = given_time(
        lambda s: person.cli("run", "--quiet", "--timeout", str(s), "-c", command),
        lambda done: done.stderr,
    )
    assert (done.returncode, done.stdout, done.stderr) == (124, "", "said\n")


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "x", ""])
def test_an_invalid_time_is_refused(person: Person, given: str) -> None:
    done = person.cli("run", f"--timeout={given}", "--", "touch", "ran")
    assert done.returncode == 2
    assert f"{given!r} is not a number of seconds" in done.stderr
    assert os.listdir(person.project) == []


def test_an_unknown_profile_lists_the_choice(person: Person) -> None:
    done = person.cli("run", "--profile", "other", "--", "touch", "ran")
    assert_failed(done, "'other'", "standard, strict")
    assert os.listdir(person.project) == []


def test_a_mistake_in_a_profile_is_reported_and_nothing_runs(person: Person) -> None:
    person.paths.profiles.mkdir(parents=True)
    file = person.paths.profiles / "standard.yaml"
    file.write_text("limits:\n  tiem: 5\n")
    done = person.cli("run", "--", "touch", "ran")
    assert_failed(done, f"{file}, line 2, key limits.tiem", "'time'")
    assert os.listdir(person.project) == []


def test_a_profile_of_the_user_is_used(person: Person) -> None:
    person.paths.profiles.mkdir(parents=True)
    (person.paths.profiles / "mine.yaml").write_text("environment: {set: {FROM: mine}}")
    assert person.cli("run", "--profile", "mine", "-c", "echo $FROM").stdout == "mine\n"
    (person.paths.profiles / "mine.yaml").write_text("environment: {set: {FROM: changed}}")
    assert person.cli("run", "--profile", "mine", "-c", "echo $FROM").stdout == "changed\n"


@pytest.mark.parametrize("base", ["mine", "strict"])
def test_a_change_of_an_extended_profile_counts_at_once(person: Person, base: str) -> None:
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


# --- signals -------------------------------------------------------------------------------------


# In a shared playground, where what a command writes is there at once.
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
    person.share_playground()
    process = start("run", *options, "-c", BEATING)
    wait_for((person.playground / "beat").exists)
    process.send_signal(number)
    assert process.wait(PATIENCE) == 128 + number
    assert stands_still(person.playground / "beat")
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()


def test_ctrl_c_of_a_terminal_ends_the_run_even_if_the_command_ignores_it(
    person: Person, start: Start
) -> None:
    person.share_playground()
    process = start("run", "-c", f"trap '' INT TERM; {BEATING}", start_new_session=True)
    wait_for((person.playground / "beat").exists)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(PATIENCE) == 130
    assert stands_still(person.playground / "beat")


def test_an_interrupted_run_ends_though_its_output_is_not_read(
    person: Person, start: Start
) -> None:
    person.share_playground()
    process = start("run", "-c", "touch ~/playground/beat; yes")
    wait_for((person.playground / "beat").exists)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130


def test_when_the_program_is_killed_the_command_dies_too(person: Person, start: Start) -> None:
    person.share_playground()
    process = start("run", "-c", BEATING)
    wait_for((person.playground / "beat").exists)
    process.kill()
    process.wait(PATIENCE)
    wait_for(lambda: stands_still(person.playground / "beat"))
