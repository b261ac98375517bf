# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from support.desktop import Outside, program
from support.person import Person
from support.screen_reader import Node

# It waits for the user, who changes the same file meanwhile.
_COMMAND = (
    "!touch ~/playground/began; until [ -e ~/playground/go ]; do sleep 0.1; done; "
    "echo theirs > notes"
)
_FILTER = "Filter by command or path"
_NOTHING = "No command or changed path matches"


def test_a_conflict_is_decided_with_the_keyboard_alone(person: Person) -> None:
    notes = person.project / "notes"
    notes.write_text("before\n")
    person.share_playground()
    with program(person, f"{person.project}/") as window:
        window.say(_COMMAND)
        window.until((person.playground / "began").exists, "the command runs")
        notes.write_text("mine\n")
        (person.playground / "go").touch()
        window.wait_for("1 file changed · 1 pending")
        window.press("ctrl+shift+c", then=lambda: window.reads("You also edited this file"))
        _walk(window, "Tab", "notes. Modified")
        window.press("Return", then=lambda: window.reads("Your version is unchanged"))
        assert notes.read_text() == "mine\n"
        _walk(window, "Tab", "Use the Agent's")
        window.press("Return", then=lambda: notes.read_text() == "theirs\n")
        # Where the button was, the next one is.
        window.until(lambda: window.has_focus("Undo"), "it can be undone")
        window.press("Return", then=lambda: notes.read_text() == "mine\n")
        window.press("Escape", then=lambda: _is_named(_focused(window), "notes. Modified"))
        window.press("ctrl+f", then=lambda: window.has_focus(_FILTER))
        window.press("z", then=lambda: window.reads(_NOTHING))
        window.press("Escape", then=lambda: not window.reads(_NOTHING))
        window.wait_focus(_FILTER)
        window.press("Escape", then=lambda: window.has_focus("Message"))
        window.close()


def _walk(window: Outside, key: str, to: str) -> None:
    for _step in range(60):
        before = _focused(window)
        if _is_named(before, to):
            return
        window.press(key, then=lambda before=before: _is_another(_focused(window), before))  # type: ignore[misc]
    raise AssertionError(f"{key} does not lead to {to}")


def _is_named(node: Node | None, part: str) -> bool:
    return node is not None and part in node.name


def _is_another(node: Node | None, before: Node | None) -> bool:
    return node is not None and (before is None or node.place != before.place)


def _focused(window: Outside) -> Node | None:
    return next((node for node in window.read() if node.is_focused), None)
