# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever is read as a simple command, real shells run with exactly these words."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from test_shell import SIMPLE

from ollmsandbox.permission.shell import Simple, read

pytestmark = pytest.mark.anybody

SHELLS = (("/bin/dash",), ("/bin/bash",), ("/bin/bash", "--posix"))
# Every character that means something to some shell, often, and some that do not.
PIECES = (
    *"abc01 -./,:=@%+^_~]\\'\"  ",
    *"$`!*?[{}#;&|<>()\n\t\x01\u00e9",
    *("a", "b", "ab", "--a=", "'", '"', "\\", "''", '""', " ", "  ", "'a b'", '"a b"', "\\ "),
    *("$a", "${a}", "`a`", "$(a)", "$'", '$"', "~", "=~", ":~", "~a", "a~1", "{a,b}", "a*", "[a]"),
    *("&&", "||", "2>", "<<", "#a", " #", "!a", "\\\\", '\\"', "\\'", "\\$", "'\\''"),
)
# As a rule nothing is left of a text with one of these; in quotes they are harmless.
SAFE_PIECES = tuple(piece for piece in PIECES if not set(piece) & set("$`!*?[{}#;&|<>()\n\t\x01é"))
QUOTED = tuple(f"'{piece}'" for piece in PIECES if "'" not in piece and piece.isprintable())
STARTS = ("stub", "'stub'", 'st"ub"', "s\\tub", "'s'tu\"b\"", " stub")
SEED = 20240917
COUNT = 12000


def texts() -> list[str]:
    chance = random.Random(SEED)
    made = []
    for number in range(COUNT):
        pieces = (PIECES, SAFE_PIECES, SAFE_PIECES + QUOTED)[number % 3]
        body = "".join(chance.choices(pieces, k=chance.randint(0, 12)))
        made.append(chance.choice(STARTS) + chance.choice(("", " ", " ", " ")) + body)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With files that patterns would find, and a home that ~ would name."""
    place = tmp_path / "folder"
    place.mkdir()
    for name in ("a", "b", "ab", "a b", "-a", "0"):
        (place / name).touch()
    return place


def run(shell: Sequence[str], folder: Path, *arguments: str, path: str = "/nonexistent") -> bytes:
    done = subprocess.run(
        [*shell, *arguments],
        cwd=folder,
        env={"PATH": path, "HOME": "/somebody", "a": "value", "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert not done.stderr, done.stderr.decode(errors="replace")
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_thousands_of_texts_mean_what_was_read(shell: Sequence[str], folder: Path) -> None:
    """All in one process: a function in the program's place prints its words."""
    found = [(text, reading) for text in texts() if isinstance(reading := read(text), Simple)]
    ours = [(text, reading.words) for text, reading in found if reading.words[0] == "stub"]
    assert len(ours) > COUNT / 10
    script = folder.parent / "script"
    lines = ["stub() { printf '%s\\0' \"$@\"; printf '\\n'; }"]
    # One that ends before the others is noticed by what it did not print.
    lines += [line for text, _ in ours for line in (text, "printf '=\\n'")]
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    said = run(shell, folder, str(script)).split(b"\n=\n")
    for (text, words), printed in zip(ours, said, strict=False):
        assert printed == _printed(words[1:]), text
    assert len(said) == len(ours) + 1


def _printed(words: Sequence[str]) -> bytes:
    # printf prints its format once also when there is nothing to print.
    return b"".join(word.encode() + b"\0" for word in words) or b"\0"


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize("case", SIMPLE)
def test_a_real_program_gets_the_words(case: str, shell: Sequence[str], folder: Path) -> None:
    text, words = SIMPLE[case]
    if words[0] == "echo":
        # Every shell has one of its own; a program of another name gets the same.
        text, words = text.replace("echo", "ech", 1), ["ech", *words[1:]]
    programs = folder.parent / "programs"
    programs.mkdir()
    stub = (programs if "/" not in words[0] else folder) / words[0]
    stub.write_text('#!/bin/sh\nprintf \'%s\\0\' "${0##*/}" "$@"\n')
    stub.chmod(0o755)
    said = run(shell, folder, "-c", text, path=str(programs))
    assert said == _printed([os.path.basename(words[0]), *words[1:]])
