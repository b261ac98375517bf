# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox playground`: its path, its size, and clearing it."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from support.person import Person
from support.terminal import Terminal


@pytest.mark.ordinary
def test_the_path_of_the_playground_is_printed_before_it_exists(person: Person) -> None:
    assert person.cli("playground", "path").stdout == f"{person.playground}\n"
    assert person.cli("playground", "size").stdout == "0 bytes in 0 files\n"
    assert person.cli("playground", "clear").returncode == 0
    assert not person.playground.exists()
    assert person.cli("playground", "burn").returncode == 2
    assert person.cli("playground").returncode == 2


@pytest.mark.ordinary
def test_the_size_of_the_playground_is_printed(person: Person) -> None:
    person.cli("run", "-c", "head -c 3M /dev/urandom >~/playground/big")
    assert re.fullmatch(r"3\.\d MiB in 1 file\n", person.cli("playground", "size").stdout)
    person.cli("run", "-c", "mkdir ~/playground/sub; ln -s / ~/playground/sub/link")
    assert re.fullmatch(r"3\.\d MiB in 2 files\n", person.cli("playground", "size").stdout)


def test_clearing_removes_everything_and_nothing_else(person: Person) -> None:
    keep = person.home / "keep"
    keep.mkdir()
    (keep / "file").write_text("kept")
    keep.chmod(0o555)
    command = (
        "cd ~/playground; touch file .hidden; mkdir -p a/b/c; ln -s ../../../../keep link;"
        "ln -s ../../../../keep a/b/link; ln -s nowhere dangling; mkfifo fifo;"
        "touch -- -rf 'new\nline';"
        # What is left without permissions.
        "mkdir -p a/d/e f; touch a/file a/b/file a/b/c/file a/d/e/x f/file;"
        "chmod 000 a/b/c; chmod 000 a/b; chmod 555 a/d/e a/d; chmod 000 a f"
    )
    assert person.cli("run", "-c", command).returncode == 0
    assert person.cli("playground", "size").returncode == 0
    done = person.cli("playground", "clear")
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(person.playground) == []
    assert (keep / "file").read_text() == "kept"
    assert keep.stat().st_mode & 0o777 == 0o555


def test_clearing_a_deep_playground_works(person: Person) -> None:
    command = "mkdir -p ~/playground/$(printf 'd/%.0s' $(seq 1200))"
    assert person.cli("run", "-c", command).returncode == 0
    done = person.cli("playground", "clear")
    if (person.playground / "d").exists():
        subprocess.run(["rm", "-rf", person.playground / "d"], check=True)
        pytest.fail(f"a deep folder is left: {done.stderr[-500:]}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.ordinary
@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("YES", 0), ("n", 1), ("", 1)])
def test_at_a_terminal_clearing_asks_first(person: Person, answer: str, code: int) -> None:
    person.playground.mkdir(parents=True)
    (person.playground / "file").touch()
    # What is typed before the question does not answer it.
    with Terminal(person, "playground", "clear", typed_before="y\r") as terminal:
        terminal.expect(f"{person.playground} (0 bytes in 1 file)?")
        terminal.send(f"{answer}\r")
        assert terminal.end() == code
    assert (person.playground / "file").exists() == (code == 1)
