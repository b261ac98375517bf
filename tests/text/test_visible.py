# SPDX-License-Identifier: GPL-3.0-or-later
"""Text shown to a user has no side effects, hides nothing, and differs for different inputs."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ollmsandbox.text.visible import visible, visible_line

pytestmark = pytest.mark.ordinary

SHOWN = {
    "a plain command": ("make -j4 'a b'", "make -j4 'a b'"),
    "a newline": ("ls\nrm x", "ls⟨NEWLINE⟩rm x"),
    "a carriage return": ("rm x\rls", "rm x⟨CR⟩ls"),
    "a tab": ("a\tb", "a⟨TAB⟩b"),
    "an escape": ("\x1b[2J", "⟨ESC⟩[2J"),
    "an escape of one byte": ("\x9b2J", "⟨U+009B⟩2J"),
    "a next line": ("a\x85b", "a⟨U+0085⟩b"),
    "a backspace": ("rm\b\bls", "rm⟨BACKSPACE⟩⟨BACKSPACE⟩ls"),
    "a bell and a zero": ("\a\0", "⟨BEL⟩⟨NUL⟩"),
    "a turn to the left": ("\u202etxt", "⟨U+202E⟩txt"),
    "an isolate": ("\u2067x\u2069", "⟨U+2067⟩x⟨U+2069⟩"),
    "a zero-width space": ("a\u200bb", "a⟨U+200B⟩b"),
    "a soft hyphen": ("a\u00adb", "a⟨U+00AD⟩b"),
    "a byte order mark": ("\ufeffa", "⟨U+FEFF⟩a"),
    "a tag": ("\U000e0041", "⟨U+E0041⟩"),
    "a line separator": ("a\u2028b", "a⟨U+2028⟩b"),
    "a blank that does not break": ("a\u00a0b", "a⟨U+00A0⟩b"),
    "fillers": ("a\u3164\u115fb", "a⟨U+3164⟩⟨U+115F⟩b"),
    "a joiner and a mark of Arabic": ("a\u034f\u061cb", "a⟨U+034F⟩⟨U+061C⟩b"),
    "an empty pattern of dots": ("a\u2800b", "a⟨U+2800⟩b"),
    "a variation": ("a\ufe0f", "a⟨U+FE0F⟩"),
    "a line through a letter": ("r\u0336m", "r⟨U+0336⟩m"),
    "a circle around a letter": ("a\u20dd", "a⟨U+20DD⟩"),
    "a mark before everything": ("\u0301a", "⟨U+0301⟩a"),
    "a byte that is no text": ("\udcff", "⟨byte FF⟩"),
    "half a character": ("\ud800", "⟨U+D800⟩"),
    "a full-width semicolon": ("a\uff1b", "a⟨U+FF1B⟩"),
    "a semicolon from Greece": ("a\u037e", "a⟨U+037E⟩"),
    "a letter in disguise": ("m\u0430ke", "m⟨U+0430⟩ke"),
    "a word of another alphabet": ("echo мир", "echo мир"),
    "an accent": ("caf\u00e9 cafe\u0301", "caf\u00e9 cafe\u0301"),
    "Hindi": ("हिन्दी", "हिन्दी"),
    "a sign of our own": ("⟨ESC⟩", "⟨U+27E8⟩ESC⟩"),
    "Hebrew beside a command": ("שבת; rm", "\u2068שבת\u2069; rm"),
    "a hundred blanks": ("ls" + " " * 100 + "; rm x", "ls⟨100 spaces⟩; rm x"),
}


@pytest.mark.parametrize("case", SHOWN)
def test_a_character_is_shown_as(case: str) -> None:
    text, shown = SHOWN[case]
    assert visible_line(text) == shown


def test_a_card_has_the_lines_of_the_command() -> None:
    assert visible("cat <<E\n\ta\x1b\nE\n") == "cat <<E\n\ta⟨ESC⟩\nE\n"


def test_empty_lines_do_not_push_a_command_out_of_sight() -> None:
    assert visible("ls" + "\n" * 500 + "rm x") == "ls⟨500 newlines⟩\nrm x"
    assert visible("ls\n\n\nrm x") == "ls\n\n\nrm x"


def test_marks_do_not_pile_up() -> None:
    shown = visible_line("ä" + "\u0323" * 50)
    assert sum(unicodedata.category(character) == "Mn" for character in shown) <= 3


_TEXT = st.text(
    st.characters() | st.sampled_from("ab ⟨⟩\n\t\x1b\u202e\u2068\u2069\u0301\u0430\u05d0\udc80"),
    max_size=30,
)
_ISOLATES = "\u2068\u2069"


@settings(max_examples=120, deadline=None, derandomize=True)
@given(_TEXT)
@example("\u05d0" * 3)
def test_nothing_shown_can_act(text: str) -> None:
    for shown, kept in ((visible(text), "\n\t" + _ISOLATES), (visible_line(text), _ISOLATES)):
        assert all(character.isprintable() or character in kept for character in shown)
        assert shown.count(_ISOLATES[0]) == shown.count(_ISOLATES[1])
        shown.encode("utf-8")


@settings(max_examples=120, deadline=None, derandomize=True)
@given(_TEXT)
def test_the_text_can_be_recovered_from_what_is_shown(text: str) -> None:
    assert _back(visible(text)) == _back(visible_line(text)) == text


def _back(shown: str) -> str:
    names = {"NUL": 0, "BEL": 7, "BACKSPACE": 8, "TAB": 9, "NEWLINE": 10, "VT": 11, "FF": 12}
    names |= {"CR": 13, "ESC": 27, "DEL": 127}
    runs = {"spaces": " ", "tabs": "\t", "newlines": "\n"}
    text = ""
    while shown:
        if shown[0] in _ISOLATES:
            shown = shown[1:]
            continue
        if shown[0] != "⟨":
            text, shown = text + shown[0], shown[1:]
            continue
        name, shown = shown[1:].split("⟩", 1)
        count, _, unit = name.partition(" ")
        if name in names:
            text += chr(names[name])
        elif name.startswith("U+"):
            text += chr(int(name[2:], 16))
        elif name.startswith("byte "):
            text += chr(0xDC00 + int(unit, 16))
        else:
            text += runs[unit] * int(count)
            # In a card the last of many empty lines is there as well.
            shown = shown.removeprefix("\n") if unit == "newlines" else shown
    return text
