# SPDX-License-Identifier: GPL-3.0-or-later
"""`agent --json` for another program: its events are those of the documentation, and it answers and
sends messages through standard input."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.cli_server import Started
from support.person import Person
from support.scripted import ScriptedModel
from support.servers.http import document
from support.terminal import call_part, model_server, reply, run_command
from support.timing import PATIENCE

from ollmsandbox import loop
from ollmsandbox.chat import events
from ollmsandbox.chat.conversation import Conversation
from ollmsandbox.chat.events import ChatEvent, TurnEnded
from ollmsandbox.chat.instructions import InstructionFile
from ollmsandbox.chat.messages import Message, Role, ToolCall
from ollmsandbox.chat.providers.base import ProviderError
from ollmsandbox.chat.turn_end import TurnEnd
from ollmsandbox.cli.agent.client import JsonClient
from ollmsandbox.cli.agent.events import JsonPrinter
from ollmsandbox.permission.request import Answer, Fact, PermissionRequest, Source, Verdict
from ollmsandbox.project.change import Report
from ollmsandbox.sandbox.monitor import EventKind, FileEvent
from ollmsandbox.tools.base import Outcome, Stream, UserQuestion

pytestmark = pytest.mark.ordinary

DOCUMENT = Path(__file__).parents[3] / "docs/agent-json.md"
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "list": (list,),
    "object": (dict,),
    "null": (type(None),),
}
# Those that do not come from the conversation.
OTHERS = {"error", "invalid_input"}

REQUEST = PermissionRequest(
    id="q",
    tool="run_command",
    project="/p",
    question="Run command?",
    subject="true",
    target_path="/p",
    one_time_only=False,
    facts=(Fact("Folder", "/p"),),
)
CALL = ToolCall("1", "run_command", {"command": "true"})
PLAN = ToolCall("2", "plan", {"steps": [{"text": "Test", "state": "done"}]})
EVENTS: tuple[ChatEvent, ...] = (
    events.StateChanged(events.ConversationState.IDLE),
    events.MessageAdded(Message(Role.ASSISTANT, "Hello", calls=(CALL,))),
    events.QueueChanged(("Wait",)),
    events.TextGrew("H"),
    events.ThinkingGrew("h"),
    events.ReplyWithdrawn(),
    events.CallQueued(CALL, "true"),
    events.CallBegan(ToolCall("1", "run_command", "{"), "true"),
    events.PermissionAsked("1", REQUEST),
    events.PermissionAnswered("1", Verdict(REQUEST, Answer.ALLOW, Source.PERSON, 0.0)),
    events.QuestionAsked("1", UserQuestion("u", "Tabs?", ("Yes", "No"))),
    events.QuestionAnswered("1", "Yes"),
    events.QuestionAnswered("1", None),
    events.CommandStarted("1", 7, None),
    events.CommandOutput("1", Stream.STDOUT, b"x"),
    events.FilesChanged("1", FileEvent(next(iter(EventKind)), "/p/a", 1)),
    events.CallEnded(CALL, Outcome("x", ok=True, report=Report("r"))),
    events.CallEnded(PLAN, Outcome("x", ok=True)),
    events.CallSettled("1", Report("r")),
    events.Notice("Hm"),
    events.InstructionsRead((InstructionFile("AGENTS.md", 7, False),)),
    events.Retrying(2.0, "Busy"),
    events.TokensUsed(1, 2, None, 0.5),
    events.TurnEnded(TurnEnd.DONE),
)


def documented() -> dict[str, dict[str, tuple[type, ...]]]:
    """Return the fields of each event and their types, as the documentation has them."""
    text = DOCUMENT.read_text().partition("## Events")[2].partition("\n## ")[0]
    found = {}
    for name, fields in re.findall(r"^\| `(\w+)` \| (.*?) ?\| ", text, re.MULTILINE):
        given = re.findall(r"`(\w+)`: ([a-z]+(?: or [a-z]+)*)", fields)
        found[name] = {
            field: tuple(t for word in kinds.split(" or ") for t in TYPES[word])
            for field, kinds in given
        }
    return found


def check(document: dict[str, Any]) -> None:
    fields = documented()[document["event"]]
    assert {*document} - {"event"} == {*fields}, document
    for name, kinds in fields.items():
        assert type(document[name]) in kinds, (name, document)


def test_the_events_are_those_of_the_documentation() -> None:
    assert {type(event) for event in EVENTS} == {*ChatEvent.__subclasses__()}
    printer = JsonPrinter("/p")
    seen = set()
    for event in EVENTS:
        document = json.loads(json.dumps(printer.document(event)))
        check(document)
        seen.add(document["event"])
    assert seen | OTHERS == {*documented()}


def test_every_end_of_a_turn_is_documented() -> None:
    [row] = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `end` ")]
    assert {end.name.lower() for end in TurnEnd} <= {*re.findall(r"`(\w+)`", row)}


class Client:
    """The other program."""

    def __init__(self, process: Started) -> None:
        self.process = process
        self.heard: list[dict[str, Any]] = []

    def send(self, **document: object) -> None:
        self.write(json.dumps(document))

    def write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    def until(self, name: str, found: Callable[[dict[str, Any]], object] = bool) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event: dict[str, Any] = json.loads(line)
            check(event)
            self.heard.append(event)
            if event["event"] == name and found(event):
                return event
        raise AssertionError(f"It ended without {name}: {self.heard}")

    def end(self) -> int:
        """Close standard input, and read the rest."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.wait()

    def wait(self) -> int:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.heard.append(json.loads(line))
            check(self.heard[-1])
        return self.process.wait(PATIENCE)


@contextmanager
def client(person: Person, *arguments: str) -> Iterator[Client]:
    process = person.start("agent", "--json", *arguments, stdin=subprocess.PIPE, stderr=2)
    try:
        yield Client(process)
    finally:
        process.end()


def test_another_program_answers_and_goes_on_talking(person: Person) -> None:
    replies = [
        run_command("touch allowed", "1", network=True),
        run_command("touch denied", "2", network=True),
        reply(call_part("ask", "3", question="Tabs or spaces?", choices=["Tabs", "Spaces"])),
        reply("First."),
        reply("Second."),
    ]
    with model_server(person, replies) as server, client(person, "Do it") as other:
        asked = other.until("asking")
        assert asked["answers"] == ["deny", "allow"]
        assert asked["subject"] == "touch allowed"
        other.send(type="answer", id=asked["id"], answer="allow")
        other.send(type="answer", id=other.until("asking")["id"], answer="sure")
        question = other.until("question")
        assert question["choices"] == ["Tabs", "Spaces"]
        other.send(type="answer", id=question["id"], text="Tabs")
        assert other.until("reply")["text"] == "Tabs"
        assert other.until("end")["end"] == "done"
        other.send(type="message", text="And now?")
        other.until("text", lambda event: event["text"] == "Second.")
        assert other.until("end")["end"] == "done"
        assert other.end() == 0
    assert (person.project / "allowed").exists()
    assert not (person.project / "denied").exists()
    told = json.loads(server.seen[-1].body)["messages"]
    assert told[-1]["content"] == "And now?"
    assert any(message["content"] == "The user answered: Tabs" for message in told)


def test_a_message_is_sent_while_the_model_works(person: Person) -> None:
    replies = [run_command("sleep 1000"), reply("Yes.")]
    with model_server(person, replies) as server, client(person, "Do it") as other:
        other.until("started")
        other.send(type="message", text="Hurry up!")
        assert other.until("waiting")["texts"] == ["Hurry up!"]
        other.send(type="stop")
        assert other.until("end")["end"] == "stopped"
        # What was not read yet begins the next turn.
        assert other.until("end")["end"] == "done"
        assert other.end() == 0
    told = json.loads(server.seen[-1].body)["messages"]
    assert told[-1] == {"role": "user", "content": "Hurry up!"}


def test_a_turn_that_failed_is_tried_again(person: Person) -> None:
    refused = document({"error": {"message": "Not today"}}, 403)
    replies = [run_command("true", "1", network=True), refused, reply("Fine.")]
    with model_server(person, replies) as server, client(person, "Do it") as other:
        asked = other.until("asking")
        other.send(type="retry")
        other.until("invalid_input")
        other.send(type="answer", id=asked["id"], answer="deny")
        assert other.until("end")["end"] == "failed"
        other.send(type="retry")
        assert other.until("end")["end"] == "done"
        other.send(type="retry")
        other.until("invalid_input")
        assert other.end() == 0
    told = [json.loads(seen.body)["messages"] for seen in server.seen if seen.method == "POST"]
    assert told[-1] == told[-2]


def test_a_turn_is_tried_again_as_soon_as_its_end_is_read() -> None:
    # The other program may be quicker than the end of the turn.
    ours, theirs = os.pipe()
    written: list[dict[str, object]] = []
    conversation = Conversation(model=ScriptedModel([ProviderError("No")], ["Fine."]))

    async def serve() -> TurnEnded:
        client = JsonClient(written.append, ours)

        def answer(event: ChatEvent) -> None:
            if isinstance(event, TurnEnded):
                os.write(theirs, b'{"type": "retry"}\n')
                client._read()
                if event.end is TurnEnd.DONE:
                    client._end()

        conversation.listen(answer)
        # As if it had said something before.
        client._has_spoken = True
        return await client.converse(conversation, "Go", lambda: False)

    try:
        assert loop.run(serve()).end is TurnEnd.DONE
    finally:
        os.close(ours)
        os.close(theirs)
    assert [one["event"] for one in written] == ["invalid_input"]


def test_the_last_line_may_lack_its_end(person: Person) -> None:
    with model_server(person, [reply("One."), reply("Two.")]), client(person, "Do it") as other:
        assert other.process.stdin is not None
        other.process.stdin.write(b'{"type": "message", "text": "And now?"}')
        assert other.end() == 0
        assert [event["text"] for event in other.heard if event["event"] == "text"] == [
            *("One.", "Two.")
        ]


def test_bad_lines_are_reported_and_do_no_harm(person: Person) -> None:
    with (
        model_server(person, [run_command("true", network=True), reply("Done.")]),
        client(person, "Do it") as other,
    ):
        asked = other.until("asking")
        for line in (
            "{",
            "[]",
            "{}",
            '{"type": "x"}',
            '{"type": "message"}',
            "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
            '{"type": "answer", "id": 7}',
        ):
            other.write(line)
            assert other.until("invalid_input")["text"]
        other.send(type="message", text=" ")
        other.until("invalid_input")
        other.send(type="answer", id="unknown", answer="allow")
        other.send(type="answer", id=asked["id"], answer=["allow"])
        assert other.until("answered")["answer"] == "deny"
        other.until("end")
        assert other.end() == 0


def test_the_end_of_input_denies_open_questions(person: Person) -> None:
    replies = [run_command("touch ran", network=True), reply("Done.")]
    with model_server(person, replies), client(person, "Do it") as other:
        other.until("asking")
        assert other.end() == 0
        answers = [event for event in other.heard if event["event"] == "answered"]
    assert [(event["answer"], event["source"]) for event in answers] == [("deny", "nobody")]
    assert not (person.project / "ran").exists()


def test_a_program_that_says_nothing_is_not_waited_for(person: Person) -> None:
    with model_server(person, [reply("Done.")]), client(person, "Do it") as other:
        assert other.wait() == 0


def test_with_yes_to_nothing_standard_input_is_not_read(person: Person) -> None:
    replies = [run_command("true", network=True), reply(call_part("ask", question="?")), reply("x")]
    with (
        model_server(person, replies) as server,
        client(person, "--yes-to-nothing", "Do it") as other,
    ):
        other.until("asking")
        assert other.wait() == 0
    told = json.loads(server.seen[-1].body)["messages"]
    assert "Nobody is there to answer" in told[-1]["content"]


def test_a_signal_ends_the_program_between_turns(person: Person) -> None:
    with model_server(person, [reply("Done.")]), client(person, "Do it") as other:
        other.send(type="answer", id="none", answer="deny")
        other.until("end")
        os.kill(other.process.pid, 15)
        assert other.wait() == 128 + 15
