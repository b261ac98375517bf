# SPDX-License-Identifier: GPL-3.0-or-later
"""Which project the person is in.

What an argument may be; what it may not be is told in words.

Which project the person is in.
"""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from collections.abc import Mapping

from ..errors import SandboxError


def count(text: str) -> int:
    # Cut off first: Python reads no number of many thousand digits.
    if not text.isascii() or not text.isdecimal() or not 0 < int(text[:20]) < 1_000_000_000:
        raise ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def seconds(text: str) -> float:
    return _time(text, "seconds")


def minutes(text: str) -> float:
    return _time(text, "minutes")


def _time(text: str, unit: str) -> float:
    try:
        given = float(text)
    except ValueError:
        given = -1.0
    if not 0 < given < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number of {unit}")
    return given


def readable(text: str) -> str:
    """What is typed may hold any bytes; a database and a model take text alone."""
    return os.fsencode(text).decode("utf-8", "replace")


def default_project(environ: Mapping[str, str]) -> str:
    """The git checkout around the current folder, else the current folder.

    Found by looking, not by asking git: that would run what the project's configuration names.
    """
    try:
        current = os.getcwd()
    except FileNotFoundError as error:
        raise SandboxError(
            "The current folder does not exist any more.", "Go to another one."
        ) from error
    home = os.path.realpath(environ.get("HOME") or "/")
    folder = current
    while folder not in ("/", home):
        if os.path.lexists(f"{folder}/.git"):
            return folder
        folder = os.path.dirname(folder)
    return current


FAILED = 125
