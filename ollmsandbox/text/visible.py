# SPDX-License-Identifier: GPL-3.0-or-later
"""Text as a person may be shown it: nothing in it acts, hides or moves what stands beside it.

What cannot be seen, or could be taken for something else, stands there as ⟨its name⟩. As ⟨ itself
is shown so too, two texts that differ are never shown alike.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

_NAMES = {
    "\0": "NUL",
    "\a": "BEL",
    "\b": "BACKSPACE",
    "\t": "TAB",
    "\n": "NEWLINE",
    "\v": "VT",
    "\f": "FF",
    "\r": "CR",
    "\x1b": "ESC",
    "\x7f": "DEL",
}
_OPENING = "⟨"
# Shown as nothing or as a blank although they count as letters, marks or symbols.
_UNSEEN = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\U0001d159"
) | frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
_RIGHT_TO_LEFT = ("R", "AL", "AN")
# Around a word that runs from right to left: what is beside it keeps its place.
_ISOLATE, _END_OF_ISOLATE = "\u2068", "\u2069"
_MOST_MARKS = 3
# Longer runs could push what follows out of sight.
_LONG_RUN = re.compile(r" {81,}|\t{11,}|\n{6,}")
_RUN_NAMES = {" ": "spaces", "\t": "tabs", "\n": "newlines"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LATIN = re.compile(r"[A-Za-z]")
_WORD = re.compile(r"\w+")
# Alphabets with letters that look like Latin ones.
_ALIKE = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "GEORGIAN", "TIFINAGH")
# French has such blanks before a colon; Chinese has such commas, colons and brackets.
_OF_SENTENCES = "\u00a0\u202f\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f"


def visible(text: str) -> str:
    """On as many lines as it has."""
    return _shown(text, kept="\n\t")


def visible_line(text: str) -> str:
    """On one line: its ends of lines are marked."""
    return _shown(text, kept="")


def visible_words(text: str) -> str:
    """The same for what this program says itself, in any language: not for what others chose."""
    return _shown(text, kept=_OF_SENTENCES)


def _shown(text: str, *, kept: str) -> str:
    if text.isascii() and text.isprintable() and "  " not in text:
        return text
    parts: list[str] = []
    at = 0
    for run in _LONG_RUN.finditer(text):
        parts.append(_marked(text[at : run.start()], kept))
        character = run[0][0]
        parts.append(f"⟨{len(run[0])} {_RUN_NAMES[character]}⟩")
        parts.append(character if character == "\n" in kept else "")
        at = run.end()
    parts.append(_marked(text[at:], kept))
    return "".join(parts)


def _marked(text: str, kept: str) -> str:
    end = "\n" if "\n" in kept else _seen("\n")
    return end.join(_marked_line(line, kept) for line in text.split("\n"))


def _marked_line(text: str, kept: str) -> str:
    if text.isascii():
        return _CONTROL.sub(lambda found: found[0] if found[0] in kept else _seen(found[0]), text)
    disguised = _disguised(text)
    marks = 0
    shown: list[str] = []
    right_to_left = False
    for at, character in enumerate(text):
        is_mark = unicodedata.category(character) == "Mn"
        marks = marks + 1 if is_mark else 0
        before = text[at - 1] if at else ""
        named = at in disguised or (is_mark and (marks > _MOST_MARKS or _is_odd(before, character)))
        seen = character if character in kept and not named else _seen(character, named=named)
        turns = len(seen) == 1 and unicodedata.bidirectional(seen) in _RIGHT_TO_LEFT
        turns = turns or (right_to_left and is_mark and len(seen) == 1)
        if turns != right_to_left:
            shown.append(_ISOLATE if turns else _END_OF_ISOLATE)
            right_to_left = turns
        shown.append(seen)
    if right_to_left:
        shown.append(_END_OF_ISOLATE)
    return "".join(shown)


@lru_cache(maxsize=4096)
def _seen(character: str, *, named: bool = False) -> str:
    if "\udc80" <= character <= "\udcff":
        # A byte that is no text, as Python keeps it.
        return f"⟨byte {ord(character) - 0xDC00:02X}⟩"
    if character in _NAMES:
        return f"⟨{_NAMES[character]}⟩"
    if named or character == _OPENING or _is_unseen(character) or _is_like_ascii(character):
        return f"⟨U+{ord(character):04X}⟩"
    return character


def _is_unseen(character: str) -> bool:
    """Or, as a mark that encloses, not what it seems."""
    is_around = unicodedata.category(character) == "Me"
    return is_around or not character.isprintable() or character in _UNSEEN


def _is_like_ascii(character: str) -> bool:
    """Full-width, mathematical and other spellings of a plain character, such as U+FF1B for `;`."""
    if character.isascii():
        return False
    plain = unicodedata.normalize("NFKC", character)
    return len(plain) == 1 and plain.isascii()


def _is_odd(before: str, mark: str) -> bool:
    """A mark that makes no letter with what is before it could strike that out."""
    if not before.isascii():
        return not before.isalpha() and unicodedata.category(before) not in ("Mn", "Mc")
    return not before or len(unicodedata.normalize("NFC", before + mark)) != 1


def _disguised(text: str) -> frozenset[int]:
    """Where a letter of another alphabet stands in a word that has Latin letters, too."""
    return frozenset(_find_disguised(text)) if not text.isascii() else frozenset()


def _find_disguised(text: str) -> Iterator[int]:
    for word in _WORD.finditer(text):
        if word[0].isascii() or not _LATIN.search(word[0]):
            continue
        for at, character in enumerate(word[0], word.start()):
            if unicodedata.name(character, "").startswith(_ALIKE):
                yield at
