# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from functools import partial

from support.desktop import AT_REST, Outside, is_not, program
from support.person import Person
from support.servers.http import Replay, Reply, delta, document, finish, sse

from ollmsandbox.tools.questions import WITH_NETWORK

LASTING = (
    "Allow This Command in This Session",
    "Always Allow This Command in This Project",
    "Always Deny This Command in This Project",
)


def test_a_question_has_the_keyboard_escape_is_no_a_letter_its_button(person: Person) -> None:
    with Replay(_model([["touch a", "touch b"]], network=True)) as server:
        _connect(person, server)
        with program(person, f"{person.project}/") as window:
            window.say("go")
            window.wait_focus("Deny")
            # A screen reader says all of it.
            window.wait_for(WITH_NETWORK.format(command="touch a"))
            window.press("Escape", then=lambda: window.reads("Denied, did not run"))
            window.until(lambda: _is_asked(window, "touch b"), "the next one is asked")
            window.wait_focus("Deny")
            window.wait_at_rest("button", "Allow Once")
            window.press("alt+a", then=lambda: window.reads("$ touch b. Succeeded"))
            window.wait_for("Round 1 is over.")
            window.close()
    assert [path.name for path in person.project.iterdir()] == ["b"]


def test_each_kind_of_answer_counts_as_long_as_it_says(person: Person) -> None:
    """The model asks for five commands, then for the same once more."""
    commands = [f"touch {name}" for name in ("a", "b", "c", "d", "e")]
    with Replay(_model([commands, commands])) as server:
        _connect(person, server)
        # Without a window manager, an open menu takes the focus from the window, which then
        # announces its questions.
        settings = {"ask_every_command": True, "notifications": False}
        with program(person, f"{person.project}/", **settings) as window:
            window.say("go")
            for answer, verdict in (
                ("Deny", "$ touch a. Denied, did not run"),
                ("Allow Once", "$ touch b. Succeeded"),
                (LASTING[0], "$ touch c. Succeeded"),
                (LASTING[1], "$ touch d. Succeeded"),
                (LASTING[2], "$ touch e. Denied, did not run"),
            ):
                said = partial(window.reads, verdict)
                if answer in LASTING:
                    _open_menu(window)
                    for following in LASTING[1 : LASTING.index(answer) + 1]:
                        window.press("Tab", then=partial(window.has_focus, following))
                    window.press("Return", then=said)
                else:
                    window.click("button", answer, then=said, still=AT_REST)
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
                window.click("button", "Deny", then=partial(is_not, is_asked))
            window.wait_for("Round 2 is over.")
            window.wait_for("Always denied, did not run")
            window.close()


def _open_menu(window: Outside) -> None:
    """Open the menu with the answers that last."""
    # GTK 4.8 does not tell the two apart.
    roles = ("toggle button", "button")
    window.until(lambda: any(window.find(role, "More Answers") for role in roles), "the arrow")
    role = next(role for role in roles if window.find(role, "More Answers"))
    # A screen reader does not know where on the screen a popover is: the keyboard goes on.
    is_open = partial(window.has_focus, LASTING[0])
    window.click(role, "More Answers", then=is_open, still=AT_REST)


def _model(rounds: list[list[str]], *, network: bool = False) -> dict[str, Reply | list[Reply]]:
    """Return replies that call one command after the other in each round, then end the round."""
    replies: list[Reply] = []
    for number, commands in enumerate(rounds, 1):
        for command in commands:
            given = json.dumps({"command": command, "network": network})
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


def _is_asked(window: Outside, command: str) -> bool:
    """Return whether the open question is for this command."""
    found = window.find("text box", "Request")
    return found is not None and window.reader.text(found[0]) == command
