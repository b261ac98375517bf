# SPDX-License-Identifier: GPL-3.0-or-later
"""A command's environment and limits in a real sandbox, as its profile sets them. Variables with
secrets: escape/secrets/test_02_environment.py."""

from __future__ import annotations

import os
import subprocess

import pytest
from support.bubble import by, each_way, with_profile
from support.person import Person

from ollmsandbox import loop
from ollmsandbox.engine.run import prepare_run
from ollmsandbox.sandbox.bubble import Bubble
from ollmsandbox.sandbox.plan.mounts import OverlayMethod
from ollmsandbox.sandbox.spec import RunSpec


@pytest.mark.ordinary
def test_variables_of_a_profile_are_set_and_dropped(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    person.environ |= {"MINE": "x", "KEPT_TOKEN": "kept", "EDITOR": "vi"}
    # Not those of the program itself.
    monkeypatch.setenv("FROM_THE_PROGRAM", "x")
    with_profile(
        person, "environment: {drop: [MINE], keep: [KEPT_TOKEN], set: {EDITOR: 'cat \"x\"'}}"
    )
    command = 'echo "[$MINE][$FROM_THE_PROGRAM][$KEPT_TOKEN][$EDITOR]"'
    result = person.run(command, profile="mine")
    assert result.stdout.text == '[][][kept][cat "x"]\n'


@pytest.mark.ordinary
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
    assert loop.run(run.exec(command)).exit_code == 0
    return [item.change.path for item in run.report.changes] if run.report else []


@pytest.mark.ordinary
def test_a_changed_profile_counts_from_the_next_run_on(person: Person) -> None:
    for name in ("letters", ".npmrc"):
        (person.home / name).write_text("seen")
    assert person.run("cat ~/letters ~/.npmrc").stdout.text == "seen"
    with_profile(person, "masks: [~/letters]", "standard")
    assert person.run("cat ~/letters ~/.npmrc").stdout.text == ""
    with_profile(person, "masks: [~/others]\nshow: [~/.npmrc]", "standard")
    assert person.run("cat ~/letters ~/.npmrc").stdout.text == "seenseen"


@pytest.mark.ordinary
def test_without_a_profile_the_user_s_standard_is_used(person: Person) -> None:
    with_profile(person, "environment: {set: {FROM: mine}}", "standard")
    bubble = Bubble(RunSpec(str(person.project)), environ=person.environ)
    assert loop.run(bubble.exec("echo $FROM")).stdout.text == "mine\n"


@pytest.mark.ordinary
def test_the_time_limit_of_a_profile_counts(person: Person) -> None:
    """The others: escape/test_07_exhaust_resources.py."""
    with_profile(person, "limits: {time: 0.5 s}")
    assert person.run("sleep 60", profile="mine", timeout=None).timed_out
    limits = "{time: none, processes: none, disk: none, free: none, memory: none, tmp: none}"
    with_profile(person, f"limits: {limits}")
    assert person.run("echo ran", profile="mine", timeout=None).stdout.text == "ran\n"


@each_way
def test_a_strict_command_writes_to_the_project(person: Person, way: OverlayMethod) -> None:
    command = "echo ran >~/playground/made; echo ran >made; cat ~/playground/made"
    result = person.run(command, profile="strict", capabilities=by(person, way))
    assert (result.exit_code, result.stdout.text) == (0, "ran\n")
    assert (person.project / "made").exists() == (way is not OverlayMethod.NONE)
