# SPDX-License-Identifier: GPL-3.0-or-later
"""What the sub-commands share: types of arguments, help formatters, the default project."""

from __future__ import annotations

import argparse
import os
from argparse import ArgumentTypeError
from collections.abc import Mapping

from ..errors import SandboxError

# The exit status if we failed, and not the command.
FAILED = 125
THIS_PROJECT = "the project's folder (default: the current one)"


class HelpFormatter(argparse.HelpFormatter):
    """Finds the terminal's width without importing shutil, which argparse would do each time."""

    def __init__(self, prog: str) -> None:
        try:
            width = os.get_terminal_size(1).columns
        except OSError:
            width = 80
        columns = os.environ.get("COLUMNS", "")
        if columns.isdecimal() and 0 < int(columns[:5]) < 10000:
            width = int(columns)
        super().__init__(prog, width=width - 2)


class RawHelpFormatter(HelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of the description and the epilog."""


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
    """Return valid Unicode: an argument may hold any bytes, a database and a model take text."""
    return os.fsencode(text).decode("utf-8", "replace")


def default_project(environ: Mapping[str, str]) -> str:
    """Return the git checkout around the current folder, else the current folder.

    Found by looking, not by asking git: git would run programs named in the project's config.
    """
    try:
        current = os.getcwd()
    except FileNotFoundError as error:
        raise SandboxError(
            "The current folder no longer exists.", "Change to another folder."
        ) from error
    home = os.path.realpath(environ.get("HOME") or "/")
    folder = current
    while folder not in ("/", home):
        if os.path.lexists(f"{folder}/.git"):
            return folder
        folder = os.path.dirname(folder)
    return current
