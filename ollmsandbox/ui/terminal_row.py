# SPDX-License-Identifier: GPL-3.0-or-later
"""A row of a terminal that can still be written over: a character and a style for each column."""

from __future__ import annotations

from itertools import groupby

from .terminal_style import PLAIN, Run, Style
from .terminal_text import width

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
