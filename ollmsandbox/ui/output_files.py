# SPDX-License-Identifier: GPL-3.0-or-later
"""All that commands printed, in files that last as long as the session is open."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import TextIO

from ..paths import Paths, make_folder
from .terminal_store import TerminalStore

# What a program that was killed left behind.
_OLD = 24 * 3600
_LOCK = ".in-use"


class OutputFiles:
    """Of one session. Nothing is made before a command prints much."""

    def __init__(self, paths: Paths) -> None:
        self._base = paths.cache / "output"
        self._folder: Path | None = None
        self._lock: TextIO | None = None
        self._count = 0

    def new(self) -> TerminalStore:
        """Raises OSError."""
        if self._folder is None or not self._folder.is_dir():
            make_folder(self._base)
            # The window does not wait for it, nor does the program's end: there is a next time.
            threading.Thread(target=remove_old, args=(self._base,), daemon=True).start()
            self._folder = Path(tempfile.mkdtemp(prefix="session-", dir=self._base))
            self._release()
            self._lock = (self._folder / _LOCK).open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._count += 1
        return TerminalStore(self._folder / f"output-{self._count}.txt")

    def remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)  # then it is removed as an old one
            self._folder = None
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def remove_old(base: Path, seconds: float = _OLD) -> None:
    """Folders in which nothing was written for so long, and that are of no session."""
    before = time.time() - seconds
    for folder in base.glob("session-*"):
        try:
            newest = max(file.lstat().st_mtime for file in (folder, *folder.iterdir()))
        except OSError:
            continue  # somebody else removes it just now
        if newest < before and not _is_used(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_used(folder: Path) -> bool:
    try:
        with (folder / _LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # who made it came no further
    return False
