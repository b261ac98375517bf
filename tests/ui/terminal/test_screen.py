# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ollmsandbox.text.visible import mark_hidden_line
from ollmsandbox.ui.terminal.output import OutputFile, write_readable
from ollmsandbox.ui.terminal.screen import MOST_COLUMNS, Screen
from ollmsandbox.ui.terminal.style import DARK, LIGHT, StyledText, TextStyle, colours, contrast
from ollmsandbox.ui.terminal.view import Backlog


def shown(*pieces: bytes) -> str:
    screen = Screen()
    for piece in pieces:
        screen.feed(piece)
    screen.finish()
    return screen.text()


def styles(data: bytes) -> list[StyledText]:
    screen = Screen()
    screen.feed(data)
    return list(screen.line(0))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"one\ntwo\n", "one\ntwo"),
        (b"one\n\n\ntwo", "one\n\n\ntwo"),
        (b"one\r\ntwo\r\n", "one\ntwo"),
        (b"10%\r50%\r100%\n", "100%"),
        (b"longer\rab\n", "abnger"),
        (b"longer\r\x1b[Kab\n", "ab"),
        (b"abc\b\bX\n", "aXc"),
        (b"a\tb\n", "a       b"),
        (b"abcdef\b\b\b\x1b[K\n", "abc"),
        (b"abcdef\b\b\b\b\x1b[1K\n", "   def"),
        (b"abcdef\x1b[2K\rx\n", "x"),
        (b"one\x0btwo\x0cthree", "one\ntwo\nthree"),
    ],
)
def test_a_line_is_written_over_as_in_a_terminal(data: bytes, text: str) -> None:
    assert shown(data) == text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x1b]0;a title\x07text", "text"),
        (b"\x1b]8;;http://example.org\x1b\\a link\x1b]8;;\x1b\\", "a link"),
        (b"\x1bPsome\x1b\\text", "text"),
        (b"\x1b]never ended\nnext line", "\nnext line"),
        (b"\x1b[?1049h\x1b[?25ltext\x1b[?25h", "text"),
        (b"\x1b(Btext\x1b=", "text"),
        (b"\x1b[>4;1mtext", "text"),
        (b"te\x00\x01\x07xt\x7f", "text"),
        ("te\x9b31mxt".encode(), "text"),
        (b"text\x1b[", "text"),
        (b"one\ntwo\x1b[2A\x1b[3;5H\x1b[2J\x1b7\x1b8\x1b[2P\x1b[2@\x1b[4X", "one\ntwo"),
    ],
)
def test_sequences_that_show_nothing_are_swallowed(data: bytes, text: str) -> None:
    assert shown(data) == text


def test_a_character_may_come_in_pieces_and_half_of_one_is_replaced() -> None:
    data = "grün 日本\n".encode()
    assert shown(*(data[n : n + 1] for n in range(len(data)))) == "grün 日本"
    assert shown(b"a\xffb\n") == "a\N{REPLACEMENT CHARACTER}b"
    assert shown("ü".encode()[:1]) == "\N{REPLACEMENT CHARACTER}"


def test_wide_and_combining_characters_take_their_columns() -> None:
    assert shown("日本\b\bX\n".encode()) == "日X "
    assert shown("日本\b\b\bX\n".encode()) == " X本"
    assert shown("e\u0301x\bY\n".encode()) == "e\u0301Y"
    assert len(shown(("e" + "\u0301" * 500).encode())) < 20


def test_marks_that_turn_the_reading_direction_are_seen() -> None:
    assert shown("a\u202eb\u2066c\u2028d".encode()) == "a⟨U+202E⟩b⟨U+2066⟩c⟨U+2028⟩d"
    assert mark_hidden_line("a\rb\x1bc\td\u200b") == "a⟨CR⟩b⟨ESC⟩c\td⟨U+200B⟩"


def test_colours_and_weights() -> None:
    assert styles(b"\x1b[1;31mred\x1b[0m plain") == [
        StyledText("red", TextStyle(foreground=1, bold=True)),
        StyledText(" plain", TextStyle()),
    ]
    assert styles(b"\x1b[38;5;200;4ma")[0].style == TextStyle(foreground=200, underline=True)
    assert styles(b"\x1b[38;2;1;2;3;3ma")[0].style == TextStyle(foreground=(1, 2, 3), italic=True)
    assert styles(b"\x1b[48:2::1:2:3ma")[0].style == TextStyle(background=(1, 2, 3))
    assert styles(b"\x1b[95;102;7;2ma")[0].style == TextStyle(13, 10, dim=True, reverse=True)
    assert styles(b"\x1b[1;3;4m\x1b[22;23;24ma")[0].style == TextStyle()


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_every_colour_can_be_read(theme: object) -> None:
    assert theme in (LIGHT, DARK)
    chosen = LIGHT if theme is LIGHT else DARK
    for number in range(256):
        for style in (TextStyle(number), TextStyle(None, number), TextStyle(number, dim=True)):
            text, ground = colours(style, chosen)
            assert contrast(text or chosen.text, ground or chosen.ground) >= 4.4


def test_only_so_many_lines_are_kept_and_the_rest_is_counted() -> None:
    screen = Screen(most_lines=100)
    screen.feed(b"".join(b"%d\n" % number for number in range(1000)))
    lines = screen.text().split("\n")
    assert lines[-1] == "999"
    assert screen.dropped + len(lines) == 1000
    assert len(lines) <= 100
    assert lines[0] == str(screen.dropped)


def test_an_endless_line_is_cut_and_says_so() -> None:
    text = shown(b"x" * 1_000_000 + b"\n")
    assert len(text) < MOST_COLUMNS + 100
    assert text.endswith(" … 996,000 more characters")


def test_a_view_can_follow_what_changed() -> None:
    screen = Screen()
    screen.feed(b"one\ntwo\nthree\n")
    assert screen.take_changed() == 0
    screen.feed(b"four")
    assert screen.take_changed() == 3
    screen.feed(b"\rX")
    assert screen.take_changed() == 3


def test_too_much_at_once_is_counted_and_its_end_is_shown() -> None:
    screen = Screen()
    backlog = Backlog(screen)
    for start in range(0, 300_000, 1000):
        backlog.add(b"".join(b"line %d\n" % n for n in range(start, start + 1000)))
    while backlog:
        backlog.work(time.monotonic() + 10)
    lines = screen.text().split("\n")
    assert lines[-1] == "line 299999"
    assert lines[0] == f"line {screen.dropped}"
    assert screen.dropped + len(lines) == 300_000


_ANYTHING = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.sampled_from([b"\n", b"\r", b"\b", b"\t", b"\x1b[A", b"\x1b[5B", b"\x1b[J", b"\x1b[2J"]),
        st.sampled_from([b"\x1b[K", b"\x1b[1K", b"\x1b[3P", b"\x1b[2@", b"\x1b[H", b"\x1b[9C"]),
        st.sampled_from([b"\x1b7", b"\x1b8", b"\x1b]0;t", b"\x07", b"\x1b[31m", b"\x9b", b"text"]),
        st.text(max_size=10).map(lambda text: text.encode("utf-8", "replace")),
    ),
    max_size=40,
)


@settings(max_examples=80, deadline=None)
@given(_ANYTHING, st.integers(1, 5))
def test_no_control_character_is_shown(pieces: list[bytes], size: int) -> None:
    data = b"".join(pieces)
    text = shown(data)
    assert all(ord(c) >= 0x20 and not 0x7F <= ord(c) <= 0x9F for c in text if c != "\n")
    assert not set(text) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")
    # And in pieces of any size it is the same.
    assert shown(*(data[n : n + size] for n in range(0, len(data), size))) == text


@settings(max_examples=60, deadline=None)
@given(st.lists(_ANYTHING, max_size=5))
def test_a_follower_that_takes_only_changes_has_the_same_lines(parts: list[list[bytes]]) -> None:
    screen = Screen(most_lines=8)
    kept: dict[int, str] = {}
    for part in parts:
        screen.feed(b"".join(part))
        changed = screen.take_changed()
        kept = {n: text for n, text in kept.items() if screen.dropped <= n < changed}
        for number in range(changed, screen.end):
            kept[number] = "".join(run.text for run in screen.line(number))
        assert "\n".join(kept[number] for number in sorted(kept)) == screen.text()


def test_all_of_the_output_is_in_a_file_up_to_a_ceiling(tmp_path: Path) -> None:
    store = OutputFile(tmp_path / "output", ceiling=10)
    store.write(b"0123456")
    assert store.path.read_bytes() == b"0123456"
    assert store.note == ""
    store.write(b"789abcdef")
    store.write(b"more")
    store.close()
    assert store.path.read_bytes() == b"0123456789\n[10 more bytes were not saved]\n"
    assert store.note.startswith("Only the first")
    assert stat.S_IMODE(os.stat(store.path).st_mode) == 0o600


def test_the_output_can_be_read_in_an_editor(tmp_path: Path) -> None:
    raw, copy = tmp_path / "raw", tmp_path / "copy"
    raw.write_bytes("\x1b[31mgrün\x1b[0m\r\n10%\r20%\n".encode() * 100_000 + b"end \xff")
    write_readable(raw, copy)
    text = copy.read_text(encoding="utf-8")
    assert text == "grün\n10%\n20%\n" * 100_000 + "end \N{REPLACEMENT CHARACTER}"


def test_a_full_disk_ends_the_keeping_and_not_the_command() -> None:
    store = OutputFile(Path("/dev/full"))
    store.write(b"text")
    store.write(b"more")
    store.close()
    assert store.trouble.startswith("Cannot save the output")
    assert store.left_out == 8
