# SPDX-License-Identifier: GPL-3.0-or-later
"""What others wrote, as a terminal may show it: colours stay, nothing else has any effect.

Text as it may be shown: what cannot be seen, or reorders what is seen, becomes a mark.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from functools import lru_cache

_PREFIX = "  │ "
# A sequence, whole or cut off at the end of a piece; then what is no text.
_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-OQ-WYZ`-~\\])"
)
_CUT_OFF = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)\Z")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m\Z")
_LONGEST_SEQUENCE = 1000
_MOST_COLOURS = 8
_RESET = "\x1b[0m"


def safe(text: str) -> str:
    """A model's words, or a path."""
    return harmless(text)


class Live:
    """A command's output, line by line behind a bar that it cannot paint over. Of much, the
    beginning; the rest is counted."""

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
        if self._is_full:
            # Gigabytes may follow: no more is done with them than to count.
            self.dropped_lines += data.count(b"\n")
            return ""
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        if cut := _CUT_OFF.search(text):
            # One that does not end is no sequence.
            if len(cut[0]) < _LONGEST_SEQUENCE:
                self._rest = cut[0]
            text = text[: cut.start()]
        return self._shown(text.replace("\r\n", "\n"))

    def end(self) -> str:
        """What closes the last line, and how much was not shown."""
        text = self.pause()
        if self.dropped_lines:
            text += f"{_PREFIX}[{self.dropped_lines:,} more lines]\n"
        return text

    def pause(self) -> str:
        """What closes the line, so that something else can be printed."""
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
                # The line is written anew; the bar stays.
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


# Marks that turn the reading direction around, line ends besides the usual one, characters of no
# width, and the tags that can carry hidden words.
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffc\U000e0000-\U000e0fff\ud800-\udfff"
)
# Between letters of some scripts, and inside of emoji, these two do what they are for.
_JOINERS = "(?<![^\x00-\x7f])[\u200c\u200d]"
_HIDDEN = re.compile(f"[{_INVISIBLE}]|{_JOINERS}")
_HIDDEN_OR_CONTROL = re.compile(f"[\x00-\x08\x0a-\x1f\x7f-\x9f{_INVISIBLE}]|{_JOINERS}")


def mark_hidden(text: str) -> str:
    """A person sees that there is something: `<U+202E>`."""
    return _HIDDEN.sub(_mark, text)


def mark_all(text: str) -> str:
    """The same for one line of a file, where control characters have no meaning either: `^M` is a
    carriage return. A tab stays."""
    return _HIDDEN_OR_CONTROL.sub(_mark, text)


def _mark(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"^{chr(code ^ 0x40)}" if code < 0x80 else f"<U+{code:04X}>"


@lru_cache(maxsize=4096)
def width(character: str) -> int:
    """How many columns a character takes: 0 if it belongs to the one before it."""
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


# Cursor movements, colours, titles; then what is left of control characters.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """Text that cannot move a cursor, change colours or reorder what a person reads."""
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def escape_line(text: str) -> str:
    """Return the text on one line, with escapes such as \\n for everything unprintable."""
    shown = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown
    )
