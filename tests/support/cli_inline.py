# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the command line inside the test's process, for tests that do not depend on a process of its
own."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from dataclasses import dataclass
from unittest.mock import patch

from support.person import Person

from ollmsandbox.cli import main


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def cli_here(person: Person, *arguments: str, input: str = "") -> Done:
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, person.environ, clear=True),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(input.encode()))),
        contextlib.chdir(person.project),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            code = main.main(arguments)
        except SystemExit as error:  # of who reads the arguments
            code = int(error.code or 0)
    return Done(code, out.getvalue(), err.getvalue())
