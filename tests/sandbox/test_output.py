# SPDX-License-Identifier: GPL-3.0-or-later
"""Captured output: its bounds, bytes that are not UTF-8, and the text a model gets."""

from __future__ import annotations

import os
import random
import re
import threading
import tracemalloc

import pytest
from support.timing import PATIENCE, assert_linear

from ollmsandbox.sandbox.output import Capture, OutputReader, OutputStream
from ollmsandbox.sandbox.process import Result, Stop
from ollmsandbox.text.ansi import harmless

pytestmark = pytest.mark.ordinary

UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def captured(*pieces: bytes, head: int = 10, tail: int = 10) -> Capture:
    capture = Capture(head, tail)
    for piece in pieces:
        capture.feed(piece)
    return capture


# --- bounds ------------------------------------------------------------------------------------


def test_any_pieces_and_any_bounds_give_what_they_should() -> None:
    choose = random.Random(2)
    for _ in range(500):
        head, tail = choose.randrange(12), choose.randrange(12)
        pieces = [
            bytes(choose.choices(range(33, 127), k=choose.randrange(15)))
            for _ in range(choose.randrange(8))
        ]
        data = b"".join(pieces)
        capture = captured(*pieces, head=head, tail=tail)
        left_out = max(0, len(data) - head - tail)
        expected = data.decode()
        if left_out:
            end = data[len(data) - tail :].decode()
            expected = f"{data[:head].decode()}\n[... {left_out} bytes left out ...]\n{end}"
        assert (capture.text, capture.left_out) == (expected, left_out)
        assert (capture.total, capture.truncated) == (len(data), left_out > 0)


def test_much_output_takes_little_memory() -> None:
    piece = b"x" * 65536
    capture = Capture(100_000, 100_000)
    tracemalloc.start()
    try:
        for _ in range(3000):
            capture.feed(piece)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert capture.total == 3000 * 65536
    assert peak < 1 << 20


def test_a_view_that_is_used_again_is_not_kept() -> None:
    buffer = bytearray(b"first")
    capture = Capture(10, 10)
    capture.feed(memoryview(buffer))
    buffer[:] = b"other"
    assert capture.text == "first"


# --- bytes and characters ----------------------------------------------------------------------


def test_a_character_in_two_pieces_is_one() -> None:
    assert captured(b"\xc3", b"\xbc").text == "ü"
    assert captured("€".encode()[:1], "€".encode()[1:], head=1, tail=5).text == "€"


def test_a_character_that_is_cut_is_marked_on_both_sides() -> None:
    text = captured("ü".encode() * 20, head=5, tail=5).text
    assert text == f"üü{UNKNOWN}\n[... 30 bytes left out ...]\n{UNKNOWN}üü"


@pytest.mark.parametrize("data", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"])
def test_bytes_that_are_not_utf_8_are_marked(data: bytes) -> None:
    text = captured(b"a" + data + b"b").text
    assert text[0] == "a"
    assert text[-1] == "b"
    assert set(text[1:-1]) == {UNKNOWN}


# --- reading -----------------------------------------------------------------------------------


def test_a_stream_is_read_until_its_last_writer_is_gone() -> None:
    reader, writer = os.pipe()
    other = os.dup(writer)
    size = 5_000_000

    def write() -> None:
        with open(writer, "wb") as first:
            first.write(b"x" * size)
        with open(other, "wb") as second:
            second.write(b"end")

    thread = threading.Thread(target=write)
    thread.start()
    capture, seen = Capture(5, 5), []

    def sink(data: bytes) -> None:
        seen.append(len(data))

    reading = OutputReader([OutputStream(reader, capture, sink)], lambda: None)
    thread.join()
    reading.join(PATIENCE)
    reading.close()
    os.close(reader)
    assert capture.total == sum(seen) == size + 3
    assert capture.text.endswith("\nxxend")


def test_a_busy_sink_blocks_the_writer() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    written = 0

    def sink(_data: bytes) -> None:
        nonlocal written
        # Were it read on meanwhile, this would never end.
        while True:
            try:
                written += os.write(writer, b"x" * 65536)
            except BlockingIOError:
                raise EOFError from None

    os.write(writer, b"begin")
    failed = threading.Event()
    reading = OutputReader([OutputStream(reader, Capture(), sink)], failed.set)
    assert failed.wait(PATIENCE)
    with pytest.raises(EOFError):
        reading.close()
    os.close(reader)
    os.close(writer)
    assert written > 0


def test_what_came_through_two_streams_is_passed_on_in_their_order() -> None:
    pipes = [os.pipe() for _ in range(2)]
    for number, (_reader, writer) in reversed(list(enumerate(pipes))):
        os.write(writer, b"%d" % number)
        os.close(writer)
    seen: list[bytes] = []
    streams = [OutputStream(reader, Capture(), seen.append) for reader, _writer in pipes]
    reading = OutputReader(streams, lambda: None)
    reading.join(PATIENCE)
    reading.close()
    assert seen == [b"0", b"1"]
    for reader, _writer in pipes:
        os.close(reader)


@pytest.mark.parametrize("is_flooded", [True, False])
def test_a_stream_that_a_process_keeps_open_can_be_left(is_flooded: bool) -> None:
    reader, writer = os.pipe()
    seen = threading.Event()

    def sink(_data: bytes) -> None:
        seen.set()
        if is_flooded:
            os.write(writer, b"more")

    os.write(writer, b"begin")
    reading = OutputReader([OutputStream(reader, Capture(), sink)], lambda: None)
    assert seen.wait(PATIENCE)
    reading.join(0.01)
    reading.close()
    os.close(reader)
    os.close(writer)


# --- for people and models ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain\ttext\nü€😀\n", "plain\ttext\nü€😀\n"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b[38;2;1;2;3mx\x1b[m", "x"),
        ("a\x1b[2J\x1b[Hb", "ab"),
        ("a\x1b[?25lb", "ab"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;c2VjcmV0\x07x", "x"),
        ("\x1bPsome\x1b\\x\x1b_other\x07", "x"),
        ("\x1b(Bx\x1b7", "x"),
        ("one\r\ntwo\r\n", "one\ntwo\n"),
    ],
)
def test_colours_titles_and_line_ends_are_taken_out(given: str, shown: str) -> None:
    assert harmless(given) == shown


@pytest.mark.parametrize(
    "given",
    [
        *("safe\rrm -rf /", "a\bb", "a\x00b", "a\x07b", "a\x0bb", "a\x0cb", "a\x7fb", "a\x1b"),
        *("a\x1b\x1b[31m[31mb", "a\x1b]0;never ended", "a\x1bPnever ended", "a\x9b31mb"),
        *("a\x90payload\x9c", "a\x85b"),
    ],
    ids=ascii,
)
def test_sequences_that_move_the_cursor_are_made_visible(given: str) -> None:
    shown = harmless(given)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    assert shown.startswith(("a", "safe"))


def test_marks_that_reorder_text_are_made_visible() -> None:
    for mark in "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069":
        assert harmless(f"a{mark}b") == f"a{UNKNOWN}b"


def test_a_sequence_hides_nothing_beyond_its_line() -> None:
    assert harmless("a\x1b]0;b\nrm x\x07c") == f"a{UNKNOWN}]0;b\nrm x{UNKNOWN}c"


def test_no_input_leaves_a_control_sequence() -> None:
    choose = random.Random(4)
    alphabet = "\x1b\x1b\x1b[]()P\\;m0J\x07\r\n\t\x9b\x9d\u202eab"
    for _ in range(2000):
        shown = harmless("".join(choose.choices(alphabet, k=20)))
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown)


@pytest.mark.parametrize(
    ("first", "then"), [("", "\x1bP"), ("\x1b", "("), ("", "\x1b["), ("", "\x1b]"), ("\x1b[", "0")]
)
def test_harmful_text_is_cleaned_in_linear_time(first: str, then: str) -> None:
    assert_linear(lambda count: harmless(first + then * count), 10_000)


def result(out: bytes = b"", err: bytes = b"", code: int = 0, stop: Stop | None = None) -> Result:
    return Result(code, captured(out, head=1000), captured(err, head=1000), 0.1, stop)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (result(b"out\n", b"err\n", 3), "out\nerr\nExit status: 3"),
        # Of a successful command it gets no status.
        (result(b"out\n"), "out"),
        (result(b"", b"only errors\n"), "only errors"),
        (result(), ""),
        (result(code=1), "Exit status: 1"),
        (result(b"\n\n", b" \n", code=1), "Exit status: 1"),
        (result(b"\x1b[31mred\x1b[0m\n", b"\x1b[2Jerr\n"), "red\nerr"),
        (
            result(b"out\n", b"err\n", 124, Stop.TIME),
            "out\nerr\nThe command did not finish. Exceeded the time limit.\nExit status: 124",
        ),
    ],
)
def test_a_model_gets_harmless_output_then_errors_then_the_status(given: Result, told: str) -> None:
    assert given.for_model() == told


def test_the_signal_is_read_from_the_status() -> None:
    found = [result(code=code).signal for code in (0, 1, 128, 137, 143, 255)]
    assert found == [None, None, None, 9, 15, None]
