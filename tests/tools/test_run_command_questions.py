# SPDX-License-Identifier: GPL-3.0-or-later
"""run_command: the questions it asks before anything runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.person import Person
from support.tools import Agent

from ollmsandbox import loop
from ollmsandbox.cli.agent.card import card, choices
from ollmsandbox.permission.request import Answer, PermissionRequest, Source
from ollmsandbox.project.review import Review
from ollmsandbox.sandbox.spec import Mode
from ollmsandbox.tools.run_command import RunCommand

pytestmark = pytest.mark.ordinary


def test_network_is_asked_for_every_time(agent: Agent) -> None:
    agent.asker.answer = Answer.ALLOW
    for _ in range(2):
        assert agent.run("echo ok", network=True).ok
    one, two = agent.asked
    assert one.one_time_only
    assert one.network
    assert one.target_path != two.target_path
    assert one.answers == (Answer.DENY, Answer.ALLOW)
    assert one.question == "Run command with network access: echo ok?"
    assert one.subject == "echo ok"


def test_the_question_is_made_of_the_plan_that_runs(agent: Agent) -> None:
    agent.asker.answer = Answer.ALLOW
    agent.run("true", network=True)
    [request] = agent.asked
    facts = {fact.label: fact.value for fact in request.facts}
    assert "Folder" not in facts
    assert facts["Network"] == "You are asked about each host"
    assert facts["Can write"] == "~/project, Playground"
    assert facts["Asked"] == "Every time"
    [(_, plan)] = agent.looking.starts
    assert plan is not None
    assert request.sees == tuple(plan.describe())
    assert (request.session_id, request.call_id) == ("the-session", "the-call")


def test_a_denied_network_runs_nothing(agent: Agent) -> None:
    request = RunCommand(agent.tool_context).read({"command": "touch a", "network": True})
    outcome = loop.run(request.execute(agent.looking))
    [asked] = agent.asked
    assert asked.question == "Run command with network access: touch a?"
    assert asked.one_time_only
    assert not outcome.ok
    assert outcome.text.startswith("ERROR: The command with network was denied by the user")
    assert outcome.verdict is not None
    assert outcome.verdict.source is Source.PERSON
    assert agent.looking.starts == []
    assert not (agent.person.project / "a").exists()


def test_the_approved_command_runs_or_none(person: Person, review: Review) -> None:
    agent = Agent(person, mode=Mode.REVIEW)
    agent.run("touch waiting")

    def discard_then_allow(_request: PermissionRequest) -> Answer:
        if len(agent.asked) > 1:
            return Answer.DENY
        [run] = review.manager.runs()
        review.discard(run)
        return Answer.ALLOW

    agent.asker.answer = discard_then_allow
    outcome = agent.run("touch a", network=True)
    assert not outcome.ok
    assert [request.notice != "" for request in agent.asked] == [False, True]
    assert len(agent.looking.starts) == 1
    assert agent.run("ls -A | wc -l").text == "0"


def test_the_whole_command_is_shown(agent: Agent) -> None:
    command = "echo one\n" + "x" * 5000 + "\nrm -rf everything"
    agent.run(command, network=True)
    assert agent.asked[0].subject == command
    assert "\n" not in agent.asked[0].heading


def test_every_command_asks_if_the_user_wants_that(person: Person) -> None:
    agent = Agent(person, ask_every_command=True)
    assert "denied" in agent.run("ls").text
    assert agent.asked[0].target_path == str(person.project)
    assert not agent.asked[0].one_time_only
    agent.asker.answer = Answer.ALLOW_SESSION
    assert agent.run("ls").ok
    assert agent.run("ls").ok
    assert len(agent.asked) == 2
    agent.asker.answer = Answer.DENY
    assert not agent.run("ls; rm x").ok


def test_a_linked_folder_is_asked_for_once_and_then_writable(agent: Agent) -> None:
    other = linked(agent)
    assert "denied" in agent.run("touch a", working_dir="link").text
    assert agent.asked[0].subject == str(other)
    assert agent.asked[0].tool == "agree_root"
    assert agent.asked[0].answers == (Answer.DENY, Answer.ALLOW_PROJECT)
    agent.asker.answer = Answer.ALLOW_PROJECT
    assert f"added {other}/a" in agent.run("touch a", working_dir="link").text
    assert (other / "a").exists()
    assert agent.run("touch b", working_dir="link").ok
    assert len(agent.asked) == 2


def test_the_card_of_a_linked_folder_does_not_contradict_itself(agent: Agent) -> None:
    linked(agent)
    # An answer for once does not open a folder for ever.
    agent.asker.answer = Answer.ALLOW
    assert "denied" in agent.run("touch a", working_dir="link").text
    [request] = agent.asked
    text = "\n".join([*card(request, 200), choices(request)])
    assert "All commands of this project, until you remove the folder" in text
    assert "Linked from    ~/project/link" in text
    assert "allow for this [p]roject" in text
    assert "once" not in text
    assert "very time" not in text


@pytest.mark.parametrize(
    "command",
    [
        "touch link/a",
        "cd link && touch a",
        "bash -c 'cd link; touch a'",
        "cp /etc/hostname link/a 2>/dev/null",
        "(cd link; touch a) >/dev/null 2>&1",
    ],
)
def test_a_command_that_failed_in_a_linked_folder_leads_to_a_question(
    agent: Agent, command: str
) -> None:
    other = linked(agent)
    agent.asker.answer = Answer.ALLOW_PROJECT
    text = agent.run(f"touch b; {command}").text
    assert f"{other} is open to commands now. Run the command again." in text
    assert "cannot change" not in text
    assert (agent.person.project / "b").exists()
    assert agent.run(command).ok
    assert (other / "a").exists()
    assert len(agent.asked) == 1


def test_who_declines_such_a_question_is_not_asked_it_again(agent: Agent) -> None:
    other = linked(agent)
    outcome = agent.run("touch link/a")
    assert outcome.text.endswith(f"The user does not let commands change {other}.")
    assert not outcome.was_denied
    agent.run("echo x > link/b")
    assert len(agent.asked) == 1
    assert "denied" in agent.write("link/a", "x").text
    assert len(agent.asked) == 2


def test_an_edit_in_a_linked_folder_asks_for_it(agent: Agent) -> None:
    other = linked(agent)
    agent.asker.answer = Answer.ALLOW_PROJECT
    assert f"added {other}/sub/a" in agent.write("link/sub/a", "x").text
    assert (other / "sub/a").read_text() == "x"
    assert [request.tool for request in agent.asked] == ["agree_root"]


def linked(agent: Agent) -> Path:
    """Return a folder outside the project that `link` in the project leads to."""
    other = agent.person.home / "other"
    other.mkdir()
    (agent.person.project / "link").symlink_to(other)
    return other


def test_a_folder_of_secrets_cannot_be_approved(agent: Agent) -> None:
    agent.asker.answer = Answer.ALLOW
    home, link = agent.person.home, agent.person.project / "link"
    os.makedirs(home / ".ssh")
    os.makedirs(home / ".config/gh")
    for place in ("/etc", str(home), f"{home}/.ssh", f"{home}/.config"):
        link.symlink_to(place)
        agent.run("touch a", working_dir="link")
        assert agent.asked == [], place
        assert not os.path.lexists(f"{place}/a")
        link.unlink()


def test_without_a_sandbox_every_command_asks(person: Person) -> None:
    agent = Agent(person, environ={"FLATPAK_ID": "x"})
    assert "denied" in agent.run("touch a").text
    [request] = agent.asked
    assert not request.sandboxed
    assert request.one_time_only
    assert "not sandboxed" in request.sees[0]
    assert not (person.project / "a").exists()
    agent.asker.answer = Answer.ALLOW
    assert agent.run("touch a; echo done").text == "done"
    assert (person.project / "a").exists()
    assert len(agent.asked) == 2
    assert agent.looking.starts[0][1] is None
