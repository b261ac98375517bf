# SPDX-License-Identifier: GPL-3.0-or-later
"""What a terminal would show of a command's output: bytes in, styled lines out.

The last rows can still be written over, as progress bars do; the lines above them are done. The
lines have numbers that never change, so that a view can follow with little work.

A row of a terminal that can still be written over: a character and a style for each column.

What a terminal would show of a command's output: bytes in, styled lines out.

The last rows can still be written over, as progress bars do; the lines above them are done. The
lines have numbers that never change, so that a view can follow with little work.
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Callable
from itertools import groupby

from ...text.ansi import mark_hidden, width
from .style import PLAIN, Run, Style, restyled

Line = tuple[Run, ...]

# Longer rows are cut, and say so. More than a window shows, less than what makes drawing slow.
MOST_COLUMNS = 4000
# A text that is coloured letter by letter costs a tag for each.
_MOST_RUNS = 250
# Of accents on one letter.
_MOST_MARKS = 8
_DIM = Style(dim=True)


class Row:
    """A wide character is in its first column, and nothing is in its second."""

    __slots__ = ("cells", "cut", "styles")

    def __init__(self) -> None:
        self.cells: list[str] = []
        self.styles: list[Style] = []
        self.cut = 0

    def write(self, column: int, text: str, style: Style) -> int:
        """Over what is there; where the cursor is then."""
        if text.isascii():
            return self._put(column, list(text), style, len(text))
        for character in text:
            columns = width(character)
            if columns == 0 and column:
                self._add_mark(column - 1, character)
                continue
            cell = character if columns else f" {character}"
            column = self._put(column, [cell, ""][: columns or 1], style, 1)
        return column

    def _put(self, column: int, cells: list[str], style: Style, characters: int) -> int:
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
        """Half of a wide character was written over: the other half is blank."""
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

    def delete(self, column: int, count: int) -> None:
        """The rest moves to the left."""
        self._split_wide(column)
        self._split_wide(column + count)
        del self.cells[column : column + count], self.styles[column : column + count]

    def insert(self, column: int, count: int) -> None:
        """Room for more: the rest moves to the right."""
        if column >= len(self.cells):
            return
        self._split_wide(column)
        count = min(count, MOST_COLUMNS - column)
        self.cells[column:column] = [" "] * count
        self.styles[column:column] = [PLAIN] * count
        self._split_wide(MOST_COLUMNS)
        del self.cells[MOST_COLUMNS:], self.styles[MOST_COLUMNS:]

    def line(self) -> Line:
        if not self.cells:
            return ()
        runs: list[Run] = []
        start = 0
        for style, group in groupby(self.styles):
            end = start + sum(1 for _ in group)
            if len(runs) == _MOST_RUNS:
                runs.append(Run("".join(self.cells[start:]), style))
                break
            runs.append(Run("".join(self.cells[start:end]), style))
            start = end
        if self.cut:
            runs.append(Run(f" … {self.cut:,} more characters", _DIM))
        return tuple(runs)


MOST_LINES = 5000
# How far up a cursor can go.
WINDOW = 60
# Of everything kept: a character weighs one, a run of one style as much as a few.
_MOST_WEIGHT = 4_000_000
_RUN_WEIGHT = 16

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
# Titles and the like end here; also at the end of a line, or one stray byte would hide all that
# follows.
_STRING_END = re.compile(r"\x1b\\|[\x07\x18\x1a\x1b\x9c\n]")


class Screen:
    def __init__(self, most_lines: int = MOST_LINES, window: int = WINDOW) -> None:
        self._most_lines = max(most_lines, window)
        self._window = window
        self._done: deque[Line] = deque()
        self._weights: deque[int] = deque()
        self._weight = 0
        self._rows = [Row()]
        self._row = 0
        self._column = 0
        self._style = PLAIN
        self._saved = (0, 0)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unfinished = ""
        self._in_string = False
        self._changed_from = 0
        # Lines that are not kept any more: the number of the first one that is.
        self.dropped = 0

    # --- what there is to see ------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The number after the last line. An empty row at the end, where the cursor waits, is
        none."""
        return self._live + len(self._rows) - (not self._rows[-1].cells)

    def line(self, number: int) -> Line:
        if number < self._live:
            return self._done[number - self.dropped]
        return self._rows[number - self._live].line()

    def text(self) -> str:
        lines = (self.line(number) for number in range(self.dropped, self.end))
        return "\n".join("".join(run.text for run in line) for line in lines)

    def take_changed(self) -> int:
        """From which line on something may have changed since this was asked last."""
        changed = max(self._changed_from, self.dropped)
        self._changed_from = self.end
        return changed

    # --- what comes in -------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        self._feed_text(self._decoder.decode(data))

    def finish(self) -> None:
        """Nothing more will come: half a character is none."""
        self._feed_text(self._decoder.decode(b"", True))

    def skip(self, lines: int) -> None:
        """Too much came at once: so many lines are counted and not shown, and what was before them
        is dropped as well, so that what is shown has no gap."""
        self.dropped = self._live + len(self._rows) - 1 + lines
        self._done.clear()
        self._weights.clear()
        self._weight = 0
        self._rows = [Row()]
        self._row = self._column = 0
        self._style = PLAIN
        self._decoder.reset()
        self._unfinished = ""
        self._in_string = False
        self._changed_from = self.dropped

    @property
    def _live(self) -> int:
        """The number of the first row that can be written over."""
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
            self._column = self._rows[self._row].write(self._column, shown, self._style)
        elif kind == "control":
            self._control(found[0])
        elif kind == "final":
            parameters = found["parameters"]
            if found["final"] == "m" and parameters[:1] not in ("<", "=", ">", "?"):
                self._style = restyled(self._style, parameters)
            elif (action := _ACTIONS.get(found["final"])) and parameters[:1] != "?":
                action(self, *_numbers(parameters))
        elif kind == "string":
            self._in_string = True
        elif found["escape"] == "7":
            self._save()
        elif found["escape"] == "8":
            self._restore()
        elif found["escape"] == "M":
            self._up(1)
        elif found["escape"] == "c":
            self._style = PLAIN

    def _control(self, control: str) -> None:
        if control == "\n":
            self._new_line()
        elif control == "\r":
            self._column = 0
        elif control == "\b":
            self._column = max(0, self._column - 1)
        elif control == "\t":
            self._column = min(MOST_COLUMNS, self._column // 8 * 8 + 8)
        elif control in "\x0b\x0c\x85":
            column = self._column
            self._new_line()
            self._column = column if control != "\x85" else 0

    def _new_line(self) -> None:
        self._column = 0
        self._touch()
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append(Row())
            if len(self._rows) > self._window:
                self._let_go()

    def _let_go(self) -> None:
        """The first row is done."""
        self._row -= 1
        line = self._rows.pop(0).line()
        self._done.append(line)
        weight = sum(len(run.text) + _RUN_WEIGHT for run in line) + _RUN_WEIGHT
        self._weights.append(weight)
        self._weight += weight
        most = self._most_lines - self._window
        while self._done and (len(self._done) > most or self._weight > _MOST_WEIGHT):
            self._done.popleft()
            self._weight -= self._weights.popleft()
            self.dropped += 1

    def _touch(self) -> None:
        number = self.dropped + len(self._done) + self._row
        if number < self._changed_from:
            self._changed_from = number

    # --- moving and erasing: the cursor stays among the rows there are ----------------------------

    def _up(self, count: int = 1, *_: int) -> None:
        self._row = max(0, self._row - max(count, 1))

    def _down(self, count: int = 1, *_: int) -> None:
        self._row = min(len(self._rows) - 1, self._row + max(count, 1))

    def _forward(self, count: int = 1, *_: int) -> None:
        self._column = min(MOST_COLUMNS, self._column + max(count, 1))

    def _back(self, count: int = 1, *_: int) -> None:
        self._column = max(0, self._column - max(count, 1))

    def _next_line(self, count: int = 1, *_: int) -> None:
        self._down(count)
        self._column = 0

    def _previous_line(self, count: int = 1, *_: int) -> None:
        self._up(count)
        self._column = 0

    def _to_column(self, column: int = 1, *_: int) -> None:
        self._column = min(MOST_COLUMNS, max(column, 1) - 1)

    def _to_row(self, row: int = 1, *_: int) -> None:
        self._row = min(len(self._rows) - 1, max(row, 1) - 1)

    def _to(self, row: int = 1, column: int = 1, *_: int) -> None:
        self._to_row(row)
        self._to_column(column)

    def _save(self, *_: int) -> None:
        self._saved = (self._live + self._row, self._column)

    def _restore(self, *_: int) -> None:
        number, self._column = self._saved
        self._row = min(len(self._rows) - 1, max(0, number - self._live))

    def _erase_line(self, what: int = 0, *_: int) -> None:
        self._touch()
        start = self._column if what == 0 else 0
        end = self._column + 1 if what == 1 else MOST_COLUMNS
        self._rows[self._row].erase(start, end)

    def _erase_display(self, what: int = 0, *_: int) -> None:
        if what == 0:
            self._erase_line(0)
            del self._rows[self._row + 1 :]
        elif what == 1:
            self._erase_line(1)
            self._changed_from = min(self._changed_from, self._live)
            for row in self._rows[: self._row]:
                row.erase(0, MOST_COLUMNS)
        elif what == 2 and any(row.cells for row in self._rows):
            # As terminals do that people like: what was there goes up, and can be read there.
            # A command cannot hide what it printed.
            self._changed_from = min(self._changed_from, self._live)
            self._rows.append(Row())
            while len(self._rows) > 1:
                self._let_go()
            self._row = 0

    def _erase_characters(self, count: int = 1, *_: int) -> None:
        self._touch()
        self._rows[self._row].erase(self._column, self._column + max(count, 1))

    def _delete_characters(self, count: int = 1, *_: int) -> None:
        self._touch()
        self._rows[self._row].delete(self._column, max(count, 1))

    def _insert_characters(self, count: int = 1, *_: int) -> None:
        self._touch()
        self._rows[self._row].insert(self._column, max(count, 1))


_ACTIONS: dict[str, Callable[..., None]] = {
    "A": Screen._up,
    "B": Screen._down,
    "C": Screen._forward,
    "D": Screen._back,
    "E": Screen._next_line,
    "F": Screen._previous_line,
    "G": Screen._to_column,
    "`": Screen._to_column,
    "H": Screen._to,
    "f": Screen._to,
    "d": Screen._to_row,
    "s": Screen._save,
    "u": Screen._restore,
    "J": Screen._erase_display,
    "K": Screen._erase_line,
    "X": Screen._erase_characters,
    "P": Screen._delete_characters,
    "@": Screen._insert_characters,
}


def _numbers(parameters: str) -> list[int]:
    fields = parameters.split(";")[:4] if parameters else []
    return [int(field) if field.isdecimal() and len(field) < 6 else 0 for field in fields]
