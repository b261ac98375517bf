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
from support.bubble import with_profile
from support.person import Person
from support.timing import PATIENCE
from support.tools import Asking

from ollmsandbox import loop
from ollmsandbox.errors import (
    DeniedError,
    ProjectError,
    SandboxError,
    WorkingDirError,
)
from ollmsandbox.sandbox.process import Result, Sinks
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


def test_every_command_is_asked_about_again(person: Person) -> None:
    asked = Asked(True, False, False, True)

    async def run_all() -> list[int]:
        unsandboxed = runner(person, asked)
        codes = []
        for command in ("echo x >>ran", "echo no >>ran", ["touch", "denied"], "echo x >>ran"):
            try:
                codes.append((await unsandboxed.exec(command)).exit_code)
            except DeniedError as error:
                assert "did not run" in str(error)
                codes.append(-1)
        return codes

    assert loop.run(run_all()) == [0, -1, -1, 0]
    assert asked.times == 4
    assert os.listdir(person.project) == ["ran"]
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


def test_what_cannot_run_asks_nothing(person: Person) -> None:
    asked = Asked()
    nothing: tuple[str | list[str], ...] = ("", " \n", [])
    for command in nothing:
        with pytest.raises(SandboxError, match="The command is empty"):
            loop.run(runner(person, Asked(True)).exec(command))
    with pytest.raises(SandboxError, match="NUL"):
        loop.run(runner(person, asked, command="touch ran\0").exec("touch ran\0"))
    with pytest.raises(WorkingDirError) as caught:
        loop.run(runner(person, asked, working_dir="missing").exec("touch ran"))
    assert str(caught.value) == "ERROR: Working directory does not exist: missing"
    for folder in (person.home, Path("/"), person.home / "missing"):
        with pytest.raises(ProjectError):
            runner(person, asked, project=folder)
    assert asked.times == 0
    assert os.listdir(person.project) == []


# --- running -----------------------------------------------------------------------------------


def test_an_allowed_command_runs(person: Person) -> None:
    result = run(person, "echo out; echo err >&2; cat; echo new >made; exit 42")
    assert result.exit_code == 42
    assert (result.stdout.text, result.stderr.text) == ("out\n", "err\n")
    assert (person.project / "made").read_text() == "new\n"


def test_a_signal_that_ends_it_is_added_to_128(person: Person) -> None:
    for number in (2, 9, 13, 15):
        result = run(person, f"kill -{number} $$")
        assert (result.exit_code, result.signal, result.stop) == (128 + number, number, None)


def test_a_command_that_is_no_program_ends_with_127_or_126(person: Person) -> None:
    for command in ("no-such-command-here", ["no-such-command-here"]):
        result = run(person, command)
        assert result.exit_code == 127
        assert "no-such-command-here" in result.stderr.text
    (person.project / "text").write_text("hello")
    for command in ("./text", ["./text"]):
        assert run(person, command).exit_code == 126


def test_words_are_not_read_by_a_shell(person: Person) -> None:
    words = ["printf", "[%s]", "$(touch ran)", "a  b", "", "*", "ü"]
    assert run(person, words).stdout.text == "".join(f"[{word}]" for word in words[2:])


def test_the_environment_has_any_bytes_and_no_secrets(person: Person) -> None:
    odd = os.fsdecode(b"\xff\n=x")
    person.environ |= {"GITHUB_TOKEN": "s3cret", "PLAIN": "a b", "ODD": odd}
    result = run(person, 'env; echo "[$PLAIN]"; printf %s "$ODD" >made')
    assert "s3cret" not in result.stdout.text
    assert "[a b]" in result.stdout.text
    assert f"HOME={person.home}\n" in result.stdout.text
    assert (person.project / "made").read_bytes() == os.fsencode(odd)


def test_a_project_may_have_any_name(person: Person) -> None:
    odd = ["we,ird:na\\me \"q\" 'ü'", os.fsdecode(b"\xff"), "-x", "$(x)", "end\n"]
    project = person.home.joinpath(*odd)
    project.mkdir(parents=True)
    assert run(person, "touch made", project=project).exit_code == 0
    assert os.listdir(project) == ["made"]


# --- where -------------------------------------------------------------------------------------


def test_it_starts_in_the_project_or_in_the_given_folder(person: Person, tmp_path: Path) -> None:
    (person.project / "src").mkdir()
    (person.playground / "sub").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    for given, expected in (
        (None, person.project),
        ("src", person.project / "src"),
        ("/usr", "/usr"),
        # The real playground, and the real /tmp.
        ("playground", person.playground),
        (f"{person.home}/playground/sub", person.playground / "sub"),
        (f"{tmp_path}/elsewhere", tmp_path / "elsewhere"),
    ):
        assert run(person, "pwd", working_dir=given).stdout.text == f"{expected}\n"


# --- the end: see also escape/test_06_end_a_run.py and test_06_outlive_the_run.py ---------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_the_keys_of_a_terminal_end_the_whole_tree(person: Person, number: int) -> None:
    """They reach who watches over the command, who must not go without it."""
    started: list[int] = []

    def press(_data: bytes) -> None:
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


def test_the_time_limit_of_the_profile_counts(person: Person) -> None:
    with_profile(person, "limits: {time: 0.5 s}")
    result = run(person, "yes", profile="mine", timeout=None, capture=100)
    assert result.timed_out
