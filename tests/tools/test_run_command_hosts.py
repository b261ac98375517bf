# SPDX-License-Identifier: GPL-3.0-or-later
"""A model's commands with the network by host."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.servers.world import in_world
from support.tools import Agent

pytestmark = pytest.mark.anybody


def test_a_model_names_hosts_and_the_user_is_asked_about_others(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        """
        import tempfile
        from support.person import make_person
        from support.tools import Agent
        from ollmsandbox.permission.request import Answer

        agent = Agent(make_person(Path(tempfile.mkdtemp(dir=os.getcwd()))))
        fetch = "curl -sS http://www.example.org/; curl -sS http://other.example.org/"
        for answer, is_reached in ((Answer.ALLOW, True), (Answer.DENY, False)):
            agent.asked.clear()
            agent.asker.answer = lambda request: Answer.ALLOW if request.heading else answer
            outcome = agent.run(fetch, network=True, hosts=["WWW.example.org"])
            command, host = agent.asked
            assert command.question == f"Run command with network access: {fetch}?"
            assert ("Network", "www.example.org") in [(f.label, f.value) for f in command.facts]
            assert host.question == "Let the command reach other.example.org?"
            assert host.one_time_only and host.subject == fetch
            assert "hello from 203.0.113.5 as www.example.org" in outcome.text
            assert ("hello from 203.0.113.6" in outcome.text) is is_reached, outcome.text
            assert ("The host other.example.org was not allowed." in outcome.text) is not is_reached
        agent.asker.answer = Answer.DENY
        assert "denied" in agent.run(fetch, hosts=["www.example.org"]).text
        """,
    )


def test_the_card_names_the_agent_and_the_proxy(tmp_path: Path) -> None:
    in_world(
        tmp_path,
        """
        import tempfile
        from support.person import make_person
        from support.tools import Agent
        from ollmsandbox.permission.request import Answer

        serve_ssh(PUBLIC, "www.example.org")
        serve_proxy(3128, {"other.example.org": (OTHER, 80)})
        proxy = "http://me:secret@127.0.0.1:3128"
        agent = Agent(make_person(Path(tempfile.mkdtemp(dir=os.getcwd()))),
                      environ={"http_proxy": proxy, "https_proxy": proxy})
        agent.asker.answer = Answer.ALLOW
        command = "ssh-add -l; curl -sS http://other.example.org/"
        outcome = agent.run(command, hosts=["www.example.org"], ssh_agent=True)
        assert "ED25519" in outcome.text and "hello from 203.0.113.6" in outcome.text, outcome.text
        first, second = ([(f.label, f.value) for f in one.facts] for one in agent.asked)
        assert ("SSH keys", "Your ssh-agent signs for this command") in first, first
        assert ("Through", "127.0.0.1:3128") in first, first
        assert ("Through", "127.0.0.1:3128") in second, (second, agent.asked)
        # Off by default, and asked about each time.
        assert agent.asked[0].one_time_only
        agent.asked.clear()
        outcome = agent.run("ssh-add -l", hosts=["www.example.org"])
        assert "ED25519" not in outcome.text, outcome.text
        assert "SSH keys" not in [f.label for f in agent.asked[0].facts]
        """,
    )


def test_a_bad_host_is_explained(agent: Agent) -> None:
    with pytest.raises(Exception, match="is not a host"):
        agent.run("true", hosts=["https://example.org/"])
