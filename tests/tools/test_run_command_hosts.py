# SPDX-License-Identifier: GPL-3.0-or-later
"""A model's commands with the network by host."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from support.servers.world import in_world
from support.tools import Agent

from ollmsandbox import loop
from ollmsandbox.permission.request import Answer, Source
from ollmsandbox.permission.rules import Rule, Target, key_of
from ollmsandbox.permission.rules_file import written
from ollmsandbox.permission.store import RuleStore
from ollmsandbox.tools.questions import host_question

pytestmark = pytest.mark.ordinary

PRELUDE = """
import tempfile
from support.person import make_person
from support.tools import Agent
from ollmsandbox.permission.request import Answer

agent = Agent(make_person(Path(tempfile.mkdtemp(dir=os.getcwd()))))
"""


World = Callable[[str], str]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Run code in a world with an agent."""
    return lambda code: in_world(tmp_path, PRELUDE + textwrap.dedent(code))


def test_a_model_names_hosts_and_the_user_is_asked_about_others(world: World) -> None:
    world("""
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
            # In order: those that were refused first.
            assert [(use.host, use.allowed) for use in outcome.hosts] == sorted(
                [("other.example.org", is_reached), ("www.example.org", True)],
                key=lambda use: use[1],
            )
            assert "Hosts: " in outcome.text and "www.example.org (" in outcome.text
            assert ("other.example.org (refused)" in outcome.text) is not is_reached
            assert ("hello from 203.0.113.6" in outcome.text) is is_reached, outcome.text
            assert ("The host other.example.org was not allowed." in outcome.text) is not is_reached
        agent.asker.answer = Answer.DENY
        assert "denied" in agent.run(fetch, hosts=["www.example.org"]).text
    """)


def test_the_card_names_the_agent_and_the_proxy(world: World) -> None:
    world("""
        serve_ssh(PUBLIC, "www.example.org")
        serve_proxy(3128, {"other.example.org": (OTHER, 80)})
        proxy = "http://me:secret@127.0.0.1:3128"
        # It sees the ssh-agent that was started just now.
        person = make_person(Path(tempfile.mkdtemp(dir=os.getcwd())))
        agent = Agent(person, environ={"http_proxy": proxy, "https_proxy": proxy})
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
    """)


def test_a_model_uses_a_list_and_the_user_is_asked_all_the_same(world: World) -> None:
    world("""
        from ollmsandbox.sandbox.network.hosts import parse_hosts
        from ollmsandbox.sandbox.network.lists import save_host_list
        from ollmsandbox.tools.run_command import RunCommand

        config = agent.tool_context.paths.config
        save_host_list(config, "web", parse_hosts(["www.example.org", "other.example.org"]))
        assert "The user's lists of hosts: @web." in RunCommand(agent.tool_context).description
        fetch = "curl -sS http://other.example.org/"
        for answer in (Answer.ALLOW, Answer.DENY):
            agent.asked.clear()
            agent.asker.answer = answer
            outcome = agent.run(fetch, hosts=["@web"])
            (command,) = agent.asked
            assert ("Network", "@web (www.example.org, other.example.org)") in [
                (fact.label, fact.value) for fact in command.facts
            ]
            assert command.one_time_only
            assert ("hello from 203.0.113.6" in outcome.text) is answer.allows
    """)


def test_a_bad_host_or_an_unknown_list_is_explained(agent: Agent) -> None:
    with pytest.raises(Exception, match="is not a host"):
        agent.run("true", hosts=["https://example.org/"])
    with pytest.raises(Exception, match="no list of hosts named 'python'"):
        agent.run("true", hosts=["@python"])


def test_a_host_is_allowed_for_the_session_only_if_the_user_prefers_that(world: World) -> None:
    world("""
        paths, once = agent.tool_context.paths, (Answer.DENY, Answer.ALLOW)
        for is_offered in (False, True):
            agent.tool_context.session_hosts = is_offered
            # A host that was allowed in the session is not asked about again, on the same port.
            for command, hosts in (
                ("curl -sS http://intra.example.org/", ["intra.example.org", "10.1.2.3"]),
                ("curl -sS http://intra.example.org/", [] if is_offered else ["", ""]),
                ("curl -sS http://www.example.org/", [""]),
            ):
                agent.asked.clear()
                agent.asker.answer = lambda r: r.answers[-1]
                outcome = agent.run(command, network=True)
                first, *others = agent.asked
                assert first.answers == once
                assert len(others) == len(hosts), (is_offered, command, others)
                for asked in others:
                    session = (Answer.ALLOW_SESSION,) if is_offered else ()
                    assert asked.answers == once + session
                assert "hello from" in outcome.text
        # Nothing is saved, nor would it count.
        assert not list(paths.config.glob("*"))
        # Turned off again, every question is asked.
        agent.tool_context.session_hosts = False
        agent.asked.clear()
        agent.run("curl -sS http://www.example.org/", network=True)
        assert len(agent.asked) == 2
    """)


def test_no_saved_answer_counts_for_a_host(agent: Agent) -> None:
    """Even if the user writes one into the file."""
    context = agent.tool_context
    context.session_hosts = True
    question = host_question(context, "curl x", "www.example.org", 80, "", "the-call")
    key = key_of(question)
    assert key is not None and key.what == Target("www.example.org:80")
    for answer in (Answer.ALLOW_ALWAYS, Answer.DENY_ALWAYS):
        with pytest.raises(ValueError, match="not an answer"):
            RuleStore(context.paths).add(Rule(key, answer))
        context.paths.config.mkdir(parents=True, exist_ok=True)
        (context.paths.config / "permissions.yaml").write_text(written([Rule(key, answer)]))
        assert [rule.key for rule in RuleStore(context.paths).rules()] == [key]
        agent.asked.clear()
        agent.asker.answer = Answer.ALLOW
        assert loop.run(context.permissions.decide(question)).source is Source.PERSON
        assert agent.asked == [question]


def test_the_hosts_of_a_stopped_command_are_known(world: World) -> None:
    world("""
        from ollmsandbox.project.projects import ProjectManager
        from ollmsandbox.project.run import read_run
        from ollmsandbox.tools.base import Stream
        from ollmsandbox.tools.run_command import RunCommand

        agent.asker.answer = Answer.ALLOW
        request = RunCommand(agent.tool_context).read({
            "command": "curl -sS http://www.example.org/; sleep 600", "hosts": ["www.example.org"],
        })

        agent.stop(request, lambda: b"hello" in agent.looking.printed[Stream.STDOUT])
        (reached,) = request.partial.hosts
        assert reached.host == "www.example.org" and reached.received, reached
        assert "www.example.org (" in request.partial.text
        manager = ProjectManager(agent.tool_context.paths)
        (known,) = manager.runs()
        (recorded,) = read_run(manager.paths, known.id).hosts
        assert recorded.document() == reached.document()
    """)
