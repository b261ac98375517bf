# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns a command's output into styled lines, as a simple terminal would show it.

Only the last line can still be overwritten, as progress bars do with carriage returns. Sequences
that address other lines are ignored. Lines have numbers that never change, so that a view can
follow with little work.
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from itertools import groupby

from ...text.ansi import column_width
from ...text.visible import mark_hidden
from ..widgets.readable import more_characters
from .style import PLAIN, StyledText, TextStyle, restyled

Line = tuple[StyledText, ...]

# Columns. Longer rows are cut, with a note. More than a window shows, but quick to draw.
MOST_COLUMNS = 4000
# Text that is coloured letter by letter needs a tag for each.
_MOST_RUNS = 250
# Accents on one letter.
_MOST_MARKS = 8
MOST_LINES = 5000
# The weight of everything kept: a character weighs one, a run of one style as much as a few.
_MOST_WEIGHT = 4_000_000
_RUN_WEIGHT = 16
_DIM = TextStyle(dim=True)


class LiveLine:
    """The line that can still be written over: a character and a style for each column.

    A wide character is in its first column, and an empty string in its second.
    """

    __slots__ = ("cells", "cut", "styles")

    def __init__(self) -> None:
        self.cells: list[str] = []
        self.styles: list[TextStyle] = []
        self.cut = 0

    def write(self, column: int, text: str, style: TextStyle) -> int:
        """Write over what is there, and return the new column of the cursor."""
        if text.isascii():
            return self._put(column, list(text), style, len(text))
        for character in text:
            columns = column_width(character)
            if columns == 0 and column:
                self._add_mark(column - 1, character)
                continue
            cell = character if columns else f" {character}"
            column = self._put(column, [cell, ""][: columns or 1], style, 1)
        return column

    def _put(self, column: int, cells: list[str], style: TextStyle, characters: int) -> int:
        room = MOST_COLUMNS - column
        if room < len(cells):
            self.cut += characters - room if characters > 1 else characters
            if characters == 1 or room <= 0:
                return column
            cells = cells[:room]
        end = column + len(cells)
        if column > len(self.cells):
            self._fill(column)
        elif column < len(self.cells):
            self._split_wide(column)
            self._split_wide(end)
        self.cells[column:end] = cells
        self.styles[column:end] = [style] * len(cells)
        return end

    def _fill(self, column: int) -> None:
        missing = column - len(self.cells)
        self.cells += [" "] * missing
        self.styles += [PLAIN] * missing

    def _split_wide(self, column: int) -> None:
        """Make both halves of a wide character blank before one of them is written over."""
        if 0 < column < len(self.cells) and self.cells[column] == "":
            self.cells[column - 1] = self.cells[column] = " "

    def _add_mark(self, column: int, mark: str) -> None:
        if column >= len(self.cells):
            return
        if self.cells[column] == "" and column:
            column -= 1
        if len(self.cells[column]) <= _MOST_MARKS:
            self.cells[column] += mark

    def erase(self, start: int, end: int) -> None:
        end = min(end, len(self.cells))
        if start >= end:
            return
        self._split_wide(start)
        self._split_wide(end)
        if end == len(self.cells):
            del self.cells[start:], self.styles[start:]
            self.cut = 0
        else:
            self.cells[start:end] = [" "] * (end - start)
            self.styles[start:end] = [PLAIN] * (end - start)

    def line(self) -> Line:
        if not self.cells:
            return ()
        runs: list[StyledText] = []
        start = 0
        for style, group in groupby(self.styles):
            end = start + sum(1 for _ in group)
            if len(runs) == _MOST_RUNS:
                runs.append(StyledText("".join(self.cells[start:]), style))
                break
            runs.append(StyledText("".join(self.cells[start:end]), style))
            start = end
        if self.cut:
            runs.append(StyledText(f" {more_characters(self.cut)}", _DIM))
        return tuple(runs)


_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
    r"|(?:\x1b\[|\x9b)(?P<parameters>[0-?]*)[ -/]*(?P<final>[@-~])"
    r"|(?P<string>\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])"
    r"|\x1b[ -/]*(?P<escape>[0-Z\\`-~])"
    r"|(?P<control>[\x00-\x1f\x7f-\x9f])",
    re.DOTALL,
)
# The beginning of a sequence whose end may come with the next piece.
_UNFINISHED = re.compile(r"(?:\x1b(?:\[[0-?]*)?|\x9b[0-?]*)[ -/]*\Z")
_LONGEST_SEQUENCE = 256
# Titles and the like end here, or at the end of a line: otherwise one stray byte would hide
# everything that follows.
_STRING_END = re.compile(r"\x1b\\|[\x07\x18\x1a\x1b\x9c\n]")


class Screen:
    def __init__(self, most_lines: int = MOST_LINES) -> None:
        self._most_lines = most_lines
        self._start(0)

    def _start(self, number: int) -> None:
        """Begin with an empty line of this number."""
        # The number of the first line that is kept.
        self.dropped = self._changed_from = number
        self._done: deque[Line] = deque()
        self._weights: deque[int] = deque()
        self._weight = 0
        self._row = LiveLine()
        self._column = 0
        self._style = PLAIN
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unfinished = ""
        self._in_string = False

    # --- what there is to see ------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The number after the last line. An empty line with only the cursor does not count."""
        return self._live + bool(self._row.cells)

    def line(self, number: int) -> Line:
        if number < self._live:
            return self._done[number - self.dropped]
        return self._row.line()

    def text(self) -> str:
        lines = (self.line(number) for number in range(self.dropped, self.end))
        return "\n".join("".join(run.text for run in line) for line in lines)

    def take_changed(self) -> int:
        """Return the first line that may have changed since the last call."""
        changed = max(self._changed_from, self.dropped)
        self._changed_from = self.end
        return changed

    # --- what comes in -------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        self._feed_text(self._decoder.decode(data))

    def finish(self) -> None:
        """Show half a character at the end as a replacement character."""
        self._feed_text(self._decoder.decode(b"", True))

    def skip(self, lines: int) -> None:
        """Drop these lines, and all before them, so that the rest has no gap."""
        self._start(self._live + lines)

    @property
    def _live(self) -> int:
        """The number of the line that can still be written over."""
        return self.dropped + len(self._done)

    def _feed_text(self, text: str) -> None:
        text = self._unfinished + text
        self._unfinished = ""
        position = 0
        while position < len(text):
            if self._in_string:
                position = self._swallow(text, position)
                continue
            found = _TOKEN.match(text, position)
            if found is None:
                return
            if found[0] in "\x1b\x9b" and _UNFINISHED.match(text, position):
                if len(text) - position < _LONGEST_SEQUENCE:
                    self._unfinished = text[position:]
                return
            position = found.end()
            self._act(found)

    def _swallow(self, text: str, position: int) -> int:
        found = _STRING_END.search(text, position)
        if found is None:
            return len(text)
        if found[0] == "\x1b" and found.end() == len(text):
            self._unfinished = "\x1b"
            return len(text)
        self._in_string = False
        # A line end, and an escape that begins something else, still count.
        return found.start() if found[0] in "\n\x1b" else found.end()

    def _act(self, found: re.Match[str]) -> None:
        kind = found.lastgroup
        if kind == "text":
            self._touch()
            text = found[0]
            shown = text if text.isascii() else mark_hidden(text)
            self._column = self._row.write(self._column, shown, self._style)
        elif kind == "control":
            self._control(found[0])
        elif kind == "final":
            parameters = found["parameters"]
            if found["final"] == "m" and parameters[:1] not in ("<", "=", ">", "?"):
                self._style = restyled(self._style, parameters)
            elif found["final"] == "K" and parameters in ("", "0", "1", "2"):
                self._erase_line(parameters)
        elif kind == "string":
            self._in_string = True
        elif found["escape"] == "c":
            self._style = PLAIN

    def _control(self, control: str) -> None:
        if control in "\n\x0b\x0c\x85":
            self._new_line()
        elif control == "\r":
            self._column = 0
        elif control == "\b":
            self._column = max(0, self._column - 1)
        elif control == "\t":
            self._column = min(MOST_COLUMNS, self._column // 8 * 8 + 8)

    def _new_line(self) -> None:
        self._touch()
        line = self._row.line()
        self._row = LiveLine()
        self._column = 0
        self._done.append(line)
        weight = sum(len(run.text) + _RUN_WEIGHT for run in line) + _RUN_WEIGHT
        self._weights.append(weight)
        self._weight += weight
        while len(self._done) >= self._most_lines or self._weight > _MOST_WEIGHT:
            self._done.popleft()
            self._weight -= self._weights.popleft()
            self.dropped += 1

    def _erase_line(self, part: str) -> None:
        """Erase from the cursor to the end, to the beginning ("1") or all of the line ("2")."""
        self._touch()
        end = self._column + 1 if part == "1" else MOST_COLUMNS
        self._row.erase(0 if part in ("1", "2") else self._column, end)

    def _touch(self) -> None:
        self._changed_from = min(self._changed_from, self._live)
