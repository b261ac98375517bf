# SPDX-License-Identifier: GPL-3.0-or-later
"""A project that is a linked worktree of git: commands can commit in it, and get nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.changes import held
from support.escape.copy_back import review, settle
from support.person import Person

from ollmsandbox.project.change import State
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.project.recorder import linked_roots
from ollmsandbox.project.records.folder import Folder

pytestmark = pytest.mark.ordinary

GIT = "git -c user.name=me -c user.email=me@example.org"


def git(person: Person, folder: Path, *words: str) -> str:
    # Looking at the status must not write to the index.
    environ = person.environ | {"GIT_OPTIONAL_LOCKS": "0"}
    argv = [*GIT.split(), *words]
    return person.run_outside(argv, cwd=folder, env=environ, check=True).stdout


@pytest.fixture
def main(person: Person) -> Path:
    """The main checkout; the project is a worktree of it."""
    main = person.home / "main"
    git(person, person.home, "init", "-q", "-b", "main", str(main))
    (main / "file").write_text("one\n")
    git(person, main, "add", ".")
    git(person, main, "commit", "-qm", "first")
    person.project.rmdir()
    git(person, main, "worktree", "add", "-q", str(person.project))
    return main


def roots(person: Person) -> tuple[str, ...]:
    found = linked_roots(person.paths, str(person.project))
    manager = ProjectManager(person.paths)
    try:
        assert Folder(str(person.project), manager).build_roots()[1:] == found
    finally:
        manager.close()
    return found


def test_a_commit(person: Person, main: Path) -> None:
    assert roots(person) == (str(main / ".git"),)
    work = f"echo two >file; {GIT} commit -qam second; git gc -q"
    report = settle(person, f"{work}; git config user.name me; git branch topic")
    assert held(report) == set()
    assert "topic" in git(person, main, "branch")
    assert git(person, person.project, "status", "--short") == ""
    assert git(person, main, "log", "--format=%s", "project") == "second\nfirst\n"
    # The main checkout itself is out of reach.
    assert settle(person, f"echo x >{main}/file").changes == ()
    undone = review(person, "undo", report.run_id)
    assert {item.state for item in undone.changes} == {State.UNDONE}
    assert git(person, main, "log", "--format=%s", "project") == "first\n"
    assert git(person, person.project, "status", "--short") == ""


def test_what_git_would_run_is_held_as_in_the_main_checkout(person: Person, main: Path) -> None:
    common = main / ".git"
    attack = f"cd {common}; echo x >hooks/pre-commit; git config alias.x '!x'; ln -s /tmp info/x;"
    attack += "echo ../../evil >worktrees/project/commondir; echo x >worktrees/project/gitdir;"
    attack += "mkdir -p modules/m/hooks; echo x >modules/m/hooks/update; echo x >COMMIT_EDITMSG"
    report = settle(person, attack)
    assert held(report) == {
        *("hooks/pre-commit", "config", "info/x", "worktrees/project/commondir"),
        *("worktrees/project/gitdir", "modules/m/hooks/update"),
    }
    assert {item.change.root for item in report.changes} == {str(common)}
    assert (common / "COMMIT_EDITMSG").read_text() == "x\n"
    assert roots(person) == (str(common),)


def test_most_of_the_repository_is_deleted(person: Person, main: Path) -> None:
    assert "HEAD" in held(settle(person, f"rm -rf {main}/.git/*"))
    git(person, main, "fsck")


def test_a_file_made_by_a_command(person: Person) -> None:
    main = person.home / "main"
    git(person, person.home, "init", "-q", str(main))
    attack = f"echo 'gitdir: {main}/.git/worktrees/project' >.git"
    assert held(settle(person, attack)) == {".git"}
    assert roots(person) == ()


def test_a_worktree_in_the_main_checkout_of_a_project(person: Person) -> None:
    """The repository is in the project already."""
    git(person, person.project, "init", "-q")
    assert roots(person) == ()


def forge(person: Person, common: Path, target: str | None = None) -> None:
    """Make the files of a worktree, as an archive may contain them."""
    own = common / "worktrees" / "x"
    own.mkdir(parents=True)
    for name in ("objects", "refs"):
        (common / name).mkdir(exist_ok=True)
    (common / "HEAD").write_text("ref: refs/heads/main\n")
    (own / "commondir").write_text("../..\n")
    (own / "gitdir").write_text(f"{person.project}/.git\n")
    (person.project / ".git").write_text(f"gitdir: {target or own}\n")


def test_both_have_to_name_each_other(person: Person) -> None:
    common = person.home / "other" / "git"
    forge(person, common)
    own = common / "worktrees" / "x"
    assert roots(person) == (str(common),)
    changes: list[tuple[Path, str]] = [
        (own / "gitdir", f"{person.home}/another/.git\n"),
        (own / "gitdir", f"{person.project}\n"),
        (own / "gitdir", ""),
        (own / "commondir", "../../..\n"),
        (own / "commondir", f"{person.home}\n"),
        (person.project / ".git", f"gitdir: {common}\n"),
        (person.project / ".git", f"gitdir: {own}\n\n{own}\n"),
        (person.project / ".git", f"gitdir: {own}\0\n"),
        (person.project / ".git", f"{own}\n"),
        (person.project / ".git", f"gitdir: {person.home}\n"),
        (person.project / ".git", f"gitdir: {common}/worktrees/y\n"),
        (person.project / ".git", "gitdir: \n"),
        (person.project / ".git", "gitdir: " + "x" * 9000),
    ]
    for file, text in changes:
        before = file.read_text()
        file.write_text(text)
        assert roots(person) == (), text
        file.write_text(before)
    assert roots(person) == (str(common),)
    for name in ("HEAD", "objects", "refs"):
        (common / name).rename(common / "aside")
        assert roots(person) == (), name
        (common / "aside").rename(common / name)


def test_the_home_folder_or_the_program_s_own_looks_like_a_repository(person: Person) -> None:
    for folder in (person.home, person.paths.data):
        forge(person, folder)
        assert roots(person) == (), folder


def test_links_on_the_way(person: Person) -> None:
    common = person.home / "git"
    forge(person, common)
    (person.home / "link").symlink_to(common)
    (person.project / "up").symlink_to(common / "worktrees")
    for target in (
        f"{person.home}/link/worktrees/x",
        "up/x",
        f"{person.project}/up/../worktrees/x",
    ):
        (person.project / ".git").write_text(f"gitdir: {target}\n")
        assert roots(person) == (), target
    # The same folder, spelled with "..", is the same folder.
    (person.project / ".git").write_text("gitdir: ../git/objects/../worktrees/x\n")
    assert roots(person) == (str(common),)
    (person.project / ".git").unlink()
    (person.home / "pointer").write_text(f"gitdir: {common}/worktrees/x\n")
    (person.project / ".git").symlink_to(person.home / "pointer")
    assert roots(person) == ()
