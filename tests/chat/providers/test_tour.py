# SPDX-License-Identifier: GPL-3.0-or-later
"""The tour's scripted model, with its sample project in a real sandbox."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.person import Person
from support.provider import TOOL, ask, called, said
from support.tools import Agent

from ollmsandbox.chat.conversation import with_unique_ids
from ollmsandbox.chat.messages import Message, Role, ToolCall, ToolSpec
from ollmsandbox.chat.providers.base import FinishPiece
from ollmsandbox.chat.providers.tour.model import TourModel
from ollmsandbox.chat.providers.tour.sample import make_sample, remove_sample, unused_folder
from ollmsandbox.errors import ProjectError
from ollmsandbox.sandbox.plan.folders import find_project
from ollmsandbox.tools.run_command import RunCommand

pytestmark = pytest.mark.ordinary

EDIT = ToolSpec("edit_file", "Edits.")
MODEL = TourModel(delay=0)
# Returns the text of a result; None if the user denied the call.
Tool = Callable[[ToolCall], str | None]


class Session:
    def __init__(self, tool: Tool, *tools: ToolSpec) -> None:
        self.messages = [Message(Role.USER, "Show me around.")]
        self._tool = tool
        self._tools = tools or (TOOL,)

    def step(self) -> tuple[ToolCall, ...]:
        pieces = ask(MODEL, self.messages, self._tools)
        assert isinstance(pieces[-1], FinishPiece)
        said_now = Message(Role.ASSISTANT, said(pieces), calls=tuple(called(pieces)))
        message = with_unique_ids(said_now, self.messages)
        self.messages.append(message)
        for call in message.calls:
            text = self._tool(call)
            self.messages.append(
                Message(Role.TOOL, text or "", call_id=call.id, was_denied=text is None)
            )
        return message.calls

    def play(self) -> None:
        for _ in range(20):
            if not self.step():
                return
        raise AssertionError("the tour has no end")

    def words(self) -> str:
        return "\n".join(m.text for m in self.messages if m.role is Role.ASSISTANT)

    def commands(self) -> list[str]:
        found = [c.arguments for m in self.messages for c in m.calls]
        return [str(a["command"]) for a in found if isinstance(a, dict) and "command" in a]


def in_sandbox(person: Person, *, network_allowed: bool = False) -> Tool:
    """Run a call as the tools do, without asking."""

    def run(call: ToolCall) -> str | None:
        assert isinstance(call.arguments, dict)
        if call.name == "edit_file":
            file = person.project / str(call.arguments["path"])
            old, new = str(call.arguments["old_text"]), str(call.arguments["new_text"])
            assert file.read_text().count(old) == 1
            file.write_text(file.read_text().replace(old, new))
            return "Changes: 1 modified."
        if call.arguments.get("network"):
            if not network_allowed:
                return None
            return "192.0.2.1  example.org"
        return person.run(str(call.arguments["command"])).for_model()

    return run


@pytest.mark.parametrize("tools", [(TOOL,), (TOOL, EDIT)], ids=["sed", "edit_file"])
def test_the_tour_fixes_the_bug(person: Person, tools: tuple[ToolSpec, ...]) -> None:
    make_sample(person.project)
    session = Session(in_sandbox(person), *tools)
    session.play()
    results = {c.id: c for m in session.messages for c in m.calls}
    told = [(results[m.call_id].arguments, m.text) for m in session.messages if m.role is Role.TOOL]
    tests = [text for given, text in told if "unittest" in str(given)]
    assert ["FAILED" in text for text in tests] == [True, False]
    assert "OK" in tests[1]
    assert "basket.items()" in (person.project / "basket.py").read_text()
    assert not (person.project / "old-notes.txt").exists()
    assert not (person.home / "ollm-tour.txt").exists()
    words = session.words()
    assert "One test fails" in words
    assert "all tests pass" in words
    assert "It failed: everything outside" in words
    assert "You denied it" in words
    assert "undo them" in words
    # Nothing besides what it says: no caches, no leftovers.
    assert sorted(p.name for p in person.project.iterdir()) == [
        "README.md", "basket.py", "prices.csv", "test_basket.py",
    ]  # fmt: skip


def sample_tool(*, network: str | None = "192.0.2.1  example.org", outside: str = "") -> Tool:
    readme = "This is the sample project of the OLLM Sandbox tour."

    def run(call: ToolCall) -> str | None:
        given = str(call.arguments)
        if "README" in given:
            return readme
        if "example.org" in given:
            return network
        return outside if "ollm-tour" in given else "done"

    return run


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (None, "You denied it"),
        ("ERROR: It was denied by the user.", "did not respond"),
        ("192.0.2.1  example.org", "Thank you"),
        ("exit status 2", "did not respond"),
    ],
)
def test_the_tour_accepts_any_answer_about_the_network(network: str | None, words: str) -> None:
    session = Session(sample_tool(network=network))
    session.play()
    assert words in session.words()


def test_the_tour_mentions_a_missing_sandbox() -> None:
    session = Session(sample_tool(outside="It was written."))
    session.play()
    assert "no sandbox is available here" in session.words()


def test_the_tour_promises_nothing_if_every_command_asks(person: Person) -> None:
    tool_context = Agent(person, environ={"FLATPAK_ID": "org.example.App"}).tool_context
    tool = RunCommand(tool_context)
    assert not tool.is_sandboxed
    session = Session(sample_tool(), ToolSpec(tool.name, "Runs.", is_sandboxed=tool.is_sandboxed))
    session.play()
    words = session.words()
    assert "you will be asked before each command" in words
    assert "That was all." in words
    for promise in ("needs no permission", "side by side", "have it back", "reviewed and undone"):
        assert promise not in words


def test_the_tour_continues_from_the_messages_alone() -> None:
    session = Session(sample_tool())
    session.step()
    session.step()
    once = ask(MODEL, session.messages, (TOOL,))
    assert once == ask(TourModel(delay=0), list(session.messages), (TOOL,))
    session.messages.append(Message(Role.USER, "wait, what?"))
    assert called(ask(MODEL, session.messages, (TOOL,))) == called(once)
    # A command of the user's own in between.
    own = ToolCall("own-2", "run_command", {"command": "date"})
    session.messages += [
        Message(Role.ASSISTANT, "", calls=(own,)),
        Message(Role.TOOL, "Sunday", call_id="own-2"),
    ]
    assert called(ask(MODEL, session.messages, (TOOL,))) == called(once)


def test_the_tour_touches_no_other_project() -> None:
    session = Session(lambda call: "# My dear old project")
    session.play()
    assert session.commands() == ["ls -l; cat README.md"]
    assert "do not touch" in session.messages[-1].text


def test_each_tour_has_a_new_lasting_folder(person: Person) -> None:
    folders = [make_sample(unused_folder(person.paths)) for _ in range(3)]
    names = ["OLLM Sandbox Tour", "OLLM Sandbox Tour 2", "OLLM Sandbox Tour 3"]
    assert folders == [person.paths.data.parent / name for name in names]
    assert find_project(folders[0], person.paths) == str(folders[0])


def test_only_a_sample_is_removed(person: Person) -> None:
    folder = make_sample(unused_folder(person.paths))
    (person.project / "README.md").write_text("mine")
    left, mine = person.home / "ollm-tour.txt", person.home / "other.txt"
    left.write_text("The tour was here.\n")
    mine.write_text("x")
    for one in (folder, person.project):
        remove_sample(one, person.paths)
    assert not folder.exists()
    assert not left.exists()
    assert mine.exists()
    assert (person.project / "README.md").exists()


def test_the_sample_needs_an_empty_folder(tmp_path: Path) -> None:
    folder = make_sample(tmp_path / "new" / "sample")
    assert (folder / "basket.py").exists()
    with pytest.raises(ProjectError, match="not empty"):
        make_sample(folder)
    (tmp_path / "file").write_text("")
    with pytest.raises(ProjectError, match="cannot be made"):
        make_sample(tmp_path / "file")
