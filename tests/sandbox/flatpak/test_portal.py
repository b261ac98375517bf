# SPDX-License-Identifier: GPL-3.0-or-later
"""In a Flatpak, commands run in an inner sandbox that the Flatpak portal starts."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys

import pytest
from support.bubble import with_profile
from support.escape.processes import children_of
from support.person import ROOT, Person
from support.portal import Flatpak, hiding, portal
from support.servers.bus import private_bus
from support.timing import given_time, wait_for
from support.tools import Agent

from ollmsandbox import loop
from ollmsandbox.errors import DeniedError, SandboxError, WorkingDirError
from ollmsandbox.loop import readable
from ollmsandbox.permission.request import Answer
from ollmsandbox.sandbox.flatpak.child import InnerCheck
from ollmsandbox.sandbox.flatpak.portal import PortalError
from ollmsandbox.sandbox.flatpak.runner import PROBLEMS, InnerRunner
from ollmsandbox.sandbox.process import Sinks, Stop
from ollmsandbox.sandbox.profile.file import read_profile

pytestmark = pytest.mark.ordinary


def test_an_allowed_command_runs_and_a_denied_one_leaves_no_sandbox(flatpak: Flatpak) -> None:
    result = flatpak.run("echo out; echo err >&2; echo new >made; pwd; cat")
    assert (result.exit_code, result.stderr.text) == (0, "err\n")
    assert result.stdout.text == f"out\n{flatpak.person.project}\n"
    assert (flatpak.person.project / "made").read_text() == "new\n"
    assert flatpak.times_asked == 1
    flatpak.answer = False
    with pytest.raises(DeniedError):
        flatpak.run("touch ran")
    assert os.listdir(flatpak.person.project) == ["made"]
    wait_for(lambda: not children_of(flatpak.service.pid))


def test_the_end_and_a_part_of_the_output_are_reported(flatpak: Flatpak) -> None:
    (flatpak.person.project / "text").write_text("hello")
    ends = {"true": 0, "exit 7": 7, "exit 255": 255, "kill -9 $$": 137, "kill -15 $$": 143}
    assert {command: flatpak.run(command).exit_code for command in ends} == ends
    assert flatpak.run(["no-such-command-here"]).exit_code == 127
    assert flatpak.run(["./text"]).exit_code == 126
    result = flatpak.run("seq 1000000", capture=100)
    assert (result.truncated, result.stdout.total) == (True, 6888896)
    assert result.stdout.text.endswith("\n999999\n1000000\n")
    assert len(result.stdout.text) < 300


def test_words_names_and_the_environment_may_hold_any_bytes(flatpak: Flatpak) -> None:
    odd = os.fsdecode(b"\xff\n=$(x)")
    project = flatpak.person.home / f"-we,ird:na\\me {odd}"
    project.mkdir()
    flatpak.person.project = project
    flatpak.person.environ |= {"ODD": odd, "GITHUB_TOKEN": "s3cret", "LONG": "y" * 100_000}
    script = (
        'printf %s "$ODD" >made; printf %s "$1" >>made; env | grep -v LONG; echo ${#2} ${#LONG}'
    )
    result = flatpak.run(["sh", "-c", script, "x", odd, "x" * 120_000])
    assert result.exit_code == 0, result.stderr.text
    assert (project / "made").read_bytes() == os.fsencode(odd) * 2
    assert "s3cret" not in result.stdout.text
    assert result.stdout.text.endswith("\n120000 100000\n")


# --- what it sees ------------------------------------------------------------------------------


def test_it_sees_the_project_and_the_playground_and_nothing_else(flatpak: Flatpak) -> None:
    person = flatpak.person
    (person.home / "secret").write_text("s3cret")
    command = f"echo x >>{person.playground}/made; echo x >>made; cat ~/secret; ls -A ~; "
    # Of the first process, Flatpak's own, it is hidden already.
    command += "for pid in $$ $PPID; do cat /proc/$pid/environ; done"
    result = flatpak.run(command)
    assert "s3cret" not in result.stdout.text
    assert "project" in result.stdout.text
    for folder in (person.playground, person.project):
        assert (folder / "made").read_text() == "x\n"
    assert not (person.home / "made").exists()
    # The network is cut off unless it was asked for.
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = ["bash", "-c", f"exec 7<>/dev/tcp/127.0.0.1/{server.getsockname()[1]}"]
        assert flatpak.run(connect).exit_code == 1
        assert flatpak.run(connect, network=True).exit_code == 0


def test_it_starts_in_the_given_folder_if_it_exists(flatpak: Flatpak) -> None:
    person = flatpak.person
    (person.project / "src").mkdir()
    (person.home / "elsewhere").mkdir()
    places = {"src": person.project / "src", "playground": person.playground, "/usr": "/usr"}
    for given, place in places.items():
        assert flatpak.run("pwd", working_dir=given).stdout.text == f"{place}\n"
    asked = flatpak.times_asked
    with pytest.raises(WorkingDirError):
        flatpak.run("pwd", working_dir=str(person.home / "elsewhere"))
    assert flatpak.times_asked == asked


# --- its end -----------------------------------------------------------------------------------


def test_every_finding_that_forbids_a_sandbox_has_a_sentence() -> None:
    assert {*PROBLEMS} == {*InnerCheck} - {InnerCheck.READY, InnerCheck.NO_WORKING_DIR}


def test_a_time_out_keeps_the_output_and_ends_the_whole_tree(flatpak: Flatpak) -> None:
    command = hiding(flatpak, "sleep 60")
    result = given_time(lambda s: flatpak.run(command, timeout=s), lambda r: r.stdout.text)
    assert (result.exit_code, result.stop) == (124, Stop.TIME)
    assert result.stdout.text == "begun\n"
    assert not flatpak.sleeping()


def test_background_processes_end_with_the_command(flatpak: Flatpak) -> None:
    assert flatpak.run(hiding(flatpak, "exit 3")).exit_code == 3
    assert not flatpak.sleeping()
    # Also if it kills its supervisor.
    assert flatpak.run(hiding(flatpak, "kill -9 $PPID; sleep 60")).exit_code == 137
    assert not flatpak.sleeping()


def test_a_command_can_be_stopped(flatpak: Flatpak) -> None:
    runner = flatpak.runner()

    def stop_at_the_first_word(_data: bytes) -> None:
        runner.stop()

    sinks = Sinks(stdout=stop_at_the_first_word)
    result = loop.run(runner.exec(hiding(flatpak, "sleep 60"), sinks=sinks))
    assert (result.exit_code, result.stop) == (137, Stop.PERSON)
    assert not flatpak.sleeping()


def test_processes_are_counted_in_there(flatpak: Flatpak) -> None:
    with_profile(flatpak.person, "limits: {processes: 20}")
    profile = read_profile("mine", flatpak.person.paths.profiles)
    command = f"for i in $(seq 40); do sleep {flatpak.mark} & done; wait"
    assert flatpak.run(command, profile=profile).stop is Stop.PROCESSES
    assert not flatpak.sleeping()


PROGRAM = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from ollmsandbox import loop
from ollmsandbox.sandbox.flatpak.runner import InnerRunner
from ollmsandbox.sandbox.spec import RunSpec
async def main():
    runner = InnerRunner(RunSpec(sys.argv[1]))
    await runner.prepare()
    runner.approve()
    await runner.exec(sys.argv[2])
loop.run(main())
"""


def test_a_command_does_not_outlive_the_program(flatpak: Flatpak) -> None:
    project = str(flatpak.person.project)
    argv = [sys.executable, "-c", PROGRAM, project, f"exec sleep {flatpak.mark}"]
    with subprocess.Popen(argv, env={**flatpak.person.environ, **flatpak.environ}) as ours:
        wait_for(flatpak.sleeping)
        ours.kill()
    wait_for(lambda: not flatpak.sleeping())


# --- what the user sees ----------------------------------------------------------------------


def test_the_card_mentions_the_inner_sandbox(flatpak: Flatpak) -> None:
    (flatpak.person.home / "secret").write_text("s3cret")
    agent = flatpak.agent(Answer.DENY)
    assert "denied" in agent.run("touch ran").text
    assert "denied" in agent.run("touch ran", hosts=["example.org"]).text
    without, with_network = agent.asked
    assert (without.sandboxed, without.network, without.one_time_only) == (True, False, True)
    facts = {fact.label: fact.value for fact in without.facts}
    assert facts["Network"] == "Off"
    assert "~/project, playground" in facts["Can write"]
    assert "off" in without.sees[0]
    assert "Flatpak portal" in without.sees[1]
    assert with_network.question == "Run command with network access: touch ran?"
    assert with_network.heading != without.question
    assert (with_network.network, with_network.one_time_only) == (True, True)
    # It does not promise to be limited to the host that the model named.
    assert ("Network", "On, to all hosts") in [(f.label, f.value) for f in with_network.facts]
    assert "cannot be limited" in with_network.sees[0]
    assert os.listdir(flatpak.person.project) == []
    agent.asker.answer = Answer.ALLOW
    outcome = agent.run("cat ~/secret; echo done >made; cat made")
    assert outcome.text.startswith("done")
    assert "s3cret" not in outcome.text
    assert len(agent.asked) == 3


def test_the_network_is_cut_off_even_if_the_project_cannot_be_passed_on(person: Person) -> None:
    (person.home / "file").write_text("seen\n")
    with portal(person, "forget-folders") as flatpak, socket.create_server(("", 0)) as server:
        agent = flatpak.agent()
        connect = f"bash -c 'exec 7<>/dev/tcp/127.0.0.1/{server.getsockname()[1]}' 2>/dev/null"
        command = f"cat ~/file; {connect} || echo cut off"
        assert agent.run(command).text == "seen\ncut off"
        assert agent.run(command, network=True).text == "seen"
        offline, open_ = agent.asked
    assert (offline.sandboxed, offline.network, offline.one_time_only) == (False, False, True)
    assert ("Network", "Off") in [(fact.label, fact.value) for fact in offline.facts]
    assert "except use the network" in offline.sees[0]
    assert "is read-only in it" in offline.sees[-1]
    assert (open_.sandboxed, open_.network) == (False, True)
    assert open_.question != offline.question


def test_where_no_network_can_be_cut_off_the_card_says_so(person: Person) -> None:
    with portal(person, "forget-folders", "leave-network") as flatpak:
        agent = flatpak.agent(Answer.DENY)
        agent.run("true")
        [request] = agent.asked
    assert (request.sandboxed, request.network) == (False, True)


def test_where_the_portal_refuses_the_card_says_so(person: Person) -> None:
    with portal(person, "refuse") as flatpak:
        agent = flatpak.agent()
        assert agent.run("echo done").text == "done"
        [request] = agent.asked
    assert not request.sandboxed
    assert {fact.label: fact.value for fact in request.facts}["Network"].startswith("On")
    assert "Not for you" in request.sees[-1]


# --- a portal that is missing, faulty, or goes away --------------------------------------------

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
    def lose(_data: bytes) -> None:
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
