# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that a command leaves behind are counted when it ends, and ended."""

from __future__ import annotations

import pytest
from support.bubble import by, each_way
from support.person import Person
from support.tools import Agent

from ollmsandbox.sandbox.plan.mounts import OverlayMethod

# Starts a process that belongs to nobody, in a session of its own, like a server.
DAEMON = "(setsid sleep 1001 >/dev/null 2>&1 </dev/null &)"


@pytest.mark.parametrize(
    ("command", "count"),
    [
        ("true", 0),
        ("sleep 1001 &", 1),
        ("sleep 1001 & sleep 1002 & sleep 1003 & kill %2; wait %2", 2),
        (DAEMON, 1),
        (
            "(sleep 1001 & sleep 1002 & touch /tmp/ready; wait) &"
            " until [ -e /tmp/ready ]; do sleep .01; done",
            3,
        ),
        # A name that looks like the end of the name and a state.
        ("cp /bin/sleep '/tmp/a) Z 1 (b'; '/tmp/a) Z 1 (b' 1001 &", 1),
        # The shell does not wait for these, but they end by themselves.
        ("diff <(seq 9) <(seq 9)", 0),
        ("sleep 1001 & kill -9 $!", 0),
        # One that nobody has waited for is dead all the same.
        ("sleep 0 & exec sleep .3", 0),
        ("kill -9 $$", 0),
    ],
)
def test_processes_that_a_command_leaves_are_counted(
    shared_person: Person, command: str, count: int
) -> None:
    assert shared_person.run(command).left_running == count


def test_a_command_that_is_stopped_has_left_nothing(shared_person: Person) -> None:
    result = shared_person.run("sleep 1001 & sleep 1002", timeout=1)
    assert result.timed_out
    assert result.left_running == 0


@each_way
def test_what_is_left_is_ended_in_every_sandbox(person: Person, way: OverlayMethod) -> None:
    person.share_playground()
    beat = "(while :; do touch ~/playground/beat; sleep .01; done) & sleep .1"
    person.run(beat, capabilities=by(person, way))
    (person.playground / "beat").unlink()
    person.run("sleep .2", capabilities=by(person, way))
    assert not (person.playground / "beat").exists()


@pytest.mark.ordinary
def test_the_model_is_told(agent: Agent) -> None:
    assert agent.run("sleep 1001 & echo begun").text.startswith("begun\n1 process ")
    assert agent.run("sleep 1001 & sleep 1001 & ").text.startswith("2 processes ")


@pytest.mark.ordinary
def test_the_command_line_tells(person: Person) -> None:
    command = "sleep 1001 & sleep 1001 & echo begun"
    done = person.cli("run", "-c", command)
    assert (done.returncode, done.stdout) == (0, "begun\n")
    assert done.stderr.startswith("ollmsandbox: 2 processes ")
    assert person.cli("run", "--quiet", "-c", command).stderr == ""
    document = person.cli_run(command)
    assert document["left_running"] == 2
    assert len(document["notices"]) == 1
