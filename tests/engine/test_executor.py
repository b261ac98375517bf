# SPDX-License-Identifier: GPL-3.0-or-later
"""How commands run is decided once, and a run without a sandbox needs the user's approval."""

from __future__ import annotations

import os

import pytest
from support.person import Person
from support.portal import portal

from ollmsandbox import loop
from ollmsandbox.engine.executor import Executor, Run, find_executor
from ollmsandbox.engine.run import PreparedRun
from ollmsandbox.errors import DeniedError, WorkingDirError
from ollmsandbox.sandbox.process import Result
from ollmsandbox.sandbox.spec import RunSpec
from ollmsandbox.sandbox.unsandboxed.runner import Confinement, UnsandboxedRunner


def executor_of(person: Person, **environ: str) -> Executor:
    person._copy_probe()
    return find_executor(person.paths, {**person.environ, **environ}, str(person.project))


async def run(
    executor: Executor, spec: RunSpec, command: str, *, approve: bool = True
) -> tuple[Run, Result]:
    async with executor.prepare(spec) as prepared:
        if isinstance(prepared, PreparedRun):
            return prepared, await prepared.execute(command)
        if approve:
            prepared.approve()
        return prepared, await prepared.exec(command)


def test_with_a_sandbox_changes_are_recorded(person: Person) -> None:
    executor = executor_of(person)
    assert executor.is_recorded
    prepared, result = loop.run(run(executor, RunSpec(str(person.project)), "touch a; exit 3"))
    assert isinstance(prepared, PreparedRun)
    assert result.exit_code == 3
    assert prepared.report is not None
    assert [item.change.path for item in prepared.report.changes] == ["a"]


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


@pytest.mark.parametrize(
    ("faults", "network", "confinement"),
    [
        ((), False, Confinement.INNER),
        (("forget-folders",), False, Confinement.OFFLINE),
        (("forget-folders",), True, Confinement.NONE),
        (("refuse",), False, Confinement.NONE),
    ],
)
def test_in_a_flatpak_the_best_that_the_portal_offers_is_used(
    person: Person, faults: tuple[str, ...], network: bool, confinement: Confinement
) -> None:
    with portal(person, *faults) as flatpak:
        spec = RunSpec(str(person.project), network=network)
        executor = executor_of(person, **flatpak.environ)
        prepared, result = loop.run(run(executor, spec, "touch made"))
        assert isinstance(prepared, UnsandboxedRunner)
        assert (prepared.confinement, result.exit_code) == (confinement, 0)
        assert (prepared.why is None) is (confinement is Confinement.INNER)
        assert os.listdir(person.project) == ["made"]
