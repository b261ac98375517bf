# SPDX-License-Identifier: GPL-3.0-or-later
"""The tour in a process of its own, with a mouse, a keyboard and a screen reader.
`build-aux/with-display --accessible` provides these."""

from __future__ import annotations

import re

from support.desktop import Outside, program
from support.person import Person
from support.screen_reader import Node

_TOUR = "OLLM Sandbox Tour"
_TYPE = re.compile(r"(Gtk|Adw|Ollm)[A-Z]\w+")
_USED = ("button", "toggle button", "text box", "search box", "combo box", "check box", "switch")


def test_the_tour_is_taken_its_deletion_undone_and_all_has_a_name(person: Person) -> None:
    with program(person) as window:
        window.wait_for("Sandboxed, no network")
        _has_names(window)
        _take_tour(window)
        _has_names(window)
        sample = person.paths.data.parent / _TOUR
        assert (sample / "old-notes.txt").exists()
        assert "basket.items()" in (sample / "basket.py").read_text()
        window.wait_at_rest("button", "Allow Once")
        window.click(
            "button", "Allow Once", then=lambda: window.find("button", "Allow Once") is None
        )
        _next(window, 4)
        window.until(lambda: not (sample / "old-notes.txt").exists(), "the file is deleted")
        _next(window, 5)
        window.wait_find("button", "Remove the Sample")
        window.click("button", "Undo", then=(sample / "old-notes.txt").exists)
        window.press(
            "ctrl+shift+c", then=lambda: any(n.name.startswith("Redo: ") for n in window.read())
        )
        _has_names(window)
        window.close()


def _take_tour(window: Outside) -> None:
    """Take the tour up to its question."""
    window.click("button", "Take the Tour", then=lambda: window.find("text box", "Message"))
    for stop in (1, 2, 3):
        _next(window, stop)
    window.wait_find("button", "Allow Once")


def _next(window: Outside, stop: int) -> None:
    """Go on from a stop of the tour."""
    text = f"Tour: {stop} of 5"
    window.wait_for(text)
    window.click("button", "Next", then=lambda: not window.reads(text))


def _has_names(window: Outside) -> None:
    """Wait until everything usable has a name."""
    window.is_within(30, lambda: not _nameless(window))
    assert _nameless(window) == []


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
