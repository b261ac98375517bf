# SPDX-License-Identifier: GPL-3.0-or-later
"""search finds what a command would, with ripgrep and without it."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.person import Person
from support.tools import Agent

from ollmsandbox.sandbox.spec import Mode
from ollmsandbox.tools.base import Outcome, ToolError
from ollmsandbox.tools.files import search as search_module
from ollmsandbox.tools.files.search import Search
from ollmsandbox.tools.files.searcher import PathRule

pytestmark = pytest.mark.ordinary

WITH_RIPGREP, WITHOUT = "command -v rg >/dev/null", "false"


@pytest.fixture(params=["ripgrep", "own"], autouse=True)
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "ripgrep":
        assert shutil.which("rg"), "ripgrep is missing"
    else:
        script = search_module._SCRIPT
        assert WITH_RIPGREP in script
        monkeypatch.setattr(search_module, "_SCRIPT", script.replace(WITH_RIPGREP, WITHOUT))
    yield request.param


def search(agent: Agent, **arguments: object) -> Outcome:
    return agent.call(Search(agent.tool_context), **arguments)


def lines(outcome: Outcome) -> list[str]:
    assert outcome.ok, outcome.text
    return outcome.text.split("\n")


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)


def test_lines_are_found_with_path_and_number(agent: Agent) -> None:
    project = agent.person.project
    (project / "src").mkdir()
    (project / "src/a.py").write_text("import os\nx = 12\r\n")
    (project / "b.txt").write_text("x = 7\n")
    assert lines(search(agent, pattern=r"x = \d+")) == ["b.txt:1:x = 7", "src/a.py:2:x = 12"]
    assert lines(search(agent, pattern="x", glob="*.py")) == ["src/a.py:2:x = 12"]
    assert lines(search(agent, pattern="X", path="src", ignore_case=True)) == ["src/a.py:2:x = 12"]
    assert lines(search(agent, pattern="x", path="src/a.py")) == ["src/a.py:2:x = 12"]
    assert lines(search(agent, pattern="= 1.", literal=True)) == ["Nothing was found."]
    assert agent.asked == []


def test_files_are_found_by_name(agent: Agent) -> None:
    project = agent.person.project
    (project / "src/deep").mkdir(parents=True)
    for name in ("a.c", "src/a.c", "src/deep/b.h", "src/deep/c.py", ".hidden.c"):
        (project / name).touch()
    assert lines(search(agent, glob="*.{c,h}")) == [".hidden.c", "a.c", "src/a.c", "src/deep/b.h"]
    assert lines(search(agent, glob="src/**/*.[ch]")) == ["src/a.c", "src/deep/b.h"]
    assert lines(search(agent, glob="*.c", path="src")) == ["src/a.c"]


def test_ignored_files_git_and_binaries_are_left_out(agent: Agent) -> None:
    project = agent.person.project
    for folder in (".git", "build", "src/gen"):
        (project / folder).mkdir(parents=True)
    (project / ".gitignore").write_text("# made\nbuild/\n*.log\n!keep.log\n/src/gen\n")
    for name in (".git/x", "build/x", "a.log", "keep.log", "src/gen/x", "src/x"):
        (project / name).write_text("word\n")
    (project / "binary").write_bytes(b"word\0\n")
    assert lines(search(agent, pattern="word")) == ["keep.log:1:word", "src/x:1:word"]


def test_no_link_is_followed(agent: Agent) -> None:
    project = agent.person.project
    outside = agent.person.home / "outside"
    outside.mkdir()
    (outside / "secret").write_text("word\n")
    (project / "folder").symlink_to(outside)
    (project / "file").symlink_to(outside / "secret")
    os.mkfifo(project / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(project / "socket"))
        assert lines(search(agent, pattern="word")) == ["Nothing was found."]
    assert "not a file" in search(agent, pattern="word", path="pipe").text


def test_strange_names_and_lines_do_no_harm(agent: Agent) -> None:
    project = agent.person.project
    (project / "-n").write_text("word\n")
    (project / "new\nline").write_text("word\n")
    (project / "z").write_bytes(b"word \xff\x1b[2J " + b"x" * 5000 + b"\n")
    found = lines(search(agent, pattern="word"))
    assert found[:2] == ["-n:1:word", "new\\nline:1:word"]
    assert found[2].startswith("z:1:word \ufffd x")
    assert len(found[2]) < 500
    assert lines(search(agent, pattern="word", path="-n")) == ["-n:1:word"]
    assert lines(search(agent, pattern="-n word|word")) == found


def test_too_many_matches_are_cut(agent: Agent) -> None:
    for number in range(30):
        (agent.person.project / f"f{number:02}").write_text("word\n" * 200)
    found = lines(search(agent, pattern="word"))
    assert len(found) == 201
    assert "more was found" in found[-1]


def test_pending_changes_are_seen(person: Person) -> None:
    (person.project / "gone").write_text("word\n")
    agent = Agent(person, mode=Mode.REVIEW)
    agent.run("echo word > new; rm gone")
    assert lines(search(agent, pattern="word")) == ["new:1:word"]


def test_mistakes_are_explained(agent: Agent) -> None:
    assert "regex parse error" in search(agent, pattern="(").text
    assert "There is no file or folder nowhere" in search(agent, pattern="x", path="nowhere").text
    with pytest.raises(ToolError, match="nothing to search for"):
        search(agent)
    with pytest.raises(ToolError, match="line break"):
        search(agent, pattern="a\nb")


def test_without_a_sandbox_it_searches_the_project_and_asks_nothing(person: Person) -> None:
    write(person.project, a="word\n")
    (person.home / "out").write_text("word\n")
    (person.project / "link").symlink_to(person.home)
    # Programs of the project are not run.
    (person.project / "bin").mkdir()
    for name in ("rg", "python3", "head"):
        (person.project / "bin" / name).write_text("#!/bin/sh\ntouch ~/ran\n")
        (person.project / "bin" / name).chmod(0o755)
    path = f"{person.project}/bin:/usr/bin:/bin"
    agent = Agent(person, environ={"FLATPAK_ID": "x", "PATH": path})
    assert lines(search(agent, pattern="word")) == ["a:1:word"]
    for place in ("link", "link/out", "~", "/etc", "../"):
        outcome = search(agent, pattern="word", path=place)
        assert "not in the project" in outcome.text, place
    assert agent.asked == []
    assert not (person.home / "ran").exists()


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a/b.py", True),
        ("a/*.py", "a/b/c.py", False),
        ("a/**", "a/b/c.py", True),
        ("**/c.py", "c.py", True),
        ("[!a].py", "b.py", True),
        ("[!a].py", "a.py", False),
        ("{a,b}.py", "b.py", True),
        ("{a", "{a", True),
        ("[", "[", True),
        ("a?c", "abc", True),
    ],
)
def test_the_patterns_of_names(pattern: str, path: str, matches: bool) -> None:
    assert PathRule(pattern).matches(path) is matches
