# SPDX-License-Identifier: GPL-3.0-or-later
"""Notice what other programs change: sessions and connections made in a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from gi.repository import Gio

from ..widgets.scheduling import Timer
from ..widgets.weak import weakly


class FileWatch:
    """Call a method soon after a file, or one beside it whose name begins the same, has changed.

    SQLite writes to such a file first.
    """

    def __init__(self, file: Path, changed: Callable[[], object]) -> None:
        self._name = file.name
        self._timer = Timer(changed)
        # The folder: the file may not exist yet, or be replaced.
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
        folder = Gio.File.new_for_path(str(file.parent))
        self._monitor = folder.monitor_directory(Gio.FileMonitorFlags.NONE, None)
        self._monitor.connect("changed", weakly(self._on_changed))

    def end(self) -> None:
        self._monitor.cancel()
        self._timer.stop()

    def _on_changed(
        self, _monitor: Gio.FileMonitor, file: Gio.File, _other: object, _event: object
    ) -> None:
        if (file.get_basename() or "").startswith(self._name):
            # Soon: a session that is written changes it often.
            self._timer.start(1000)
