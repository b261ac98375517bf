# SPDX-License-Identifier: GPL-3.0-or-later
"""A scan ignores the same files as git."""

from __future__ import annotations

import os
import random
import subprocess
import time

import pytest
from support.folder import found, scan, write
from support.person import Person

from ollmsandbox.files import ignore
from ollmsandbox.project.records.folder import Folder

NAMES = [
    *("a", "b", "ab", "abc", "a.o", "b.o", ".hidden", "#hash", "!bang", "a b", "trail ", "x\\y"),
    *("build/a", "build/sub/b.o", "src/build/a", "src/a.o", "src/deep/a.o", "src/deep/er/abc"),
    *("doc/a.txt", "doc/sub/a.txt", "doc/sub/b.txt", "foo/bar/baz/a", "foo/bar", "a[b]c", "a-c"),
    *("ä", "]", "^", "1", "9", "A", "src/[", "deep/foo/x", "deep/foo/bar/x", "*", "?", "tab\t"),
]
PATTERNS = [
    *("a", "*.o", "build", "build/", "/build", "/build/", "src/*.o", "/*.o", "*", "/*", "*/"),
    *("**/a", "**/foo/x", "foo/**", "src/**/a.o", "**/deep/**", "**", "/**", "a/**/b", "src/**/"),
    *("doc/*.txt", "doc/**/*.txt", "doc/sub/", "foo/bar", "/foo/*/baz", "foo/*", "a**c", "***"),
    *("?", "??", "[ab]", "[!ab]", "[^ab]", "[a-c]", "[]]", "[]-a]", "[!]]", "a[[]b]c", "[c-a]"),
    *("[[:digit:]]", "[[:upper:][:digit:]]", "[[:nope:]]", "[[:digit:]", "[a", "a[-]c", "[a-]"),
    *("[^[:digit:]]", "![[:digit:]]", "!*[[:alpha:]_]", "[[:punct:]]*"),
    *("\\#hash", "#hash", "\\!bang", "!bang", "!a", "!*.o", "!build/", "!src/", "!/foo/bar"),
    *("trail\\ ", "trail ", "a b", "a b   ", "x\\\\y", "a\\", "\\a", "\\*", "\\?", "tab\t", " a"),
    *("", "/", "//", "!", "a//", "/a/", "src/deep", "deep/", "a.o\r", "ä", "src/[[]", "src/[!x]"),
    *("*a*", "*b*c", "a*c", "*.*", ".*", "f*/b*", "s?c/", "src/d*p/*", "!src/deep/a.o", "!**/a"),
]


def fits(path: str, others: set[str]) -> bool:
    """No name is both a file and a folder."""
    return not any(other.startswith(f"{path}/") or path.startswith(f"{other}/") for other in others)


def make_repository(person: Person) -> set[str]:
    subprocess.run(["git", "init", "-q", person.project], env=person.environ, check=True)
    files: set[str] = set()
    for name in NAMES:
        if fits(name, files):
            write(person.project, name)
            files.add(name)
    return files


def kept_by_git(person: Person) -> set[str]:
    command = ["git", "-c", "core.excludesFile=/dev/null", "ls-files", "-z", "--others"]
    listed = subprocess.run(
        [*command, "--exclude-standard"],
        cwd=person.project,
        env={**person.environ, "GIT_CONFIG_NOSYSTEM": "1"},
        capture_output=True,
        check=True,
    )
    return set(os.fsdecode(listed.stdout).split("\0")) - {""}


def kept_by_us(folder: Folder) -> set[str]:
    scan(folder)
    return found(folder)


@pytest.mark.ordinary
def test_each_pattern_ignores_what_git_ignores(folder: Folder, person: Person) -> None:
    make_repository(person)
    folder.manager.store  # noqa: B018
    around = ("{}", "*.txt\n{}\r\n", "*\n!*/\n{}\n")
    for number, pattern in enumerate(PATTERNS):
        text = around[number % 3].replace("{}", pattern)
        (person.project / ".gitignore").write_bytes(text.encode())
        assert kept_by_us(folder) == kept_by_git(person), text


@pytest.mark.ordinary
def test_any_ignore_files_together_ignore_what_git_ignores(folder: Folder, person: Person) -> None:
    make_repository(person)
    folder.manager.store  # noqa: B018
    choose = random.Random(5)
    ignore_files = [".gitignore", "src/.gitignore", "src/deep/.gitignore", "doc/.gitignore"]
    for _ in range(25):
        texts = {
            name: "".join(f"{line}\n" for line in choose.choices(PATTERNS, k=choose.randrange(5)))
            for name in [*ignore_files, ".git/info/exclude"]
        }
        for name, text in texts.items():
            (person.project / name).write_text(text)
        assert kept_by_us(folder) == kept_by_git(person), texts


def test_an_ignore_file_that_is_no_real_file_is_not_read(folder: Folder, person: Person) -> None:
    write(person.home, "patterns", text="*\n")
    write(person.project, "a", "b/a", "c/a")
    (person.project / ".gitignore").symlink_to(person.home / "patterns")
    os.mkfifo(person.project / "b/.gitignore")
    (person.project / "c/.gitignore").mkdir()
    scan(folder)
    assert found(folder) == {".gitignore", "a", "b/a", "c/a"}


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*a" * 60 + "b", [b"a" * 255]),
        ("*[ab]" * 60 + "c", [b"a" * 255]),
        ("x/" + "**/a/" * 40 + "b", [b"x", *[b"a"] * 200, b"c"]),
        ("*?" * 100 + "b", [b"a" * 255]),
    ],
)
def test_no_pattern_takes_long(pattern: str, names: list[bytes]) -> None:
    rules = ignore.parse_ignore_file(pattern.encode())
    assert rules is not None
    start = time.process_time()
    assert rules.decide(names, is_folder=False) is None
    # Backtracking would take centuries.
    assert time.process_time() - start < 30
