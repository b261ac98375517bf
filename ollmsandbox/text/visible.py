# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes text safe to show to a user: nothing in it acts, hides, or moves what is beside it.

A character that cannot be seen, or that looks like another one, becomes its name in ⟨⟩. `visible`
and its variants write ⟨ itself so too: they never show two different texts alike.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

# Characters that reorder the text around them. All of these are for character classes.
REORDERING = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
# Characters without width, line ends besides the usual one, tags that can carry hidden words, and
# surrogates.
_INVISIBLE = REORDERING + (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2028\u2029\u2060-\u2065"
    "\u206a-\u206f\u3164\ufeff\uffa0\ufff0-\ufffc\U000e0000-\U000e0fff\ud800-\udfff"
)
# Output may contain these as parts of emoji, plots and notes. In a question they could hide a word.
_BLANK = "\u2800\ufe00-\ufe0f\U0001d159"
# Parts of emoji and of words in some scripts; after ASCII they only hide.
_JOINERS = "(?<![^\x00-\x7f])[\u200c\u200d]"
_UNSEEN = re.compile(f"[{_INVISIBLE}{_BLANK}]")
_HIDDEN = re.compile(f"[{_INVISIBLE}]|{_JOINERS}")
_HIDDEN_OR_CONTROL = re.compile(f"[\x00-\x08\x0a-\x1f\x7f-\x9f{_INVISIBLE}]|{_JOINERS}")
# Characters that Pango cannot show, and lone surrogates, which GLib refuses.
_UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufeff]")
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

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
# Around a word that runs from right to left: what is beside it keeps its place.
_ISOLATE, _END_OF_ISOLATE = "\u2068", "\u2069"
_MOST_MARKS = 3
# Longer runs could push what follows out of sight.
_LONG_RUN = re.compile(r" {81,}|\t{11,}|\n{6,}")
_RUN_NAMES = {" ": "spaces", "\t": "tabs", "\n": "newlines"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_IMITATING = re.compile(r"^ +|(?<=/) +| +$| +(?=/)| {2,}|[·→]")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._/@+=~,%^#-]+")
_LATIN = re.compile(r"[A-Za-z]")
_WORD = re.compile(r"\w+")
# Alphabets with letters that look like Latin ones.
_LOOKALIKES = (
    *("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"),
    *("COPTIC", "LISU", "GEORGIAN", "TIFINAGH"),
)
# French has such blanks before a colon; Chinese has such commas, colons and brackets.
_PUNCTUATION = "\u00a0\u202f\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f"


def visible(text: str) -> str:
    """Return the text with its line ends and tabs, and marks for everything else unseen."""
    return _shown(text, kept="\n\t")


def visible_line(text: str) -> str:
    """Return the text on one line, with marks for line ends and tabs, too."""
    return _shown(text, kept="")


def visible_path(path: str) -> str:
    """Return a path on one line, with marks also for what could imitate the text beside it: blanks
    at the ends or in a row, and the signs between the parts of a status line."""
    return _IMITATING.sub(_mark_each, visible_line(path))


def quoted_path(path: str) -> str:
    """Return a path as it is if it is plain, else in quotes and with escapes: nothing in it can be
    taken for text that follows it, such as ` [applied]`."""
    if _PLAIN_PATH.fullmatch(path):
        return path
    shown = path.encode("utf-8", "backslashreplace").decode("utf-8")
    if shown == path:
        shown = path.replace("\\", "\\\\")
    disguised = _disguised(shown)
    parts = []
    for at, character in enumerate(shown):
        is_mark = unicodedata.category(character) in ("Mn", "Mc") and not _is_odd(
            shown[at - 1] if at else "", character
        )
        is_letter = (character.isalnum() or is_mark) and not _is_like_ascii(character)
        if (character.isascii() and character.isprintable()) or (is_letter and at not in disguised):
            parts.append('\\"' if character == '"' else character)
        else:
            parts.append(character.encode("unicode_escape").decode("ascii"))
    return f'"{"".join(parts)}"'


def visible_words(text: str) -> str:
    """Return a sentence of this program on one line, with the punctuation of any language.

    Others must not choose the text: some of this punctuation looks like that of a shell.
    """
    return _shown(text, kept=_PUNCTUATION)


def mark_hidden(text: str) -> str:
    """Return output with marks for invisible characters. Control characters stay."""
    return _HIDDEN.sub(_mark_each, text)


def mark_hidden_line(text: str) -> str:
    """Return one line of a file with marks for invisible and control characters, except tabs."""
    return _HIDDEN_OR_CONTROL.sub(_mark_each, text)


def printable_line(text: str) -> str:
    """Return the text on one line, with one space for each run of blank or unprintable
    characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def replace_unshowable(text: str) -> str:
    """Return text that Pango can show: control characters and surrogates become U+FFFD."""
    return _UNSHOWABLE.sub(REPLACEMENT, text)


def replace_surrogates(text: str) -> str:
    """Return text that can be stored: join pairs of surrogates; lone ones and NUL become U+FFFD."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\0", REPLACEMENT)


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
    end = "\n" if "\n" in kept else _mark("\n")
    return end.join(_marked_line(line, kept) for line in text.split("\n"))


def _marked_line(text: str, kept: str) -> str:
    if text.isascii():
        return _CONTROL.sub(lambda found: found[0] if found[0] in kept else _mark(found[0]), text)
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
        turns = len(seen) == 1 and unicodedata.bidirectional(seen) in ("R", "AL", "AN")
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
    named = named or character in _NAMES or character == "⟨"
    if named or _is_unseen(character) or _is_like_ascii(character):
        return _mark(character)
    return character


def _mark_each(found: re.Match[str]) -> str:
    return "".join(map(_mark, found[0]))


def _mark(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        # Python's surrogate for a byte that is not UTF-8.
        return f"⟨byte {ord(character) - 0xDC00:02X}⟩"
    return f"⟨{_NAMES.get(character) or f'U+{ord(character):04X}'}⟩"


def _is_unseen(character: str) -> bool:
    """Tell whether a character shows as nothing, or encloses the one before it and changes it."""
    is_enclosing = unicodedata.category(character) == "Me"
    return is_enclosing or not character.isprintable() or bool(_UNSEEN.match(character))


def _is_like_ascii(character: str) -> bool:
    """Recognize full-width, mathematical and other variants of ASCII, such as U+FF1B for `;`."""
    if character.isascii():
        return False
    plain = unicodedata.normalize("NFKC", character)
    return len(plain) == 1 and plain.isascii()


def _is_odd(before: str, mark: str) -> bool:
    """Tell whether a mark does not form a letter with `before`: it could strike that out."""
    if not before.isascii():
        return not before.isalpha() and unicodedata.category(before) not in ("Mn", "Mc")
    return not before or len(unicodedata.normalize("NFC", before + mark)) != 1


def _disguised(text: str) -> frozenset[int]:
    """Return where a word with Latin letters has one of another alphabet that looks alike."""
    return frozenset(_find_disguised(text)) if not text.isascii() else frozenset()


def _find_disguised(text: str) -> Iterator[int]:
    for word in _WORD.finditer(text):
        if word[0].isascii() or not _LATIN.search(word[0]):
            continue
        for at, character in enumerate(word[0], word.start()):
            if unicodedata.name(character, "").startswith(_LOOKALIKES):
                yield at
