# SPDX-License-Identifier: GPL-3.0-or-later
"""Our own input, output and errors, whatever they were when the program was started."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TextIO


def open_streams() -> None:
    """A stream that is closed would be taken by the next thing that is opened, and what is printed
    would end up in it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    _fill_in()
    # A name that is not text, or text that this terminal has no letters for, is no reason to fail.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _fill_in() -> None:
    """Python has none where it found none."""
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8")
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(io.BufferedWriter(io.FileIO(2, "w", closefd=False)), "utf-8")


def wants_colour(*streams: TextIO) -> bool:
    return (
        all(stream.isatty() for stream in streams)
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def complain(text: str) -> None:
    with contextlib.suppress(OSError):  # there is nobody to tell it to
        print(f"ollmsandbox: {text}", file=sys.stderr)


def give_up() -> OSError | None:
    """What cannot be written is dropped, so that Python does not try it once more at the end; the
    last reason is returned."""
    found: OSError | None = None
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError as error:
            found = error
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)
            os.close(nowhere)
    return found
