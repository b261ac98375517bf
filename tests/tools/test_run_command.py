# SPDX-License-Identifier: GPL-3.0-or-later
"""run_command: what runs, and what the model gets back."""

from __future__ import annotations

import asyncio
import math
import os
import threading

import pytest
from support.person import Person
from support.timing import PATIENCE, given_time
from support.tools import Agent, Looking, until

from ollmsandbox import loop
from ollmsandbox.errors import OllmSandboxError
from ollmsandbox.permission.request import Answer
from ollmsandbox.project import settle
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.project.recorder import Recorder
from ollmsandbox.sandbox.profile.profile import Limits
from ollmsandbox.sandbox.spec import Mode
from ollmsandbox.tools import all_tools
from ollmsandbox.tools.base import Stream, ToolError
from ollmsandbox.tools.run_command import RunCommand

pytestmark = pytest.mark.ordinary

# --- what runs ---------------------------------------------------------------------------------


def test_a_command_runs_in_the_project_without_a_question(agent: Agent) -> None:
    outcome = agent.run("pwd; echo problem >&2")
    assert outcome.ok
    assert outcome.text == f"{agent.person.project}\nproblem"
    assert agent.asked == []
    # Its output is seen while it runs.
    assert agent.looking.printed[Stream.STDERR] == b"problem\n"
    [(pid, plan)] = agent.looking.starts
    assert pid > 0
    assert plan is not None
    assert not plan.network


def test_changes_are_seen_while_the_command_runs(agent: Agent) -> None:
    agent.person.share_playground()
    # It runs until the live view has reported its file.
    wait = (
        'touch seen; for i in $(seq 600); do [ -e "$HOME/playground/go" ] && exit; sleep .1; done'
    )

    async def run() -> None:
        task = asyncio.ensure_future(
            RunCommand(agent.tool_context).read({"command": wait}).execute(agent.looking)
        )
        await until(lambda: bool(agent.looking.events), task)
        (agent.person.playground / "go").touch()
        await task

    loop.run(run())
    assert agent.looking.events[0].path.endswith("seen")


def _fail(*_given: object) -> None:
    raise OllmSandboxError("The disk is full.")


@pytest.mark.parametrize(("step", "text"), [("back_up", "new\n"), ("capture", "old")])
def test_an_interrupted_run_is_settled_or_pending_before_the_next_one(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, step: str, text: str
) -> None:
    file, paths = agent.person.project / "file", agent.person.paths
    file.write_text("old")
    with monkeypatch.context() as patched:
        patched.setattr(settle, step, _fail)
        assert "The disk is full" in agent.run("echo new > file").text
    assert [*paths.cache.glob("overlay-*")]
    assert agent.run("cat file").text == "new"
    assert not [*paths.cache.glob("overlay-*")]
    assert file.read_text() == text
    copies = [copy.read_text() for copy in paths.backups.iterdir()] if step == "back_up" else []
    assert copies == (["old"] if step == "back_up" else [])


def test_changes_that_cannot_be_settled_are_reported_and_kept(agent: Agent) -> None:
    left = agent.person.paths.cache / "overlay-20260101-000000-00000000"
    kept = left / "upper/overlay1/file"
    kept.parent.mkdir(parents=True)
    kept.write_text("somebody's work")
    outcome = agent.run("echo works")
    assert outcome.ok
    assert outcome.text.startswith("works\n")
    assert f"{left} contains changes from a command" in outcome.text
    assert kept.read_text() == "somebody's work"


def test_it_runs_on_a_loop_without_glib_too(agent: Agent) -> None:
    request = RunCommand(agent.tool_context).read({"command": "touch a"})
    outcome = asyncio.run(request.execute(agent.looking))
    assert outcome.ok
    assert (agent.person.project / "a").exists()


def test_changes_are_listed_and_what_is_gone_comes_first(agent: Agent) -> None:
    project = agent.person.project
    (project / "old").write_text("1")
    (project / "same").write_text("1")
    outcome = agent.run("rm old; echo 2 > same; mkdir new; echo 3 > new/file")
    assert outcome.text.splitlines() == [
        "The command printed nothing.",
        "Changes: 1 deleted, 1 modified, 2 added.",
        "  deleted old",
        "  modified same",
        "  added new/file",
    ]
    assert outcome.report is not None
    assert not (project / "old").exists()


def test_many_new_files_are_counted_and_every_deletion_is_listed(agent: Agent) -> None:
    for number in range(120):
        (agent.person.project / f"old{number}").touch()
    lines = agent.run("rm old*; seq 500 | xargs touch").text.splitlines()
    assert "Changes: 120 deleted, 500 added." in lines
    assert sum(line.startswith("  deleted") for line in lines) == 120
    assert sum(line.startswith("  added") for line in lines) == 40
    assert lines[-1].startswith("460 more changes")


def test_the_run_is_recorded_with_its_call(agent: Agent, manager: ProjectManager) -> None:
    outcome = agent.run("touch a; exit 3")
    assert not outcome.ok
    assert "Exit status: 3" in outcome.text
    run = manager.run(outcome.run_id)
    assert (run.session_id, run.call_id, run.exit_code) == ("the-session", "the-call", 3)
    assert run.command == "touch a; exit 3"


def test_long_output_is_cut_in_the_middle_for_the_model(agent: Agent) -> None:
    outcome = agent.run("echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo last")
    assert len(outcome.text) < 30_000
    assert outcome.text.startswith("first\n")
    assert outcome.text.endswith("last")
    total = 3_000_000 + len("first\nlast\n")
    assert f"[... {total - 24_000} bytes left out ...]" in outcome.text


def test_output_cannot_play_with_a_terminal(agent: Agent) -> None:
    text = agent.run(
        r"printf '\033[31mred\033]0;title\007\342\200\256'; touch $(printf 'a\033b')"
    ).text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert 'added "a\\x1bb"' in text


def test_a_held_file_is_reported_with_the_reason(agent: Agent) -> None:
    (agent.person.project / ".git").mkdir()
    outcome = agent.run("mkdir .git/hooks; echo x > .git/hooks/pre-commit")
    assert "needs the user's approval" in outcome.text
    assert "Your next commands see" in outcome.text
    assert not (agent.person.project / ".git/hooks/pre-commit").exists()
    assert agent.run("cat .git/hooks/pre-commit").text == "x"


def test_a_conflict_is_reported(agent: Agent) -> None:
    file = agent.person.project / "a"
    file.write_text("before")
    tool = RunCommand(agent.tool_context)
    playground = agent.person.playground
    agent.person.share_playground()

    async def run() -> str:
        wait = 'echo theirs > a; touch "$HOME/playground/on"; while [ ! -e "$HOME/playground/go" ];'
        request = tool.read({"command": f"{wait} do sleep .05; done"})
        task = asyncio.ensure_future(request.execute(agent.looking))
        await until((playground / "on").exists, task)
        file.write_text("the person's")
        (playground / "go").touch()
        return (await task).text

    text = loop.run(run())
    assert "modified a [NOT applied" in text
    assert file.read_text() == "the person's"


def test_what_changes_in_other_modes(person: Person) -> None:
    agent = Agent(person, mode=Mode.REVIEW)
    assert "Pending changes" in agent.run("touch a").text
    assert not (person.project / "a").exists()
    assert agent.run("ls").text == "a"
    agent.tool_context.mode = Mode.NEVER
    assert "nothing was kept" in agent.run("touch b").text
    assert agent.run("ls").text == "a"


# --- where -------------------------------------------------------------------------------------


def test_it_runs_in_the_folder_that_is_named(agent: Agent) -> None:
    outcome = agent.run("pwd; touch here", working_dir="playground")
    assert outcome.text == f"{agent.person.home}/playground"
    assert (agent.person.playground / "here").exists()
    (agent.person.project / "src").mkdir()
    assert agent.run("pwd", working_dir="src").text == f"{agent.person.project}/src"
    outcome = agent.run("touch a", working_dir="/no/where")
    assert outcome.text == "ERROR: Working directory does not exist: /no/where"
    assert not outcome.ok


def test_what_cannot_run_is_an_error(agent: Agent, person: Person) -> None:
    for command in ("", "  ", "\n"):
        with pytest.raises(ToolError, match=r"^Command cannot be empty$"):
            agent.run(command)
    for project, why in ((None, "No active project"), (f"{person.home}/gone", "does not exist")):
        with pytest.raises(OllmSandboxError, match=why):
            Agent(person, project=project).run("ls")
    for seconds in (0, -1, "soon", 1.5):
        with pytest.raises(ToolError, match="timeout"):
            agent.run("true", timeout=seconds)


# --- stopping ----------------------------------------------------------------------------------


def test_a_stopped_command_is_dead_and_what_it_wrote_is_settled(agent: Agent) -> None:
    request = RunCommand(agent.tool_context).read({"command": "echo x > a; echo on; sleep 1000"})
    agent.stop(request, lambda: bool(agent.looking.printed[Stream.STDOUT]))
    assert (agent.person.project / "a").read_text() == "x\n"
    assert request.partial is not None
    assert "added a" in request.partial.text
    [(pid, _)] = agent.looking.starts
    assert not os.path.exists(f"/proc/{pid}")


def test_stopped_at_its_very_end_it_is_known_what_it_changed(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = threading.Event(), threading.Event()

    def slowly(*_arguments: object) -> None:
        begun.set()
        assert may_go_on.wait(PATIENCE)

    monkeypatch.setattr(Recorder, "note_end", slowly)
    request = RunCommand(agent.tool_context).read({"command": "echo x > a"})
    agent.stop(request, begun.is_set, then=may_go_on.set)
    assert (agent.person.project / "a").read_text() == "x\n"
    assert request.partial is not None and request.partial.run_id
    assert "added a" in request.partial.text


def test_stopping_while_asking_runs_nothing(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_request: object) -> Answer:
        await asyncio.Event().wait()
        return Answer.ALLOW

    monkeypatch.setattr(agent.asker, "ask", never)
    request = RunCommand(agent.tool_context).read({"command": "touch a", "network": True})
    agent.stop(request, lambda: bool(agent.looking.requests))
    assert agent.looking.starts == []
    assert not (agent.person.project / "a").exists()


def test_several_run_side_by_side(agent: Agent) -> None:
    tool = RunCommand(agent.tool_context)
    agent.person.share_playground()
    # Each waits for the other: one after the other would never end.
    meet = 'touch "$HOME/playground/{0}"; while [ ! -e "$HOME/playground/{1}" ]; do sleep .05; done'

    async def run() -> list[bool]:
        commands = [meet.format("a", "b") + "; touch a", meet.format("b", "a") + "; touch b"]
        requests = [tool.read({"command": command}) for command in commands]
        done = await asyncio.gather(*(request.execute(Looking()) for request in requests))
        return [outcome.ok for outcome in done]

    assert loop.run(run()) == [True, True]
    assert sorted(os.listdir(agent.person.project)) == ["a", "b"]


# --- time --------------------------------------------------------------------------------------


def write_profile(person: Person, text: str) -> None:
    person.paths.profiles.mkdir(parents=True)
    (person.paths.profiles / "standard.yaml").write_text(text)


def test_a_call_can_ask_for_less_time(agent: Agent) -> None:
    outcome = given_time(
        lambda seconds: agent.run("echo begun; sleep 1000", timeout=math.ceil(seconds)),
        lambda outcome: outcome.text.startswith("begun"),
    )
    assert not outcome.ok
    assert outcome.text == (
        "begun\nThe command did not finish. Exceeded the time limit.\nExit status: 124"
    )


def test_a_call_can_ask_for_more_time_than_the_default(person: Person) -> None:
    write_profile(person, "limits: {time: 1 s, max_time: 600 s}")
    agent = Agent(person, own_limits=Limits())
    assert "Exceeded the time limit" in agent.run("sleep 2; echo done").text
    assert agent.run("sleep 2; echo done", timeout=600).text == "done"


def test_a_call_gets_no_more_time_than_the_profile_allows(person: Person) -> None:
    write_profile(person, "limits: {time: 1 s, max_time: 2 s}")
    agent = Agent(person, own_limits=Limits())
    outcome = agent.run("sleep 60", timeout=50)
    assert "`timeout` was lowered to 2 seconds" in outcome.text
    assert "`timeout` to at most 2." in RunCommand(agent.tool_context).description


def test_a_limit_of_the_user_is_the_most_that_a_call_gets(person: Person) -> None:
    agent = Agent(person, own_limits=Limits(time=1))
    assert "Exceeded the time limit" in agent.run("sleep 60", timeout=50).text


# --- the tool's description --------------------------------------------------------------------


def test_the_description_names_the_rules_and_the_programs(agent: Agent) -> None:
    tool = RunCommand(agent.tool_context)
    for words in (
        *("read-write access", "playground", "`web_fetch`", "Everything else is read-only"),
        *("hidden on purpose", "asked about network access each time"),
    ):
        assert words in tool.description
    assert "Commands run in /bin/bash." in tool.description
    programs = tool.description.split("Programs found here: ")[1].rstrip(".").split(", ")
    assert "bash" in programs
    looked_for = agent.run(f"for name in {' '.join(programs)}; do command -v $name || exit 1; done")
    assert looked_for.ok


def test_a_program_that_only_the_host_sees_is_not_mentioned(person: Person) -> None:
    for name, is_seen in ((".ssh", False), ("bin", True)):
        folder = person.home / name
        folder.mkdir()
        (folder / "zig").write_text("#!/bin/sh\n")
        (folder / "zig").chmod(0o755)
        agent = Agent(person, environ={"PATH": f"{folder}:/usr/bin:/bin"})
        assert ("zig" in RunCommand(agent.tool_context).description) is is_seen


def test_all_tools_can_be_described_to_a_model(agent: Agent) -> None:
    tools = all_tools(agent.tool_context)
    names = ["ask", "edit_file", "plan", "read_file", "run_command", "search", "web_fetch"]
    assert sorted(tool.name for tool in tools) == [*names, "write_file"]
    for tool in tools:
        assert tool.description
        assert tool.parameters["type"] == "object"


def test_files_that_git_ignores_are_one_line(agent: Agent) -> None:
    agent.person.run_outside("git init -q; echo '*.o' > .gitignore")
    text = agent.run("echo 1 > a.o; echo 2 > b.o; echo > new").text
    assert "Changes: 1 added.\n  added new\n  2 files that git ignores" in text
    assert "Changes: 1 file that git ignores." in agent.run("echo 3 > a.o").text.splitlines()
