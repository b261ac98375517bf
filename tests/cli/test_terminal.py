# SPDX-License-Identifier: GPL-3.0-or-later
"""`run` and `shell` at a terminal, with the programs that users run there."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.person import Person
from support.servers.tmux import Tmux, at_terminal

pytestmark = pytest.mark.ordinary


@pytest.fixture
def tmux(person: Person, tmp_path: Path) -> Iterator[Tmux]:
    (tmp_path / "tmux").mkdir()
    with at_terminal(person, tmp_path / "tmux") as made:
        yield made


def assert_usable(tmux: Tmux) -> None:
    """Assert that the user's terminal echoes what is typed, and acts on Enter and Ctrl+C."""
    tmux.clear()
    tmux.type("echo begun; cat")
    tmux.wait_for("\nbegun")
    tmux.type("typed")
    tmux.wait_for("typed\ntyped")
    tmux.press("C-c")
    tmux.wait_for(lambda screen: screen.endswith("^C\nuser$"))


def test_a_shell_has_job_control(tmux: Tmux) -> None:
    tmux.type("ollmsandbox run -- bash --norc; echo =$?=")
    tmux.wait_for(lambda screen: screen.count("user$") == 2)
    # At its prompt, a shell ignores Ctrl+Z.
    job = "sh -c 'echo begun; exec sleep 1000'"
    tmux.type(job)
    tmux.wait_for(lambda screen: "\nbegun" in screen)
    tmux.press("C-z")
    tmux.wait_for("Stopped")
    tmux.type("fg; echo back")
    tmux.wait_for(lambda screen: screen.split("\n")[-1] == job)
    tmux.press("C-c")
    tmux.wait_for("^C")
    tmux.press("C-z")
    tmux.type("echo again > new; exit 7")
    assert tmux.end() == 7
    assert "added     new" in tmux.screen


def test_the_size_follows_the_window(tmux: Tmux) -> None:
    until = 'until [ "$(stty size)" = "31 101" ]; do sleep 0.1; done; echo larg""er'
    tmux.type(f"ollmsandbox run -c 'stty size; {until}'")
    tmux.wait_for("24 80")
    tmux.resize(101, 31)
    tmux.wait_for("larger")


def test_ctrl_c_ends_a_pipeline(tmux: Tmux) -> None:
    tmux.type("ollmsandbox run -c 'echo begun; sleep 1000 | cat | cat'; echo =$?=")
    tmux.wait_for("\nbegun")
    tmux.press("C-c")
    assert tmux.end() == 128 + signal.SIGINT


def test_ctrl_c_at_the_prompt_of_python_does_not_end_it(tmux: Tmux) -> None:
    tmux.type("ollmsandbox run -- python3 -q; echo =$?=")
    tmux.wait_for(">>>")
    tmux.press("C-c")
    tmux.wait_for("KeyboardInterrupt")
    tmux.type("6 * 7")
    tmux.wait_for("\n42\n")
    tmux.press("C-d")
    assert tmux.end() == 0


def test_a_file_is_edited_in_vim(tmux: Tmux, person: Person) -> None:
    vim = shutil.which("vim") or shutil.which("vim.tiny") or "vi"
    tmux.type(f"ollmsandbox run -- {vim} new; echo =$?=")
    tmux.wait_for("~\n~")
    tmux.press("i", "t", "e", "x", "t", "Escape")
    tmux.type(":wq")
    assert tmux.end() == 0
    assert "added     new" in tmux.screen
    assert "~" not in tmux.screen
    assert (person.project / "new").read_text() == "text\n"
    assert_usable(tmux)


def test_a_pager_fills_the_screen(tmux: Tmux, person: Person) -> None:
    (person.project / "lines").write_text("".join(f"line {n}\n" for n in range(1000)))
    tmux.type("ollmsandbox run -- less lines; echo =$?=")
    tmux.wait_for("line 22")
    tmux.press("G")
    tmux.wait_for("line 999")
    tmux.press("C-z")
    tmux.wait_for("Stopped")
    assert "line 999" not in tmux.screen
    assert_usable(tmux)
    tmux.type("fg; echo =$?=")
    tmux.wait_for("line 999")
    assert tmux.show("alternate_on") == "1"
    tmux.press("g")
    tmux.wait_for("line 0\n")
    tmux.press("q")
    assert tmux.end() == 0
    assert tmux.show("alternate_on") == "0"


@pytest.mark.parametrize("program", ["top", "htop"])
def test_the_processes_of_the_sandbox_are_shown(tmux: Tmux, program: str) -> None:
    tmux.type(f"ollmsandbox run -- {program}; echo =$?=")
    tmux.wait_for(lambda screen: "load average" in screen.lower())
    tmux.press("q")
    assert tmux.end() == 0
    assert_usable(tmux)


def test_a_command_is_suspended_by_ctrl_z_or_another_program(tmux: Tmux) -> None:
    tmux.type("ollmsandbox run -c 'echo begun; cat; echo ended'")
    tmux.wait_for("\nbegun")
    for number in (None, signal.SIGSTOP, signal.SIGTSTP):
        if number is None:
            tmux.press("C-z")
        else:
            os.kill(tmux.job(), number)
        tmux.wait_for("Stopped")
        assert_usable(tmux)
        tmux.type("fg; echo =$?=")
        tmux.type("line")
        tmux.wait_for("line\nline")
    tmux.press("C-d")
    assert tmux.end() == 0
    assert "\nended\n" in tmux.screen


def test_a_job_in_the_background_leaves_the_terminal_alone(tmux: Tmux) -> None:
    # One long sleep: bash goes on after a Ctrl+C if what it waits for has just ended by itself.
    tmux.type("ollmsandbox run -c 'sleep 1000; cat' &")
    assert tmux.run("ollmsandbox run --quiet -- touch other") == 0
    assert_usable(tmux)
    tmux.type("fg; echo =$?=")
    tmux.wait_for("ollmsandbox run")
    tmux.press("C-c")
    assert tmux.end() == 128 + signal.SIGINT


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("-c 'stty raw -echo; kill -9 $$'", 128 + signal.SIGKILL, ""),
        ("--timeout 0.5 -- sleep 1000", 124, "Exceeded the time limit"),
        ("--working-dir nowhere -- true", 125, "nowhere"),
    ],
)
def test_the_terminal_is_usable_however_a_run_ends(
    tmux: Tmux, words: str, status: int, said: str
) -> None:
    assert tmux.run(f"ollmsandbox run {words}") == status
    assert said in tmux.screen
    assert_usable(tmux)


def test_the_terminal_is_restored_after_a_signal(tmux: Tmux) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        tmux.type("ollmsandbox run -- less /etc/passwd; echo =$?=")
        tmux.wait_for("root:")
        os.kill(tmux.job(), number)
        assert tmux.end() == 128 + number
        assert tmux.show("alternate_on") == "0"
        assert_usable(tmux)


def test_there_is_no_time_limit_at_a_terminal(tmux: Tmux, person: Person) -> None:
    person.paths.profiles.mkdir(parents=True)
    (person.paths.profiles / "standard.yaml").write_text("limits: {time: 0.2 s}\n")
    assert tmux.run("ollmsandbox run -- sleep 1") == 0
    assert tmux.run("ollmsandbox run --no-tty -- sleep 1000") == 124


def test_the_time_stands_still_while_a_command_is_suspended(tmux: Tmux) -> None:
    # Longer than a busy machine needs for the rest.
    tmux.type("ollmsandbox run --timeout 10 -c 'echo begun; cat; echo ended'")
    tmux.wait_for("\nbegun")
    tmux.press("C-z")
    tmux.wait_for("Stopped")
    tmux.run("sleep 10")
    tmux.clear()
    tmux.type("fg; echo =$?=")
    # A Ctrl+D that comes before the command has the keys again is no end of its input.
    tmux.type("line")
    tmux.wait_for("line\nline")
    tmux.press("C-d")
    assert tmux.end() == 0
    assert "ended" in tmux.screen


def test_a_sandbox_that_fails(tmux: Tmux) -> None:
    assert tmux.run("ollmsandbox run --working-dir nowhere -- true") == 125
    assert_usable(tmux)


def test_a_pipe_leads_to_the_command_and_from_it(tmux: Tmux, person: Person) -> None:
    tmux.run("echo piped | ollmsandbox run -c 'cat; tty'")
    assert "piped\nnot a tty" in tmux.screen
    tmux.run("ollmsandbox run -c 'tty; test -t 2 || echo no errors' | cat")
    assert "not a tty\nno errors" in tmux.screen
    tmux.run("ollmsandbox run --no-tty -- tty")
    assert "\nnot a tty" in tmux.screen
    tmux.run("ollmsandbox run --quiet -c 'tty; echo wrong >&2' 2> errors")
    assert "/dev/console\n" in tmux.screen
    assert (person.project / "errors").read_text() == "wrong\n"


def test_a_pager_at_the_end_of_a_pipe_gets_the_keys(tmux: Tmux) -> None:
    tmux.type("seq 1000 | ollmsandbox run --tty -- less; echo =$?=")
    tmux.wait_for("22\n23")
    tmux.press("G")
    tmux.wait_for("999\n1000")
    tmux.press("q")
    assert tmux.end() == 0
    assert_usable(tmux)


def test_a_terminal_without_ours(person: Person) -> None:
    done = person.cli("run", "--tty", "-c", "tty; stty size < /dev/tty; cat", input="piped\n")
    assert done.stdout == "not a tty\n24 80\npiped\n"
    assert person.cli("run", "--tty", "-c", "cat; tty", input="").stdout == "not a tty\n"
    assert person.cli("run", "--tty", "--json", "true").returncode == 125


def test_a_shell_says_that_it_is_in_the_sandbox(tmux: Tmux, person: Person) -> None:
    (person.home / ".bashrc").write_text("PS1='my own> '\n")
    tmux.type("ollmsandbox shell; echo =$?=")
    tmux.wait_for("(sandbox) my own>")
    tmux.type("touch new; exit 3")
    assert tmux.end() == 3
    assert "added     new" in tmux.screen


@pytest.mark.parametrize("name", ["zsh", "fish", "dash", "nosuchshell"])
def test_other_shells(tmux: Tmux, name: str) -> None:
    tmux.type(f"SHELL=$(command -v {name} || echo /{name}) ollmsandbox shell; echo =$?=")
    if name == "zsh":
        # Without files of its own it asks for some.
        tmux.wait_for(lambda screen: "(sandbox)" in screen or "zsh-newuser-install" in screen)
        if "zsh-newuser-install" in tmux.screen:
            tmux.type("q")
    tmux.wait_for("(sandbox)")
    tmux.type("exit 3")
    assert tmux.end() == 3


def test_a_shell_reads_commands_from_a_pipe(person: Person) -> None:
    done = person.cli("shell", input="echo out; touch new; exit 4\n")
    assert (done.returncode, done.stdout) == (4, "out\n")
    assert "added     new" in done.stderr
