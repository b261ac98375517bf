# SPDX-License-Identifier: GPL-3.0-or-later
"""A command that pauses in its sandbox while a test changes something outside."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from support.cli_inline import cli_here
from support.cli_server import Started
from support.person import Person
from support.timing import PATIENCE, wait_for

WAIT = """
touch "$HOME/playground/ready"
while [ ! -e "$HOME/playground/go" ]; do sleep 0.01; done
"""


@contextlib.contextmanager
def running(person: Person, command: str, *options: str) -> Iterator[Started]:
    """Yield a command that has reported to be ready, and pauses."""
    person.share_playground()
    for name in ("ready", "go"):
        (person.playground / name).unlink(missing_ok=True)
    process = person.start("run", *options, "-c", command)
    try:
        wait_for(lambda: (person.playground / "ready").exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        yield process
        (person.playground / "go").touch()
        process.wait(PATIENCE)
    finally:
        process.end()


def run_while(
    person: Person, command: str, act: Callable[[], object], *options: str
) -> dict[str, Any]:
    with running(person, command + WAIT, "--json", *options) as process:
        act()
        (person.playground / "go").touch()
        said, complained = process.communicate(timeout=PATIENCE)
    assert said, complained
    found: dict[str, Any] = json.loads(said)
    return found


def states(document: dict[str, Any]) -> dict[str, str]:
    return {change["path"]: change["state"] for change in document["changes"]}


def last_changes(person: Person) -> dict[str, Any]:
    done = cli_here(person, "changes", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def kill(person: Person, process: Started) -> None:
    process.kill()
    process.wait()
    for file in person.paths.cache.glob("overlay-*/process"):
        pid = file.read_text().split()[0]
        wait_for(lambda pid=pid: not os.path.exists(f"/proc/{pid}"))  # type: ignore[misc]
