# SPDX-License-Identifier: GPL-3.0-or-later
"""Check whether project folders exist. A mount that does not answer blocks only the thread that
checks it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from ...loop import start_daemon
from ...paths import is_missing

# Seconds.
PATIENCE = 5.0


@dataclass
class _Look:
    until: float
    # Until the check is over, the folder counts as missing.
    is_missing: bool = True
    is_over: threading.Event = field(default_factory=threading.Event)


class FolderChecker:
    """Check folders from any thread, each by one thread at a time."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        self._under_way: dict[str, _Look] = {}

    def is_missing(self, folder: str) -> bool:
        """Return whether a folder is missing, or does not answer in time."""
        with self._lock:
            look = self._under_way.get(folder)
            if look is None:
                look = self._under_way[folder] = _Look(time.monotonic() + self._patience)
                start_daemon("folder", self._look, folder, look)
        look.is_over.wait(max(0.0, look.until - time.monotonic()))
        return look.is_missing

    def _look(self, folder: str, look: _Look) -> None:
        try:
            look.is_missing = is_missing(folder)
        finally:
            with self._lock:
                del self._under_way[folder]
            look.is_over.set()
