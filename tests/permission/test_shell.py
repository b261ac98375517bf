# SPDX-License-Identifier: GPL-3.0-or-later
"""Which command lines are read as one simple command: real shells run them with exactly these
words."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from support.timing import PATIENCE

from ollmsandbox.permission.shell import (
    UnparsedCommand,
    entered_folders,
    quote,
    read_command_line,
)

pytestmark = pytest.mark.ordinary

SIMPLE = {
    "one word": ("make", ["make"]),
    "some words": ("make -j 4 test", ["make", "-j", "4", "test"]),
    "spaces around": ("  ls   -l  ", ["ls", "-l"]),
    "a path": ("./build.sh --fast", ["./build.sh", "--fast"]),
    "single quotes": ("echo 'a  b'", ["echo", "a  b"]),
    "single quotes hold everything": ("echo '$(x);`y`>z*'", ["echo", "$(x);`y`>z*"]),
    "double quotes": ('echo "a  b"', ["echo", "a  b"]),
    "double quotes hold patterns": ('find -name "*.c;~#"', ["find", "-name", "*.c;~#"]),
    "an escaped dollar in double quotes": ('echo "\\$HOME"', ["echo", "$HOME"]),
    "an escaped quote in double quotes": ('echo "a\\"b"', ["echo", 'a"b']),
    "a backslash in double quotes": ('echo "a\\\\b\\c"', ["echo", "a\\b\\c"]),
    "an escaped blank": ("echo a\\ b", ["echo", "a b"]),
    "an escaped pattern": ("echo \\*", ["echo", "*"]),
    "an escaped semicolon": ("find . -exec true \\;", ["find", ".", "-exec", "true", ";"]),
    "an empty word": ("echo '' \"\"", ["echo", "", ""]),
    "a word of several parts": ("echo a'b'\"c\"\\d", ["echo", "abcd"]),
    "a quoted program": ("'make' test", ["make", "test"]),
    "an escaped program": ("\\ls", ["ls"]),
    "an option with an equals sign": ("cc --std=c11", ["cc", "--std=c11"]),
    "an argument like an assignment": ("make CC=gcc", ["make", "CC=gcc"]),
    "git's names": ("git diff HEAD~1 HEAD^", ["git", "diff", "HEAD~1", "HEAD^"]),
    "a percent sign": ("date +%Y", ["date", "+%Y"]),
    "a comma, an at and a colon": ("scp a@b:c d,e", ["scp", "a@b:c", "d,e"]),
    "a closing bracket": ("echo ]", ["echo", "]"]),
    "reserved words later": ("echo if then do", ["echo", "if", "then", "do"]),
    "an interpreter with code": ("python3 -c 'import x'", ["python3", "-c", "import x"]),
    "a program that runs another": ("env A=b make", ["env", "A=b", "make"]),
    "a shell with a script": ("sh build.sh", ["sh", "build.sh"]),
    "a cat": ("cat cache", ["cat", "cache"]),
}

UNREAD = {
    "nothing": ("", "names no program"),
    "only blanks": ("   ", "names no program"),
    "an empty program": ("'' x", "names no program"),
    "a semicolon": ("make; rm x", "several commands"),
    "a semicolon at the end": ("make;", "several commands"),
    "a semicolon in a word": ("make;rm", "several commands"),
    "and": ("make && rm x", "several commands"),
    "or": ("make || rm x", "several commands"),
    "a pipe": ("make | sh", "several commands"),
    "the background": ("make &", "several commands"),
    "a newline": ("make\nrm x", "more than one line"),
    "a newline at the end": ("make\n", "more than one line"),
    "a newline in quotes": ("echo 'a\nb'", "more than one line"),
    "a carriage return": ("make\rrm", "more than one line"),
    "a continued line": ("make \\\n test", "more than one line"),
    "a variable": ("echo $HOME", "inserts a variable"),
    "a variable in braces": ("echo ${HOME}", "inserts a variable"),
    "a variable in double quotes": ('echo "$HOME"', "inserts a variable"),
    "a substitution": ("echo $(id)", "inserts a variable"),
    "a substitution in double quotes": ('echo "$(id)"', "inserts a variable"),
    "a backtick": ("echo `id`", "another command's output"),
    "a backtick in double quotes": ('echo "`id`"', "another command's output"),
    "arithmetic": ("echo $((1+1))", "inserts a variable"),
    "a dollar quote": ("echo $'a\\nb'", "inserts a variable"),
    "a dollar at the end": ("echo a$", "inserts a variable"),
    "a variable as the program": ("$x", "inserts a variable"),
    "output to a file": ("echo x > y", "redirects output"),
    "output added to a file": ("echo x >>y", "redirects output"),
    "errors to a file": ("echo x 2>y", "redirects output"),
    "input from a file": ("sort <y", "redirects input"),
    "a here-document": ("cat <<E", "redirects input"),
    "a here-string": ("cat <<<x", "redirects input"),
    "a substituted process": ("diff <(a) <(b)", "redirects input"),
    "a subshell": ("(make)", "parentheses"),
    "a function": ("ls() true", "parentheses"),
    "a group": ("{ make }", "braces"),
    "braces": ("rm a{b,c}", "braces"),
    "empty braces": ("find -exec x {} +", "braces"),
    "a star": ("rm *", "pattern"),
    "a star in a word": ("rm a*.o", "pattern"),
    "a question mark": ("rm ?", "pattern"),
    "a bracket": ("rm [ab]", "pattern"),
    "a test": ("[ -e x ]", "pattern"),
    "a tilde": ("rm ~", "home folder"),
    "a tilde with a path": ("rm ~/x", "home folder"),
    "another user's tilde": ("rm ~root", "home folder"),
    "a tilde in an assignment": ("make A=~/x", "home folder"),
    "a tilde after a colon": ("make A=b:~", "home folder"),
    "a comment": ("make # test", "comment"),
    "a comment without a blank": ("make #test", "comment"),
    "an exclamation mark": ("! make", "exclamation"),
    "an earlier command": ("!!", "exclamation"),
    "an earlier command in double quotes": ('echo "!x"', "exclamation"),
    "an assignment": ("A=b make", "sets a variable"),
    "an assignment alone": ("A=b", "sets a variable"),
    "an assignment with a plus": ("A+=b make", "sets a variable"),
    "a path for programs": ("PATH=. make", "sets a variable"),
    "if": ("if x", "shell keyword"),
    "a loop": ("while make", "shell keyword"),
    "the end of a loop": ("done", "shell keyword"),
    "time": ("time make", "shell keyword"),
    "a second process": ("coproc make", "shell keyword"),
    "a double bracket, quoted": ("'[[' a", "shell keyword"),
    "a job": ("%1", "shell keyword"),
    "eval": ("eval 'a; b'", "passes text to a shell"),
    "a sourced file": (". ./x", "passes text to a shell"),
    "source": ("source x", "passes text to a shell"),
    "exec": ("exec make", "passes text to a shell"),
    "command": ("command make", "passes text to a shell"),
    "an alias": ("alias ls=rm", "passes text to a shell"),
    "a trap": ("trap 'rm x' EXIT", "passes text to a shell"),
    "a shell's text": ("sh -c 'a; b'", "passes text to a shell"),
    "a shell's text by its path": ("/bin/bash -c x", "passes text to a shell"),
    "a shell's text among options": ("bash -ec x", "passes text to a shell"),
    "a shell behind env": ("env sh -c x", "passes text to a shell"),
    "a shell behind sudo": ("sudo -n bash -lc x", "passes text to a shell"),
    "a shell behind xargs": ("xargs -n1 sh -c x", "passes text to a shell"),
    "a shell behind find": ("find -exec sh -c x \\;", "passes text to a shell"),
    "a subscript in arithmetic": ("let 'a[$(x)]'", "passes text to a shell"),
    "a subscript in a test": ("test -v 'a[$(x)]'", "passes text to a shell"),
    "a subscript in a bracket": ("'[' -v 'a[$(x)]' ]", "passes text to a shell"),
    "a subscript that is printed to": ("printf -v 'a[$(x)]' y", "passes text to a shell"),
    "a subscript in one word": ("printf '-va[$(x)]' y", "passes text to a shell"),
    "a subscript that is read to": ("read 'a[$(x)]'", "passes text to a shell"),
    "a subscript that is declared": ("declare 'a[$(x)]=1'", "passes text to a shell"),
    "a callback": ("mapfile -c 1 -C x", "passes text to a shell"),
    "a completion": ("compgen -C x", "passes text to a shell"),
    "a job's command": ("jobs -x make", "passes text to a shell"),
    "a single quote without end": ("echo 'a", "unclosed quote"),
    "a double quote without end": ('echo "a', "unclosed quote"),
    "a double quote that is escaped": ('echo "a\\"', "unclosed quote"),
    "a double quote that ends in a backslash": ('echo "a\\', "unclosed quote"),
    "a backslash at the end": ("echo a\\", "backslash"),
    "a tab": ("make\ttest", "control characters"),
    "an escape": ("make\x1b[8m", "control characters"),
    "a zero byte": ("make\0", "control characters"),
    "a deletion": ("make\x7f", "control characters"),
    "a letter that looks like another": ("m\u0430ke", "look like others"),
    "a look-alike blank": ("make\u00a0test", "look like others"),
    "a zero-width space": ("make\u200b", "look like others"),
    "a right-to-left mark": ("make \u202etset", "look like others"),
    "a look-alike semicolon": ("make\uff1b rm", "look like others"),
    "an undecodable byte": ("make \udcff", "look like others"),
    "a text without end": ("make " + "a" * 5000, "too long"),
}  # fmt: skip


@pytest.mark.parametrize("case", SIMPLE)
def test_it_is_one_simple_command(case: str) -> None:
    text, words = SIMPLE[case]
    assert read_command_line(text) == tuple(words)
    # They are written so that they are read again.
    assert read_command_line(quote(words)) == tuple(words)


@pytest.mark.parametrize("case", UNREAD)
def test_it_is_not_one_simple_command(case: str) -> None:
    text, why = UNREAD[case]
    with pytest.raises(UnparsedCommand) as caught:
        read_command_line(text)
    assert why in caught.value.why


def test_two_spellings_of_the_same_words_are_written_alike() -> None:
    one, two = read_command_line("grep  'a b' \"c\""), read_command_line("gre\\p a\\ b c")
    assert quote(one) == quote(two) == "grep 'a b' c"


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


@cache
def simple_texts() -> list[tuple[str, tuple[str, ...]]]:
    """Return random texts that are read as simple commands, and their words."""
    chance = random.Random(SEED)
    made = []
    for number in range(COUNT):
        pieces = (PIECES, SAFE_PIECES, SAFE_PIECES + QUOTED)[number % 3]
        body = "".join(chance.choices(pieces, k=chance.randint(0, 12)))
        text = chance.choice(STARTS) + chance.choice(("", " ", " ", " ")) + body
        with contextlib.suppress(UnparsedCommand):
            words = read_command_line(text)
            if words[0] == "stub":
                made.append((text, words))
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files that patterns would match, and a home folder for ~."""
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
        timeout=PATIENCE,
        check=False,
    )
    assert not done.stderr, done.stderr.decode(errors="replace")
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_thousands_of_texts_mean_what_was_read(shell: Sequence[str], folder: Path) -> None:
    """One process runs them all: a function in the program's place prints its words."""
    ours = simple_texts()
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


@pytest.mark.parametrize("case", SIMPLE)
def test_a_real_program_gets_the_words(case: str, folder: Path) -> None:
    text, words = SIMPLE[case]
    if words[0] == "echo":
        # Every shell has one of its own; a program of another name gets the same.
        text, words = text.replace("echo", "ech", 1), ["ech", *words[1:]]
    programs = folder.parent / "programs"
    programs.mkdir()
    stub = (programs if "/" not in words[0] else folder) / words[0]
    stub.write_text('#!/bin/sh\nprintf \'%s\\0\' "${0##*/}" "$@"\n')
    stub.chmod(0o755)
    for shell in SHELLS:
        said = run(shell, folder, "-c", text, path=str(programs))
        assert said == _printed([os.path.basename(words[0]), *words[1:]]), shell


@pytest.mark.parametrize(
    ("text", "folders"),
    [
        ("cd a && (cd b && make); cd c", ["a", "a/b", "a/c"]),
        ("cd 'a b'\ncd \"c\" || exit", ["a b", "a b/c"]),
        ("cd /a;cd b&make", ["/a", "/a/b"]),
        ("cd -- a | cd - ; cd ; cd a b", ["a"]),
        ("(cd a)) && cd b", ["a", "b"]),
        ("echo 'cd a' && echo \"; cd b\" \\; cd c", []),
        ("cd $a && cd `b` && cd *", []),
        ("'" * 5000, []),
    ],
)
def test_folders_that_a_command_changes_to(text: str, folders: list[str]) -> None:
    assert entered_folders(text) == folders
