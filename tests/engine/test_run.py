# SPDX-License-Identifier: GPL-3.0-or-later
"""Preparing, executing and settling a run through the engine."""

from __future__ import annotations

import pytest
from support.person import Person

from ollmsandbox import loop
from ollmsandbox.engine.run import PreparedRun, finish_interrupted_runs, prepare_run
from ollmsandbox.engine.system import System, set_system
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.project.change import State
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.sandbox.profile.profile import Limits
from ollmsandbox.sandbox.spec import Mode, RunSpec


def prepare(person: Person, command: str = "", *, mode: Mode = Mode.AUTO) -> PreparedRun:
    person._copy_probe()
    return prepare_run(
        RunSpec(str(person.project), command=command, mode=mode, limits=Limits(time=60)),
        person.paths,
        person.environ,
    )


def test_a_run_is_executed_settled_and_recorded(person: Person) -> None:
    run = prepare(person, "the command")
    assert run.plan.limits.time == 60
    result = loop.run(run.execute("echo x > a; exit 3"))
    run.record_end(result.exit_code)
    assert run.report is not None
    assert [(item.change.path, item.state) for item in run.report.changes] == [("a", State.APPLIED)]
    assert (person.project / "a").read_text() == "x\n"
    assert not run.has_unsettled_changes()
    manager = ProjectManager(person.paths)
    recorded = manager.run(run.run_id)
    assert (recorded.command, recorded.exit_code) == ("the command", 3)
    manager.close()


def test_a_run_is_outdated_once_another_has_left_pending_changes(person: Person) -> None:
    run = prepare(person)
    assert not run.is_outdated()
    loop.run(prepare(person, mode=Mode.REVIEW).execute("touch a"))
    assert run.is_outdated()


def test_a_project_that_uses_alpine_needs_it_installed(person: Person) -> None:
    set_system(person.paths, str(person.project), System.ALPINE)
    with pytest.raises(OllmSandboxError, match="rootfs install"):
        prepare(person)


def test_without_an_interrupted_run_there_is_nothing_to_finish(person: Person) -> None:
    assert finish_interrupted_runs(person.paths, clean_up=True) is None
