# SPDX-License-Identifier: GPL-3.0-or-later
"""Splits Markdown that arrives in pieces where the text before can no longer change.

A place to cut is found by looking at lines, which costs next to nothing, and proved by parsing the
text before it, which is needed anyway. So no text is parsed again and again while it grows.
"""

from __future__ import annotations

import re

from .parse import Block, parse_lines, parse_markdown

# Characters: an endless list or paragraph is cut where that does the least harm.
LONG_LIST = 4000
LONG = 12000

_FENCE = re.compile(r"(`{3,}|~{3,})(.*)")
_HEADING = re.compile(r"#{1,6}[ \t]")
_ITEM = re.compile(r"(?:[-+*]|\d{1,9}[.)])(?:[ \t]|$)")


class Splitter:
    def __init__(self) -> None:
        self._chunk = ""  # not parsed yet
        self._seen = 0  # index in the chunk up to which lines were looked at
        self._lines = 0  # the number of those lines
        self._blank = False  # whether the last of them is blank
        self._fence = ""  # the opening of the fence that is open, if any
        self._wait = 0  # length of the chunk before the next proof is tried
        self._carriage = False

    @property
    def tail(self) -> str:
        """The text that is not part of a finished block yet."""
        return self._chunk

    def feed(self, piece: str) -> None:
        # The two characters of one line end may arrive separately.
        if self._carriage:
            piece = "\r" + piece
        self._carriage = piece.endswith("\r")
        if self._carriage:
            piece = piece[:-1]
        self._chunk += piece.replace("\r\n", "\n").replace("\r", "\n")

    def take(self) -> tuple[Block, ...]:
        """Return the next finished blocks, if any."""
        while True:
            if self._lines == 1 and _HEADING.match(self._chunk):
                blocks = self._cut(self._seen)  # at most its own line
            elif (end := self._chunk.find("\n", self._seen)) >= 0:
                blocks = self._look_at_line(end)
            else:
                return self._look_at_rest()
            if blocks:
                return blocks

    def _look_at_line(self, end: int) -> tuple[Block, ...]:
        start, line = self._seen, self._chunk[self._seen : end]
        blank_before = self._blank
        self._seen, self._blank = end + 1, not line.strip()
        self._lines += 1
        was_in_fence = bool(self._fence)
        self._follow_fence(line)
        if was_in_fence:
            # The line that closes a fence ends its block, whatever follows.
            closes_all = not self._fence and _FENCE.match(self._chunk)
            return self._cut(self._seen) if closes_all else ()
        if start and self._may_begin(line, start, blank_before):
            return self._prove(start, self._seen)
        if start >= LONG or self._lines > 600:
            return self._cut(start)
        return ()

    def _look_at_rest(self) -> tuple[Block, ...]:
        """Check the line that is still being written."""
        start = self._seen
        if self._fence or start == len(self._chunk):
            return ()
        # A letter begins a paragraph, however its line continues.
        if start and self._blank and self._chunk[start].isalpha():
            return self._prove(start, len(self._chunk))
        if len(self._chunk) - start > 2 * LONG:
            return self._cut(self._chunk.rfind(" ", 0, LONG) + 1 or LONG)
        return ()

    def finish(self) -> tuple[Block, ...]:
        """Return the remaining blocks, though nothing closed them."""
        if self._carriage:
            self._carriage = False
            self._chunk += "\n"
        if blocks := self.take():
            return blocks
        self._fence, self._blank = "", False
        return self._cut(len(self._chunk))

    def open_code(self) -> tuple[str, str] | None:
        """Return the language and the text of a code block that is still being written."""
        if not self._fence or not self._chunk.startswith(self._fence):
            return None
        first, _, code = self._chunk.partition("\n")
        words = first.strip("`~").split(maxsplit=1)
        return (words[0] if words else "", code)

    def _follow_fence(self, line: str) -> None:
        if self._fence:
            if re.fullmatch(rf" {{0,3}}{self._fence[0]}{{{len(self._fence)},}}[ \t]*", line):
                self._fence = ""
        # An indented fence may belong to a list item; parsing will tell.
        elif (found := _FENCE.match(line)) and not (
            found.group(1)[0] == "`" and "`" in found.group(2)
        ):
            self._fence = found.group(1)

    def _may_begin(self, line: str, start: int, blank_before: bool) -> bool:
        """Return whether a block could begin with this line, whatever is before it."""
        if not line or line[0] in " \t":
            return False
        if self._fence or _HEADING.match(line):
            return True
        if _ITEM.match(line):
            return start >= LONG_LIST or (blank_before and not _ITEM.match(self._chunk))
        return blank_before

    def _prove(self, start: int, end: int) -> tuple[Block, ...]:
        if start >= LONG_LIST and _ITEM.match(self._chunk, start):
            return self._cut(start)
        if start < self._wait:
            return ()
        found = parse_lines(self._chunk[:end])
        if found and found[-1][0] == self._chunk.count("\n", 0, start):
            self._drop(start)
            return tuple(block for _, block in found[:-1])
        # Inside of something larger: try again when there is a good deal more of it.
        self._wait = start + start // 2
        return ()

    def _cut(self, end: int) -> tuple[Block, ...]:
        done = self._chunk[:end]
        self._drop(end)
        return parse_markdown(done)

    def _drop(self, end: int) -> None:
        self._chunk = self._chunk[end:]
        self._seen = max(0, self._seen - end)
        self._lines = int(self._seen > 0)
        self._wait = 0
