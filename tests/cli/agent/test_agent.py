# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox agent` without a terminal: in a script, with JSON output, without a model."""

from __future__ import annotations

import json

import pytest
from support.cli_inline import cli_here
from support.person import Person
from support.servers.http import Stall, delta, document, finish, sse
from support.terminal import call_part, model_server, reply, run_command

from ollmsandbox.chat.events import CommandOutput
from ollmsandbox.chat.storage.history import History
from ollmsandbox.cli.agent.events import JsonPrinter
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.tools.base import Stream

pytestmark = pytest.mark.ordinary


def test_one_turn_prints_only_the_reply_and_stores_the_session(
    person: Person, manager: ProjectManager
) -> None:
    replies = [
        reply("I look. ", call_part("run_command", command="echo hi > new.txt; echo output")),
        run_command("touch ran.txt", "2", network=True),
        reply("All is ", "done."),
    ]
    with model_server(person, replies) as server:
        done = person.cli("agent", "Do it", env=person.environ)  # in a new Python process
    assert done.returncode == 0, done.stderr
    assert done.stdout == "I look. \nAll is done.\n"
    assert "Nobody can be asked here" in done.stderr
    assert "  │ output" in done.stderr
    assert "added     new.txt" in done.stderr
    assert "Denied" in done.stderr
    assert (person.project / "new.txt").exists()
    assert not (person.project / "ran.txt").exists()
    told = json.loads(server.seen[-1].body)["messages"]
    assert told[-1]["role"] == "tool"
    assert "not allowed" in told[-1]["content"]
    listed = json.loads(person.cli("sessions", "list", "--json").stdout)
    assert [info["title"] for info in listed] == ["Do it"]
    [question] = History(manager).questions(listed[0]["id"])
    assert (question.answer, question.source) == ("deny", "nobody")
    assert question.question == "Run command with network access: touch ran.txt?"


def test_the_user_reads_what_a_command_left_and_was_refused(person: Person) -> None:
    command = "sleep 1001 & touch /usr/x"
    with model_server(person, [run_command(command), reply("Done.")]):
        said = person.cli("agent", "Do it").stderr
    assert "1 process " in said
    assert "read-only" in said


def test_the_user_reads_why_a_command_was_stopped(person: Person) -> None:
    person.paths.profiles.mkdir(parents=True)
    (person.paths.profiles / "standard.yaml").write_text(
        "commands: { sleep: { limits: { time: 1 s } } }"
    )
    with model_server(person, [run_command("sleep 100"), reply("Done.")]):
        said = person.cli("agent", "Do it").stderr
    assert "  The command did not finish. Exceeded the time limit.\n" in said


def test_what_was_undone_in_the_meantime_is_in_front_of_the_next_message(person: Person) -> None:
    replies = [run_command("echo hi > new.txt"), reply("Done."), reply("I see.")]
    with model_server(person, replies) as server:
        assert person.cli("agent", "Do it").returncode == 0
        assert person.cli("undo").returncode == 0
        assert person.cli("agent", "--continue", "Go on").returncode == 0
    told = json.loads(server.seen[-1].body)["messages"]
    # Servers accept a system message only at the beginning, and the user's in turns.
    roles = [message["role"] for message in told]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    fact, _empty, said = told[-1]["content"].split("\n")
    assert fact.startswith("[OLLM Sandbox] ") and "undid new.txt" in fact
    assert said == "Go on"
    [session] = json.loads(person.cli("sessions", "list", "--json").stdout)
    exported = person.cli("sessions", "export", session["id"]).stdout
    assert f"```\n{fact}\n```" in exported


def test_events_as_json(person: Person) -> None:
    replies = [
        reply("Hm. ", call_part("run_command", command="echo hi > new.txt; echo output")),
        run_command("true", "2", network=True),
        reply("Done."),
    ]
    with model_server(person, replies):
        done = person.cli("agent", "--json", input="Do it\n")
    assert done.returncode == 0
    assert done.stderr == ""
    events = [json.loads(line) for line in done.stdout.splitlines()]
    names = [event["event"] for event in events]
    for name in ("message", "state", "text", "call", "started", "output", "result", "asking"):
        assert name in names
    assert names[-2:] == ["end", "state"]
    result = next(event for event in events if event["event"] == "result")
    assert result["exit_code"] == 0
    assert [change["path"] for change in result["changes"]] == ["new.txt"]
    answered = next(event for event in events if event["event"] == "answered")
    assert (answered["answer"], answered["source"]) == ("deny", "nobody")
    assert next(e for e in events if e["event"] == "end")["end"] == "done"


def test_a_server_that_is_busy_for_a_moment(person: Person) -> None:
    busy = document({"error": {"message": "Loading model"}}, 503, Retry_After="1")
    with model_server(person, [busy, reply("Done."), busy, reply("Done.")]):
        done = person.cli("agent", "--yes-to-nothing", "Do it")
        assert done.stdout == "Done.\n"
        assert "Loading model. Trying again in 1 s" in done.stderr
        lines = person.cli("agent", "--json", "Do it").stdout.splitlines()
    [event] = [e for e in map(json.loads, lines) if e["event"] == "retrying"]
    assert event["seconds"] == 1
    assert "Loading model" in event["why"]


def test_what_a_turn_costs_is_printed_if_there_is_a_price(person: Person) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 2_000, "completion_tokens": 1_000}}
    answer = sse(delta(content="Done."), finish(), usage)
    with model_server(person, [answer, answer]) as server:
        priced = ("--kind", "openai", "--price", "1", "2", "--json")
        person.cli("connections", "add", "test", server.address, *priced)
        done = person.cli("agent", "--yes-to-nothing", "Do it")
        assert done.stderr == "Cost: 0.0040\n"
        lines = person.cli("agent", "--json", "Do it").stdout.splitlines()
    [event] = [e for e in map(json.loads, lines) if e["event"] == "spent"]
    assert event["cost"] == 0.004
    assert "3,000 tokens, cost 0.0040" in person.cli("sessions", "list").stdout


def test_without_a_model_the_remedy_is_printed(person: Person) -> None:
    done = person.cli("agent", "Do it")
    assert done.returncode == 1
    for part in ("No model", "connections find", "connections add", "tour"):
        assert part in done.stderr
    person.paths.config.mkdir(parents=True)
    (person.paths.config / "connections.yaml").write_text(
        "connections:\n"
        "  one: {kind: ollama, address: localhost}\n  two: {kind: openai, address: localhost}\n"
    )
    done = person.cli("agent", "Do it")
    assert done.returncode == 1
    assert "connections default NAME" in done.stderr


def test_the_time_limit_ends_a_turn(person: Person) -> None:
    with model_server(person, [reply("Well, ", Stall())]):
        done = person.cli("agent", "--max-minutes", "0.005", "Do it")
    assert done.returncode == 1
    assert "time limit" in done.stderr


def test_a_character_in_two_pieces_is_one_in_json() -> None:
    printer = JsonPrinter("")
    events = [CommandOutput("1", Stream.STDOUT, data) for data in (b"gr\xc3", b"\xbc\xc3\x9fe")]
    assert [(printer.document(event) or {})["text"] for event in events] == ["gr", "üße"]


def test_a_server_that_is_not_there_is_a_sentence_and_not_the_end_of_the_session(
    person: Person,
) -> None:
    with model_server(person, [reply("Hello.")]) as server:
        assert person.cli("agent", "First").returncode == 0
        port = server.port
    done = person.cli("agent", "--continue", "Second")
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr
    with model_server(person, [reply("Back.")]) as server:
        done = person.cli("agent", "--continue", "--yes-to-nothing", "Third")
    assert done.stdout == "Back.\n"
    assert done.stderr == ""
    told = json.loads(server.seen[-1].body)["messages"]
    assert [m["content"] for m in told[1:]] == ["First", "Hello.", "Second\n\nThird"]


def test_the_limits_and_modes_are_passed_on(person: Person) -> None:
    replies = [run_command("echo a >> f.txt", str(n)) for n in range(5)]
    with model_server(person, replies):
        done = person.cli("agent", "--max-turns", "2", "--apply", "review", "Do it")
    assert done.returncode == 1
    assert "turn limit" in done.stderr
    assert not (person.project / "f.txt").exists()
    assert "pending" in done.stderr
    assert person.cli("apply", "--all").returncode == 0
    assert (person.project / "f.txt").read_text() == "a\na\n"


def test_a_sentence_for_each_mistake(person: Person) -> None:
    for arguments, part in (
        ((" ",), "No text"),
        (("--session", "nothing", "Hi"), "no session"),
        (("--continue", "Hi"), "no session"),
        (("--connection", "nothing", "Hi"), "no connection"),
        (("--project", "/nowhere", "Hi"), "/nowhere"),
    ):
        done = cli_here(person, "agent", *arguments)
        assert done.returncode == 1
        assert part in done.stderr
        assert "Traceback" not in done.stderr
    for limit in ("--max-turns", "--max-minutes", "--max-tokens"):
        assert cli_here(person, "agent", limit, "0", "Hi").returncode == 2
    assert "No text" in cli_here(person, "agent", "--json", input=" ").stderr
