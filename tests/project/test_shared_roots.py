# SPDX-License-Identifier: GPL-3.0-or-later
"""Two projects share a linked folder: neither applies or discards the other's pending changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cli_inline import cli_here
from support.person import Person

from ollmsandbox.project.recorder import Recorder
from ollmsandbox.sandbox.spec import RunSpec

pytestmark = pytest.mark.ordinary


@pytest.fixture
def both(person: Person) -> tuple[Person, Person, Path]:
    """Let both projects have a pending change of the same file."""
    shared = person.home / "shared"
    shared.mkdir()
    (shared / "file").write_text("old\n")
    people = [person, Person(person.home, person.home / "another", person.environ)]
    for number, one in enumerate(people, 1):
        one.project.mkdir(exist_ok=True)
        (one.project / "link").symlink_to(shared)
        assert cli_here(one, "roots", "add", str(shared)).returncode == 0
        command = f"echo {number} >link/file; echo {number} >own"
        assert one.cli("run", "--apply", "review", "-c", command).returncode == 0
    return people[0], people[1], shared / "file"


def states(person: Person) -> dict[str, str]:
    found = json.loads(cli_here(person, "changes", "--json").stdout)
    return {Path(change["path"]).name: change["state"] for change in found["changes"]}


def test_each_project_applies_its_own(both: tuple[Person, Person, Path]) -> None:
    first, second, file = both
    assert cli_here(first, "apply", "--all").returncode == 0
    assert file.read_text() == "1\n"
    assert states(first) == {"file": "applied", "own": "applied"}
    assert states(second) == {"file": "pending", "own": "pending"}
    # To this project it looks as if the user had changed it.
    assert cli_here(second, "apply", "--all").returncode == 1
    assert file.read_text() == "1\n"
    assert states(second) == {"file": "conflict", "own": "applied"}
    run = json.loads(cli_here(second, "changes", "--json").stdout)["run_id"]
    assert cli_here(second, "apply", run, str(file)).returncode == 0
    assert file.read_text() == "2\n"


def test_each_project_discards_its_own(both: tuple[Person, Person, Path]) -> None:
    first, second, file = both
    assert cli_here(second, "discard", "--all").returncode == 0
    assert states(first) == {"file": "pending", "own": "pending"}
    assert cli_here(first, "apply", "--all").returncode == 0
    assert file.read_text() == "1\n"


def test_a_root_without_pending_changes_has_no_layer(both: tuple[Person, Person, Path]) -> None:
    first, _, shared = both
    project = str(first.project)
    other = first.home / "other"
    other.mkdir()
    (first.project / "other").symlink_to(other)
    assert cli_here(first, "roots", "add", str(other)).returncode == 0
    roots = Recorder(RunSpec(project), first.paths).roots()
    has_layer = {root.path: bool(root.layer) for root in roots}
    assert has_layer == {project: True, str(shared.parent): True, str(other): False}
    command = "cat link/file; echo new >other/file"
    assert first.cli("run", "--apply", "review", "-c", command).stdout == "1\n"
    assert first.cli("run", "-c", "cat link/file other/file").stdout == "1\nnew\n"
    assert not (other / "file").exists()
