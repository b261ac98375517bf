# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets a command's output through to the user's terminal, except for what reaches beyond the
screen: titles, the clipboard, the printer, the palette, the size of the window, the scrollback, and
questions that the terminal would answer as if the user had typed it.

Sequences on a list pass, all others are dropped. So every sequence that passes is complete, and
nothing that was dropped can join what is around it.

It works on bytes, which pass unchanged whatever their encoding, except for those that are control
characters where the terminal's encoding is not UTF-8. `ansi.py` and the window's terminal read
sequences in text, of which little or nothing passes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# Modes that make the terminal report: the mouse, and whether the window has the focus.
_REPORTS = frozenset(b"9 1000 1001 1002 1003 1004 1005 1006 1015 1016".split())
_OTHER_SCREEN = (b"47", b"1047", b"1049")
# Besides: cursor keys, reverse video, line wrap, blinking and visible cursor, keypad, saved cursor,
# marks around pasted text, and updates at once.
_MODES = _REPORTS.union(_OTHER_SCREEN, b"1 5 7 12 25 66 1048 2004 2026".split())
# What may be erased: `3J` is the scrollback.
_WITHIN_SCREEN = (b"", b"0", b"1", b"2")
# By the last character of a sequence that begins with ESC [. Some are limited further below.
_FINALS = frozenset(b"@ABCDEFGHIJKLMPSTXZ`abdefhlmrsu")
# Cursor, keypad, and character sets.
_LETTERS = frozenset(b"78=>DEM")
_SETS = (b"(", b")", b"*", b"+")

# A string (a title, an image, text to copy) ends in its line: otherwise two stray bytes would hide
# everything that follows. The Linux console has two short ones without an end. Colours need no
# second look, which makes the usual output three times as fast.
_STRING = rb"[\]PX^_k][^\x07\x18\x1a\x1b\n]*(?:[\x07\x18\x1a]|\x1b\\|(?P<open>\Z))?"
_AFTER_ESCAPE = (
    rb"(?:\[(?P<given>[0-?]*)(?P<between>[ -/]*)(?P<final>[@-~])?"
    rb"|\](?:P[0-9A-Fa-f]{7}|R)|" + _STRING + rb"|(?P<set>[ -/]*)(?P<letter>[0-~])?)"
)
_SEQUENCE = re.compile(rb"\x1b(?!\[[0-9;:]*m)" + _AFTER_ESCAPE)
_COLOUR = re.compile(rb"\x1b\[[0-9;:]*m")
# A control character above 0x80 is one as a character of UTF-8 (some decoders accept longer forms)
# and as a byte that belongs to no character. The pattern looks back from behind that byte: one that
# begins with known bytes is found faster.
_HIGH_CONTROL = re.compile(rb"\xc2[\x80-\x9f]")
_HIGH_BYTE = re.compile(
    rb"\xc2[\x80-\x9f]|\xe0[\x80-\x9f][\x80-\xbf]?|\xf0[\x80-\x8f][\x80-\xbf]{0,2}"
    rb"|[\x80-\x9f](?<![\xc2-\xf4].)(?<![\xe0-\xf4][\x80-\xbf].)(?<![\xf0-\xf4][\x80-\xbf]{2}.)",
    re.DOTALL,
)
_HIGH_CONTROLS = bytes(range(0x80, 0xA0))
# What may continue in the next piece: a sequence, and a character.
_CUT_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[ -/]*|\](?:P[0-9A-Fa-f]{0,6})?)\Z")
_CUT_CHARACTER = re.compile(rb"(?:[\xc2-\xf4]|[\xe0-\xf4][\x80-\xbf]|[\xf0-\xf4][\x80-\xbf]{2})\Z")
_LONGEST_SEQUENCE = 256
_STRING_END = re.compile(rb"[\x07\x18\x1a\n]|\x1b\\?")
# The cursor is in the first column after this.
_LINE_START = re.compile(
    rb"(?:\n|\r\x1b\[K|\x1b\[\?(?:47|1047|1049)l)"
    rb"(?:\x1b(?:[=>7]|[()][0-9A-Z]|\[[0-9;:]*m|\[K|\[J|\[\?(?!1048)[0-9]+[hl]))*\Z"
)
# ENQ makes a terminal answer.
_ENQUIRY = b"\x05"
_DEVICE_QUESTIONS = (b"\x1b[c", b"\x1b[0c", b"\x1bZ")
# A terminal that can do little. Programs that ask wait for this answer before they begin.
_DEVICE_ANSWER = b"\x1b[?1;2c"
_FULL_RESET = b"\x1bc"

# The whole screen scrolls, where the cursor stays; the usual characters, colours and keys.
_RESET = (
    b"\x1b7\x1b[r\x1b8\x0f\x1b(B\x1b)B\x1b[m\x1b[4l\x1b>\x1b[?7;25h\x1b[?"
    + b";".join((b"1", b"5", b"66", b"2004", b"2026", *sorted(_REPORTS)))
    + b"l"
)


class TerminalFilter:
    """Filters the output of one stream.

    With `raw`, everything passes. A terminal that is `dumb` gets no sequences at all. One without
    `utf8` takes every byte for a character, so that a part of one in UTF-8 may begin a sequence.
    """

    def __init__(
        self,
        *,
        raw: bool = False,
        dumb: bool = False,
        utf8: bool = True,
    ) -> None:
        self._is_raw = raw
        self._is_dumb = dumb
        self._is_utf8 = utf8
        # Receives what the terminal would have answered.
        self.answer: Callable[[bytes], None] | None = None
        self._held = b""
        self._in_string = False
        # The sequence that set each mode last, by the mode.
        self._modes: dict[bytes, bytes] = {}
        # Whether the command may have changed more than the text.
        self._is_changed = False
        self._end = b"\n"

    def feed(self, data: bytes) -> bytes:
        """Return what passes of the next piece of output."""
        if self._held:
            data, self._held = self._held + data, b""
        if self._in_string or not data.isascii() or b"\x1b" in data or _ENQUIRY in data:
            if self._is_raw:
                _SEQUENCE.sub(self._look, data)
            else:
                data = self._filtered(data)
        if data:
            if not self._is_changed:
                self._is_changed = self._is_raw or b"\x1b" in data or b"\x0e" in data
            self._end = (self._end + data)[-_LONGEST_SEQUENCE:]
        return data

    def reset(self) -> bytes:
        """Return what makes the next lines visible, whatever the command did to the terminal."""
        # A sequence that does not end is dropped, but not a byte that is not UTF-8.
        parts = [self._held] if b"\x1b" not in self._held else []
        ending = b"" if _LINE_START.search(self._end + b"".join(parts)) else b"\r\n"
        self._end, self._held = b"\n", b""
        self._in_string = False
        if not self._is_changed or self._is_dumb:
            return b"".join((*parts, ending))
        if self._is_raw:
            # End a sequence that could swallow the next one.
            parts.append(b"\x18\x1b\\")
        for mode in _OTHER_SCREEN:
            if self._modes.get(mode, b"").endswith(b"h"):
                parts.append(b"\x1b[?%bl" % mode)
                ending = b""
        if b" q" in self._modes:
            parts.append(b"\x1b[0 q")
        return b"".join((*parts, _RESET, ending or b"\r", b"\x1b[J"))

    def modes(self) -> bytes:
        """Return what sets the command's modes again after a reset."""
        return b"".join(self._modes.values())

    def may_be_answered(self) -> bool:
        """Return whether the terminal may still send something that the user has not typed."""
        reports = (self._modes.get(mode, b"") for mode in _REPORTS)
        return self._is_raw or any(one.endswith(b"h") for one in reports)

    def _filtered(self, data: bytes) -> bytes:
        if self._in_string:
            data = self._after_string(data)
        if not self._is_utf8:
            data = data.translate(None, _HIGH_CONTROLS)
        cut = _CUT_CHARACTER.search(data, max(0, len(data) - 3)) if self._is_utf8 else None
        if (at := data.rfind(b"\x1b", max(0, len(data) - _LONGEST_SEQUENCE))) >= 0:
            cut = _CUT_SEQUENCE.match(data, at) or cut
        if cut is not None:
            self._held += data[cut.start() :]
            data = data[: cut.start()]
        # Before the sequences: what is left of it may become part of one.
        if self._is_utf8 and not data.isascii():
            data = _without_high_controls(data)
        data = _SEQUENCE.sub(self._look, data.replace(_ENQUIRY, b""))
        return _COLOUR.sub(b"", data) if self._is_dumb else data

    def _look(self, found: re.Match[bytes]) -> bytes:
        """Return what to write instead of a sequence."""
        whole = found[0]
        if found["open"] is not None:
            self._in_string = not self._is_raw
        elif self._may_pass(found) and not self._is_dumb:
            return whole
        elif whole == _FULL_RESET and not self._is_dumb:
            # Some terminals forget the scrollback with it.
            return _RESET + b"\x1b[H\x1b[2J"
        elif whole in _DEVICE_QUESTIONS and self.answer is not None and not self._is_raw:
            self.answer(_DEVICE_ANSWER)
        return b""

    def _may_pass(self, found: re.Match[bytes]) -> bool:
        given, between, final, letter = found.group("given", "between", "final", "letter")
        if letter is not None:
            if letter in b"=>":
                self._modes[b"="] = found[0]
            return letter[0] in _LETTERS if not found["set"] else found["set"] in _SETS
        if final is None:
            return False
        if between:
            if (between, final) == (b" ", b"q"):
                self._modes[b" q"] = found[0]
                return True
            return (between, final) == (b"!", b"p")
        if given.startswith(b"?"):
            if final in b"hl":
                return self._may_set(given[1:], final)
            return final in b"JK" and given[1:] in _WITHIN_SCREEN
        if final[0] not in _FINALS or given[:1] in (b"<", b"=", b">"):
            return False
        if final in b"hl":
            return bool(given == b"4")  # others lock the keyboard or change what its keys send
        if final == b"T":
            return b";" not in given  # with more numbers it follows the mouse
        return final != b"J" or given in _WITHIN_SCREEN

    def _may_set(self, given: bytes, final: bytes) -> bool:
        modes = given.split(b";")
        if not self._is_raw and not _MODES.issuperset(modes):
            return False
        for mode in filter(_MODES.__contains__, modes):
            self._modes.pop(mode, None)
            self._modes[mode] = b"\x1b[?%b%b" % (mode, final)
        return True

    def _after_string(self, data: bytes) -> bytes:
        found = _STRING_END.search(data)
        if found is None:
            return b""
        if found[0] == b"\x1b" and found.end() == len(data):
            self._held = b"\x1b"
            return b""
        self._in_string = False
        # A line end counts, and so does an escape character that begins another sequence.
        return data[found.start() if found[0] in (b"\n", b"\x1b") else found.end() :]


def _without_high_controls(data: bytes) -> bytes:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return _HIGH_BYTE.sub(b"", data)
    return _HIGH_CONTROL.sub(b"", data)
