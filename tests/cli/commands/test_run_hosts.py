# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox run --host` and `--network`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.person import Person
from support.servers.world import in_world

pytestmark = pytest.mark.anybody


def test_a_host_of_the_command_line_is_reached(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        """
        done = cli("run", "--host", "www.example.org", "-c",
                   "curl -sS http://www.example.org/; curl -sS http://other.example.org/")
        assert "hello from 203.0.113.5 as www.example.org" in done.stdout, done
        assert done.stdout.count("hello") == 1
        assert "The host other.example.org was not allowed." in done.stderr, done
        """,
    )


@pytest.mark.parametrize(("answer", "is_reached"), [("y", True), ("n", False), ("", False)])
def test_hosts_are_asked_about_at_the_terminal(
    tmp_path: Path, answer: str, is_reached: bool
) -> None:
    in_world(
        tmp_path,
        f"""
        screen = at_terminal(
            ["run", "--network", "-c", "curl -sS http://www.example.org/; echo; echo END"],
            "www.example.org, port 80. Allow it? [y/N] ",
            "{answer}\\n",
        )
        assert ("hello from 203.0.113.5" in screen) is {is_reached}, screen
        assert "END" in screen
        """,
    )


def test_nobody_can_be_asked_without_a_terminal(person: Person) -> None:
    done = person.cli("run", "--network", "--", "true")
    assert done.returncode == 125
    assert "--host" in done.stderr and "--network=all" in done.stderr


@pytest.mark.parametrize(
    "host",
    [
        "",
        "*",
        "*.org",
        "localhost",
        "127.0.0.1.5",
        "a b",
        "-x",
        "198.18.0.5",
        "h\x1b[2J",
        "a:99999",
    ],
)
def test_what_is_not_a_host(person: Person, host: str) -> None:
    done = person.cli("run", f"--host={host}", "--json", "--", "true")
    assert done.returncode == 125
    assert json.loads(done.stdout)["errors"]
    assert "\x1b" not in done.stdout + done.stderr
