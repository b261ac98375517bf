# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox playground`"""

from __future__ import annotations

import argparse
import os
import sys
import termios
from pathlib import Path

from ...errors import OllmSandboxError
from ...files.trees import empty, measure
from ...paths import Paths


def playground(given: argparse.Namespace) -> int:
    # It may be a link to a larger disk.
    folder = Path(os.path.realpath(Paths.from_environ(os.environ).playground))
    if given.action == "path":
        print(folder)
    elif given.action == "size":
        files, size = measure(folder, unlock=True)
        print(amount_text(files, size))
    else:
        files, size = measure(folder, unlock=True)
        if not confirmed(f"Delete everything in {folder} ({amount_text(files, size)})?"):
            return 1
        try:
            if folder.exists():
                empty(folder)
        except OSError as error:
            raise OllmSandboxError(f"Cannot empty {folder}: {error.strerror}.") from error
    return 0


def confirmed(question: str) -> bool:
    """Ask at a terminal; elsewhere the command itself is the answer."""
    if not sys.stdin.isatty():
        return True
    # Nothing that came before the question answers it.
    termios.tcflush(0, termios.TCIFLUSH)
    # Not to standard output, which may go elsewhere.
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def amount_text(files: int, size: int) -> str:
    """Return a size in words, such as "1.5 MiB in 3 files"."""
    return f"{_readable(size)} in {files:,} {'file' if files == 1 else 'files'}"


def _readable(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
