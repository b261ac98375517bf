# SPDX-License-Identifier: GPL-3.0-or-later
"""The program as a person meets it: a process of its own, with a mouse, a keyboard and what a
screen reader tells. `build-aux/with-display --accessible` gives it all that."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from functools import partial

from conftest import Person
from outside import CLOSING, PATIENCE, Outside, program, start
from replay import Replay, Reply, delta, document, finish, sse
from screen_reader import Node

_TOUR = "OLLM Sandbox Tour"
_TYPE = re.compile(r"(Gtk|Adw|Ollm)[A-Z]\w+")
_USED = ("button", "toggle button", "text box", "search box", "combo box", "check box", "switch")


def test_the_tour_is_taken_with_the_mouse_and_a_deletion_undone(person: Person) -> None:
    with program(person) as window:
        _take_tour(window)
        sample = person.home / _TOUR
        assert (sample / "old-notes.txt").exists()
        assert "basket.items()" in (sample / "basket.py").read_text()
        window.click("button", "Allow Once", then=lambda: window.reads("Allowed once, "))
        window.until(lambda: not (sample / "old-notes.txt").exists(), "the file is deleted")
        window.wait_for("That was all.")
        window.click("button", "Undo", then=(sample / "old-notes.txt").exists)
        window.wait_find_insensitive("button", "Undone")
        window.close()


def test_the_question_has_the_keyboard_and_escape_is_no(person: Person) -> None:
    with Replay(_model([["touch a"]])) as server:
        _connect(person, server)
        with program(person, f"{person.project}/", ask_every_command=True) as window:
            window.say("go")
            window.wait_focus("Deny")
            window.press("Escape", then=lambda: window.reads("Denied, "))
            window.wait_for("Round 1 is over.")
            window.close()
    assert not (person.project / "a").exists()


def test_a_question_is_answered_with_the_letter_of_its_button(person: Person) -> None:
    with Replay(_model([["touch a"]])) as server:
        _connect(person, server)
        with program(person, f"{person.project}/", ask_every_command=True) as window:
            window.say("go")
            window.wait_focus("Deny")
            window.wait_find("button", "Allow")
            window.press("alt+a", then=lambda: window.reads("Allowed once, "))
            window.wait_for("Round 1 is over.")
            window.close()
    assert (person.project / "a").exists()


def test_each_kind_of_answer_counts_as_long_as_it_says(person: Person) -> None:
    """The model asks for five commands, then for the same once more."""
    commands = [f"touch {name}" for name in ("a", "b", "c", "d", "e")]
    with Replay(_model([commands, commands])) as server:
        _connect(person, server)
        with program(person, f"{person.project}/", ask_every_command=True) as window:
            window.say("go")
            for answer, verdict in (
                ("Deny", "Denied, "),
                ("Allow", "Allowed once, "),
                ("Allow for This Session", "Allowed for this session, "),
                ("Allow Always", "Allowed, now and always, "),
                ("Deny Always", "Denied, now and always, "),
            ):
                window.click("button", answer, then=partial(window.reads, verdict))
            window.wait_for("Round 1 is over.")
            assert sorted(path.name for path in person.project.iterdir()) == ["b", "c", "d"]
            written = (person.paths.config / "permissions.yaml").read_text()
            assert "touch d" in written
            assert "touch e" in written
            assert "touch c" not in written
            window.say("again")
            # Only what was answered for once is asked again.
            for name in ("a", "b"):
                is_asked = partial(_is_asked, window, f"touch {name}")
                window.until(is_asked, "it is asked")
                window.click("button", "Deny", then=partial(_not, is_asked))
            window.wait_for("Round 2 is over.")
            assert window.reads("Always denied, ")
            window.close()


def test_a_command_of_ones_own_is_typed(person: Person) -> None:
    with program(person, f"{person.project}/") as window:
        window.say("!echo typed > here; echo it ran")
        window.wait_for("1 file changed")
        assert (person.project / "here").read_text() == "typed\n"
        window.click("button", "Undo", then=lambda: not (person.project / "here").exists())
        window.close()


def test_a_second_start_opens_its_folder_in_the_window_that_is_there(person: Person) -> None:
    other = person.home / "another"
    other.mkdir()
    with program(person, f"{person.project}/") as window:
        window.wait_for("project")
        second = start(person, f"{other}/")
        assert second.wait(PATIENCE) == 0
        window.wait_for("another")
        assert len(window.windows()) == 1
        window.close()


def test_closing_while_a_command_runs_is_a_question(person: Person) -> None:
    with program(person, f"{person.project}/") as window:
        window.say("!touch began; sleep 98761")
        window.wait_for("Running")
        is_asked = partial(window.reads, CLOSING)
        window.press("ctrl+q", then=is_asked)
        window.click("button", "Keep Open", then=partial(_not, is_asked))
        assert window.reads("Running")
        window.press("ctrl+q", then=is_asked)
        window.click("button", "Stop and Close", then=partial(_not, is_asked))
        window.wait_end()
    assert (person.project / "began").exists()
    assert not _processes("sleep 98761")


def test_a_restart_continues_the_session(person: Person) -> None:
    with program(person, f"{person.project}/") as window:
        window.say("!echo said before the restart")
        window.wait_for("Succeeded")
        window.close()
    with program(person) as window:
        window.wait_for("$ echo said before the restart")
        window.say("!echo and after it")
        window.wait_for("$ echo and after it. Your command · Succeeded")
        window.close()


def test_all_that_can_be_used_has_a_name_for_a_screen_reader(person: Person) -> None:
    with program(person) as window:
        window.wait_for("Commands are sandboxed here.")
        assert _nameless(window) == []
        _take_tour(window)
        assert _nameless(window) == []
        window.press("Escape", then=lambda: window.reads("Denied, "))
        window.wait_for("You said no, and nothing ran.")
        window.wait_for("That was all.")
        window.press("F9", then=lambda: window.find("button", "Undo: rm old-notes.txt"))
        assert _nameless(window) == []


def _take_tour(window: Outside) -> None:
    """As far as its question."""
    window.click("button", "Take the Tour", then=lambda: window.find("text box", "Message"))
    window.wait_find("button", "Allow Once")


def _not(condition: Callable[[], bool]) -> bool:
    return not condition()


# --- the model, and the machine ------------------------------------------------------------------


def _model(rounds: list[list[str]]) -> dict[str, Reply | list[Reply]]:
    """In each round it calls for one command after the other, then says that the round is over."""
    replies: list[Reply] = []
    for number, commands in enumerate(rounds, 1):
        for command in commands:
            given = json.dumps({"command": command})
            function = {"name": "run_command", "arguments": given}
            call = {"index": 0, "id": f"call-{len(replies)}", "type": "function"}
            piece = delta(role="assistant", tool_calls=[{**call, "function": function}])
            replies.append(sse(piece, finish("tool_calls")))
        replies.append(sse(delta(content=f"Round {number} is over."), finish()))
    return {
        "/v1/models": document({"object": "list", "data": [{"id": "played", "object": "model"}]}),
        "/v1/chat/completions": replies,
    }


def _connect(person: Person, server: Replay) -> None:
    done = person.cli("connections", "add", "played", f"{server.address}/v1", "--kind", "openai")
    assert done.returncode == 0, done.stderr


def _processes(words: str) -> str:
    return subprocess.run(
        ["pgrep", "-f", f"^{words}$"], capture_output=True, text=True, check=False
    ).stdout


def _nameless(window: Outside) -> list[str]:
    nodes = window.read()
    return [
        f"{node.role} {node.name!r} in {_above(node.order, nodes)}"
        for node in nodes
        if node.role in _USED and (not node.name or _TYPE.fullmatch(node.name))
    ]


def _is_asked(window: Outside, command: str) -> bool:
    """Whether the question that waits is for this one."""
    found = window.find("text box", "What is asked for")
    return found is not None and window.reader.text(found[0]) == command


def _above(order: tuple[int, ...], nodes: list[Node]) -> str:
    names = [n.name or n.role for n in nodes if n.order == order[: len(n.order)]]
    return " > ".join(names[-6:])
