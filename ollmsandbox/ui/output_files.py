# SPDX-License-Identifier: GPL-3.0-or-later
"""All that commands printed, in files that last as long as the session is open."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from ..paths import Paths, make_folder
from .terminal_store import TerminalStore

# What a program that was killed left behind.
_OLD = 24 * 3600


class OutputFiles:
    """Of one session. Nothing is made before a command prints much."""

    def __init__(self, paths: Paths) -> None:
        self._base = paths.cache / "output"
        self._folder: Path | None = None
        self._count = 0

    def new(self) -> TerminalStore:
        """Raises OSError."""
        if self._folder is None:
            make_folder(self._base)
            remove_old(self._base)
            self._folder = Path(tempfile.mkdtemp(prefix="session-", dir=self._base))
        self._count += 1
        return TerminalStore(self._folder / f"output-{self._count}.txt")

    def remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)  # then it is removed as an old one
            self._folder = None


def remove_old(base: Path, seconds: float = _OLD) -> None:
    """Folders in which nothing was written for so long."""
    before = time.time() - seconds
    for folder in base.glob("session-*"):
        try:
            newest = max(file.lstat().st_mtime for file in (folder, *folder.iterdir()))
        except OSError:
            continue  # somebody else removes it just now
        if newest < before:
            shutil.rmtree(folder, ignore_errors=True)
