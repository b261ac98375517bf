# SPDX-License-Identifier: GPL-3.0-or-later
"""The program as a person meets it: a process of its own, with a mouse, a keyboard and what a
screen reader tells. `build-aux/with-display --accessible` gives it all that."""

from __future__ import annotations

import re

import pytest
from conftest import Person
from outside import Outside, program
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


@pytest.mark.anybody
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


def _nameless(window: Outside) -> list[str]:
    nodes = window.read()
    return [
        f"{node.role} {node.name!r} in {_above(node.order, nodes)}"
        for node in nodes
        if node.role in _USED and (not node.name or _TYPE.fullmatch(node.name))
    ]


def _above(order: tuple[int, ...], nodes: list[Node]) -> str:
    names = [n.name or n.role for n in nodes if n.order == order[: len(n.order)]]
    return " > ".join(names[-6:])
