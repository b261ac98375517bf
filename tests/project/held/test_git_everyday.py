# SPDX-License-Identifier: GPL-3.0-or-later
"""What people and agents do with git every day crosses unasked, and the repository is right."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.escape.kill import killed_when
from support.person import Person

from ollmsandbox.project.change import Report, State
from ollmsandbox.project.held.git import config
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.project.recover import finish_leftovers
from ollmsandbox.sandbox.spec import RunSpec

pytestmark = pytest.mark.ordinary

SETTINGS = '[user]\nname = me\nemail = me@example.org\n[protocol "file"]\nallow = always\n'
STATE = (
    "git status --porcelain --branch; git for-each-ref; git stash list; git log --all --format=%s"
)


def git(person: Person, folder: Path, command: str) -> str:
    environ = person.environ | {"GIT_OPTIONAL_LOCKS": "0", "GIT_EDITOR": "true"}
    return person.run_outside(f"set -e\n{command}", cwd=folder, env=environ, check=True).stdout


def run(person: Person, command: str) -> tuple[str, Report]:
    """Run a command, of which nothing may be held."""
    recorder = Recorder(RunSpec(os.path.realpath(person.project)), person.paths)
    result = person.run(f"set -e; export GIT_EDITOR=true; {command}", keeper=recorder)
    assert result.exit_code == 0, result.stderr.text
    report = recorder.report or Report("")
    assert not report.errors
    for item in report.changes:
        note = str(item.note.sentence) if item.note else ""
        assert item.state is State.APPLIED, (item.change.path, note)
        assert not item.is_held, item.change.path
    return result.stdout.text, report


@pytest.fixture(scope="module")
def repositories(shared_person: Person) -> Path:
    """The folder with those that the tests begin with."""
    (shared_person.home / ".gitconfig").write_text(SETTINGS)
    make = """
    git init -q -b main seed; cd seed
    for n in 1 2 3 4 5 6 7 8; do echo $n; done >numbers; echo one >file; mkdir sub; echo x >sub/x
    git add .; git commit -qm first; git tag v1
    git checkout -qb topic; echo t >t; git add t; git commit -qm t1; echo t >>t; git commit -qam t2
    git checkout -qb clash main; echo theirs >file; git commit -qam theirs
    git checkout -q main; echo ours >file; git commit -qam ours; echo 9 >>numbers
    git commit -qam nine; cd ..; git clone -q --bare seed origin.git; git init -q -b main lib
    cd lib; echo l >l; git add .; git commit -qm lib
    """
    git(shared_person, shared_person.project, make)
    return shared_person.project


@pytest.fixture
def origin(person: Person, repositories: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bare repository. Tests have it below /tmp, where no user would."""
    monkeypatch.setattr(config, "UNTRUSTED", ("/proc", "/dev", "/run"))
    (person.home / ".gitconfig").write_text(SETTINGS)
    subprocess.run(["cp", "-a", f"{repositories}/.", person.home], check=True)
    return person.home / "origin.git"


PLACES = ("checkout", "worktree", "clone by the command")


@pytest.fixture(params=PLACES)
def place(person: Person, origin: Path, request: pytest.FixtureRequest) -> Path:
    """The folder to work in, on the branch main."""
    branches = "git branch -q topic origin/topic; git branch -q clash origin/clash"
    person.project.rmdir()
    if request.param == "checkout":
        git(person, person.home, f"git clone -q {origin} project; cd project; {branches}")
        return person.project
    if request.param == "worktree":
        make = f"git clone -q {origin} other; cd other; {branches}; git checkout -qb mine;"
        git(person, person.home, f"{make} git worktree add -q ../project main")
        return person.project
    person.project.mkdir()
    run(person, f"git clone -q {origin} sub; cd sub; {branches}")
    return person.project / "sub"


REBASE = "git checkout -q clash; git rebase -q main >~/x 2>&1 || true"
EVERYDAY = {
    "add": "echo new >new; git add new; echo more >>numbers; git add -N .",
    "commit": "echo new >new; git add .; git commit -qm new",
    "amend": "echo more >>numbers; git commit -qa --amend -m amended",
    "branches": "git branch one; git branch -m one two; git branch three; git branch -d two;"
        "git branch --track four origin/topic; git branch -m four five; git branch -D three",
    "a branch as a folder": "git branch one; git branch -m one one/two; git branch topic/x 2>~/x"
        " || git branch -m topic topic/x; git branch -m topic/x topic",
    "checkout": "git checkout -q topic; git checkout -qb new/branch; git checkout -q main -- file",
    "switch": "git switch -q -c made; git switch -q main; git switch -q --detach topic",
    "stash": "echo x >>numbers; git stash -q; echo y >>file; git stash push -q; git stash pop -q",
    "stash with new files": "echo x >new; git stash -qu; git stash apply -q; git stash drop -q",
    "rebase": "git checkout -q topic; git rebase -q main",
    "rebase in steps": "git checkout -q topic; GIT_SEQUENCE_EDITOR='sed -i s/^pick/edit/' "
        "git rebase -qi main || true; git commit -q --amend -m edited; git rebase --continue",
    "a rebase that stops": REBASE,
    "a rebase that is ended": f"{REBASE}; echo both >file; git add file; git rebase --continue",
    "a rebase that is given up": f"{REBASE}; git rebase --abort",
    "rebase by patches": "git checkout -q clash; git rebase -q --apply main >~/x 2>&1 || true",
    "merge": "git merge -q --no-edit topic",
    "merge forward": "git checkout -qb old v1; git merge -q --ff-only topic",
    "a merge with a conflict": "git merge -q clash >~/x || true",
    "a merge that is ended": "git merge -q clash >~/x || true; echo b >file; git commit -qam b",
    "cherry-pick": "git cherry-pick v1..topic >~/x",
    "a cherry-pick that stops": "git cherry-pick clash topic~1 topic >~/x 2>&1 || true",
    "a cherry-pick that continues": "git cherry-pick clash topic~1 topic >~/x 2>&1 || true;"
        "echo both >file; git add file; git cherry-pick --continue >~/x",
    "revert": "git revert --no-edit HEAD >~/x; git revert -n HEAD~1",
    "tag": "git tag light; git tag -a -m x annotated; git tag -d v1",
    "bisect": "git bisect start HEAD v1 >~/x; git bisect bad >~/x; echo x >>numbers",
    "bisect to its end": "git bisect start HEAD v1 -- numbers >~/x; git bisect run false >~/x;"
        "git bisect reset -q 2>~/x || git bisect reset 2>~/x",
    "reset": "git reset -q --soft HEAD~1; git reset -q --hard; git reset -q --hard topic",
    "clean": "echo x >new; mkdir d; echo x >d/e; git clean -qfdx",
    "notes": "git notes add -m note; git notes append -m more; git notes --ref x add -m y",
    "gc": "git gc -q",
    "gc at once": "echo x >new; git add new; git commit -qm x; git gc -q --prune=now --aggressive",
    "repack": "git repack -qad; git prune-packed -q; git pack-refs --all",
    "repack in parts": "git repack -qd; echo z >z; git add z; git commit -qm z; git repack -qd;"
        "git repack -qAd --write-midx --write-bitmap-index; git commit-graph write",
    "fetch": "git fetch -q origin; git fetch -q --prune --tags; git pull -q",
    "a move and a removal": "git mv file moved; git rm -q sub/x; git commit -qm moved",
    "a shell": "git status; git diff; git log -p; git show; git blame file; git describe --tags",
    "worktrees": "git worktree add -q wt topic; cd wt; echo x >new; git add .; git commit -qm x",
    "a worktree that goes": "git worktree add -q wt topic; git worktree remove wt",
    "init": "git init -q -b main inner; cd inner; echo x >x; git add .; git commit -qm inner",
    "rerere": "git -c rerere.enabled=true merge -q clash >~/x || true",
    "am": "git format-patch -q -1 topic~1; git am -q 0001*; rm 0001*",
    "an index of another version": "git update-index --index-version 4; git add .",
    "several": "git checkout -qb f; echo 1 >f1; git add .; git commit -qm f1; git checkout -q main;"
        "git merge -q --no-ff --no-edit f; git branch -d f >~/x; git gc -q; git tag done",
}  # fmt: skip


# A clone in the project is a checkout like others, except where it is.
IN_A_CLONE = ("commit", "branches", "stash", "a rebase that is ended", "gc at once", "fetch")
CROSSING = [(place, name) for place in PLACES[:2] for name in EVERYDAY]
CROSSING += [(PLACES[2], name) for name in IN_A_CLONE]


@pytest.mark.parametrize(("place", "name"), CROSSING, indirect=["place"])
def test_it_crosses(person: Person, place: Path, name: str) -> None:
    inside = os.path.relpath(place, person.project)
    command = EVERYDAY[name].replace("~/x", "/tmp/x").replace("\n", " ")
    said, _report = run(person, f"cd {inside}; {command}; cd {place}; echo ==; {STATE}")
    assert git(person, place, STATE) == said.partition("==\n")[2]
    git(person, place, "git fsck --strict --no-dangling")
    # What is in progress can be given up.
    git(
        person, place, "git reset -q --hard; git rebase --abort 2>&1 || true; git status; git gc -q"
    )


def test_a_worktree_that_is_there(person: Person, place: Path) -> None:
    inside = os.path.relpath(place, person.project)
    run(person, f"cd {inside}; git worktree add -q wt topic; echo x >wt/new; git -C wt add .")
    assert git(person, place / "wt", "git status --porcelain") == "A  new\n"
    run(person, f"cd {inside}; git -C wt commit -qm x; git gc -q")
    assert git(person, place / "wt", "git log -1 --format=%s") == "x\n"
    run(person, f"cd {inside}; git worktree remove wt; git worktree prune")
    assert "wt" not in git(person, place, "git worktree list")
    git(person, place, "git fsck")
    run(person, f"cd {inside}; git worktree add -q wt; rm -r wt")
    run(person, f"cd {inside}; git worktree prune")
    assert "wt" not in git(person, place, "git worktree list")


def test_push(person: Person, place: Path) -> None:
    """The repository there cannot be written to; it was not, and the tracking is set up."""
    inside = os.path.relpath(place, person.project)
    work = "git checkout -qb new; git commit -q --allow-empty -m pushed; git push -q -u origin new"
    recorder = Recorder(RunSpec(os.path.realpath(person.project)), person.paths)
    person.run(f"cd {inside}; {work}", keeper=recorder)
    track = "git config branch.new.remote origin; git config branch.new.merge refs/heads/new"
    run(person, f"cd {inside}; {track}; git update-ref refs/remotes/origin/new new")
    assert git(person, place, "git push; git status -sb").startswith("## new...origin/new\n")


def test_a_shallow_clone_and_more_of_it(person: Person, origin: Path) -> None:
    run(person, f"git clone -q --depth 1 file://{origin} sub")
    sub = person.project / "sub"
    assert git(person, sub, "git log --format=%s") == "nine\n"
    run(person, "cd sub; git fetch -q --depth 2")
    run(person, "cd sub; git fetch -q --unshallow; git gc -q")
    git(person, sub, "git fsck")
    assert git(person, sub, "git log --format=%s") == "nine\nours\nfirst\n"


def test_submodules(person: Person, place: Path) -> None:
    inside, lib = os.path.relpath(place, person.project), person.home / "lib"
    run(person, f"cd {inside}; git submodule --quiet add file://{lib} libs/one")
    assert git(person, place, "git status --porcelain") == "A  .gitmodules\nA  libs/one\n"
    run(person, f"cd {inside}; git commit -qm lib; cd libs/one; git checkout -qb t; echo x >>l; "
                "git commit -qam l2; git gc -q")  # fmt: skip
    assert git(person, place / "libs/one", "git log --format=%s") == "l2\nlib\n"
    run(person, f"cd {inside}; git submodule --quiet update; git submodule --quiet sync")
    git(person, place, "git fsck; cd libs/one; git fsck; git status")


def test_a_clone_with_submodules(person: Person, origin: Path) -> None:
    lib = person.home / "lib"
    git(person, person.home, f"cd seed; git submodule -q add {lib} lib; git commit -qm lib;"
                             f"git push -q {origin} main")  # fmt: skip
    run(person, f"git clone -q --recurse-submodules {origin} sub")
    assert git(person, person.project / "sub", "git submodule status").startswith(" ")
    assert git(person, person.project / "sub/lib", "git log --format=%s") == "lib\n"


@pytest.mark.parametrize("place", PLACES[:2], indirect=True)
@pytest.mark.parametrize("is_placed", [False, True])
def test_a_kill_while_an_index_is_made(
    person: Person, origin: Path, place: Path, is_placed: bool
) -> None:
    """What we write instead of a command's file is there as a whole, or the scan repeats it."""
    seen: list[bool] = []

    def is_time() -> bool:
        seen.append(any(person.paths.cache.rglob("*~made")))
        return any(seen) and seen[-1] is not is_placed

    inside = os.path.relpath(place, person.project)
    work = f"cd {inside}; echo x >x; git add x; git commit -qm packed; git repack -qad"
    assert killed_when(is_time, lambda: person.record(work))
    finish_leftovers(person.paths)
    assert person.cli("apply", "--all").returncode == 0
    assert git(person, place, "git fsck --strict; git log -1 --format=%s") == "packed\n"
    assert git(person, place, "git status --porcelain") == ""
