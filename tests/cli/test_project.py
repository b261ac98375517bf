# SPDX-License-Identifier: GPL-3.0-or-later
"""Which project a command works on, and where the program stores its own files."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from support.cli import WITHOUT_FOLDER, assert_failed
from support.person import Person

pytestmark = pytest.mark.ordinary

# --- the project ---------------------------------------------------------------------------------


def project_of(person: Person, folder: Path) -> str:
    """The outermost folder that a command can write."""
    look = "while touch ../.writable 2>/dev/null && rm ../.writable; do cd ..; done; pwd -P"
    done = person.cli("run", "-c", look, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


def test_a_command_starts_in_the_current_folder_of_a_project(person: Person) -> None:
    deep = person.project / "a/b"
    deep.mkdir(parents=True)
    (person.project / ".git").mkdir()
    assert person.cli("run", "--", "pwd", cwd=deep).stdout == f"{deep}\n"
    elsewhere = person.cli("run", "--project", str(person.project), "--", "pwd", cwd="/")
    assert elsewhere.stdout == f"{person.project}\n"


def test_the_project_is_the_current_folder_or_the_git_checkout_around_it(person: Person) -> None:
    deep = person.project / "a/b"
    deep.mkdir(parents=True)
    # The home folder is never the project.
    (person.home / ".git").mkdir()
    (person.home.parent / ".git").mkdir()
    assert project_of(person, deep) == str(deep)
    subprocess.run(["git", "init", "-q", person.project], env=person.environ, check=True)
    assert project_of(person, deep) == str(person.project)
    assert project_of(person, person.project) == str(person.project)


def test_the_project_of_a_work_tree_is_that_tree(person: Person) -> None:
    deep = person.project / "tree/a"
    deep.mkdir(parents=True)
    (person.project / ".git").mkdir()
    (person.project / "tree/.git").write_text("gitdir: ../.git/worktrees/tree\n")
    assert project_of(person, deep) == str(person.project / "tree")


def test_the_project_is_found_without_running_git(person: Person) -> None:
    programs = person.home / "programs"
    programs.mkdir()
    git = programs / "git"
    git.write_text(f"#!/bin/sh\ntouch {person.home}/ran\n")
    git.chmod(0o755)
    person.environ["PATH"] = f"{programs}:{person.environ['PATH']}"
    (person.project / ".git").mkdir()
    assert project_of(person, person.project) == str(person.project)
    assert not (person.home / "ran").exists()


def test_the_home_folder_does_not_count_as_a_project(person: Person) -> None:
    done = person.cli("run", "--", "touch", "ran", cwd=person.home)
    assert_failed(done, "home folder")
    assert not (person.home / "ran").exists()


def test_in_a_folder_that_is_gone_the_project_has_to_be_named(person: Person) -> None:
    gone = person.home / "gone"
    gone.mkdir()
    done = person.cli("run", "--", "true", around=WITHOUT_FOLDER, cwd=gone)
    assert_failed(done, "current folder no longer exists")
    gone.mkdir()
    named = ("--project", str(person.project))
    done = person.cli("run", *named, "--", "pwd", around=WITHOUT_FOLDER, cwd=gone)
    assert (done.returncode, done.stdout) == (0, f"{person.project}\n")


@pytest.mark.parametrize("name", ["we,ird:na\\me \"q\" 'ü'", "end\n", os.fsdecode(b"\xff"), "-x"])
def test_the_current_folder_may_have_any_name(person: Person, name: str) -> None:
    project = person.home / name
    project.mkdir()
    done = person.cli("run", "--quiet", "--", "touch", "made", cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(project) == ["made"]
    done = person.cli("run", f"--project={name}", "--", "touch", "more", cwd=person.home)
    assert done.returncode == 0
    assert re.fullmatch(r"ollmsandbox: 1 change \(run \S+\)\n  added     more\n", done.stderr)
    assert sorted(os.listdir(project)) == ["made", "more"]


HOSTILE = "raise SystemExit('code of the project was loaded')\n"


def test_code_of_the_project_is_never_loaded(person: Person) -> None:
    names = ("json", "os", "asyncio", "yaml", "sitecustomize", "usercustomize", "array", "gi")
    for name in names:
        (person.project / f"{name}.py").write_text(HOSTILE)
    for name in ("ollmsandbox", "encodings"):
        (person.project / name).mkdir()
        (person.project / name / "__init__.py").write_text(HOSTILE)
    person.environ |= {
        "PYTHONPATH": str(person.project),
        "PYTHONSTARTUP": str(person.project / "json.py"),
        "PYTHONHOME": str(person.project),
        "PYTHONINSPECT": "1",
    }
    done = person.cli("run", "--", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    assert person.cli("doctor").returncode == 0
    assert not list(person.project.rglob("__pycache__"))


# --- the folders of the program ------------------------------------------------------------------


def test_the_folders_are_where_the_user_wants_them(person: Person, tmp_path: Path) -> None:
    for name in ("DATA", "CACHE", "CONFIG"):
        person.environ[f"XDG_{name}_HOME"] = str(tmp_path / name)
    before = os.listdir(person.home)
    profiles = tmp_path / "CONFIG/ollmchat/profiles"
    profiles.mkdir(parents=True)
    (profiles / "mine.yaml").write_text("environment: {set: {FROM: mine}}")
    command = "echo $FROM; touch ~/playground/made"
    done = person.cli("run", "--profile", "mine", "-c", command)
    assert (done.returncode, done.stdout) == (0, "mine\n")
    assert (tmp_path / "DATA/ollmchat/playground/made").exists()
    assert os.listdir(tmp_path / "CACHE/ollmchat")
    assert person.cli("playground", "path").stdout == f"{tmp_path}/DATA/ollmchat/playground\n"
    assert os.listdir(person.home) == before


def test_relative_folders_are_ignored_as_the_specification_says(person: Person) -> None:
    person.environ["XDG_DATA_HOME"] = "relative"
    expected = f"{person.home}/.local/share/ollmchat/playground\n"
    assert person.cli("playground", "path").stdout == expected


@pytest.mark.parametrize("name", ["XDG_CACHE_HOME", "XDG_DATA_HOME"])
def test_a_folder_that_cannot_be_made_is_reported(person: Person, name: str) -> None:
    person.environ[name] = "/proc/nowhere"
    person.has_database = False
    assert_failed(person.cli("run", "--", "touch", "ran"), "/proc/nowhere")
    assert os.listdir(person.project) == []


@pytest.mark.parametrize("home", ["relative", "/"])
def test_an_impossible_home_folder_is_reported(person: Person, home: str) -> None:
    person.environ["HOME"] = home
    assert_failed(person.cli("run", "--", "touch", "ran"), "HOME")
    assert_failed(person.cli("playground", "path"), "HOME")
