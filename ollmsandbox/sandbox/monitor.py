# SPDX-License-Identifier: GPL-3.0-or-later
"""Count what a command has changed so far, for the live view.

A few times a second, a thread looks at the overlay's upper folders. Nothing is decided by it: the
scan after the command is exact.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ..files.trees import is_whiteout, walk

# Seconds between two looks; longer where a look takes long.
_PAUSE = 0.15
_MOST = 5000


class EventKind(Enum):
    ADDED = "added"
    UPDATED = "updated"
    REMOVED = "removed"


@dataclass(frozen=True)
class FileEvent:
    """A change of a path, and the number of changed paths now."""

    kind: EventKind
    path: str
    count: int


class _Seen(NamedTuple):
    kind: EventKind
    changed: int


class Monitor:
    """Watches the upper folders of an overlay, in a thread that also calls the listeners."""

    def __init__(self, overlay_map: Mapping[str, str], base_path: str) -> None:
        """`overlay_map` gives the project folder of each folder in `base_path`."""
        self._roots = {f"{base_path}/{name}": real for name, real in overlay_map.items()}
        self._listeners: list[Callable[[FileEvent], None]] = []
        self._seen: dict[str, _Seen] = {}
        self._stopped = threading.Event()
        self._watching: threading.Thread | None = None

    @property
    def added(self) -> list[str]:
        return self._paths(EventKind.ADDED)

    @property
    def updated(self) -> list[str]:
        return self._paths(EventKind.UPDATED)

    @property
    def removed(self) -> list[str]:
        return self._paths(EventKind.REMOVED)

    @property
    def count(self) -> int:
        return len(self._seen)

    def _paths(self, kind: EventKind) -> list[str]:
        return [path for path, seen in self._seen.items() if seen.kind is kind]

    def listen(self, callback: Callable[[FileEvent], None]) -> None:
        self._listeners.append(callback)

    def start(self) -> None:
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self._watching.start()

    def stop(self) -> None:
        """Stop after a last look."""
        if self._watching is not None:
            self._stopped.set()
            self._watching.join()
            self._watching = None
            self._note(self._look())

    def _watch(self) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            began = time.monotonic()
            self._note(self._look())
            pause = max(_PAUSE, 20 * (time.monotonic() - began))

    def _look(self) -> dict[str, _Seen]:
        """Return what is in the upper folders, by its path in the project."""
        found: dict[str, _Seen] = {}
        for upper, real in self._roots.items():
            for folder in walk(upper, skip_errors=True):
                around = f"{real}/{folder.path}" if folder.path else real
                with suppress(OSError), os.scandir(folder.descriptor) as entries:
                    for entry in entries:
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISDIR(status.st_mode):
                            folder.folders.append(entry.name)
                        kind = _kind(status, f"{around}/{entry.name}")
                        if kind is not None:
                            found[f"{around}/{entry.name}"] = _Seen(kind, status.st_ctime_ns)
                        if len(found) >= _MOST:
                            return found
        return found

    def _note(self, found: dict[str, _Seen]) -> None:
        for path in [*(self._seen.keys() - found.keys()), *found]:
            known, seen = self._seen.get(path), found.get(path)
            if known == seen:
                continue
            if seen is None:
                del self._seen[path]
                kind = EventKind.REMOVED
            else:
                self._seen[path] = seen
                is_known = known is not None and seen.kind is not EventKind.REMOVED
                kind = EventKind.UPDATED if is_known else seen.kind
            for listener in self._listeners:
                listener(FileEvent(kind, path, self.count))


def _kind(status: os.stat_result, path: str) -> EventKind | None:
    """Return what happened to `path`; None if it is a folder around changes."""
    if is_whiteout(status):
        return EventKind.REMOVED
    try:
        before = os.lstat(path)
    except OSError:
        return EventKind.ADDED
    is_around = stat.S_ISDIR(status.st_mode) and stat.S_ISDIR(before.st_mode)
    return None if is_around else EventKind.UPDATED
