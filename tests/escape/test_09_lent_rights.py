# SPDX-License-Identifier: GPL-3.0-or-later
"""Attempts to leave programs in the playground or in caches that others run with the user's rights:
by setuid bits, and as hooks of a repository."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from support.bubble import by, each_overlay
from support.escape.attack import python
from support.person import Person

from ollmsandbox.sandbox.caches import all_caches
from ollmsandbox.sandbox.plan.mounts import OverlayMethod

LENT = stat.S_ISUID | stat.S_ISGID


def lent(folder: Path) -> list[str]:
    found = [path for path in folder.rglob("*") if not path.is_symlink()]
    return sorted(path.name for path in found if path.stat().st_mode & LENT)


# In a folder that was there, in one that is new, deep in it, and without rights to look.
LEND = """
mkdir -p new/a/b/c closed
for folder in . there new new/a/b/c closed; do cp /bin/true $folder/tool; done
chmod 6755 there/tool tool; chmod 4711 new/tool; chmod 2755 new/a/b/c/tool closed/tool new/a/b
chmod 100 closed
"""


@each_overlay
def test_rights_are_not_lent_in_the_playground(person: Person, way: OverlayMethod) -> None:
    (person.playground / "there").mkdir(parents=True)
    result = person.run(LEND, working_dir="playground", capabilities=by(person, way))
    assert (result.exit_code, result.stderr.text) == (0, "")
    assert (person.playground / "new/a/b/c/tool").stat().st_mode & 0o7777 == 0o755
    assert (person.playground / "closed").stat().st_mode & 0o777 == 0o100
    (person.playground / "closed").chmod(0o755)
    assert lent(person.playground) == []
    # A file system may ignore the bits, but this one does not.
    person.run_outside(f"mkdir -p out/there; cd out; {LEND} chmod 755 closed")
    assert "tool" in lent(person.project / "out")


@each_overlay
def test_rights_are_not_lent_in_caches(person: Person, way: OverlayMethod) -> None:
    (person.home / ".cache/there").mkdir(parents=True)
    found = by(person, way)
    for folder in ("~/.cache", "~/.cache", "~/.npm"):
        result = person.run(
            f"cd {folder}; mkdir -p there; {LEND} chmod 755 closed; ls", capabilities=found
        )
        assert "tool" in result.stdout.text
    folders = [caches.folder for caches in all_caches(person.paths)]
    assert folders
    assert [path for folder in folders for path in folder.rglob("tool")]
    assert [name for folder in folders for name in lent(folder)] == []


# The owner, the group and others may do everything with each new file.
OPEN = """
access = struct.pack("<I", 2)
access += b"".join(struct.pack("<HHI", who, 7, 0xFFFFFFFF) for who in (1, 4, 32))
for folder in ("there", "new/a"):
    os.makedirs(folder, exist_ok=True)
    os.setxattr(folder, "system.posix_acl_default", access)
"""


@each_overlay
def test_files_that_the_user_makes_in_the_playground_are_not_open(
    person: Person, way: OverlayMethod
) -> None:
    (person.playground / "there").mkdir(parents=True)
    person.run(python(OPEN), working_dir="playground", capabilities=by(person, way))
    make = "umask 077; for f in there new/a; do touch $f/mine; stat -c %a $f/mine; done"
    made = person.run_outside(f"cd {person.playground}; {make}")
    assert made.stdout.split() == ["600", "600"]
    # A file system may not have such rights, but this one does.
    assert person.run_outside(f"{python(OPEN)}; {make}").stdout.split() == ["666", "666"]


# In one command or in several, and by links.
PLANTS = {
    "a hook": ["git init -q --bare r; printf '#!/bin/sh\\ntouch ran' >r/hooks/post-receive; "
               "chmod 755 r/hooks/post-receive"],
    "a hook in its folder": ["git init -q w; printf '#!/bin/sh\\n' >w/.git/hooks/pre-commit; "
                             "chmod 711 w/.git/hooks/pre-commit; mv w/.git r"],
    "the repository after the hook": [
        "mkdir -p r/hooks; cp /bin/true r/hooks/post-receive",
        "git init -q --bare r",
    ],
    "the hook after the repository": [
        "git init -q --bare r",
        "cp /bin/true r/hooks/post-receive",
    ],
    "a folder by a link": [
        "git init -q --bare r; rm -r r/hooks; mkdir h; cp /bin/true h/post-receive; "
        "ln -s ../h r/hooks"
    ],
    "a hook by a link": [
        "git init -q --bare r; cp /bin/true tool; ln -sf ../../tool r/hooks/post-receive"
    ],
    "a hook that exists": ["chmod 755 r/hooks/post-receive", "git init -q --bare r"],
    "a folder that cannot be listed": [
        "git init -q --bare r; cp /bin/true r/hooks/post-receive; chmod 311 r/hooks"
    ],
}  # fmt: skip


def runs(repository: Path) -> list[str]:
    """Return the hooks that git would run."""
    names = ("post-receive", "pre-commit")
    return [n for n in names if os.access(repository / "hooks" / n, os.X_OK)]


def test_no_hook_of_a_repository_in_the_playground_is_run(person: Person) -> None:
    existing = "a hook that exists"
    places = {name: person.playground / str(number) for number, name in enumerate(PLANTS)}
    for name, place in places.items():
        place.mkdir(parents=True)
        if name == existing:
            (place / "r/hooks").mkdir(parents=True)
            (place / "r/hooks/post-receive").write_text("#!/bin/sh\n")
    for step in range(2):
        each = [f"(cd {places[n].name}; {c[step]})" for n, c in PLANTS.items() if step < len(c)]
        result = person.run("\n".join(each), working_dir="playground")
        assert (result.exit_code, result.stderr.text) == (0, "")
    for name, place in places.items():
        assert (place / "r/HEAD").exists(), name
        assert runs(place / "r") == [], name
    # They would be run outside.
    for name in set(PLANTS) - {existing}:
        folder = person.project / places[name].name
        folder.mkdir()
        for command in PLANTS[name]:
            person.run_outside(command, cwd=folder)
        assert runs(folder / "r") != [], name


def test_other_programs_in_folders_of_that_name_can_be_run(person: Person) -> None:
    person.run("mkdir -p src/hooks; cp /bin/true src/hooks/tool", working_dir="playground")
    assert person.run("src/hooks/tool", working_dir="playground").exit_code == 0


def test_a_repository_in_the_playground_can_be_used(person: Person) -> None:
    first = (
        "git init -q w && cd w && git -c user.name=a -c user.email=b commit -q --allow-empty -m x"
    )
    assert person.run(first, working_dir="playground").exit_code == 0
    again = person.run(
        "cd w && git status --porcelain && git log --oneline | wc -l", working_dir="playground"
    )
    assert (again.exit_code, again.stdout.text) == (0, "1\n")
