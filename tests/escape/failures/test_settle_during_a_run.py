# SPDX-License-Identifier: GPL-3.0-or-later
"""Pending changes are applied or discarded while a command runs on top of them: it still sees the
project."""

from __future__ import annotations

import pytest
from support.cli_inline import cli_here
from support.escape.paused import WAIT, running
from support.person import Person
from support.timing import PATIENCE


@pytest.mark.parametrize("act", ["apply", "discard"])
def test_a_running_command_still_sees_the_project_after_pending_changes_are_settled(
    person: Person, act: str
) -> None:
    folder = person.project / "folder"
    folder.mkdir()
    for file in (person.project / "file", folder / "leaf", folder / "other"):
        file.write_text("old\n")
    wrote = "echo new >file; echo new >folder/leaf"
    assert person.cli("run", "--apply", "review", "-c", wrote).returncode == 0
    with running(person, f"ls; {WAIT} ls -A . folder; ls -A folder/..", "--quiet") as process:
        done = cli_here(person, act, "--all")
        assert done.returncode == 0, done.stderr
        # Who begins now has nothing of that layer.
        assert person.cli("run", "--quiet", "-c", "ls folder").stdout == "leaf\nother\n"
        (person.playground / "go").touch()
        said, _ = process.communicate(timeout=PATIENCE)
    before, after = "file\nfolder\n", ".:\nfile\nfolder\n\nfolder:\nleaf\nother\n"
    assert said.decode() == f"{before}{after}{before}"
    # What was left for it is gone with the next thing that waits.
    wrote = "echo newer >file"
    for arguments in (("run", "--apply", "review", "-c", wrote), ("discard", "--all")):
        assert person.cli(*arguments).returncode == 0
    assert not [*person.paths.projects.glob("*/layer-*"), *person.paths.projects.glob("*/.layer-*")]
