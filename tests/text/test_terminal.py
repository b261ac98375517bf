# SPDX-License-Identifier: GPL-3.0-or-later
"""What passes from a command's output to the user's terminal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollmsandbox.text.terminal import TerminalFilter

pytestmark = pytest.mark.ordinary


def filtered(data: bytes, *, by_bytes: bool = False, **options: bool) -> bytes:
    made = TerminalFilter(**options)
    pieces = [data[n : n + 1] for n in range(len(data))] if by_bytes else [data]
    return b"".join(map(made.feed, pieces))


PASSES = {
    "colours": b"\x1b[1;38:2::1:2:3;48;5;7mred\x1b[m",
    "cursor": b"\x1b[2J\x1b[H\x1b[10;5H\x1b[3A\x1b[K\x1b[5X\x1b7\x1b8\x1bM\x1b[4h\x1b[4l",
    "scrolling": b"\x1b[2;10r\x1b[3S\x1b[3T\x1b[L\x1b[2M\x1b[20b",
    "modes": b"\x1b[?1049h\x1b[?25l\x1b[?1000;1006h\x1b[?2004h\x1b[?2026l\x1b=\x1b>\x1b[4 q",
    "characters": b"\x1b(0qqq\x1b(B\x0e\x0f",
    "text": "Zażółć 日本語 😀 \u00a0ÿ\t\r\n\a\b".encode(),
    "another encoding": "naïve café".encode("latin-1") + b"\n",
}
REFUSED = {
    "titles": b"\x1b]0;t\x07\x1b]2;t\x1b\\\x1bkt\x1b\\\x1b[22;0t",
    "the clipboard": b"\x1b]52;c;aGk=\x07\x1b]52;c;?\x1b\\",
    "colours of the terminal": b"\x1b]4;1;red\x07\x1b]10;?\x07\x1b]11;red\x1b\\\x1b]P1ff0000\x1b]R",
    "links": b"\x1b]8;;http://example.org\x1b\\\x1b]8;;\x1b\\",
    "questions": b"\x05\x1b[c\x1b[>c\x1b[5n\x1b[6n\x1b[?6n\x1b[x\x1b[?25$p\x1b[?u\x1b[21t\x1bZ",
    "strings": b"\x1bP$qm\x1b\\\x1b_Gi=1;\x1b\\\x1b^x\x1b\\\x1bXx\x1b\\\x1bP+q544e\x1b\\",
    "the window": b"\x1b[8;1;1t\x1b[2t\x1b[?3h\x1b[?40h",
    "the keyboard": b"\x1b[2h\x1b[12h\x1b[20h\x1b[>4;2m\x1b[>1u\x1b[=1;1u\x1b[1q",
    "the printer": b"\x1b[5i\x1b[?4i",
    "the scrollback": b"\x1b[3J",
    "encodings": b"\x1b%@\x1b%G\x1b F\x1b G\x1bn\x1bo\x1b~",
    "tab stops": b"\x1b[3g\x1bH",
    "reports": b"\x1b[?2031h\x1b[1;2;3;4;5T",
}


@pytest.mark.parametrize("by_bytes", [False, True])
@pytest.mark.parametrize("name", PASSES)
def test_what_changes_only_the_screen_passes(name: str, by_bytes: bool) -> None:
    assert filtered(PASSES[name], by_bytes=by_bytes) == PASSES[name]


@pytest.mark.parametrize("by_bytes", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_what_reaches_beyond_the_screen_does_not_pass(name: str, by_bytes: bool) -> None:
    text = b"before" + REFUSED[name] + b"after\n"
    assert filtered(text, by_bytes=by_bytes) == b"beforeafter\n"
    assert filtered(text, raw=True) == text


@pytest.mark.parametrize("by_bytes", [False, True])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        # Above 0x80: as characters of UTF-8, as bytes, and in forms that are too long.
        ("\x9d52;c;\x07\x9b6n\x85".encode(), b"52;c;\x076n"),
        (b"\x9b6n\x9d0;t\x07", b"6n0;t\x07"),
        (b"\xe0\x82\x9b6n", b"6n"),
        # Sequences in pieces, which must not join when something between them is dropped.
        (b"\x1b\x1b]0;t\x07]52;c;\x07", b"]52;c;\x07"),
        (b"\x1b\x9b]52;c;\x07", None),
        (b"\x1b\x05[6n", None),
        (b"\xc2\x1b]0;t\x07\x9b6n", b"\xc26n"),
        (b"\x1b[3\x1b[3Jx1J", b"x1J"),
        # A string that does not end hides no more than its line.
        (b"\x1b]0;title\nnext\n", b"\nnext\n"),
        (b"\x1b[" + b"1" * 1000 + b"n", None),
    ],
)
def test_tricks(text: bytes, shown: bytes | None, by_bytes: bool) -> None:
    found = filtered(text, by_bytes=by_bytes)
    assert_harmless(found)
    if shown is not None:
        assert found == shown


def assert_harmless(passed: bytes) -> None:
    """Assert that there is no sequence that a terminal could take for more than it may be."""
    allowed = (
        rb"\[[\d;:]*[@-Z`abdefm-msru]|\[\?[\d;]*[hlJK]|\[4[hl]|\[![p]|\[\d* q|[78=>DEM]|[()*+]."
    )
    for found in re.finditer(rb"\x1b(?!" + allowed + rb")", passed, re.DOTALL):
        raise AssertionError(passed[found.start() :])
    assert b"\x05" not in passed
    assert not re.search(r"[\x80-\x9f]", passed.decode("utf-8", "ignore"))
    assert not re.search(rb"(?:^|[\x00-\x7f])[\x80-\x9f]", passed)


SIGNS = st.sampled_from(
    [b"\x1b", b"[", b"]", b"?", b"0", b"6", b"n", b"c", b"J", b";", b"\x07", b"\\"]
)
BYTES = st.lists(SIGNS | st.binary(min_size=1, max_size=1)).map(b"".join)


@given(st.lists(BYTES))
def test_nothing_harmful_passes_however_the_output_is_cut(pieces: list[bytes]) -> None:
    made = TerminalFilter()
    assert_harmless(b"".join(map(made.feed, pieces)))


@given(st.text(st.characters(blacklist_categories=["Cc", "Cs"])), st.integers(1, 5))
def test_text_passes_however_it_is_cut(text: str, size: int) -> None:
    data = text.encode()
    made = TerminalFilter()
    pieces = [data[n : n + size] for n in range(0, len(data), size)]
    assert b"".join(map(made.feed, pieces)) == data


def test_programs_that_ask_what_the_terminal_is_get_an_answer() -> None:
    answers: list[bytes] = []
    made = TerminalFilter()
    made.answer = answers.append
    assert made.feed(b"\x1b[?u\x1b[c\x1b[0c") == b""
    assert answers == [b"\x1b[?1;2c"] * 2


def test_a_dumb_terminal_gets_no_sequences() -> None:
    assert filtered(b"\x1b[31mred\x1b[?25l\x1bc\x1b\x1b[m[31m", dumb=True) == b"red[31m"


def test_plain_output_needs_no_reset() -> None:
    made = TerminalFilter()
    made.feed("é plain line\r\n".encode())
    assert made.reset() == b""
    made.feed(b"no line end")
    assert made.reset() == b"\r\n"


@pytest.mark.parametrize(
    ("output", "is_line_start"),
    [
        (b"", True),
        (b"line\r\n\x1b[m\x1b[K", True),
        (b"text" + b"\x1b[0m" * 100, False),
        (b"\x1b[10G\x1b7line\r\n\x1b8", False),
        (b"line\r\n\x1b[?1048l", False),
    ],
)
def test_a_line_that_was_begun_is_ended(output: bytes, is_line_start: bool) -> None:
    made = TerminalFilter()
    made.feed(output)
    assert (b"\r\n" in made.reset()) is not is_line_start


def test_a_reset_leaves_the_other_screen_only_if_it_is_on() -> None:
    # To leave it, a terminal moves the cursor.
    made = TerminalFilter()
    made.feed(b"\x1b[31mred\x1b[m\r\n")
    assert b"1049" not in made.reset()
    made.feed(b"\x1b[?1049;25h")
    assert b"\x1b[?1049l" in made.reset()
    assert made.modes() == b"\x1b[?1049h\x1b[?25h"
    made.feed(b"\x1b[?1049l")
    assert b"1049" not in made.reset()


def test_a_full_reset_keeps_the_scrollback() -> None:
    shown = filtered(b"\x1bc")
    assert b"\x1bc" not in shown
    assert shown.endswith(b"\x1b[H\x1b[2J")


# Text in UTF-8 whose bytes are sequences elsewhere: 0x9b begins one, 0x9d a string, 0x90 another.
BYTES_OF_TEXT = ["Û6n", "Ý0;title\a", "Ð$qm", "直5n", "\u06dbc", "😛3J"]


@pytest.mark.parametrize("by_bytes", [False, True])
@pytest.mark.parametrize("text", BYTES_OF_TEXT)
def test_no_byte_of_a_character_is_a_control_where_the_encoding_is_another(
    text: str, by_bytes: bool
) -> None:
    data = text.encode()
    controls = {*range(0x80, 0xA0)}
    assert controls.intersection(filtered(data, by_bytes=by_bytes))
    shown = filtered(data, by_bytes=by_bytes, utf8=False)
    assert not controls.intersection(shown)
    assert shown.startswith(data[:1])


def test_text_passes_where_the_encoding_is_another() -> None:
    text = "naïve café\n".encode("latin-1")
    assert filtered(text, utf8=False) == text
    # Nor is one held back because it could begin a character.
    assert filtered("é".encode("latin-1"), utf8=False) == b"\xe9"


def test_what_is_left_does_not_become_a_sequence() -> None:
    assert filtered(b"a\x1b\x9b]0;title\x07b", utf8=False) == b"ab"
