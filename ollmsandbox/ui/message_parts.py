# SPDX-License-Identifier: GPL-3.0-or-later
"""A long message in several pieces, each a row of the chat: all of one row is laid out whenever
anything in it changes, and a message may be as long as a book.

It is cut where Markdown begins anew whatever stands before: at a heading, or at a letter after an
empty line. Never in code.
"""

from __future__ import annotations

import re

# Characters: about a page.
LONG = 1500

_FENCE = re.compile(r"\s*(`{3,}|~{3,})([^`]*)$")


class Cutter:
    """Finds the place while the text comes in."""

    def __init__(self) -> None:
        self._size = 0  # of the part so far
        self._line = ""
        self._blank = False  # whether the line before is
        self._fence = ""  # what opened the code that is open

    def feed(self, piece: str) -> int | None:
        """Where in the piece another part begins. What is after that is to be fed again."""
        place = 0
        for line in piece.splitlines(keepends=True):
            if not self._line and self._may_begin(line[0]):
                self._size = 0
                self._blank = False
                return place
            self._line += line
            self._size += len(line)
            place += len(line)
            if line.endswith("\n"):
                self._end_line()
        return None

    def _may_begin(self, letter: str) -> bool:
        return (
            self._size >= LONG
            and not self._fence
            and self._blank
            and (letter.isalpha() or letter == "#")
        )

    def _end_line(self) -> None:
        line, self._line = self._line, ""
        self._blank = not line.strip()
        found = _FENCE.match(line)
        if found is None:
            return
        if not self._fence:
            self._fence = found[1]
        elif found[1].startswith(self._fence) and not found[2].strip():
            self._fence = ""


def parts_of(text: str) -> list[str]:
    if len(text) <= LONG:
        return [text]
    cutter, found, rest = Cutter(), list[str](), text
    while (place := cutter.feed(rest)) is not None:
        found.append(rest[:place])
        rest = rest[place:]
    return [*found, rest]
