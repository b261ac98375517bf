# SPDX-License-Identifier: GPL-3.0-or-later
"""Without a sandbox, every command asks first, every time."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.person import Person
from support.timing import PATIENCE, given_time
from support.tools import Asking

from ollmsandbox import loop
from ollmsandbox.errors import (
    DeniedError,
    OllmSandboxError,
    ProjectError,
    SandboxError,
    WorkingDirError,
)
from ollmsandbox.sandbox.process import Result, Sinks, Stop
from ollmsandbox.sandbox.profile.file import read_profile
from ollmsandbox.sandbox.spec import RunSpec
from ollmsandbox.sandbox.unsandboxed.runner import UnsandboxedRunner

pytestmark = pytest.mark.ordinary


class Asked:
    """A user who is asked, and how often they were."""

    def __init__(self, *answers: bool) -> None:
        self._answers = list(answers)
        self.times = 0

    async def __call__(self) -> bool:
        await asyncio.sleep(0)
        self.times += 1
        return self._answers.pop(0)


def runner(person: Person, asked: Callable[[], Awaitable[bool]], **options: Any) -> Asking:
    profile = read_profile(options.pop("profile", "standard"), person.paths.profiles)
    project = str(options.pop("project", person.project))
    spec = RunSpec(project, **{"timeout": PATIENCE, **options})
    return Asking(UnsandboxedRunner(spec, profile=profile, environ=person.environ), asked)


def run(person: Person, command: str | Sequence[str], **options: Any) -> Result:
    return loop.run(runner(person, Asked(True), **options).exec(command))


# --- asking ------------------------------------------------------------------------------------


def test_a_denied_command_does_not_run(person: Person) -> None:
    for command in ("touch ran", ["touch", "ran"]):
        with pytest.raises(DeniedError, match="did not run"):
            loop.run(runner(person, Asked(False)).exec(command))
    assert os.listdir(person.project) == []


def test_every_command_is_asked_about_again(person: Person) -> None:
    asked = Asked(True, False, True)

    async def thrice() -> list[int]:
        unsandboxed = runner(person, asked)
        codes = []
        for _ in range(3):
            try:
                codes.append((await unsandboxed.exec("echo x >>ran")).exit_code)
            except DeniedError:
                codes.append(-1)
        return codes

    assert loop.run(thrice()) == [0, -1, 0]
    assert asked.times == 3
    assert (person.project / "ran").read_text() == "x\nx\n"


def test_a_user_who_cannot_be_asked_has_not_agreed(person: Person) -> None:
    async def gone() -> bool:
        raise ConnectionError("nobody there")

    with pytest.raises(ConnectionError):
        loop.run(runner(person, gone).exec("touch ran"))
    assert os.listdir(person.project) == []


def test_an_answer_is_for_one_command_and_for_what_was_prepared(person: Person) -> None:
    unsandboxed = runner(person, Asked()).runner

    async def run_twice() -> None:
        unsandboxed.approve()
        with pytest.raises(DeniedError):
            await unsandboxed.exec("touch ran")
        await unsandboxed.prepare()
        unsandboxed.approve()
        await unsandboxed.exec("touch first")
        with pytest.raises(DeniedError):
            await unsandboxed.exec("touch ran")

    loop.run(run_twice())
    assert os.listdir(person.project) == ["first"]


def test_a_withdrawn_question_runs_nothing(person: Person) -> None:
    asked = asyncio.Event()

    async def never() -> bool:
        asked.set()
        await asyncio.sleep(1000)
        return True

    async def cancelled() -> None:
        task = asyncio.ensure_future(runner(person, never).exec("touch ran"))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.run(cancelled())
    assert os.listdir(person.project) == []


@pytest.mark.parametrize("command", ["", " \n", []], ids=repr)
def test_an_empty_command_is_an_error(person: Person, command: str | list[str]) -> None:
    with pytest.raises(SandboxError, match="The command is empty"):
        run(person, command)


def test_a_command_that_cannot_run_asks_nothing(person: Person) -> None:
    asked = Asked()
    with pytest.raises(SandboxError, match="NUL"):
        loop.run(runner(person, asked, command="touch ran\0").exec("touch ran\0"))
    assert asked.times == 0


def test_a_missing_folder_asks_nothing(person: Person) -> None:
    asked = Asked()
    with pytest.raises(WorkingDirError) as caught:
        loop.run(runner(person, asked, working_dir="missing").exec("touch ran"))
    assert str(caught.value) == "ERROR: Working directory does not exist: missing"
    assert asked.times == 0


def test_an_invalid_project_is_refused_without_a_sandbox_too(person: Person) -> None:
    for folder in (person.home, Path("/"), person.home / "missing"):
        with pytest.raises(ProjectError):
            runner(person, Asked(), project=folder)


# --- running -----------------------------------------------------------------------------------


def test_an_allowed_command_runs(person: Person) -> None:
    result = run(person, "echo out; echo err >&2; echo new >made")
    assert result.exit_code == 0
    assert (result.stdout.text, result.stderr.text) == ("out\n", "err\n")
    assert (person.project / "made").read_text() == "new\n"


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_the_exit_code_is_the_commands(person: Person, code: int) -> None:
    assert run(person, f"exit {code}").exit_code == code


@pytest.mark.parametrize("number", [2, 9, 13, 15], ids=signal.strsignal)
def test_a_signal_that_ends_it_is_added_to_128(person: Person, number: int) -> None:
    result = run(person, f"kill -{number} $$")
    assert (result.exit_code, result.signal, result.stop) == (128 + number, number, None)


def test_a_command_that_is_not_there_ends_with_127(person: Person) -> None:
    for command in ("no-such-command-here", ["no-such-command-here"]):
        result = run(person, command)
        assert result.exit_code == 127
        assert "no-such-command-here" in result.stderr.text


def test_a_file_that_is_no_program_ends_with_126(person: Person) -> None:
    (person.project / "text").write_text("hello")
    for command in ("./text", ["./text"]):
        assert run(person, command).exit_code == 126


def test_a_command_with_a_nul_is_an_error(person: Person) -> None:
    for command in ("touch ran\0", ["touch", "ran", "\0"]):
        with pytest.raises(OllmSandboxError):
            run(person, command)
    assert os.listdir(person.project) == []


def test_words_are_not_read_by_a_shell(person: Person) -> None:
    words = ["printf", "[%s]", "$(touch ran)", "a  b", "", "*", "ü"]
    assert run(person, words).stdout.text == "".join(f"[{word}]" for word in words[2:])


def test_a_command_reads_nothing(person: Person) -> None:
    assert run(person, "cat; echo done").stdout.text == "done\n"


def test_secrets_of_the_environment_are_dropped_here_too(person: Person) -> None:
    person.environ |= {"GITHUB_TOKEN": "s3cret", "PLAIN": "a b"}
    result = run(person, 'env; echo "[$PLAIN]"')
    assert "s3cret" not in result.stdout.text
    assert "[a b]" in result.stdout.text
    assert f"HOME={person.home}\n" in result.stdout.text


def test_the_environment_may_hold_any_bytes(person: Person) -> None:
    person.environ["ODD"] = os.fsdecode(b"\xff\n=x")
    assert run(person, 'printf %s "$ODD" >made').exit_code == 0
    assert (person.project / "made").read_bytes() == b"\xff\n=x"


@pytest.mark.parametrize(
    "name", ["we,ird:na\\me \"q\" 'ü'", "end\n", os.fsdecode(b"\xff"), "-x", "$(x)"], ids=ascii
)
def test_a_project_may_have_any_name(person: Person, name: str) -> None:
    project = person.home / name
    project.mkdir()
    assert run(person, "touch made", project=project).exit_code == 0
    assert os.listdir(project) == ["made"]


# --- where -------------------------------------------------------------------------------------


def test_it_starts_in_the_project_or_in_the_given_folder(person: Person) -> None:
    (person.project / "src").mkdir()
    assert run(person, "pwd").stdout.text == f"{person.project}\n"
    assert run(person, "pwd", working_dir="src").stdout.text == f"{person.project}/src\n"
    assert run(person, "pwd", working_dir="/usr").stdout.text == "/usr\n"


def test_it_starts_in_the_playground(person: Person) -> None:
    result = run(person, "pwd; touch made", working_dir="playground")
    assert result.stdout.text == f"{person.playground}\n"
    assert os.listdir(person.playground) == ["made"]


def test_it_starts_in_a_folder_of_the_real_playground(person: Person) -> None:
    (person.playground / "sub").mkdir(parents=True)
    result = run(person, "pwd", working_dir=f"{person.home}/playground/sub")
    assert result.stdout.text == f"{person.playground}/sub\n"


def test_without_a_sandbox_the_folders_in_tmp_are_there(
    person: Person, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert run(person, "pwd", working_dir=str(elsewhere)).stdout.text == f"{elsewhere}\n"


# --- the end -----------------------------------------------------------------------------------


def test_a_time_out_keeps_the_output_so_far(person: Person) -> None:
    command = "echo before; echo wrong >&2; sleep 60"
    result = given_time(lambda s: run(person, command, timeout=s), lambda r: r.stderr.text)
    assert (result.exit_code, result.stop) == (124, Stop.TIME)
    assert (result.stdout.text, result.stderr.text) == ("before\n", "wrong\n")


def test_a_time_out_ends_what_ignores_signals_and_hides(person: Person) -> None:
    command = "trap '' TERM INT HUP; setsid sh -c 'while :; do date +%N >beat; done' & sleep 60"
    beat = person.project / "beat"
    result = given_time(lambda s: run(person, command, timeout=s), lambda _: beat.exists())
    assert result.timed_out
    last = beat.read_text()
    time.sleep(0.2)
    assert beat.read_text() == last


def test_background_processes_end_with_the_command(person: Person) -> None:
    waiting = "until test -s beat; do sleep 0.02; done"
    result = run(person, f"setsid sh -c 'while :; do date +%N >beat; done' & {waiting}; echo done")
    assert (result.exit_code, result.stdout.text) == (0, "done\n")
    beat = person.project / "beat"
    last = beat.read_text()
    time.sleep(0.2)
    assert beat.read_text() == last


def test_a_command_can_be_stopped(person: Person) -> None:
    unsandboxed = runner(person, Asked(True))

    async def stop_at_the_first_word(_data: bytes) -> None:
        unsandboxed.stop()

    command = "echo begun; sleep 60"
    result = loop.run(unsandboxed.exec(command, sinks=Sinks(stdout=stop_at_the_first_word)))
    assert (result.exit_code, result.stop) == (137, Stop.PERSON)
    assert result.stdout.text == "begun\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_the_keys_of_a_terminal_end_the_whole_tree(person: Person, number: int) -> None:
    """They reach who watches over the command, who must not go without it."""
    started: list[int] = []

    async def press(_data: bytes) -> None:
        os.kill(started[0], number)

    waiting = "until test -s beat; do sleep 0.02; done"
    command = f"setsid sh -c 'while :; do date +%N >beat; done' & {waiting}; echo begun; sleep 60"
    unsandboxed = runner(person, Asked(True))
    result = loop.run(unsandboxed.exec(command, sinks=Sinks(stdout=press, started=started.append)))
    assert (result.exit_code, result.stderr.text) == (137, "")
    beat = person.project / "beat"
    last = beat.read_text()
    time.sleep(0.2)
    assert beat.read_text() == last


def test_output_is_bounded(person: Person) -> None:
    result = run(person, "seq 1000000", capture=100)
    assert result.truncated
    assert result.stdout.total == 6888896
    assert result.stdout.text.startswith("1\n2\n3\n")
    assert result.stdout.text.endswith("\n999999\n1000000\n")
    assert len(result.stdout.text) < 300


def test_endless_output_is_ended_in_time(person: Person) -> None:
    result = run(person, "yes", timeout=0.5, capture=100)
    assert result.timed_out


def test_the_time_limit_of_the_profile_counts(person: Person) -> None:
    person.paths.profiles.mkdir(parents=True)
    (person.paths.profiles / "mine.yaml").write_text("limits: {time: 0.5 s}")
    assert run(person, "sleep 60", profile="mine", timeout=None).timed_out
