# SPDX-License-Identifier: GPL-3.0-or-later
"""A program that reads untrusted data can do nothing but return a result."""

from __future__ import annotations

import os
import socket
import sys

import pytest
from support.person import Person
from support.timing import PATIENCE

from ollmsandbox.sandbox.isolated import run_isolated


def isolated(
    person: Person, code: str, data: bytes = b"", most: int = 1000, seconds: float = PATIENCE
) -> bytes | None:
    argv = (sys.executable, "-I", "-c", f"import os, socket, sys\n{code}")
    return run_isolated(argv, data, person.environ, most=most, timeout=seconds)


def test_the_result_comes_back(person: Person) -> None:
    code = "sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])"
    assert isolated(person, code, b"abc\0") == b"\0cba"
    # More than a pipe takes at once.
    assert isolated(person, code, b"a" * 5_000_000, most=5_000_000) == b"a" * 5_000_000


def test_without_a_result_there_is_none(person: Person) -> None:
    assert isolated(person, "print('x'); sys.exit(1)") is None
    assert isolated(person, "print('x' * 2000)") is None
    assert isolated(person, "import time; time.sleep(100_000)", seconds=1) is None


def test_it_can_reach_nothing(person: Person) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        abstract.bind(f"\0ollmsandbox-isolated-{os.getpid()}")
        abstract.listen()
        (person.home / "letter").write_text("dear")
        attacks = (
            f"open({str(person.home / 'letter')!r})",
            "open('/etc/passwd')",
            "open('/made', 'w')",
            f"open({str(person.home / 'made')!r}, 'w')",
            f"socket.create_connection({server.getsockname()!r})",
            f"socket.socket(socket.AF_UNIX).connect({abstract.getsockname()!r})",
            f"os.kill({os.getpid()}, 0)",
            "open('/proc/sys/kernel/core_pattern', 'w')",
        )
        for attack in attacks:
            code = f"try:\n    {attack}\nexcept OSError:\n    print('refused')"
            assert isolated(person, code) == b"refused\n", attack


def test_it_has_no_variables(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    code = "print(sorted(os.environ))"
    assert isolated(person, code) == b"['LC_ALL', 'PWD']\n"
