# SPDX-License-Identifier: GPL-3.0-or-later
"""A git repository with two commits, or a copy of it for each of many attacks."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from support.person import Person

from ollmsandbox.project.change import Report, State

COMMIT = "git -c user.name=me -c user.email=me@example.org commit -q"


def git(person: Person, command: str, folder: Path | None = None) -> str:
    """Run commands as the user does, without a sandbox; their failures are part of the story."""
    environ = person.environ | {"GIT_EDITOR": "true"}
    return person.run_outside(command, cwd=folder or person.project, env=environ).stdout


def make_checkout(person: Person, folder: Path) -> Path:
    """Make a repository; its objects are loose."""
    (person.home / ".gitconfig").write_text("[user]\nname = me\nemail = me@example.org\n")
    make = "git init -q -b main; echo right >file; mkdir tools; echo x >tools/x; git add .;"
    make += "git commit -qm first; echo more >>file; git commit -qam second; git branch other @~1"
    folder.mkdir(exist_ok=True)
    git(person, make, folder)
    assert git(person, "git log --format=%s", folder) == "second\nfirst\n"
    return folder


def copies(person: Person, names: Collection[str], prepare: str = "") -> dict[str, Path]:
    """Return a folder of the project with a copy of the repository for each attack, and leave one
    more for what is harmless."""
    first = make_checkout(person, person.home / "first")
    git(person, prepare, first)
    folders = [person.project / str(number) for number in range(len(names) + 1)]
    for folder in folders:
        shutil.copytree(first, folder, symlinks=True)
    return dict(zip(names, folders, strict=False))


def held(report: Report) -> set[str]:
    """Return what needs approval, which is all that was not applied."""
    assert not report.errors
    for item in report.changes:
        assert (item.state is State.PENDING) == item.is_held, item
    return {item.change.path for item in report.changes if item.is_held}


def is_planted(person: Person) -> bool:
    """Return whether something of the command was run, since the last call."""
    planted = person.home / "planted"
    found = planted.exists()
    planted.unlink(missing_ok=True)
    return found
