# SPDX-License-Identifier: GPL-3.0-or-later
"""Text as it may be shown: what cannot be seen, or reorders what is seen, becomes a mark."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

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
