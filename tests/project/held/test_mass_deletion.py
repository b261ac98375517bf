# SPDX-License-Identifier: GPL-3.0-or-later
"""The deletions of a run that removes most of the project, or of a repository, need an approval."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.changes import held, states
from support.escape.copy_back import review, settle
from support.person import Person

from ollmsandbox.project.change import Change, Kind, State, Type
from ollmsandbox.project.held.mass_deletion import hold_mass_deletion

SOURCES = [f"src/{name}/{number}.c" for name in "abc" for number in range(6)]


@pytest.fixture
def project(person: Person) -> Path:
    """A repository with some files, of which a few are generated."""
    folder = person.project
    for path in (*SOURCES, "README", "docs/guide"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"{path}\n")
    (folder / ".gitignore").write_text("/out/\n*.log\n")
    git(person, "init", "-q")
    git(person, "add", ".")
    git(person, "commit", "-qm", "first")
    return folder


def git(person: Person, *words: str) -> str:
    identity = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    return person.run_outside(["git", *identity, *words], check=True).stdout


def test_files_that_are_not_ignored_because_of_a_named_class(person: Person, project: Path) -> None:
    (project / ".gitignore").write_text("*\n!*/\n![[:digit:]].c\n")
    assert set(SOURCES) <= held(settle(person, "rm -r src"))


def test_everything_in_the_home_folder(person: Person, project: Path) -> None:
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    report = settle(person, "rm -rf ~ 2>&1; echo new >made")
    assert {item.change.path for item in report.changes} - held(report) == {"made"}
    assert {*SOURCES, ".git", ".git/HEAD", "src"} <= held(report)
    for path, content in before.items():
        assert path.read_bytes() == content
    assert git(person, "status", "--porcelain") == "?? made\n"
    # The next command works with what this one left.
    assert person.run("ls -A").stdout.text == "made\n"
    shown = person.cli("changes", report.run_id).stdout
    assert "src/a/0.c [needs approval]" in shown


def test_an_approved_deletion_is_done_and_can_be_undone(person: Person, project: Path) -> None:
    done = person.cli_run("rm -rf -- *")
    assert {change["state"] for change in done["changes"]} == {"pending"}
    assert all("held" in change["flags"] for change in done["changes"])
    assert person.cli("apply").returncode == 0
    assert sorted(path.name for path in project.iterdir()) == [".git", ".gitignore"]
    assert person.cli("undo").returncode == 0
    assert git(person, "status", "--porcelain") == ""


def test_a_part_of_it_is_approved(person: Person, project: Path) -> None:
    run = settle(person, "rm -rf -- *").run_id
    assert set(states(review(person, "apply", run, "docs/guide")).values()) == {State.APPLIED}
    assert not (project / "docs/guide").exists()
    assert all((project / path).exists() for path in SOURCES)
    # And the rest is not.
    assert person.cli("discard", run).returncode == 0
    assert person.run("ls").stdout.text == "README\ndocs\nsrc\n"
    assert git(person, "status", "--porcelain") == " D docs/guide\n"


def test_a_folder_replaced_by_a_link(person: Person, project: Path) -> None:
    report = settle(person, "rm -rf src; ln -s docs src; echo x >new")
    assert "src" in held(report)
    assert (project / "src/a/0.c").exists()
    assert set(states(review(person, "apply", report.run_id)).values()) == {State.APPLIED}
    assert (project / "src").is_symlink()


@pytest.mark.ordinary
@pytest.mark.parametrize(
    "command",
    [
        "rm -rf .git/objects",
        "rm -rf .git/objects/*",
        "rm -rf .git/objects/??",
        "rm -rf .git/refs",
        "rm -rf .git/refs/*",
        "rm .git/HEAD",
        "rm -rf .git && git init -q",
        "find .git -type f -delete",
    ],
)
def test_most_of_the_repository(person: Person, project: Path, command: str) -> None:
    report = settle(person, f"{command}; rm README; echo x >new")
    gone = {item.change.path for item in report.changes if item.change.kind is Kind.DELETED}
    assert gone <= held(report)
    assert (project / "new").exists()
    assert (project / "README").exists()
    # Other changes to the repository were applied.
    git(person, "fsck")
    git(person, "log", "-1", "--all")


def test_a_repository_further_down(person: Person, project: Path) -> None:
    subprocess.run(["git", "init", "-q", project / "lib/one"], env=person.environ, check=True)
    assert "lib/one/.git/HEAD" in held(settle(person, "rm -rf lib"))


@pytest.mark.ordinary
@pytest.mark.parametrize(
    "command",
    [
        "mv src lib",
        "cp -r src lib; rm -r src",
        "for f in src/*/*.c; do git mv $f ${f}c; done",
        "mkdir old; mv README docs src .gitignore old",
        "rm -r src/a docs; git add -A; git -c user.name=me -c user.email=a@b commit -qm less",
        "git checkout -qb other; git rm -qr src/a; git checkout -qf -",
        "git gc -q --prune=now",
        "git branch one; git pack-refs --all; git branch -d one",
        "rm -rf .git/hooks .git/logs; rm -r src/b",
        "rm README docs/guide src/*/0.c src/*/1.c",
    ],
)
def test_what_programmers_do_all_the_time(person: Person, project: Path, command: str) -> None:
    report = settle(person, command)
    assert report.changes
    late = {path for path in held(report) if not path.startswith(".git/hooks")}
    assert late == set()


def test_generated_files_do_not_count(person: Person, project: Path) -> None:
    for folder in ("out/deep", "node_modules/x"):
        (project / folder).mkdir(parents=True)
        for number in range(100):
            (project / folder / str(number)).write_text("x")
    for number in range(30):
        (project / f"{number}.log").write_text("x")
        (project / f"src/{number}.o").write_text("x")
    report = settle(person, "rm -rf out node_modules *.log src/*.o")
    assert len(report.changes) > 250
    assert held(report) == set()
    # They do not make up for what is deleted, either.
    (project / "out").mkdir()
    report = settle(person, "rm -r src; for n in $(seq 100); do echo >out/$n; done")
    assert set(SOURCES) <= held(report)


def test_a_small_project_is_not_protected(person: Person) -> None:
    for number in range(9):
        (person.project / str(number)).write_text("x")
    assert held(settle(person, "rm -- *")) == set()


def test_a_few_files_of_many(person: Person) -> None:
    for number in range(60):
        (person.project / str(number)).write_text("x")
    assert held(settle(person, "rm 1?")) == set()
    # 50 are left, and half of them is not most of them.
    assert held(settle(person, "rm 2? 3? 40 41 42 43 44")) == set()
    assert held(settle(person, "rm 46 47 48 49 5?")) != set()


def test_counting_ends_early(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in range(40):
        (person.project / str(folder)).mkdir()
        for number in range(10):
            (person.project / str(folder) / str(number)).write_text("x")
    looked: list[str] = []
    scandir = os.scandir

    def counted(folder: str) -> object:
        looked.append(folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", counted)
    root = str(person.project)
    changes = [Change(root, f"1/{n}", Kind.DELETED, Type.FILE) for n in range(10)]
    hold_mass_deletion(root, changes[:9])
    assert looked == []
    hold_mass_deletion(root, changes)
    assert 0 < len(looked) <= 4
    assert not any(change.flags for change in changes)


def test_the_next_command_works_on_what_is_left(person: Person, project: Path) -> None:
    settle(person, "rm -rf -- *")
    found = states(settle(person, "mkdir src; echo new >src/new; echo other >other"))
    # The folder's deletion is pending, and so is what was made in its place.
    assert found.pop("other") is State.APPLIED
    assert found == dict.fromkeys(("src", "src/new"), State.PENDING)
    assert all((project / path).exists() for path in SOURCES)
    assert person.run("find . -type f -not -path './.git/*' | sort").stdout.text.split() == [
        "./.gitignore",
        "./other",
        "./src/new",
    ]
    assert person.cli("apply", "--all").returncode == 0
    assert sorted(path.name for path in project.iterdir()) == [".git", ".gitignore", "other", "src"]
    assert [path.name for path in (project / "src").iterdir()] == ["new"]
