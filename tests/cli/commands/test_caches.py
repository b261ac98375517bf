# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox caches`: the size of what commands have written, and clearing it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.person import Person
from support.timing import wait_for

from ollmsandbox.engine.run import finish_interrupted_runs
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.project.settings import KEEP_CACHES_MIB


def write(person: Person, project: Path, size: str = "3M") -> None:
    project.mkdir(exist_ok=True)
    command = f"head -c {size} /dev/urandom >~/.npm/big; echo >~/.m2/small"
    done = person.cli("run", "--project", str(project), "-c", command)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.ordinary
def test_the_size_is_printed_for_each_project(person: Person) -> None:
    (person.home / ".npm").mkdir()
    assert person.cli("caches", "size").stdout == "0 bytes in 0 files: total\n"
    other = person.home / "other"
    write(person, person.project)
    write(person, other, size="1M")
    sizes = person.cli("caches", "size").stdout.splitlines()
    assert len(sizes) == 3
    assert re.fullmatch(rf"1\.\d MiB in 2 files: {re.escape(str(other))}", sizes[0])
    assert re.fullmatch(rf"3\.\d MiB in 2 files: {re.escape(str(person.project))}", sizes[1])
    assert re.fullmatch(r"4\.\d MiB in 4 files: total", sizes[2])
    one = person.cli("caches", "size", "--project", str(other)).stdout.splitlines()
    assert one[0] == sizes[0]
    assert one[1].startswith("1.")


@pytest.mark.ordinary
def test_a_project_without_caches_is_an_error(person: Person) -> None:
    for action in ("size", "clear"):
        done = person.cli("caches", action, "--project", str(person.home / "nowhere"))
        assert done.returncode == 125
        assert f"{person.home}/nowhere" in done.stderr


def test_clearing_removes_what_commands_wrote_and_nothing_else(person: Person) -> None:
    (person.home / ".npm").mkdir()
    (person.home / ".npm/mine").write_text("kept")
    other = person.home / "other"
    write(person, person.project)
    write(person, other)
    assert person.cli("caches", "clear", "--project", str(other)).returncode == 0
    assert str(other) not in person.cli("caches", "size").stdout
    assert person.run("ls ~/.npm").stdout.text == "big\nmine\n"
    assert person.cli("caches", "clear").returncode == 0
    assert person.run("ls ~/.npm ~/.m2/").stdout.text.split() == [
        f"{person.home}/.m2/:", f"{person.home}/.npm:", "mine"]  # fmt: skip
    assert (person.home / ".npm/mine").read_text() == "kept"


@pytest.mark.ordinary
def test_what_a_running_command_uses_is_not_cleared(person: Person) -> None:
    (person.home / ".npm").mkdir()
    write(person, person.project)
    person.share_playground()
    wait = "touch ~/playground/ready; until [ -e ~/playground/go ]; do sleep 0.02; done; ls ~/.npm"
    started = person.start("run", "-c", wait)
    wait_for((person.playground / "ready").exists)
    done = person.cli("caches", "clear")
    assert done.returncode == 1
    assert f"A command is running in {person.project}" in done.stderr
    (person.playground / "go").touch()
    assert started.wait() == 0
    assert person.run("ls ~/.npm").stdout.text == "big\n"
    assert person.cli("caches", "clear").returncode == 0


@pytest.mark.ordinary
def test_the_daily_removal_includes_caches(person: Person, manager: ProjectManager) -> None:
    # Else the first command would do what is done once a day.
    person.has_database = False
    (person.home / ".npm").mkdir()
    write(person, person.project)
    KEEP_CACHES_MIB.write(manager, "1")
    assert finish_interrupted_runs(person.paths, clean_up=True, always=True) is not None
    assert person.cli("caches", "size").stdout == "0 bytes in 0 files: total\n"
