# SPDX-License-Identifier: GPL-3.0-or-later
"""The Alpine root file system in the command line and in a model's tools."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.bubble import with_profile
from support.person import Person
from support.rootfs import VERSION, Mirror, install, mirror, system
from support.servers.tmux import at_terminal
from support.timing import PATIENCE
from support.tools import Agent

from ollmsandbox import loop
from ollmsandbox.engine.system import System, set_system, system_of
from ollmsandbox.permission.request import Answer
from ollmsandbox.sandbox.rootfs.paths import PathRewriter
from ollmsandbox.sandbox.rootfs.settings import RootfsSettings, save_rootfs_settings
from ollmsandbox.sandbox.rootfs.store import Installed, find_rootfs, get_rootfs_dir
from ollmsandbox.tools.base import Stream
from ollmsandbox.tools.run_command import RunCommand

pytestmark = pytest.mark.ordinary


@pytest.fixture
def served() -> Iterator[Mirror]:
    with mirror() as running:
        running.has(VERSION, system())
        yield running


@pytest.fixture
def agent(person: Person, alpine: Installed) -> Agent:
    install(person, alpine)
    set_system(person.paths, str(person.project), System.ALPINE)
    return Agent(person)


# --- the command line --------------------------------------------------------------------------


def test_a_terminal_in_the_alpine_system(person: Person, alpine: Installed, tmp_path: Path) -> None:
    install(person, alpine)
    (tmp_path / "tmux").mkdir()
    with at_terminal(person, tmp_path / "tmux") as tmux:
        tmux.type("ollmsandbox run --rootfs -c 'pwd; echo [$TERM]; tty; cat'; echo =$?=")
        # What is printed line by line has the paths of this computer.
        tmux.wait_for(lambda screen: str(person.project) in screen.replace("\n", ""))
        tmux.wait_for("\n/dev/console")
        assert "[]" not in tmux.screen
        tmux.press("C-c")
        assert tmux.end() == 130
        tmux.type("ollmsandbox shell --rootfs; echo =$?=")
        tmux.wait_for("(sandbox)")
        tmux.type("stty raw; echo in $PWD; exit 3")
        assert tmux.end() == 3
        assert "in /workspace" in tmux.screen


def test_install_use_run_status_and_remove(person: Person, served: Mirror) -> None:
    assert "not installed" in person.cli("rootfs", "status").stdout
    refused = person.cli("run", "--rootfs", "--", "true")
    assert refused.returncode == 125
    assert "ollmsandbox rootfs install" in refused.stderr
    assert person.cli("settings", "rootfs-mirror", served.address).returncode == 0

    done = person.cli("rootfs", "install", "--tier", "0")
    assert done.stdout == f"Alpine {VERSION} is installed.\n", done.stderr
    assert "Downloading." in done.stderr
    assert "is already installed" in person.cli("rootfs", "install", "--tier", "0").stdout

    assert person.cli("rootfs", "use", "alpine").returncode == 0
    done = person.cli("run", "-c", "cat /etc/alpine-release; pwd; echo x >new")
    assert done.stdout == f"{VERSION}\n/workspace\n"
    assert "added     new" in done.stderr
    assert (person.project / "new").exists()
    assert person.cli("undo").returncode == 0
    assert not (person.project / "new").exists()
    assert person.cli("run", "--no-rootfs", "--", "pwd").stdout == f"{person.project}\n"

    told = json.loads(person.cli("rootfs", "status", "--json").stdout)
    assert (told["installed"], told["tier"], told["system"]) == (VERSION, 0, "alpine")
    assert told["size"] > 1 << 20
    assert "Alpine" in person.cli("doctor").stdout

    assert person.cli("rootfs", "remove").returncode == 0
    assert find_rootfs(person.paths, person.environ) is None
    assert str(person.paths.rootfs) in person.cli("rootfs", "status").stdout
    assert person.cli("rootfs", "use", "host").returncode == 0
    assert find_rootfs(person.paths, person.environ) is None
    assert person.cli("run", "--", "true").returncode == 0


def test_the_first_command_installs_alpine_if_the_project_uses_it(
    person: Person, served: Mirror
) -> None:
    served.has_packages(VERSION)
    assert person.cli("settings", "rootfs-mirror", served.address).returncode == 0
    used = person.cli("rootfs", "use", "alpine")
    assert used.stdout.endswith("run in Alpine, which the next command installs.\n")
    assert person.cli("run", "--no-rootfs", "--", "true").returncode == 0
    assert find_rootfs(person.paths, person.environ) is None
    done = person.cli("run", "--", "cat", "/etc/alpine-release")
    assert done.stdout == f"{VERSION}\n", done.stderr
    assert "Downloading.\n" in done.stderr
    found = find_rootfs(person.paths, person.environ)
    # Tier 1 is the default.
    assert found is not None
    assert found.tier == 1
    assert get_rootfs_dir(person.paths, person.environ) == Path(found.folder)
    again = person.cli("run", "--", "true")
    assert (again.returncode, again.stderr) == (0, "")


def test_an_installation_for_the_first_command_can_be_stopped(
    person: Person, served: Mirror
) -> None:
    asked, answers = threading.Event(), threading.Event()

    def stall(path: str) -> None:
        if path.endswith(".tar.gz"):
            asked.set()
            answers.wait(PATIENCE)

    served.when = stall
    assert person.cli("settings", "rootfs-mirror", served.address).returncode == 0
    assert person.cli("settings", "rootfs-tier", "0").returncode == 0
    assert person.cli("rootfs", "use", "alpine").returncode == 0
    agent = Agent(person)

    async def stop() -> None:
        request = RunCommand(agent.tool_context).read({"command": "echo x >new"})
        running = asyncio.ensure_future(request.execute(agent.looking))
        await asyncio.to_thread(asked.wait, PATIENCE)
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()

    loop.run(stop())
    assert b"Alpine: Downloading" in agent.looking.printed[Stream.STDERR]
    answers.set()
    assert find_rootfs(person.paths, person.environ) is None
    assert list((person.paths.rootfs).glob(".new-*")) == []
    assert not (person.project / "new").exists()
    assert agent.run("cat /etc/alpine-release").text == VERSION


def test_folders_of_the_profile_are_read_only_in_alpine(agent: Agent) -> None:
    person = agent.person
    for name in ("skills/lint", "reference", "reference/private"):
        (person.home / name).mkdir(parents=True)
        (person.home / name / "text").write_text(f"{name}\n")
    text = (
        "extra_ro_binds: [~/reference, ~/missing]\nskills: ~/skills\nmasks: [~/reference/private]"
    )
    with_profile(person, text, "standard")
    reference = person.home / "reference"
    assert agent.run(f"cat /skills/lint/text {reference}/text").text == "skills/lint\nreference"
    assert "/skills" in RunCommand(agent.tool_context).description
    assert agent.run("cat text", working_dir=str(reference)).text == "reference"
    assert agent.read(f"{reference}/text").ok
    assert not agent.run(f"cat {reference}/private/text").ok
    for place in ("/skills/new", f"{reference}/new"):
        assert "Read-only file system" in agent.run(f"echo x >{place}").text
    assert not agent.run(f"ls {person.home}/skills").ok
    with_profile(person, "extra_ro_binds: [~/.ssh]", "standard")
    (person.home / ".ssh").mkdir()
    assert "is hidden from commands" in agent.run("true").text


def test_a_link_that_leads_out_of_alpine_is_explained(agent: Agent) -> None:
    other = agent.person.home / "other"
    other.mkdir()
    (agent.person.project / "link").symlink_to(other)
    (agent.person.project / "broken").symlink_to(other / "missing")
    leads = f"{agent.person.project}/link leads to {other}, outside the project, which commands in"
    for command in ("touch link/a", "cd link && touch a", "cat /workspace/link/a"):
        assert leads in agent.run(command).text
    for command in ("cat missing", "cat broken", "ls link missing; true"):
        assert "leads to" not in agent.run(command).text
    # Whether the command would have changed something there is unknown.
    assert agent.asked == []
    assert agent.person.cli("roots", "add", str(other)).returncode == 0
    assert "leads to" not in agent.run("cat link/a").text
    assert agent.run("touch link/a").ok


def test_a_missing_compiler_is_explained(agent: Agent) -> None:
    for error in (
        "error: command 'gcc' failed: No such file or directory",
        "CMake Error: CMAKE_C_COMPILER not set, after EnableLanguage",
        "gyp ERR! stack Error: not found: make",
    ):
        text = agent.run(f'echo "{error}"; false').text
        assert text.endswith("ollmsandbox rootfs install --tier 3")
    assert "--tier 3" not in agent.run("echo gcc").text
    set_system(agent.person.paths, str(agent.person.project), System.HOST)
    assert "--tier 3" not in agent.run("echo 'gcc: not found'; false").text


def test_a_run_as_json_has_the_path_of_the_project(person: Person, alpine: Installed) -> None:
    install(person, alpine)
    (person.project / "src").mkdir()
    options = ("--rootfs", "--json", "--project", str(person.project))
    done = person.cli("run", *options, "-c", "pwd; echo x >made", cwd=person.project / "src")
    told = json.loads(done.stdout)
    assert told["stdout"] == "/workspace/src\n"
    assert [change["path"] for change in told["changes"]] == ["src/made"]
    assert told["system"] == f"Alpine {VERSION}"
    assert told["seen_as"] == {str(person.project): "/workspace"}
    # Errors name the files as they are named here.
    command = "echo /workspace/out; echo /workspace/a.c:3: wrong >&2; cat /workspace/none"
    done = person.cli("run", "--rootfs", "-c", command)
    assert done.stdout == "/workspace/out\n"
    assert f"{person.project}/a.c:3: wrong\n" in done.stderr
    assert f"{person.project}/none" in done.stderr
    assert "/workspace" not in done.stderr


def test_a_name_that_comes_in_pieces_is_found() -> None:
    """However it is cut."""
    given = (
        b"/workspace /workspace/a: x/workspace /workspaces '/workspace' ./workspace /work\n"
        b"\033[01m\033[K/workspace/a.c:3\033[m 3m/workspace \033[38;5;120m/workspace /workspace"
        b"/workspace file:///workspace/b //workspace\n/works"
    )
    wanted = (
        b"/p /p/a: x/workspace /workspaces '/p' ./workspace /work\n"
        b"\033[01m\033[K/p/a.c:3\033[m 3m/workspace \033[38;5;120m/p /p"
        b"/workspace file:///p/b //workspace\n/works"
    )

    def feed(size: int) -> bytes:
        passed: list[bytes] = []
        renamed = PathRewriter(passed.append, "/p")
        for start in range(0, len(given), size):
            renamed(given[start : start + size])
        renamed.end()
        return b"".join(passed)

    for size in (1, 2, 3, 7, 1000):
        assert feed(size) == wanted


def test_install_from_a_file(person: Person, tmp_path: Path) -> None:
    person.cli("settings", "rootfs-mirror", "http://127.0.0.1:1/alpine")
    done = person.cli("rootfs", "install")
    assert done.returncode == 125
    assert "http://127.0.0.1" in done.stderr
    assert "ollmsandbox rootfs install --from FILE" in done.stderr
    (tmp_path / "here.tar.gz").write_bytes(system("3.98.1"))
    options = ("--from", "here.tar.gz", "--tier", "0", "--quiet")
    done = person.cli("rootfs", "install", *options, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = person.cli("run", "--rootfs", "--", "cat", "/etc/alpine-release")
    assert done.stdout == "3.98.1\n"


def test_settings_are_shown_set_and_refused(person: Person) -> None:
    assert "rootfs-mirror = https://dl-cdn.alpinelinux.org/alpine" in person.cli("settings").stdout
    assert person.cli("settings", "rootfs-version", "3.22.1").returncode == 0
    assert person.cli("settings", "rootfs-version").stdout == "3.22.1\n"
    for name, value in (("rootfs-mirror", "file:///etc"), ("rootfs-tier", "7"), ("rootfs-x", "1")):
        assert person.cli("settings", name, value).returncode == 125


# --- which system a project uses ---------------------------------------------------------------


def test_the_choice_is_the_project_s_own_and_stays(person: Person) -> None:
    other = str(person.home / "other")
    set_system(person.paths, str(person.project), System.ALPINE)
    assert system_of(person.paths, str(person.project)) is System.ALPINE
    assert system_of(person.paths, other) is System.HOST
    set_system(person.paths, str(person.project), System.HOST)
    assert system_of(person.paths, str(person.project)) is System.HOST
    person.paths.system(other).parent.mkdir(parents=True, exist_ok=True)
    person.paths.system(other).write_text("no such system")
    assert system_of(person.paths, other) is System.HOST
    assert not person.paths.database.exists()


# --- the tools ---------------------------------------------------------------------------------


def test_a_model_s_commands_run_in_the_system_of_the_project(agent: Agent) -> None:
    """The user sees the paths of the host, and the model those of the system."""
    project = str(agent.person.project)
    command = "cat /etc/alpine-release; echo x >new; echo /workspace/b.c:3: wrong >&2; pwd"
    outcome = agent.run(f"{command}; printf /workspace", working_dir="/workspace")
    assert outcome.text.startswith(f"{VERSION}\n/workspace\n/workspace")
    assert "added new" in outcome.text
    assert (agent.person.project / "new").exists()
    shown = agent.looking.printed
    assert shown[Stream.STDOUT].decode() == f"{VERSION}\n{project}\n{project}"
    assert shown[Stream.STDERR].decode() == f"{project}/b.c:3: wrong\n"
    assert project not in outcome.text
    assert agent.run("pwd", working_dir=project).text == "/workspace"
    assert agent.run("pwd", working_dir="playground").text == "/playground"


def test_a_file_is_read_and_changed_by_either_of_its_names(agent: Agent) -> None:
    person, project = agent.person, agent.person.project
    (project / "src").mkdir()
    (project / "src/file").write_text("one\n")
    for name in ("src/file", "/workspace/src/file", f"{project}/src/file", "~/src/file"):
        assert "one" in agent.read(name).text, name
    changed = agent.edit("/workspace/src/file", old_text="one", new_text="two")
    assert changed.ok, changed.text
    assert (project / "src/file").read_text() == "two\n"
    made = agent.write("/workspace/new/file", content="three\n")
    assert made.ok, made.text
    assert (project / "new/file").read_text() == "three\n"
    # A file of the system is the other system's.
    assert VERSION in agent.read("/etc/alpine-release").text
    assert not agent.write("/etc/alpine-release", content="x").ok
    assert agent.read(str(person.home / ".profile")).ok is False
    agent.asker.answer = Answer.ALLOW
    assert agent.write("/playground/notes", content="x\n").ok
    assert (person.playground / "notes").read_text() == "x\n"
    assert "x" in agent.read("playground/notes").text


def test_the_question_and_the_model_s_tool_say_where_it_runs(agent: Agent) -> None:
    agent.run("true", network=True)
    [asked] = agent.asked
    assert any(f"Alpine {VERSION}" in sentence for sentence in asked.sees)
    facts = {fact.label: fact.value for fact in asked.facts}
    assert facts["Can write"] == "~/project, Playground"
    text = RunCommand(agent.tool_context).description
    for part in (f"Alpine {VERSION}", "/workspace", "/playground", "python3 9.8.7"):
        assert part in text
    set_system(agent.person.paths, str(agent.person.project), System.HOST)
    assert "Alpine" not in RunCommand(agent.tool_context).description


def test_a_missing_root_file_system_is_reported_and_nothing_runs(agent: Agent) -> None:
    found = find_rootfs(agent.person.paths, agent.person.environ)
    assert found is not None
    os.rename(found.folder, f"{agent.person.home}/elsewhere")
    settings = RootfsSettings(mirror="http://127.0.0.1:1/alpine")
    save_rootfs_settings(agent.person.paths.config, settings)
    outcome = agent.run("echo x >new")
    assert not outcome.ok
    assert "mirror" in outcome.text
    assert not (agent.person.project / "new").exists()
