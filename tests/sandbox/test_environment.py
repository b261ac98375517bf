# SPDX-License-Identifier: GPL-3.0-or-later
"""A command's environment and limits in a real sandbox, as its profile sets them."""

from __future__ import annotations

import os
import subprocess

import pytest
from support.bubble import by, each_overlay, each_way, with_profile
from support.person import Person

from ollmsandbox import loop
from ollmsandbox.engine.run import prepare_run
from ollmsandbox.sandbox.bubble import Bubble
from ollmsandbox.sandbox.plan.mounts import OverlayMethod
from ollmsandbox.sandbox.process import Stop
from ollmsandbox.sandbox.spec import RunSpec


def test_the_environment_is_inherited_without_secrets(person: Person) -> None:
    person.environ |= {"PLAIN": "a b\nc", "GITHUB_TOKEN": "s3cret", "Db_Password": "s3cret"}
    result = person.run('printf "%s" "$PLAIN"; env; cat /proc/1/environ /proc/self/environ')
    assert result.stdout.text.startswith("a b\nc")
    assert "s3cret" not in result.stdout.text
    assert f"HOME={person.home}\n" in result.stdout.text
    assert f"PWD={person.project}\n" in result.stdout.text


def test_the_environment_of_the_program_itself_is_not_inherited(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_THE_PROGRAM", "x")
    assert person.run('echo "[$FROM_THE_PROGRAM]"').stdout.text == "[]\n"


def test_variables_of_a_profile_are_set_and_dropped(person: Person) -> None:
    person.environ |= {"MINE": "x", "KEPT_TOKEN": "kept", "EDITOR": "vi"}
    with_profile(
        person, "environment: {drop: [MINE], keep: [KEPT_TOKEN], set: {EDITOR: 'cat \"x\"'}}"
    )
    result = person.run('echo "[$MINE][$KEPT_TOKEN][$EDITOR]"', profile="mine")
    assert result.stdout.text == '[][kept][cat "x"]\n'


def test_git_status_changes_nothing(person: Person) -> None:
    file = person.project / "a"
    file.write_text("1")

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=person.project, env=person.environ, check=True)

    git("init", "-q")
    git("add", "a")
    # The index has the time of the file, so git wants to refresh it.
    os.utime(file, (1_000_000, 1_000_000))
    assert changed_by(person, "git status --short") == []
    # The user's own value counts.
    with_profile(person, "environment: {set: {GIT_OPTIONAL_LOCKS: '1'}}")
    assert changed_by(person, "git status --short", profile="mine") == [".git/index"]


def changed_by(person: Person, command: str, profile: str = "standard") -> list[str]:
    run = prepare_run(
        RunSpec(str(person.project), command=command, profile=profile), person.paths, person.environ
    )
    assert loop.run(run.execute(command)).exit_code == 0
    return [item.change.path for item in run.report.changes] if run.report else []


def test_a_changed_profile_counts_from_the_next_run_on(person: Person) -> None:
    (person.home / "letters").write_text("secret")
    assert person.run("cat ~/letters").stdout.text == "secret"
    with_profile(person, "masks: [~/letters]", "standard")
    assert person.run("cat ~/letters").stdout.text == ""
    with_profile(person, "masks: [~/others]", "standard")
    assert person.run("cat ~/letters").stdout.text == "secret"


def test_without_a_profile_the_user_s_standard_is_used(person: Person) -> None:
    with_profile(person, "environment: {set: {FROM: mine}}", "standard")
    bubble = Bubble(person.project, environ=person.environ)
    assert loop.run(bubble.exec("echo $FROM")).stdout.text == "mine\n"


def test_an_unmasked_path_is_seen(person: Person) -> None:
    (person.home / ".npmrc").write_text("seen")
    assert person.run("cat ~/.npmrc").stdout.text == ""
    with_profile(person, "show: [~/.npmrc]")
    assert person.run("cat ~/.npmrc", profile="mine").stdout.text == "seen"


def test_the_time_limit_of_a_profile_counts(person: Person) -> None:
    with_profile(person, "limits: {time: 0.5 s}")
    assert person.run("sleep 60", profile="mine", timeout=None).timed_out


def test_the_limit_of_processes_counts(person: Person) -> None:
    with_profile(person, "limits: {processes: 20}")
    # Not bash, which tries to start a process for 15 seconds.
    command = ["sh", "-c", "for i in $(seq 40); do sleep 50 & done; sleep 50; echo all"]
    result = person.run(command, profile="mine")
    assert result.exit_code != 0
    assert "all" not in result.stdout.text


def test_the_limit_of_the_disk_counts(person: Person) -> None:
    with_profile(person, "limits: {disk: 8 MiB}")
    result = person.run("head -c 200M /dev/zero >big; sync; sleep 50; echo all", profile="mine")
    assert result.stop is Stop.DISK
    assert result.exit_code == 137
    assert "all" not in result.stdout.text


def test_the_limit_of_memory_counts(person: Person) -> None:
    with_profile(person, "limits: {memory: 100 MiB}")
    program = "import time; x = b'x' * (300 << 20); time.sleep(50); print('all')"
    result = person.run(["/usr/bin/python3", "-c", program], profile="mine")
    assert result.exit_code == 137
    assert "all" not in result.stdout.text


def test_the_limit_of_tmp_counts(person: Person) -> None:
    with_profile(person, "limits: {tmp: 1 MiB}")
    result = person.run("head -c 4M /dev/zero >/tmp/big", profile="mine")
    assert "No space left" in result.stderr.text


def test_no_limit_is_no_limit(person: Person) -> None:
    limits = "{time: none, processes: none, disk: none, free: none, memory: none, tmp: none}"
    with_profile(person, f"limits: {limits}")
    assert person.run("echo ran", profile="mine", timeout=None).stdout.text == "ran\n"


@each_way
def test_a_strict_command_runs(person: Person, way: OverlayMethod) -> None:
    command = "cd ~/playground && echo ran >made; cat made"
    result = person.run(command, profile="strict", capabilities=by(person, way))
    assert (result.exit_code, result.stdout.text) == (0, "ran\n")


@each_overlay
def test_a_strict_command_writes_to_the_project(person: Person, way: OverlayMethod) -> None:
    result = person.run("echo ran >made; cat made", profile="strict", capabilities=by(person, way))
    assert (result.exit_code, result.stdout.text) == (0, "ran\n")
    assert (person.project / "made").read_text() == "ran\n"
