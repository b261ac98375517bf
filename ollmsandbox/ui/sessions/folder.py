# SPDX-License-Identifier: GPL-3.0-or-later
"""Check whether project folders exist. A mount that does not answer blocks only the thread that
checks it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

from ...loop import start_daemon
from ...paths import is_missing

# Seconds.
PATIENCE = 5.0


class FolderChecker:
    """Check folders from any thread, each by one thread at a time."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        # When each one is given up, and what it finds.
        self._under_way: dict[str, tuple[float, Future[bool]]] = {}

    def is_missing(self, folder: str) -> bool:
        """Return whether a folder is missing, or does not answer in time."""
        with self._lock:
            if folder not in self._under_way:
                self._under_way[folder] = (time.monotonic() + self._patience, Future())
                start_daemon("folder", self._look, folder)
            until, found = self._under_way[folder]
        try:
            return found.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            return True

    def _look(self, folder: str) -> None:
        is_gone = True
        try:
            is_gone = is_missing(folder)
        finally:
            with self._lock:
                _until, found = self._under_way.pop(folder)
            found.set_result(is_gone)
