# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox agent` at a terminal: the card, single keys, Ctrl+C, the prompt."""

from __future__ import annotations

import asyncio
import json
import os
import re
import uuid
from dataclasses import replace

import pytest
from support.agent import with_words
from support.person import Person
from support.questions import command as asked_command
from support.servers.http import Stall, document
from support.terminal import (
    CTRL_C,
    CTRL_D,
    ENTER,
    Terminal,
    call_part,
    model_server,
    reply,
    run_command,
)
from support.timing import PATIENCE

from ollmsandbox.chat.storage.history import History
from ollmsandbox.cli.agent.asker import TerminalAsker
from ollmsandbox.cli.agent.card import card as make_card
from ollmsandbox.cli.agent.card import in_words
from ollmsandbox.cli.agent.keyboard import KeyReader
from ollmsandbox.permission.request import Answer, PermissionRequest
from ollmsandbox.permission.store import RuleStore
from ollmsandbox.project.projects import ProjectManager
from ollmsandbox.text.ansi import LiveOutput, column_width

pytestmark = pytest.mark.ordinary

ENDS = "(Enter: deny) "
PROMPT = "> "
BELL = "\a"


def answers(manager: ProjectManager) -> list[tuple[str | None, str]]:
    history = History(manager)
    found = [history.questions(session.id) for session in history.sessions()]
    return [(one.answer, one.source) for questions in found for one in questions]


def say(terminal: Terminal, text: str, *expected: str) -> None:
    """Type a line at the prompt, and wait until this is shown."""
    terminal.expect(PROMPT)
    terminal.send(text + ENTER)
    for part in expected:
        terminal.expect(part)


def test_the_card_shows_all_of_it_and_each_key_is_an_answer(
    person: Person, manager: ProjectManager
) -> None:
    hidden = "echo one\n\n\ntouch second\u202e.txt \x1b[2K"
    replies = [
        run_command(hidden, "1"),
        *(run_command(f"touch {name}.txt", name) for name in ("enter", "deny", "allow", "eof")),
        *(run_command("touch session.txt", f"s{n}") for n in range(2)),
        run_command("touch always.txt", "w"),
        run_command("touch never.txt", "n"),
        reply("All was said."),
    ]
    with (
        model_server(person, replies),
        Terminal(person, "agent", "--ask-every-command", "Do it") as terminal,
    ):
        card = terminal.expect(ENDS)
        assert "Run command?" in card
        assert "  ┃ echo one" in card
        assert "touch second⟨U+202E⟩.txt ⟨ESC⟩[2K" in card
        assert "Off" in card  # the network
        assert "cannot always be allowed" in card
        assert "[s]ession" not in card
        # Not an answer that was offered.
        terminal.send("s")
        terminal.expect(BELL)
        terminal.send("d")
        terminal.expect("Deny.")
        for keys, said in (
            (ENTER, "Deny."),
            ("d", "Deny."),
            ("a", "Allow."),
            (CTRL_D, "Denied, because nobody"),
            ("s", "Allow for this session."),
        ):
            terminal.expect(ENDS)
            terminal.send(keys)
            terminal.expect(said)
        terminal.expect("answer for this session")
        for keys, said in (("w", "Allow always."), ("n", "Deny always.")):
            offered = terminal.expect(ENDS)
            assert "al[w]ays allow" in offered
            terminal.send(keys)
            terminal.expect(said)
        terminal.expect("All was said.")
        assert terminal.end() == 0
        assert terminal.text.count("1 change ") == 3
    made = sorted(path.name for path in person.project.iterdir())
    assert made == ["allow.txt", "always.txt", "session.txt"]
    assert [answer for answer, _ in answers(manager)] == [
        *("deny", "deny", "deny", "allow", "deny"),
        *("allow for this session", "allow for this session", "allow always", "deny always"),
    ]
    assert len(RuleStore(person.paths).rules()) == 2


def test_typed_ahead_or_pasted_text_is_no_answer(person: Person) -> None:
    person.share_playground()
    replies = [
        run_command("echo ready; while ! test -e ~/playground/go; do sleep 0.05; done", "1"),
        run_command("touch ran.txt", "2", network=True),
        reply("Over."),
    ]
    with model_server(person, replies), Terminal(person, "agent", "Do it") as terminal:
        terminal.expect("  │ ")
        terminal.expect("ready")
        terminal.send("a\ra\ra")
        (person.playground / "go").touch()
        card = terminal.expect(ENDS)
        assert "Run command with network access: touch ran.txt?" in card
        assert "You are asked about each host" in card
        assert "[s]ession" not in card
        terminal.send("aaaa")  # as a paste comes
        terminal.expect(BELL)
        terminal.send(ENTER)
        terminal.expect("Deny.")
        terminal.expect("Over.")
        assert terminal.end() == 0
    assert not (person.project / "ran.txt").exists()


def test_a_long_command_can_be_allowed_only_after_its_end_was_seen(person: Person) -> None:
    lines = [f"echo line {number}" for number in range(60)]
    command = "\n".join((*lines, "touch ran.txt"))
    replies = [run_command(command, "1", network=True), reply("Over.")]
    with model_server(person, replies), Terminal(person, "agent", "Do it", rows=24) as terminal:
        first = terminal.expect("more lines: [space]")
        assert "line 0" in first
        assert "[a]llow" not in first
        terminal.expect(ENDS)
        terminal.send("a")  # too early
        terminal.expect(BELL)
        terminal.send(" ")
        for _ in range(10):
            page = terminal.expect(ENDS)
            if "[a]llow" in page:
                break
            terminal.send(" ")
        assert "  ┃ touch ran.txt" in terminal.text
        assert "[m]ore" in page
        terminal.send("m")
        assert "The network is open to the hosts that you allow." in terminal.expect(ENDS)
        terminal.send("a")
        terminal.expect("Over.")
        assert terminal.end() == 0
    assert (person.project / "ran.txt").exists()


def test_ctrl_c_stops_the_turn_and_not_the_program(person: Person, manager: ProjectManager) -> None:
    seconds = f"95{uuid.uuid4().int % 10**9}"
    replies = [
        reply("Well, let me", Stall()),
        run_command(f"echo begun; sleep {seconds}", "1"),
        run_command("touch ran.txt", "2", network=True),
        reply(Stall()),
        reply("Still here."),
    ]
    with model_server(person, replies) as server, Terminal(person, "agent") as terminal:
        say(terminal, "stream", "Well, let me")
        terminal.send(CTRL_C)
        terminal.expect("Stopped.")
        say(terminal, "run", "│", "begun")
        terminal.wait_for(lambda: with_words("sleep", seconds))
        terminal.send(CTRL_C)
        terminal.expect("Stopped.")
        terminal.wait_for(lambda: not with_words("sleep", seconds))
        say(terminal, "ask", ENDS)
        terminal.send(CTRL_C)
        terminal.expect("Stopped.")
        say(terminal, "wait")
        terminal.wait_for(lambda: server.paths().count("/v1/chat/completions") == 4)
        terminal.send(CTRL_C)
        terminal.expect("Stopped.")
        say(terminal, "again", "Still here.", PROMPT)
        # One that comes before readline waits for it is seen with the next.
        assert terminal.send_until_end(CTRL_C) == 0
        assert "again to quit" in terminal.text
    assert not (person.project / "ran.txt").exists()
    assert answers(manager) == [("deny", "nobody")]


def test_the_prompt_has_commands_of_its_own(person: Person) -> None:
    with (
        model_server(person, [reply("I saw it.")]) as server,
        Terminal(person, "agent") as terminal,
    ):
        terminal.expect("You are talking to played")
        say(terminal, "/help", "!COMMAND")
        colours = "\\033[31mred\\033[0m\\033[2J\\033]0;title\\a"
        say(terminal, f"!printf '{colours}'; echo x > x.txt", "run_command: ", "\n")
        shown = terminal.expect("added     x.txt")
        assert "\x1b[31mred\x1b[0m" in shown
        assert "\x1b[2J" not in shown
        assert "title" not in shown
        say(terminal, "/changes", "added     x.txt")
        say(terminal, "/undo", "1 change undone.", PROMPT)
        assert not (person.project / "x.txt").exists()
        terminal.send("/model" + ENTER)
        terminal.expect("* played  (test)")
        say(terminal, "/nonsense", "/nonsense")
        say(terminal, "what did I do?", "I saw it.")
        say(terminal, "/quit")
        assert terminal.end() == 0
        assert "echo x > x.txt" in str(server.seen[-1].json["messages"])
    history = person.paths.data / "agent-history"
    assert "what did I do?" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_a_turn_that_failed_is_tried_again_on_request(person: Person) -> None:
    refused = document({"error": {"message": "not today"}}, 400)
    with (
        model_server(person, [refused, reply("Now it works.")]) as server,
        Terminal(person, "agent") as terminal,
    ):
        say(terminal, "hello", "not today", "/retry tries this turn again.")
        say(terminal, "/retry", "Now it works.")
        say(terminal, "/retry", "already answered")
        say(terminal, "/quit")
        assert terminal.end() == 0
        assert str(server.seen[-1].json["messages"]).count("hello") == 1


def test_without_a_model_the_prompt_still_runs_commands(person: Person) -> None:
    with Terminal(person, "agent") as terminal:
        terminal.expect("connections find")
        say(terminal, "hello", "No model")
        say(terminal, "!echo walled in", "  │ ", "walled in", PROMPT)
        terminal.send(CTRL_D)
        assert terminal.end() == 0


def test_json_is_no_conversation_at_a_terminal(person: Person) -> None:
    with model_server(person, []), Terminal(person, "agent", "--json") as terminal:
        terminal.expect('{"event": "error"')
        terminal.expect("No text")
        assert terminal.end() == 1
        assert "Traceback" not in terminal.text


def test_a_server_that_is_away_hides_no_other(person: Person) -> None:
    with model_server(person, [reply("Hello.")]) as server:
        names = document({"data": [{"id": "played"}, {"id": "other\x1b[2J"}, {"id": "third"}]})
        server.set("/v1/models", names)
        file = person.paths.config / "connections.yaml"
        listed = file.read_text().removeprefix("connections:\n")
        away = "connections:\n  away: {kind: openai, address: 'http://127.0.0.1:1'}\n"
        file.write_text(f"default: test\n{away}{listed}")
        with Terminal(person, "agent") as terminal:
            say(terminal, "/model", "away: No server is running", "other⟨ESC⟩[2J  (test)")
            say(terminal, "/model third", "now talking to third")
            say(terminal, "hello", "Hello.", PROMPT)
            terminal.send(CTRL_D)
            assert terminal.end() == 0
        assert json.loads(server.seen[-1].body)["model"] == "third"


def test_without_a_sandbox_everything_is_asked(person: Person) -> None:
    person.environ["FLATPAK_ID"] = "x"
    (person.project / "a.txt").write_text("one\n")
    replies = [
        run_command("touch ran.txt", "1"),
        run_command("touch allowed.txt; echo $HOME", "2"),
        reply(call_part("read_file", "3", path="a.txt")),
        reply(call_part("write_file", "4", path="a.txt", content="two\n")),
        reply("Over."),
    ]
    with model_server(person, replies) as server, Terminal(person, "agent", "Do it") as terminal:
        for key in "daaa":
            terminal.expect("without a sandbox")
            card = terminal.expect(ENDS)
            assert "This is not sandboxed" in card
            assert "[s]ession" not in card
            terminal.send(key)
        terminal.expect("modified  a.txt")
        assert terminal.end() == 0
    assert not (person.project / "ran.txt").exists()
    assert (person.project / "allowed.txt").exists()
    assert (person.project / "a.txt").read_text() == "two\n"
    request = json.loads(server.seen[-1].body)
    assert any("no sandbox" in tool["function"]["description"] for tool in request["tools"])
    told = request["messages"]
    results = [message["content"] for message in told if message["role"] == "tool"]
    assert "denied" in results[0]
    assert str(person.home) in results[1]
    assert "one" in results[2]
    assert person.cli("undo").returncode == 0
    assert (person.project / "a.txt").read_text() == "one\n"


def test_the_tour_from_its_beginning_to_its_end(person: Person) -> None:
    with Terminal(person, "tour") as terminal:
        terminal.expect("The sample project is in")
        terminal.expect("a script, not an AI")
        terminal.expect("FAILED")
        terminal.expect("edit_file: basket.py")
        terminal.expect("Read-only file system")
        card = terminal.expect(ENDS)
        assert "getent hosts example.org" in card
        terminal.send("d")
        terminal.expect("and nothing ran.")
        terminal.expect("That was all.")
        terminal.expect("modified  basket.py")
        terminal.expect("deleted   old-notes.txt")
        assert terminal.end() == 0
    folder = person.paths.data.parent / "OLLM Sandbox Tour"
    assert "number for item" in (folder / "basket.py").read_text()
    assert not (folder / "old-notes.txt").exists()
    assert not (person.home / "ollm-tour.txt").exists()
    undone = person.cli("undo", cwd=folder)
    assert undone.returncode == 0
    assert (folder / "old-notes.txt").exists()


def test_a_card_that_is_shown_again_says_why_first() -> None:
    request = PermissionRequest("1", "run_command", "/p", "Run?", "ls", "/p", True)
    lines = make_card(replace(request, notice="It changed."), 80)
    assert lines[1:3] == ["It changed.", "Run?"]
    assert lines[2:] == make_card(request, 80)[1:]


@pytest.mark.parametrize("width", [20, 45, 200])
def test_a_card_has_no_line_that_the_terminal_would_break(width: int) -> None:
    subject = f"echo {'x' * 300} && {'漢字' * 40} \t end"
    request = PermissionRequest("1", "run_command", "/p", "Run?" * 30, subject, "/p", True)
    lines = make_card(request, width)
    assert max(sum(map(column_width, line)) for line in lines) <= width
    shown = "".join(re.sub("^  [┃┊] ", "", line) for line in lines if line[:3] in ("  ┃", "  ┊"))
    assert shown.replace(" ", "") == subject.expandtabs(4).replace(" ", "")


def test_sentences_of_a_card_are_broken_between_words() -> None:
    text = "The portal starts a sandbox, with a_very_long_name_that_fits_nowhere in it."
    assert list(in_words(text, 24, "  - ", "    ")) == [
        *("  - The portal starts a", "    sandbox, with a_very"),
        *("    _long_name_that_fits", "    _nowhere in it."),
    ]


def test_a_plan_is_shown_as_a_list(person: Person) -> None:
    steps = [
        {"text": "Read the code", "state": "done"},
        {"text": "Fix\x1b[2J it", "state": "in_progress"},
        {"text": "Test it"},
    ]
    replies = [reply(call_part("plan", steps=steps)), reply("Over.")]
    with model_server(person, replies), Terminal(person, "agent", "Do it") as terminal:
        terminal.expect("[x] Read the code")
        terminal.expect("[>] Fix⟨ESC⟩[2J it")
        terminal.expect("[ ] Test it")
        assert terminal.end() == 0


def test_the_model_asks_the_user(person: Person) -> None:
    question = {"question": "Tabs or\n\x1b[2Jspaces?", "choices": ["Tabs", "Spaces"]}
    given = {"2": "Spaces", "neither": "neither", "3": "3", "": "no answer"}
    replies = [reply(call_part("ask", str(number), **question)) for number in range(len(given))]
    with (
        model_server(person, [*replies, reply("Over.")]) as server,
        Terminal(person, "agent", "Do it") as terminal,
    ):
        for typed in given:
            terminal.expect("The model asks:")
            terminal.expect("⟨ESC⟩[2Jspaces?")
            terminal.expect("2  Spaces")
            terminal.expect("Number, or your answer (Enter: none): ")
            terminal.send(typed + ENTER)
        terminal.expect("Over.")
        assert terminal.end() == 0
    told = json.loads(server.seen[-1].body)["messages"]
    answers = [message["content"] for message in told if message["role"] == "tool"]
    for answer, text in zip(given.values(), answers, strict=True):
        assert answer in text


def test_what_is_typed_during_a_turn_is_sent_with_the_next_step(person: Person) -> None:
    person.share_playground()
    replies = [
        run_command("echo begun; until [ -e ~/playground/go ]; do sleep 0.02; done", "1"),
        run_command("true", "2", network=True),
        reply("Over."),
        reply("Second."),
    ]
    with model_server(person, replies) as server, Terminal(person, "agent") as terminal:
        say(terminal, "Do it", "mbegun")
        terminal.send("Be quick!" + ENTER)
        terminal.expect("reads this with its next step")
        terminal.send("!echo later" + ENTER)
        terminal.expect("runs when the model is done")
        (person.playground / "go").touch()
        # A question has the keyboard for itself.
        terminal.expect(ENDS)
        terminal.send("d")
        terminal.expect("Over.")
        terminal.expect("mlater")
        terminal.expect(PROMPT)
        terminal.send(CTRL_D)
        assert terminal.end() == 0
    told = [json.loads(seen.body)["messages"] for seen in server.seen if seen.body]
    assert told[1][-1] == {"role": "user", "content": "Be quick!"}


def test_a_key_pressed_just_before_a_card_answers_nothing() -> None:
    """The user is typing a sentence when a card comes up."""
    master, slave = os.openpty()
    shown: list[str] = []

    def write(text: str) -> None:
        shown.append(text)
        if "┃" in text:
            os.write(master, b"a")
        elif "[a]llow" in text:
            os.write(master, b"d")

    async def main() -> Answer:
        asker = TerminalAsker(write, lambda: None, lambda: None)
        asker._keys = KeyReader(slave)
        return await asyncio.wait_for(asker.ask(asked_command("rm -r /", "/p")), PATIENCE)

    try:
        assert asyncio.run(main()) is Answer.DENY
    finally:
        os.close(slave)
        os.close(master)
    assert shown[-1] == "Deny.\n"


@pytest.mark.parametrize(("most_lines", "most"), [(6, 1000), (1000, 24)])
def test_endless_output_shows_its_beginning_and_counts_the_rest(most_lines: int, most: int) -> None:
    live = LiveOutput(colour=True, most_lines=most_lines, most=most)
    assert "".join(live.feed(b"line\n") for _ in range(6)).count("line") == 6
    before = live.dropped_lines
    # Work for each line of this would take long.
    assert live.feed(b"y\n" * (4 << 20)) == ""
    assert live.feed(b"\x1b[31mhalf a line") == ""
    assert live.dropped_lines - before == 4 << 20
    assert live.end().endswith(f"[{live.dropped_lines:,} more lines]\n")
