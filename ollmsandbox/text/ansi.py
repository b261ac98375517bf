# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes text from commands, models and servers safe for a terminal, and for a model."""

from __future__ import annotations

import codecs
import re
import unicodedata
from functools import lru_cache

from .visible import REORDERING, REPLACEMENT

_PREFIX = "  │ "
# Escape sequences: of cursor and colours, of titles and other strings, of a letter. A string must
# end in its line: otherwise two stray bytes could hide everything between them.
_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]*[0-OQ-WYZ`-~\\])"
)
# The beginning of a sequence whose end may come with the next piece.
_CUT_OFF = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*\x1b?|[ -/]*)\Z")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m\Z")
_LONGEST_SEQUENCE = 1000
_MOST_COLOURS = 8
_RESET = "\x1b[0m"
_CONTROLS = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{REORDERING}]")
# Programs such as editors ask for the alternate screen. Others, as `top`, take the cursor keys and
# begin at the upper left; `clear` and progress bars do only one of these.
_ALTERNATE, _KEYS = (
    r"\x1b\[\?(1049|1047|47)h",
    r"\x1b\[\?1h(?:\x1b[^\n\x1b]{1,8}){0,8}\x1b\[(?:1;1)?H",
)
_SCREEN = re.compile(rf"{_ALTERNATE}.*?(?:\x1b\[\?\1l|\Z)|{_KEYS}.*?(?:\x1b\[\?1l|\Z)", re.DOTALL)
_SCREEN_LEFT = re.compile(r"\x1b\[\?(?:1049|1047|47|1)l\Z")
# Colours, titles and a shell's own mode, which lines of text have, too.
_NOT_DRAWING = re.compile(r"\x1b(?:\[[0-9;:]*m|\[\?2004[hl]|\])")
_SCREEN_BEGIN = re.compile(f"{_ALTERNATE}|{_KEYS}".encode())


def harmless(text: str) -> str:
    """Return text that cannot move a cursor, change colours or reorder what a person reads.

    Remove whole escape sequences. Other control characters become U+FFFD.
    """
    return _CONTROLS.sub(REPLACEMENT, _SEQUENCE.sub("", text.replace("\r\n", "\n")))


def fills_screen(data: bytes | bytearray) -> bool:
    """Return whether a program begins to draw on the whole screen here."""
    return _SCREEN_BEGIN.search(data) is not None


def without_screens(text: str, *, was_stopped: bool = False) -> str:
    """Remove what programs drew on the whole screen of a terminal, and return the rest.

    A program that is killed does not leave the screen: lines after the last sequence that draws are
    of what ran after it, unless all was stopped with it.
    """

    def kept(screen: re.Match[str]) -> str:
        if was_stopped or _SCREEN_LEFT.search(screen[0]):
            return ""
        drawn = [one for one in _SEQUENCE.finditer(screen[0]) if not _NOT_DRAWING.match(one[0])]
        after = screen[0][drawn[-1].end() :]
        return after if "\n" in after else ""

    return _SCREEN.sub(kept, text)


def escape_line(text: str) -> str:
    """Return the text on one line, with escapes such as \\n for everything unprintable."""
    shown = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown
    )


@lru_cache(maxsize=4096)
def column_width(character: str) -> int:
    """Return how many columns of a terminal a character takes: 0 if it joins the one before it."""
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


class LiveOutput:
    """Prints a command's output in a terminal, each line behind a bar that it cannot overwrite.

    Colours stay; no other escape sequence has any effect. After `most_lines` lines or `most`
    characters, it only counts the lines.
    """

    def __init__(
        self, name: str = "", *, colour: bool, most_lines: int = 300, most: int = 100_000
    ) -> None:
        self.name = name
        self._colour = colour
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._colours: list[str] = []
        self._at_start = True
        self._lines_left = most_lines
        self._left = most
        self.dropped_lines = 0

    def feed(self, data: bytes) -> str:
        """Return what to print for the next piece of output."""
        if self._is_full:
            # Gigabytes may follow.
            self.dropped_lines += data.count(b"\n")
            return ""
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        if cut := _CUT_OFF.search(text):
            # A longer one is dropped: it may never end.
            if len(cut[0]) < _LONGEST_SEQUENCE:
                self._rest = cut[0]
            text = text[: cut.start()]
        return self._shown(text.replace("\r\n", "\n"))

    def end(self) -> str:
        """Return what ends the last line, and a note about lines that were left out."""
        text = self.pause()
        if self.dropped_lines:
            text += f"{_PREFIX}[{self.dropped_lines:,} more lines]\n"
        return text

    def pause(self) -> str:
        """Return what ends the current line, so that something else can be printed."""
        return "" if self._at_start else self._newline()

    @property
    def _is_full(self) -> bool:
        return self._lines_left <= 0 or self._left <= 0

    def _shown(self, text: str) -> str:
        parts: list[str] = []
        at = 0
        for sequence in _SEQUENCE.finditer(text):
            self._add(parts, text[at : sequence.start()])
            if self._colour and _COLOUR.match(sequence[0]) and not self._is_full:
                self._note_colour(sequence[0])
                if not self._at_start:
                    parts.append(sequence[0])
            at = sequence.end()
        self._add(parts, text[at:])
        return "".join(parts)

    def _add(self, parts: list[str], text: str) -> None:
        for piece in re.split(r"([\n\r])", text):
            if not piece:
                continue
            if self._is_full:
                self.dropped_lines += piece == "\n"
                continue
            if piece == "\n":
                parts.append(self._bar() + self._newline())
                self._lines_left -= 1
            elif piece == "\r":
                # A progress bar writes over its line. Ours is printed again.
                if not self._at_start:
                    parts.append(f"\r\x1b[K{_RESET}" if self._colour else "\n")
                    self._at_start = True
            else:
                parts.append(self._bar() + harmless(piece))
                self._left -= len(piece)

    def _bar(self) -> str:
        if not self._at_start:
            return ""
        self._at_start = False
        return f"\x1b[2m{_PREFIX}{_RESET}{''.join(self._colours)}" if self._colour else _PREFIX

    def _newline(self) -> str:
        self._at_start = True
        return f"{_RESET}\n" if self._colours else "\n"

    def _note_colour(self, sequence: str) -> None:
        if sequence in ("\x1b[m", _RESET):
            self._colours.clear()
        else:
            self._colours = [*self._colours, sequence][-_MOST_COLOURS:]
