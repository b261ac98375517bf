# SPDX-License-Identifier: GPL-3.0-or-later
"""A command prints without end, prints anything but text, or is too long to start."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from support.cli_server import Started
from support.escape.processes import Mark, turns, unsandboxed
from support.person import Person, make_person
from support.timing import PATIENCE

from ollmsandbox import loop
from ollmsandbox.errors import SandboxError
from ollmsandbox.sandbox.process import Sinks

pytestmark = pytest.mark.ordinary

MIB = 1 << 20
# How much of an output is kept, at each end.
KEPT = MIB
# How much the program may grow while a command pours out what it can.
GROWTH = 64 * MIB

# --- output --------------------------------------------------------------------------------------


def _memory_of(pid: int) -> int:
    try:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


@contextmanager
def _command_line(person: Person, *arguments: str) -> Iterator[Started]:
    process = person.start("run", *arguments)
    try:
        yield process
    finally:
        process.end()


def _read_all(stream: IO[bytes] | None, pause: float, into: list[int]) -> threading.Thread:
    assert stream is not None
    number = stream.fileno()

    def work() -> None:
        while data := os.read(number, 1 << 16):
            into.append(len(data))
            time.sleep(pause)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


ENDLESS = {
    "lines": "yes",
    "lines on both streams": "yes & yes >&2",
    "one line": "cat /dev/zero",
    "noise": "cat /dev/urandom",
}


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        *((kind, "as it comes") for kind in ENDLESS),
        ("one line", "as JSON"),
        ("lines on both streams", "as JSON"),
        ("lines on both streams", "to a slow reader"),
    ],
)
def test_endless_output_does_not_fill_our_memory(
    person: Person, memory_of_one_that_says_nothing: int, kind: str, how: str
) -> None:
    options = ["--json"] if how == "as JSON" else []
    pause = 0.004 if how == "to a slow reader" else 0
    # Longer where the machine had no time for it.
    for seconds in ("0.4", "5", "30"):
        given = [*options, "--timeout", seconds, "-c", ENDLESS[kind]]
        code, read, most = _measured(person, pause, *given)
        if read > KEPT:
            break
    assert code == 124
    assert read > KEPT
    assert most - memory_of_one_that_says_nothing < GROWTH


@pytest.fixture(scope="module")
def memory_of_one_that_says_nothing(tmp_path_factory: pytest.TempPathFactory) -> int:
    person = make_person(tmp_path_factory.mktemp("silent"))
    _code, _read, most = _measured(person, 0, "-c", "sleep 0.5")
    return most


def _measured(person: Person, pause: float, *options: str) -> tuple[int, int, int]:
    """Exit status, bytes read, and the most memory that the program had."""
    with _command_line(person, *options) as process:
        read: list[int] = []
        readers = [_read_all(stream, pause, read) for stream in (process.stdout, process.stderr)]
        end = time.monotonic() + PATIENCE
        most = 0
        while process.poll() is None and time.monotonic() < end:
            most = max(most, _memory_of(process.pid))
            time.sleep(0.02)
        code = process.wait(PATIENCE)
        for reader in readers:
            reader.join(PATIENCE)
    return code, sum(read), most


def test_the_program_answers_while_a_command_pours_out(person: Person) -> None:
    assert turns(lambda: person.bubble(timeout=0.8).exec("yes & yes >&2")) > 1


def test_an_endless_line_keeps_its_beginning_and_end(person: Person) -> None:
    size = 100 * MIB
    result = person.run("printf begin; head -c 100M /dev/zero; printf end")
    assert result.exit_code == 0
    assert result.stdout.total == size + 8
    assert result.stdout.left_out == size + 8 - 2 * KEPT
    text = result.stdout.text
    assert text.startswith("begin\0")
    assert text.endswith("\0end")
    assert f"[... {result.stdout.left_out} bytes left out ...]" in text
    assert len(text) < 2 * KEPT + 100


def test_both_streams_at_once_lose_nothing(person: Person) -> None:
    one = "head -c 10M /dev/zero"
    result = person.run(f"{one} & {one} >&2 & {one} & {one} >&2 & wait")
    assert result.stdout.total == result.stderr.total == 20 * MIB


BYTES = {
    "all of them": bytes(range(256)) * 50,
    "half a character": "\u20ac".encode()[:2],
    "a character cut in two": b"a" * (KEPT - 1) + "\u20ac".encode() * KEPT,
    "surrogates": b"\xed\xa0\x80\xed\xb0\x80",
    "too long": b"\xf8\x88\x80\x80\x80 \xc0\xaf",
    "only zeros": bytes(1000),
    "escapes": b"\x1b]0;title\x07\x1b[2J\x1b[31mred\r\nover\x08\x9b0m",
}


@pytest.mark.parametrize("kind", sorted(BYTES))
def test_any_output_of_a_command_can_be_printed(person: Person, kind: str) -> None:
    (person.project / "said").write_bytes(BYTES[kind])
    # As it is on a pipe, as text in JSON, harmless for the model.
    with _command_line(person, "--", "cat", "said") as process:
        assert process.communicate(PATIENCE)[0] == BYTES[kind]
    told = json.loads(person.cli("run", "--json", "--", "cat", "said").stdout)
    assert told["exit_code"] == 0
    result = person.run("cat said")
    assert result.stdout.total == len(BYTES[kind])
    assert told["stdout"] == result.stdout.text
    said = result.for_model()
    said.encode()
    assert "\x1b" not in said and "\0" not in said and "\x9b" not in said


# --- readers that do not read --------------------------------------------------------------------


@contextmanager
def _marked(person: Person, command: str, *options: str) -> Iterator[tuple[Started, Mark]]:
    """A command line, and by what all that it started is found."""
    mark = Mark()
    with _command_line(person, *options, "-c", f": {mark.seconds}; {command}; :") as process:
        yield process, mark
    mark.kill()


LEFT = {
    "output": "yes",
    "errors": "yes >&2",
    "ignored signals": "trap '' PIPE; yes 2>/dev/null; yes >&2; sleep 20",
    "a child": "yes & yes",
}


@pytest.mark.parametrize("kind", sorted(LEFT))
def test_a_reader_that_leaves_ends_the_command(person: Person, kind: str) -> None:
    with _marked(person, LEFT[kind]) as (process, mark):
        assert process.stdout is not None
        assert process.stderr is not None
        stream = process.stderr if kind == "errors" else process.stdout
        assert os.read(stream.fileno(), 2) == b"y\n"
        process.stdout.close()
        process.stderr.close()
        assert process.wait(PATIENCE) == 128 + signal.SIGPIPE
        assert mark.gone()


def test_a_reader_that_does_not_read_keeps_no_command_alive(person: Person) -> None:
    with _marked(person, "yes", "--timeout", "10") as (process, mark):
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 2) == b"y\n"
        # The rest waits to be read, by us; the command does not.
        assert mark.gone()
        process.stdout.close()
        assert process.wait(PATIENCE) in (124, 128 + signal.SIGPIPE)


def test_a_slow_reader_gets_everything(person: Person) -> None:
    with _command_line(person, "-c", "head -c 3M /dev/zero; echo end") as process:
        read: list[int] = []
        _read_all(process.stdout, 0.01, read).join(PATIENCE)
        assert process.wait(PATIENCE) == 0
    assert sum(read) == 3 * MIB + 4


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)], ids=str)
def test_a_program_without_streams_runs_its_command(
    person: Person, closed: tuple[int, ...]
) -> None:
    # Their numbers are given to other files then, which must not get the command's output.
    words = " ".join(f"{number}>&-" for number in closed)
    around = ("/bin/sh", "-c", f'exec "$@" {words}', "sh")
    done = person.cli("run", "-c", "echo out; : >ran", around=around)
    assert (person.project / "ran").exists(), done.stderr
    assert "Traceback" not in done.stderr


# --- commands that are too much ------------------------------------------------------------------

TOO_LONG = 32 * os.sysconf("SC_PAGE_SIZE")  # MAX_ARG_STRLEN


@pytest.mark.parametrize("size", [TOO_LONG - 1, TOO_LONG, 8 * TOO_LONG, 64 * TOO_LONG])
def test_a_long_command_runs_or_is_refused(person: Person, size: int) -> None:
    command = ": ".ljust(size - 9, "x") + "; echo ok"
    assert len(command) == size
    if size < TOO_LONG:
        assert person.run(command).stdout.text == "ok\n"
        return
    with pytest.raises(SandboxError, match="longer than"):
        person.run(command)


def test_bytes_are_counted_not_characters(person: Person) -> None:
    with pytest.raises(SandboxError, match="longer than"):
        person.run(["echo", "\u20ac" * (TOO_LONG // 3 + 1)])


@pytest.mark.parametrize("words", [1_000, 300_000], ids=str)
def test_many_words_run_or_are_refused(person: Person, words: int) -> None:
    command = ["/bin/sh", "-c", "echo $#", "sh", *["word"] * words]
    try:
        assert person.run(command).stdout.text == f"{words}\n"
    except SandboxError as error:
        assert words > 10_000
        assert "too long" in str(error).lower()


BAD_COMMANDS = {
    "a NUL": "echo a\0b",
    "a NUL in a word": ["echo", "a\0b"],
    "half a character": "echo \ud800",
    "half a character in a word": ["echo", "\udfff"],
    "nothing": "",
    "only spaces": " \n\t ",
    "no words": [],
}


@pytest.mark.parametrize("sandbox", [True, False], ids=["sandbox", "no sandbox"])
@pytest.mark.parametrize("kind", sorted(BAD_COMMANDS))
def test_an_invalid_command_is_refused(person: Person, kind: str, sandbox: bool) -> None:
    runner = person.bubble() if sandbox else unsandboxed(person)
    with pytest.raises(SandboxError):
        loop.run(runner.exec(BAD_COMMANDS[kind]))


@pytest.mark.parametrize("word", ["\udcff\udc80", "a\nb", "\u202eabc"], ids=ascii)
def test_any_valid_command_runs(person: Person, word: str) -> None:
    """Even with bytes that are not UTF-8, a new line, or a mark that turns text around."""
    seen: list[bytes] = []

    command = person.bubble().exec(["printf", "%s", word], sinks=Sinks(seen.append))
    assert loop.run(command).exit_code == 0
    assert b"".join(seen) == os.fsencode(word)
