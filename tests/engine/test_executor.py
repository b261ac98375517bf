# SPDX-License-Identifier: GPL-3.0-or-later
"""How commands run is decided once, and a run without a sandbox needs the user's approval. In a
Flatpak: sandbox/flatpak/test_portal.py."""

from __future__ import annotations

import os

import pytest
from support.changes import states
from support.person import Person

from ollmsandbox import loop
from ollmsandbox.engine.executor import Executor, Run, find_executor
from ollmsandbox.engine.run import PreparedRun, finish_interrupted_runs, prepare_run
from ollmsandbox.engine.system import System, set_system
from ollmsandbox.errors import DeniedError, OllmSandboxError, WorkingDirError
from ollmsandbox.project.change import State
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.sandbox.process import Result
from ollmsandbox.sandbox.profile.profile import Limits
from ollmsandbox.sandbox.spec import Mode, RunSpec
from ollmsandbox.sandbox.unsandboxed.runner import Confinement, UnsandboxedRunner


def executor_of(person: Person, **environ: str) -> Executor:
    person._copy_probe()
    return find_executor(person.paths, {**person.environ, **environ}, str(person.project))


async def run(
    executor: Executor, spec: RunSpec, command: str, *, approve: bool = True
) -> tuple[Run, Result]:
    async with executor.prepare(spec) as prepared:
        if isinstance(prepared, UnsandboxedRunner) and approve:
            prepared.approve()
        return prepared, await prepared.exec(command)


def test_with_a_sandbox_changes_are_recorded(person: Person, manager: ProjectManager) -> None:
    # There is nothing to finish.
    assert finish_interrupted_runs(person.paths, clean_up=True) is None
    executor = executor_of(person)
    assert executor.is_recorded
    spec = RunSpec(str(person.project), command="the command", limits=Limits(time=60))
    prepared, result = loop.run(run(executor, spec, "echo x >a; exit 3"))
    assert isinstance(prepared, PreparedRun)
    assert prepared.plan.limits.time == 60
    assert result.exit_code == 3
    prepared.record_end(result.exit_code)
    assert prepared.report is not None
    assert states(prepared.report) == {"a": State.APPLIED}
    assert (person.project / "a").read_text() == "x\n"
    assert not prepared.has_unsettled_changes()
    recorded = manager.run(prepared.run_id)
    assert (recorded.command, recorded.exit_code) == ("the command", 3)


def test_a_run_is_outdated_once_another_has_left_pending_changes(person: Person) -> None:
    executor, spec = executor_of(person), RunSpec(str(person.project))
    prepared = prepare_run(spec, person.paths, person.environ)
    assert not prepared.is_outdated()
    loop.run(run(executor, spec._replace(mode=Mode.REVIEW), "touch a"))
    assert prepared.is_outdated()


def test_a_project_that_uses_alpine_needs_it_installed(person: Person) -> None:
    set_system(person.paths, str(person.project), System.ALPINE)
    with pytest.raises(OllmSandboxError, match="rootfs install"):
        prepare_run(RunSpec(str(person.project)), person.paths, person.environ)


def test_without_a_sandbox_nothing_runs_before_the_user_agrees(person: Person) -> None:
    executor = executor_of(person, FLATPAK_ID="x")
    assert not executor.is_recorded
    spec = RunSpec(str(person.project))
    with pytest.raises(DeniedError):
        loop.run(run(executor, spec, "touch ran", approve=False))
    assert os.listdir(person.project) == []
    prepared, result = loop.run(run(executor, spec, "touch ran"))
    assert isinstance(prepared, UnsandboxedRunner)
    assert (prepared.confinement, result.exit_code) == (Confinement.NONE, 0)
    assert prepared.why is not None
    assert os.listdir(person.project) == ["ran"]


def test_a_folder_that_is_missing_is_reported_before_the_question(person: Person) -> None:
    spec = RunSpec(str(person.project), working_dir="missing")
    with pytest.raises(WorkingDirError):
        loop.run(run(executor_of(person, FLATPAK_ID="x"), spec, "touch ran"))
    assert os.listdir(person.project) == []
