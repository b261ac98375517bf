# SPDX-License-Identifier: GPL-3.0-or-later
"""Other spellings of the attacks through git: a repository with links in it, several runs in a row,
and commands without a slash in the user's settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.escape.copy_back import in_each, of_each, settle
from support.escape.repositories import copies, git, is_planted, make_checkout
from support.person import Person

from ollmsandbox.project import capture
from ollmsandbox.project.held.git import judge
from ollmsandbox.project.held.git.objects import Allowance

pytestmark = pytest.mark.ordinary

HARM = "harm() { printf '#!/bin/sh\\ntouch ~/planted\\n' >$1; chmod +x $1; }; "


PREPARE = """
git branch -qD other; git remote add origin ssh://example.org/x; git gc -q; mkdir -p .git/hooks
"""


@pytest.fixture
def checkout(person: Person) -> Path:
    """A repository with two commits in one pack."""
    made = make_checkout(person, person.project)
    git(person, PREPARE)
    return made


def hook(text: str) -> str:
    return f"printf '#!/bin/sh\\n{text}\\n' >.git/hooks/pre-commit; chmod +x .git/hooks/pre-commit"


# What the user has, what the command does, and what the user does then.
PLANTED = {
    "a link to a folder of hooks": (
        "mkdir githooks; rm -r .git/hooks; ln -s ../githooks .git/hooks",
        "harm githooks/pre-commit", "git commit --allow-empty -m x"),
    "a link to the settings": (
        "mv .git/config tools/c; ln -s ../tools/c .git/config",
        "git config -f tools/c core.fsmonitor 'touch ~/planted; false'", "git status"),
    "a link to a folder of attributes": (
        "mv .git/info tools/info; ln -s ../tools/info .git/info;"
        "git config diff.x.textconv 'touch ~/planted; cat'",
        "mkdir -p tools/info; echo '* diff=x' >tools/info/attributes; echo z >>file", "git diff"),
    "a script of an alias": ("git config alias.st '!sh st'", "harm st", "git st"),
    "a script of a trailer": ("git config trailer.x.cmd 'sh tr'", "harm tr",
        "git commit --allow-empty -m x --trailer x=1"),
    "a script instead of ssh": ("git config core.sshCommand 'sh s'", "harm s", "git fetch"),
    "a list of commands": (
        f"{hook('while read l; do $l; done <checks')}; echo true >checks",
        "echo touch $HOME/planted >checks", "git commit --allow-empty -m x"),
    "a module in a word of Python": (
        hook('python3 -c "import own"'),
        "echo 'import os; os.system(\"touch ~/planted\")' >own.py",
        "git commit --allow-empty -m x"),
    "one of several modules": (
        hook('python3 -c "import os as o, own"'),
        "echo 'import os; os.system(\"touch ~/planted\")' >own.py",
        "git commit --allow-empty -m x"),
    "a module in a folder": (
        hook('PYTHONPATH=tools python3 -c "import own"'),
        "echo 'import os; os.system(\"touch ~/planted\")' >tools/own.py",
        "git commit --allow-empty -m x"),
    "a module of a package": (
        "mkdir tools/lib; echo >tools/lib/some.py;"
        + hook('python3 -c "from tools.lib import some, own"'),
        "echo 'import os; os.system(\"touch ~/planted\")' >tools/lib/own.py",
        "git commit --allow-empty -m x"),
    "an option with a folder": (
        f"{hook('make -s -Ctools -f rules')}; echo all: >tools/rules",
        "printf 'all:\\n\\ttouch ~/planted\\n' >tools/rules", "git commit --allow-empty -m x"),
}  # fmt: skip


def test_git_runs_nothing_of_the_command_s(person: Person) -> None:
    folders = copies(person, PLANTED, PREPARE)
    for name, (prepare, _, _) in PLANTED.items():
        git(person, prepare, folders[name])
    report = settle(person, HARM + in_each(plant for _, plant, _ in PLANTED.values()))
    waiting = of_each(PLANTED, (item.change.path for item in report.changes if item.is_held))
    for name, (_, plant, then) in PLANTED.items():
        assert waiting[name], name
        git(person, then, folders[name])
        assert not is_planted(person), name
        # The attack would work.
        git(person, f"{HARM}{plant}; {then}", folders[name])
        assert is_planted(person), name


@pytest.mark.parametrize("part", ["objects", "refs", "HEAD"])
def test_a_repository_with_links_is_not_new(person: Person, checkout: Path, part: str) -> None:
    """What git writes for a new one, such as the address of a remote, does not cross."""
    if part == "HEAD":
        git(person, "rm .git/HEAD; ln -s refs/heads/main .git/HEAD")
    else:
        git(person, f"mv .git/{part} ~/{part}; ln -s ~/{part} .git/{part}")
    assert "second" in git(person, "git log")
    settle(person, "git config remote.origin.url https://example.com/evil")
    assert "example.org" in git(person, "git config remote.origin.url")


# Each is held in the first run, and must not make the deletions in the second one harmless.
FALSE_COPIES = {
    "a pack": "cp $(ls *.idx) $fake.idx; echo PACK >$fake.pack",
    "an index": "i=$(ls *.idx); rm $i; printf '\\377tOc\\0\\0\\0\\2' >$i;"
    "head -c 1064 /dev/zero >>$i",
    "loose objects": "for id in $(git rev-list --all --objects --no-object-names); do"
    " mkdir -p ../${id:0:2}; echo x >../${id:0:2}/${id:2}; done",
}


@pytest.mark.parametrize("name", FALSE_COPIES)
def test_objects_that_only_a_held_copy_has(person: Person, checkout: Path, name: str) -> None:
    fake = f"pack-{'a' * 40}"
    report = settle(person, f"fake={fake}; cd .git/objects/pack; {FALSE_COPIES[name]}")
    assert any(item.is_held for item in report.changes)
    settle(person, f"cd .git/objects/pack; rm -f $(ls | grep -v {fake})")
    assert "right" in git(person, "git log -p")
    assert git(person, "git fsck; echo $?").endswith("0\n")


def test_an_address_of_a_submodule_that_comes_back(person: Person, checkout: Path) -> None:
    git(person, "git config submodule.x.url https://example.org/x")
    settle(person, "git config --remove-section submodule.x")
    settle(person, "git config submodule.x.url https://example.com/evil")
    assert git(person, "git config submodule.x.url") == "https://example.org/x\n"


def test_references_do_not_go_without_the_packed_ones(person: Person, checkout: Path) -> None:
    git(person, "git branch other; git commit -q --allow-empty -m third")
    settle(person, "git replace HEAD~1 HEAD; git pack-refs --all")
    assert git(person, "git log --format=%s other") == "second\nfirst\n"
    assert git(person, "git log --format=%s") == "third\nsecond\nfirst\n"


def test_history_that_is_cut_off(person: Person, checkout: Path) -> None:
    """Git takes the commits in this file for first ones, and cleans up what was before them."""
    report = settle(person, "git rev-parse HEAD >.git/shallow")
    assert [item.change.path for item in report.changes if item.is_held] == [".git/shallow"]
    assert git(person, "git log --format=%s") == "second\nfirst\n"


def test_a_reference_that_looks_like_an_option(person: Person, checkout: Path) -> None:
    report = settle(
        person, "for r in heads/-x tags/--exec=x; do git rev-parse @ >.git/refs/$r; done"
    )
    assert {item.change.path for item in report.changes if item.is_held} == {
        ".git/refs/heads/-x",
        ".git/refs/tags/--exec=x",
    }


def test_a_reference_that_a_prompt_would_obey(person: Person, checkout: Path) -> None:
    """Many show the branch as a part of a text that the shell reads again."""
    names = ("x$(touch${IFS}x)", "x`x`")
    report = settle(person, "".join(f"git checkout -qb '{name}'; " for name in names))
    assert {f".git/refs/heads/{name}" for name in names} | {".git/HEAD"} <= {
        item.change.path for item in report.changes if item.is_held
    }
    assert git(person, "git branch --show-current") == "main\n"


@pytest.mark.parametrize(
    "attack",
    [
        "mkdir .git/refs/heads/main.lock .git/logs/HEAD.lock",
        "echo 'ref: refs/heads/../../x' >.git/HEAD",
        "git rev-parse @ >.git/refs/heads/x..y",
    ],
)
def test_references_that_git_cannot_use(person: Person, checkout: Path, attack: str) -> None:
    """The user's next commit would fail."""
    assert all(item.is_held for item in settle(person, attack).changes)
    assert "[main " in git(person, "git commit --allow-empty -m third")


def test_more_packs_than_anybody_makes(
    person: Person, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(capture, "_index_pack", lambda _paths, pack, _width: seen.append(pack))
    make = "for n in $(seq 150); do touch .git/objects/pack/pack-$(printf %040x $n).pack; done"
    assert all(item.is_held for item in settle(person, make).changes)
    assert len(seen) == 100


def test_objects_of_many_repositories_are_unpacked_only_so_far(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "Allowance", lambda: Allowance(unpacked=4 << 20))
    make = "for r in a b; do git init -q $r; head -c 3000000 /dev/zero | git -C $r hash-object -w"
    report = settle(person, f"{make} --stdin; done")
    objects = [item for item in report.changes if item.change.path[2:].startswith(".git/objects/")]
    assert sum(item.is_held for item in objects) == 1
    assert sum(not item.is_held and not item.change.ends_folder for item in objects) > 0


def test_other_content_among_the_objects_of_a_plain_folder(person: Person, checkout: Path) -> None:
    """The user's repository has its objects in a folder that is no repository."""
    git(person, "mv .git/objects objs; mkdir -p .git/objects/info .git/objects/pack;"
                    "echo ../../objs >.git/objects/info/alternates")  # fmt: skip
    assert "right" in git(person, "git log -p")
    report = settle(person, "rm -r objs/pack; mkdir -p objs/aa; echo x >objs/aa/x")
    files = [item for item in report.changes if not item.change.ends_folder]
    assert files and all(item.is_held for item in files if item.change.path.count("/") == 2)
    assert "right" in git(person, "git log -p")
