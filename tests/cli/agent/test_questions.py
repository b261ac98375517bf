# SPDX-License-Identifier: GPL-3.0-or-later
"""Permission questions at a terminal, and how a command's output is shown there."""

from __future__ import annotations

import asyncio
import os

import pytest
from support.questions import command
from support.timing import PATIENCE

from ollmsandbox.cli.agent.asker import TerminalAsker
from ollmsandbox.cli.agent.keyboard import KeyReader
from ollmsandbox.permission.request import Answer
from ollmsandbox.text.ansi import LiveOutput

pytestmark = pytest.mark.anybody


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
        return await asyncio.wait_for(asker.ask(command("rm -r /", "/p")), PATIENCE)

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
