# SPDX-License-Identifier: GPL-3.0-or-later
"""In a Flatpak whose portal is missing, faulty, or goes away."""

from __future__ import annotations

import asyncio
import os

import pytest
from support.person import Person
from support.portal import Flatpak, children_of, hiding, portal
from support.servers.bus import private_bus
from support.timing import wait_for
from support.tools import Agent

from ollmsandbox import loop
from ollmsandbox.errors import SandboxError
from ollmsandbox.sandbox.flatpak.portal import PortalError
from ollmsandbox.sandbox.flatpak.runner import InnerRunner
from ollmsandbox.sandbox.output import readable
from ollmsandbox.sandbox.process import Sinks

pytestmark = pytest.mark.ordinary

FAULTS = {
    "refuse": "refused: Not for you.",
    "old": "too old",
    "blind": "does not show the processes",
    "broken": "did not start: cannot make a sandbox",
    "forget-folders": "read-only",
    "leave-network": "network is on",
    "show-home": "visible",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_portal_that_cannot_be_relied_on_is_not_used(person: Person, fault: str) -> None:
    with portal(person, fault) as flatpak:
        with pytest.raises(PortalError) as caught:
            flatpak.run("touch ran")
        assert FAULTS[fault] in str(caught.value)
        assert flatpak.times_asked == 0
        wait_for(lambda: not children_of(flatpak.service.pid))
    assert os.listdir(person.project) == []


def test_a_missing_portal_or_bus_is_reported(person: Person) -> None:
    with private_bus() as bus:
        agent = Agent(person, environ={"FLATPAK_ID": "x", "DBUS_SESSION_BUS_ADDRESS": bus.address})
        agent.run("touch ran")
    agent.run("touch ran")
    agent.tool_context.environ = {**agent.tool_context.environ, "DBUS_SESSION_BUS_ADDRESS": ""}
    agent.run("touch ran")
    told = [request.sees[-1] for request in agent.asked]
    assert len(set(told)) == 3
    assert os.listdir(person.project) == []


@pytest.mark.parametrize("what", ["bus", "portal"])
def test_a_portal_that_goes_away_ends_the_command(flatpak: Flatpak, what: str) -> None:
    async def lose(_data: bytes) -> None:
        flatpak.lose(what)

    command = flatpak.runner().exec(hiding(flatpak, "sleep 60"), sinks=Sinks(stdout=lose))
    with pytest.raises(SandboxError, match="was lost, and the command was ended"):
        loop.run(command)
    assert not flatpak.sleeping()


@pytest.mark.parametrize("what", ["bus", "portal", "sandbox"])
def test_nothing_runs_if_the_sandbox_is_gone_by_the_time_of_the_answer(
    flatpak: Flatpak, what: str
) -> None:
    async def answer_late() -> bool:
        flatpak.lose(what)
        assert isinstance(runner.runner, InnerRunner)
        sandbox = runner.runner._sandbox
        assert sandbox is not None
        if what == "sandbox":
            # Its last process may need a moment to go, and would still be sent the command.
            await readable(sandbox._channel.fileno())
        else:
            assert await sandbox._portal.exit_status() is None
        return True

    runner = flatpak.runner(ask=answer_late)
    with pytest.raises(SandboxError, match="did not run"):
        loop.run(runner.exec("touch ran"))
    assert os.listdir(flatpak.person.project) == []


def test_a_withdrawn_question_leaves_no_sandbox(flatpak: Flatpak) -> None:
    asked = asyncio.Event()

    async def never() -> bool:
        asked.set()
        await asyncio.sleep(1000)
        return True

    async def cancelled() -> None:
        task = asyncio.ensure_future(flatpak.runner(ask=never).exec("touch ran"))
        await asked.wait()
        assert children_of(flatpak.service.pid)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.run(cancelled())
    wait_for(lambda: not children_of(flatpak.service.pid))
    assert os.listdir(flatpak.person.project) == []
