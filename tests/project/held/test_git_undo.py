# SPDX-License-Identifier: GPL-3.0-or-later
"""Undoing a run leaves a repository whole, whatever the user has done in it since."""

from __future__ import annotations

from contextlib import closing

import pytest
from support.person import Person

from ollmsandbox.project.reasons import Reason
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.spec import Mode

MAKE = """
git init -q -b main .; git config user.name x; git config user.email x@example.org
seq 1 10 >file; echo other >other; mkdir sub; echo s >sub/s; git add .; git commit -qm first
"""
COMMIT = "sed -i s/^3$/three/ file; mkdir new; echo n >new/n; git add .; git commit -qm second"

pytestmark = pytest.mark.ordinary


@pytest.fixture
def project(person: Person) -> Person:
    outside(person, MAKE)
    return person


def outside(person: Person, command: str) -> str:
    return person.run_outside(f"set -e\n{command}", cwd=person.project, check=True).stdout


def run(person: Person, command: str) -> str:
    document = person.cli_run(f"set -e; {command}")
    assert document["exit_code"] == 0, document["stderr"]
    assert {change["state"] for change in document["changes"]} == {"applied"}
    return str(document["run_id"])


def undo(person: Person, run_id: str, *, with_later: bool = False) -> dict[str, Reason]:
    """Undo a run; return what is left of it, and why."""
    with closing(Review(person.paths)) as review:
        report = review.undo(review.manager.run(run_id), with_later=with_later)
    assert not report.errors
    return {i.change.path: i.note.reason for i in report.changes if i.note is not None}


def check(person: Person) -> None:
    """Let git look at everything, and at what is not committed."""
    assert "missing" not in outside(person, "git fsck --full --strict 2>&1")
    outside(person, "git log --all -p >/dev/null; git diff --cached >/dev/null; git stash list")


def objects(person: Person) -> set[str]:
    return set(outside(person, "find .git/objects -type f").split())


ON_TOP = {
    "a commit": "echo mine >>other; git commit -qam mine",
    "a branch": "git branch mine",
    "a tag": "git tag -m note mine",
    "a stash": "echo mine >>file; git stash -q",
    "a commit without a branch": "git checkout -q --detach; echo m >m; git add m; git commit -qm m;"
        "git checkout -q main",
    "a worktree": "git worktree add -q ../tree",
    "a gc": "echo mine >>other; git commit -qam mine; git gc -q --prune=now",
    "a pack of its own": "echo mine >>other; git commit -qam mine; git rev-parse main main^{tree} |"
        "git pack-objects -q .git/objects/pack/pack; git prune-packed",
}  # fmt: skip


@pytest.mark.parametrize("name", ON_TOP)
def test_what_the_user_made_of_a_commit_stays_whole(project: Person, name: str) -> None:
    run_id = run(project, COMMIT)
    outside(project, ON_TOP[name])
    before = outside(project, "git log --all --format=%H; git rev-parse -q --verify stash || true")
    undo(project, run_id)
    check(project)
    for id_ in set(before.split()):
        outside(project, f"git show {id_} >/dev/null; git archive {id_} >/dev/null")


def test_what_was_only_staged_is_committed_by_the_user(project: Person) -> None:
    run_id = run(project, "sed -i s/^3$/three/ file; git add file")
    outside(project, "git commit -qm mine")
    left = undo(project, run_id)
    check(project)
    assert Reason.GIT_NEEDS in left.values()
    outside(project, "git show HEAD:file | grep -q three")


def test_a_later_run_needs_the_earlier_ones_commit(project: Person) -> None:
    first = run(project, COMMIT)
    run(project, "echo more >>other; git commit -qam third")
    undo(project, first)
    check(project)


@pytest.mark.parametrize("looks", ["true", "git diff; git status; git log"])
@pytest.mark.parametrize(
    "command",
    [
        COMMIT,
        "echo n >n; git add n",
        "git gc -q",
        "git branch b; git tag t; git checkout -q b",
        "git clone -q . copy; cd copy; git remote remove origin; git fsck --full",
        "git init -q new; cd new; git -c user.name=x -c user.email=x@y commit -qm x --allow-empty",
    ],
)
def test_without_the_user_all_is_as_it_was(project: Person, command: str, looks: str) -> None:
    before = objects(project)
    state = "git status --porcelain; git for-each-ref; git stash list"
    was = outside(project, state)
    run_id = run(project, command)
    outside(project, looks)
    assert undo(project, run_id) == {}
    assert objects(project) == before
    assert outside(project, state) == was
    check(project)


def test_runs_are_undone_one_after_the_other(project: Person) -> None:
    before = objects(project)
    runs = [run(project, f"echo {n} >>other; git commit -qam {n}") for n in range(3)]
    for run_id in reversed(runs):
        assert undo(project, run_id) == {}
    assert objects(project) == before
    check(project)


def test_what_git_needs_can_be_undone_when_it_needs_it_no_more(project: Person) -> None:
    before = objects(project)
    run_id = run(project, COMMIT)
    outside(project, "git branch mine")
    assert set(undo(project, run_id).values()) >= {Reason.GIT_NEEDS}
    outside(project, "git branch -q -D mine; rm -rf .git/logs/refs/heads/mine")
    undo(project, run_id)
    assert objects(project) == before
    check(project)


def test_a_new_repository_that_the_user_has_used_stays(project: Person) -> None:
    run_id = run(project, "git init -q new")
    author = "git config user.name x; git config user.email x@y"
    outside(project, f"cd new; {author}; echo mine >mine; git add .; git commit -qm mine")
    undo(project, run_id)
    assert outside(project, "cd new; git fsck --full; git log --format=%s") == "mine\n"


def test_later_changes_are_undone_with_it(project: Person) -> None:
    was = outside(project, "git for-each-ref")
    first = run(project, COMMIT)
    run(project, "echo more >>other; git commit -qam third")
    undo(project, first, with_later=True)
    assert outside(project, "git for-each-ref") == was
    check(project)


def test_a_pending_commit_needs_the_one_below(project: Person) -> None:
    first = run(project, COMMIT)
    command = "git checkout -q -b later; echo more >>other; git commit -qam third"
    project.record(command, Mode.REVIEW)
    undo(project, first)
    project.cli("apply", "--all")
    check(project)


@pytest.mark.parametrize(
    "make",
    [
        # Deeper than Python calls itself, and links.
        f"mkdir -p .git/refs/heads/{'a/' * 1200}",
        "rm -r .git/logs; ln -s / .git/logs",
        "mkfifo .git/refs/heads/pipe",
        "echo broken >.git/index",
    ],
)
def test_a_strange_repository_is_no_reason_to_fail(project: Person, make: str) -> None:
    run_id = run(project, COMMIT)
    outside(project, "git branch mine")
    outside(project, make)
    undo(project, run_id)
    outside(project, "git --git-dir=.git cat-file -p mine^{tree} >/dev/null")
    # pytest cannot remove folders that are so deep.
    outside(project, "rm -rf .git/refs/heads/a")


def test_what_a_finished_rebase_removed_is_not_applied_again(project: Person) -> None:
    clash = "git checkout -qb other; seq 2 11 >file; git commit -qam o; git checkout -q main;"
    outside(project, f"{clash} seq 3 12 >file; git commit -qam m")
    run_id = run(project, "git rebase -q other >/dev/null 2>&1 || true")
    outside(
        project, "seq 2 12 >file; git add file; GIT_EDITOR=true git rebase --continue >/dev/null"
    )
    project.cli("apply", run_id)
    assert "rebase" not in outside(project, "git status")
