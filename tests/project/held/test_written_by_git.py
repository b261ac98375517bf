# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories that a command makes with git are usable outside without an approval; what a command
adds to them that git could run is held."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import changes
from support.escape.copy_back import review, settle
from support.person import Person

from ollmsandbox.project.held.git import config
from ollmsandbox.sandbox.spec import Mode

pytestmark = pytest.mark.ordinary

GIT = "git -c user.name=me -c user.email=me@example.org -c protocol.file.allow=always"


def git(person: Person, *words: str, folder: Path | None = None) -> str:
    done = person.run_outside([*GIT.split(), *words], cwd=folder or person.project, check=True)
    return done.stdout


def held(person: Person, command: str) -> set[str]:
    report = settle(person, f"set -e; {command}; touch finished")
    (person.project / "finished").unlink()
    return changes.held(report)


@pytest.fixture
def origin(person: Person, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a bare repository with one commit. Tests have it below /tmp."""
    monkeypatch.setattr(config, "UNTRUSTED", ("/proc", "/dev", "/run"))
    work = person.home / "work"
    git(person, "init", "-q", "-b", "main", str(work), folder=person.home)
    (work / "file").write_text("one\n")
    git(person, "add", ".", folder=work)
    git(person, "commit", "-qm", "first", folder=work)
    git(person, "clone", "-q", "--bare", str(work), "origin.git", folder=person.home)
    return f"file://{person.home}/origin.git"


def test_init(person: Person) -> None:
    assert held(person, f"git init -q -b main; echo x >a; git add a; {GIT} commit -qm x") == set()
    assert git(person, "status", "--short") == ""
    assert git(person, "log", "--format=%s") == "x\n"


def test_clone_and_what_is_done_with_it(person: Person, origin: str) -> None:
    assert held(person, f"git clone -q {origin} sub; git clone -q {origin[7:]} other") == set()
    sub = person.project / "sub"
    assert git(person, "status", "--short", "--branch", folder=sub) == "## main...origin/main\n"
    more = "cd sub; git config user.name 'Me; and I'; git config user.email me@example.org;"
    assert held(person, f"{more} git checkout -qb topic; cd ..") == set()
    assert held(person, "cd sub; git branch -q -u origin/main; cd ..") == set()
    assert 'name = "Me; and I"' in (sub / ".git/config").read_text()
    assert held(person, "git -C sub config alias.x '!x'") == {"sub/.git/config"}


def test_submodules(person: Person, origin: str) -> None:
    git(person, "init", "-q", "-b", "main")
    assert held(person, f"{GIT} submodule --quiet add {origin} lib/one") == set()
    assert git(person, "status", "--short") == "A  .gitmodules\nA  lib/one\n"
    assert git(
        person, "rev-parse", "--show-toplevel", folder=person.project / "lib/one"
    ).strip() == (f"{person.project}/lib/one")
    more = f"{GIT} commit -qm x; cd lib/one; git checkout -qb topic; git fetch -q; cd ../.."
    assert held(person, more) == set()
    plant = "for f in modules/lib/one/refs/remotes/x modules/refs/remotes/origin; do"
    plant += " mkdir -p .git/${f%/*}; echo 'URL: ext::x' >.git/$f; done"
    assert held(person, plant) == {
        ".git/modules/lib/one/refs/remotes/x",
        ".git/modules/refs/remotes/origin",
    }


def test_hostile_settings_beside_those_of_git(person: Person, origin: str) -> None:
    settings = [
        "core.fsmonitor touch", "core.hooksPath x", "core.sshCommand x", "alias.x !x",
        "filter.x.clean x", "remote.origin.uploadpack x", "remote.x.url ext::x",
        "submodule.x.update !x", "url.x.insteadOf y", "core.worktree ..", "include.path x",
        "branch.main.remote ./evil", "remote.origin.url ~/playground/evil", "core.pager x",
    ]  # fmt: skip
    commands = [f"git clone -q {origin} {number}" for number in range(len(settings))]
    commands += [f"git -C {n} config {words}" for n, words in enumerate(settings)]
    assert held(person, "; ".join(commands)) == {f"{n}/.git/config" for n in range(len(settings))}


def test_a_held_setting_is_not_applied_with_a_harmless_one(person: Person) -> None:
    git(person, "init", "-q")
    assert held(person, "git config core.fsmonitor 'touch planted'") == {".git/config"}
    assert held(person, "git config user.name me") == {".git/config"}
    assert "planted" not in (person.project / ".git/config").read_text()


def test_an_identity_does_not_replace_the_users(person: Person) -> None:
    git(person, "init", "-q")
    own = person.home / ".gitconfig"
    for text in ("[user]\n\temail = me@example.org\n", '[includeIf "gitdir:~"]\n\tpath = work\n'):
        own.write_text(text)
        assert held(person, "git config user.email you@example.org") == {".git/config"}
        person.cli("changes")
        assert person.cli("discard").returncode == 0
    own.write_text("[alias]\n\tlast = log -1\n")
    assert held(person, "git config user.email you@example.org") == set()
    own.write_text("[user]\n\temail = me@example.org\n")
    # A repository of the command's own, such as tests make.
    assert held(person, "git init -q new; git -C new config user.email you@example.org") == set()


def test_a_module_that_leads_elsewhere(person: Person, origin: str) -> None:
    git(person, "init", "-q", "-b", "main")
    attack = f"{GIT} submodule --quiet add {origin} lib; mv lib real; ln -s {person.home} lib"
    assert ".git/modules/lib/config" in held(person, attack)


def test_an_approved_setting_stays(person: Person, origin: str) -> None:
    git(person, "init", "-q")
    run = settle(person, "git config alias.x '!x'", Mode.REVIEW).run_id
    review(person, "apply", run)
    assert held(person, "git config user.name me") == set()
    assert git(person, "config", "alias.x") == "!x\n"
    assert held(person, f"git remote add origin {origin}") == {".git/config"}
    person.cli("changes")
    assert person.cli("discard").returncode == 0
    assert held(person, "git config --unset alias.x") == {".git/config"}
