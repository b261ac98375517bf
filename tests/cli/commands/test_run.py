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
    # It may begin with a dash.
    done = person.cli("run", "-c", "-x; echo one | tr o O")
    assert (done.returncode, done.stdout) == (0, "One\n")


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


def test_a_working_folder_that_cannot_be_one_is_reported(person: Person) -> None:
    (person.project / "file").touch()
    done = person.cli("run", "--working-dir", "file", "--", "true")
    assert (done.returncode, done.stderr) == (125, "ollmsandbox: file is not a folder.\n")
    done = person.cli("run", "--working-dir", "/proc/self", "--", "true")
    assert done.returncode == 125
    assert done.stderr == "ollmsandbox: Commands cannot enter /proc/self.\n"


# --- how it ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 0", 0), ("exit 255", 255), ("kill -2 $$", 130), ("kill -9 $$", 137)],
)
def test_the_status_is_the_command_s(person: Person, command: str, code: int) -> None:
    done = person.cli("run", "-c", command)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_a_command_that_is_not_there_ends_with_127(person: Person) -> None:
    done = person.cli("run", "--", "no-such-command-here")
    assert done.returncode == 127
    assert "not found" in done.stderr
    assert "-c TEXT" not in done.stderr
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


def test_a_mistake_in_a_profile_is_reported_and_nothing_runs(person: Person) -> None:
    person.paths.profiles.mkdir(parents=True)
    file = person.paths.profiles / "standard.yaml"
    file.write_text("limits:\n  tiem: 5\n")
    done = person.cli("run", "--", "touch", "ran")
    assert_failed(done, f"{file}, line 2, key limits.tiem", "'time'")
    assert os.listdir(person.project) == []


def test_a_change_of_a_profile_counts_at_once(person: Person) -> None:
    (person.home / "letters").write_text("secret ")
    person.paths.profiles.mkdir(parents=True)
    for name, text, shown in (
        ("mine", "extends: strict\nenvironment: {set: {FROM: me}}", "secret me\n"),
        ("mine", "extends: strict\nenvironment: {set: {FROM: you}}", "secret you\n"),
        # Which the strict one extends.
        ("standard", "masks: [~/letters]", "you\n"),
    ):
        (person.paths.profiles / f"{name}.yaml").write_text(text)
        done = person.cli("run", "--profile", "mine", "-c", "cat ~/letters; echo $FROM")
        assert done.stdout == shown


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
