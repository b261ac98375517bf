# SPDX-License-Identifier: GPL-3.0-or-later
"""Show what a command changes while it runs: for the live view and the disk watch only.

A `Gio.FileMonitor` watches each folder of the overlay's upper folders. Events come late, merged, or
not at all, so they only say where to look, and nothing is decided by them: the scan after the
command is exact. Everything is bounded, whatever a command does.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING

from ..files.dirfd import FOLDER
from ..files.whiteouts import is_whiteout

if TYPE_CHECKING:
    from gi.repository import Gio

_RATE = 150  # milliseconds between two events for one file that is being written
_TICK = 20  # milliseconds
_SLICE = 0.004  # seconds of work in a tick, so that a window stays responsive
# Gio delivers all events without a pause. With more than this in a tick, the folder is not watched
# for a while, and then listed.
_MOST_EVENTS = 100
_PAUSE = 200  # milliseconds
_LAST_LOOK = 0.02  # seconds of work for what is still queued at the end
_MOST_QUEUED = 20_000
_MOST_KEPT = 10_000
_MOST_ERRORS = 10


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


@dataclass
class _Folder:
    monitor: Gio.FileMonitor
    identity: tuple[int, int]


class Monitor:
    """Watches the upper folders of an overlay; needs GLib's main loop."""

    def __init__(self, overlay_map: Mapping[str, str], base_path: str, ceiling: int = 2000) -> None:
        """`overlay_map` gives the project folder of each folder in `base_path`. No more than
        `ceiling` folders are watched."""
        # Whether something was left out because there is too much of it, or cannot be read.
        self.is_partial = False
        # What listeners raised.
        self.errors: list[Exception] = []
        self._base = os.path.realpath(base_path)
        self._roots = dict(overlay_map)
        self._ceiling = ceiling
        self._listeners: list[Callable[[FileEvent], None]] = []
        self._is_started = self._is_stopped = False
        self._changes: dict[str, EventKind] = {}
        self._folders: dict[str, _Folder] = {}
        # Folders with too many events, not watched for a while.
        self._paused: set[str] = set()
        # Paths to look at, and whether there was nothing in the meantime.
        self._queued: dict[str, bool] = {}
        self._events = 0
        self._tick_source = self._pause_source = 0

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
        return len(self._changes)

    def _paths(self, kind: EventKind) -> list[str]:
        return [path for path, found in self._changes.items() if found is kind]

    def listen(self, callback: Callable[[FileEvent], None]) -> None:
        self._listeners.append(callback)

    def start(self) -> None:
        if self._is_started or self._is_stopped:
            return
        self._is_started = True
        for name in self._roots:
            self.is_partial |= not self._watch(f"{self._base}/{name}")

    def stop(self) -> None:
        """Stop for good, after a last short look at what is queued."""
        if self._is_stopped:
            return
        self._is_stopped = True
        # CPU time, so that a busy machine does not shorten it.
        end = time.thread_time() + _LAST_LOOK
        for path in self._paused & self._folders.keys():
            self._list(path)
        while self._queued and time.thread_time() < end:
            self._look_at_next()
        self.is_partial |= bool(self._queued)
        for source in filter(None, (self._tick_source, self._pause_source)):
            from gi.repository import GLib

            GLib.source_remove(source)
        self._tick_source = self._pause_source = 0
        for folder in self._folders.values():
            folder.monitor.cancel()
        self._folders.clear()
        self._paused.clear()
        self._queued.clear()

    # --- events --------------------------------------------------------------------------------

    def _on_changed(
        self,
        _monitor: Gio.FileMonitor,
        file: Gio.File,
        _other: Gio.File | None,
        event: Gio.FileMonitorEvent,
        folder: str,
    ) -> None:
        path = file.get_path()
        if self._is_stopped or path is None or path == folder:
            return
        self._events += 1
        if self._events > _MOST_EVENTS:
            self._pause(folder)
            return
        is_gone = event.value_nick == "deleted"
        if is_gone and path in self._folders:
            # Now: if it was renamed, Gio has one watch for both names, and to cancel the old one
            # later would end the new one.
            self._look(path, was_gone=True)
        elif is_gone or event.value_nick in ("created", "changed", "attribute-changed"):
            self._queue(path, was_gone=is_gone)

    def _queue(self, path: str, *, was_gone: bool = False) -> None:
        if path not in self._queued and len(self._queued) >= _MOST_QUEUED:
            self.is_partial = True
            return
        self._queued[path] = self._queued.get(path, False) or was_gone
        if not self._tick_source and not self._is_stopped:
            from gi.repository import GLib

            self._tick_source = GLib.timeout_add(_TICK, self._tick)

    def _tick(self) -> bool:
        self._events = 0
        end = time.monotonic() + _SLICE
        while self._queued and not self._is_stopped and time.monotonic() < end:
            self._look_at_next()
        if self._queued:
            return True
        self._tick_source = 0
        return False

    def _look_at_next(self) -> None:
        path = next(iter(self._queued))
        self._look(path, was_gone=self._queued.pop(path))

    def _tell(self, kind: EventKind, path: str) -> None:
        event = FileEvent(kind, path, self.count)
        for listener in self._listeners:
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - the other listeners are still called
                if len(self.errors) < _MOST_ERRORS:
                    self.errors.append(error)

    # --- what is there now ---------------------------------------------------------------------

    def _look(self, path: str, *, was_gone: bool) -> None:
        if os.path.dirname(path) not in self._folders:
            return
        real = self._real(path)
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            self._leave(path)
            self._note_removed(real)
            return
        except OSError:
            self.is_partial = True
            return
        if stat.S_ISDIR(found.st_mode):
            self._enter(path, (found.st_dev, found.st_ino), was_gone=was_gone)
            # The folder around a change is no change itself.
            if real not in self._changes and _is_folder(real):
                return
        else:
            self._leave(path)
        if is_whiteout(found):
            self._note_removed(real, is_whiteout=True)
        else:
            self._note_written(real)

    def _note_written(self, real: str) -> None:
        before = self._changes.get(real)
        kind = EventKind.UPDATED
        if before is None and not os.path.lexists(real):
            kind = EventKind.ADDED
        if before is None or before is EventKind.REMOVED:
            self._keep(real, kind)
        self._tell(kind, real)

    def _note_removed(self, real: str, *, is_whiteout: bool = False) -> None:
        before = self._changes.get(real)
        if before is EventKind.REMOVED or (before is None and not is_whiteout):
            return
        self._changes.pop(real, None)
        if before is not EventKind.ADDED:
            self._keep(real, EventKind.REMOVED)
        self._tell(EventKind.REMOVED, real)

    def _keep(self, real: str, kind: EventKind) -> None:
        self._changes.pop(real, None)
        if self._is_full:
            self.is_partial = True
        else:
            self._changes[real] = kind

    @property
    def _is_full(self) -> bool:
        return len(self._changes) >= _MOST_KEPT

    def _real(self, path: str) -> str:
        """Return the path in the project of a path in an upper folder."""
        name, _, rest = path.removeprefix(f"{self._base}/").partition("/")
        return os.path.join(self._roots[name], rest) if rest else self._roots[name]

    # --- folders -------------------------------------------------------------------------------

    def _enter(self, path: str, identity: tuple[int, int], *, was_gone: bool) -> None:
        folder = self._folders.get(path)
        # An inode number is soon used again, so equal ones do not suffice.
        if folder is not None and folder.identity == identity and not was_gone:
            return
        self._leave(path)
        if self._watch(path):
            self._list(path)

    def _watch(self, path: str) -> bool:
        from gi.repository import Gio, GLib

        if len(self._folders) >= self._ceiling and path not in self._folders:
            self.is_partial = True
            return False
        try:
            with _open_folder(path) as descriptor:
                found = os.fstat(descriptor)
            file = Gio.File.new_for_path(path)
            monitor = file.monitor_directory(Gio.FileMonitorFlags.NONE, None)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, GLib.Error):
            self.is_partial = True
            return False
        monitor.set_rate_limit(_RATE)
        monitor.connect("changed", self._on_changed, path)
        self._folders[path] = _Folder(monitor, (found.st_dev, found.st_ino))
        return True

    def _leave(self, path: str) -> None:
        """Forget a folder that is gone or replaced, with all that was in it."""
        if path not in self._folders:
            return
        inside = [name for name in self._folders if name.startswith(f"{path}/")]
        for name in (path, *inside):
            # Else Gio would look every few seconds whether it is back.
            self._folders.pop(name).monitor.cancel()
            self._paused.discard(name)
        prefix = f"{self._real(path)}/"
        for real in [real for real in self._changes if real.startswith(prefix)]:
            self._note_removed(real)

    def _list(self, path: str) -> None:
        """Queue what is new in a folder, and what is gone from it. A step of the main loop has no
        time for all of very many names."""
        real = self._real(path)
        try:
            with _open_folder(path) as descriptor, os.scandir(descriptor) as entries:
                names = {entry.name for entry in islice(entries, _MOST_KEPT)}
                is_whole = next(entries, None) is None
        except OSError:
            self.is_partial = True
            return
        if self._is_full:
            self.is_partial = True
            self._tell(EventKind.UPDATED, real)
            if not is_whole:
                return
        known = _children(self._changes, real)
        removed = {name for name in known if self._changes[f"{real}/{name}"] is EventKind.REMOVED}
        folders = _children(self._folders, path)
        if is_whole:
            for name in folders - names:
                # Before new names, see `_on_changed`.
                self._look(f"{path}/{name}", was_gone=True)
            for name in known - names - removed:
                self._queue(f"{path}/{name}", was_gone=True)
        for name in names & (removed | folders):
            self._queue(f"{path}/{name}")
        new, room = names - known - folders, max(0, _MOST_KEPT - len(self._changes))
        self.is_partial |= len(new) > room or not is_whole
        for name in islice(new, room):
            self._queue(f"{path}/{name}")

    def _pause(self, path: str) -> None:
        if path not in self._folders or path in self._paused:
            return
        self._folders[path].monitor.cancel()
        self._paused.add(path)
        if not self._pause_source:
            from gi.repository import GLib

            self._pause_source = GLib.timeout_add(_PAUSE, self._resume)

    def _resume(self) -> bool:
        self._events = self._pause_source = 0
        paused, self._paused = self._paused, set()
        for path in paused & self._folders.keys():
            if self._watch(path):
                self._list(path)
            else:
                self._leave(path)
        return False


@contextmanager
def _open_folder(path: str) -> Iterator[int]:
    """Open a folder unless a link leads there: a command may put one anywhere, at any time."""
    descriptor = os.open(path, FOLDER)
    try:
        if os.readlink(f"/proc/self/fd/{descriptor}") != path:
            raise FileNotFoundError(path)
        yield descriptor
    finally:
        os.close(descriptor)


def _children(paths: Iterable[str], folder: str) -> set[str]:
    """Return the names of those paths that are directly in the folder."""
    prefix = f"{folder}/"
    start = len(prefix)
    return {p[start:] for p in paths if p.startswith(prefix) and p.find("/", start) < 0}


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
