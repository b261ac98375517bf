# SPDX-License-Identifier: GPL-3.0-or-later
"""What a command changes, while it runs: for people to see. Events are missed; decide nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, Flag, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gi.repository import Gio

_RATE = 150  # milliseconds between two reports of one file that is being written
_TICK = 20  # milliseconds
_SLICE = 0.004  # seconds of a tick, so that a window stays alive in a flood
_LAST_LOOK = 0.05  # seconds for what still waits at the end
_MOST_KEPT = 10_000
_MOST_WAITING = 20_000
_MOST_ERRORS = 10
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class Kind(Enum):
    ADDED = "added"
    UPDATED = "updated"
    REMOVED = "removed"


@dataclass(frozen=True)
class Event:
    """What just happened to a path, and how many paths are changed now."""

    kind: Kind
    path: str
    count: int


class _Seen(Flag):
    CREATED = auto()
    CHANGED = auto()
    GONE = auto()


_SEEN = {
    "created": _Seen.CREATED,
    "changed": _Seen.CHANGED,
    "attribute-changed": _Seen.CHANGED,
    "deleted": _Seen.GONE,
}


@dataclass
class _Folder:
    monitor: Gio.FileMonitor
    identity: tuple[int, int]
    # There before the command, which therefore did not make it.
    old: set[str] = field(default_factory=set)
    # The watched folders and the changed paths directly in it.
    names: set[str] = field(default_factory=set)


class Monitor:
    """Watches the upper folders of overlays; needs GLib's main loop."""

    def __init__(self, overlay_map: Mapping[str, str], base_path: str, ceiling: int = 2000) -> None:
        self.is_partial = False
        self.errors: list[Exception] = []
        self._roots = dict(overlay_map)
        self._base = os.path.realpath(base_path)
        self._ceiling = ceiling
        self._is_started = self._is_stopped = False
        self._paths: dict[Kind, dict[str, None]] = {kind: {} for kind in Kind}
        self._not_kept = 0
        self._listeners: list[Callable[[Event], None]] = []
        self._folders: dict[str, _Folder] = {}
        self._waiting: OrderedDict[str, _Seen] = OrderedDict()
        self._unlisted: deque[str] = deque()
        self._listing: Iterator[str] = iter(())
        self._source = 0
        self._is_unchecked = False

    @property
    def added(self) -> list[str]:
        return list(self._paths[Kind.ADDED])

    @property
    def updated(self) -> list[str]:
        return list(self._paths[Kind.UPDATED])

    @property
    def removed(self) -> list[str]:
        return list(self._paths[Kind.REMOVED])

    @property
    def count(self) -> int:
        return sum(map(len, self._paths.values())) + self._not_kept

    def listen(self, callback: Callable[[Event], None]) -> None:
        self._listeners.append(callback)

    def start(self) -> None:
        if self._is_started or self._is_stopped:
            return
        self._is_started = True
        waiting = [self._base]
        while waiting:
            path = waiting.pop()
            if self._watch(path):
                entries = list(self._entries(path))
                self._folders[path].old.update(map(os.path.basename, entries))
                waiting += filter(_is_folder, entries)
        self.is_partial |= self._base not in self._folders
        self._check_watches()

    def stop(self) -> None:
        """For good. What was noticed is still looked at, if that takes no time."""
        if self._is_stopped:
            return
        self._is_stopped = True
        end = time.monotonic() + _LAST_LOOK
        while self._step():
            if time.monotonic() > end:
                self.is_partial = True
                break
        if self._source:
            from gi.repository import GLib

            GLib.source_remove(self._source)
            self._source = 0
        for folder in self._folders.values():
            folder.monitor.cancel()
        self._folders.clear()
        self._waiting.clear()
        self._unlisted.clear()
        self._listing = iter(())

    # --- what Gio reports ----------------------------------------------------------------------

    def _on_changed(
        self,
        _monitor: Gio.FileMonitor,
        file: Gio.File,
        other: Gio.File | None,
        event: Gio.FileMonitorEvent,
    ) -> None:
        if self._is_stopped:
            return
        # Short, as there may be several for each of thousands of files.
        what = event.value_nick
        seen = _SEEN.get(what)
        if seen is not None:
            self._queue(file.get_path(), seen)
        elif what in ("moved-out", "renamed"):
            self._moved(file.get_path(), other.get_path() if other else None)
        elif what == "moved-in":
            self._moved(other.get_path() if other else None, file.get_path())

    def _moved(self, source: str | None, target: str | None) -> None:
        self._queue(source, _Seen.GONE)
        if source in self._folders:
            # At once: Gio has one watch for a folder under both names, and the end of the old
            # name's would end the new one's.
            self._look(source, self._waiting.pop(source, _Seen.GONE))
        self._queue(target, _Seen.CREATED | _Seen.CHANGED)

    def _queue(self, path: str | None, seen: _Seen) -> None:
        if path is None or path == self._base or not self._is_wanted(path):
            return
        before = self._waiting.get(path)
        if before is None and len(self._waiting) >= _MOST_WAITING:
            self.is_partial = True
            return
        if before is not seen:
            self._waiting[path] = seen if before is None else before | seen
        self._wake()

    def _wake(self) -> None:
        if not self._source and not self._is_stopped:
            from gi.repository import GLib

            self._source = GLib.timeout_add(_TICK, self._tick)

    def _tick(self) -> bool:
        end = time.monotonic() + _SLICE
        while not self._is_stopped and time.monotonic() < end:
            if not self._step():
                self._check_watches()
                self._source = 0
                return False
        return not self._is_stopped

    def _step(self) -> bool:
        """Look at one thing; False when there is none."""
        if self._waiting:
            self._look(*self._waiting.popitem(last=False))
        elif (path := next(self._listing, None)) is not None:
            self._look(path, _Seen.CREATED)
        elif self._unlisted:
            self._listing = self._entries(self._unlisted.popleft())
        else:
            return False
        return True

    # --- what is there now ---------------------------------------------------------------------

    def _look(self, path: str, seen: _Seen) -> None:
        """Events come late and merged, so they only say where to look."""
        around = self._folders.get(os.path.dirname(path))
        if around is None:
            return
        real = self._real(path)
        is_old = os.path.basename(path) in around.old
        try:
            found = os.lstat(path)
        except OSError as error:
            if error.errno not in _GONE:
                self.is_partial = True
                return
            was_folder = path in self._folders
            self._leave(path)
            around.old.discard(os.path.basename(path))
            if real is not None:
                is_known = is_old or (was_folder and os.path.lexists(real))
                self._note_removed(path, real, seen, is_known=is_known)
            return
        if stat.S_ISDIR(found.st_mode):
            self._look_at_folder(path, found, seen)
            # A folder that only holds something changed is no change.
            if real is None or (self._kind(real) is None and _is_folder(real)):
                return
        else:
            self._leave(path)
        if real is None:
            return
        if stat.S_ISCHR(found.st_mode) and found.st_rdev == 0:
            self._note_removed(path, real, seen, is_known=True)
        else:
            self._note_changed(path, real, seen, is_old=is_old)

    def _look_at_folder(self, path: str, found: os.stat_result, seen: _Seen) -> None:
        folder = self._folders.get(path)
        # An inode's number is soon used again, so it alone does not tell.
        is_same = folder is not None and folder.identity == (found.st_dev, found.st_ino)
        if is_same and _Seen.GONE not in seen:
            return
        self._leave(path)
        if self._watch(path):
            self._unlisted.append(path)
            self._wake()

    def _note_changed(self, path: str, real: str, seen: _Seen, *, is_old: bool) -> None:
        before = self._kind(real)
        if before is None:
            now = Kind.UPDATED if is_old or os.path.lexists(real) else Kind.ADDED
            self._keep(path, real, now, seen)
            self._tell(now, real)
        elif before is Kind.REMOVED:
            del self._paths[before][real]
            self._keep(path, real, Kind.UPDATED, seen)
            self._tell(Kind.UPDATED, real)
        elif seen & (_Seen.CHANGED | _Seen.GONE):
            self._tell(Kind.UPDATED, real)

    def _note_removed(self, path: str, real: str, seen: _Seen, *, is_known: bool) -> None:
        before = self._kind(real)
        if before is Kind.REMOVED:
            return
        if before is not None:
            del self._paths[before][real]
            self._names_around(path).discard(os.path.basename(path))
        elif not is_known:
            if self._not_kept and _Seen.CREATED not in seen:
                self._not_kept -= 1
            return
        if before is not Kind.ADDED:
            self._keep(path, real, Kind.REMOVED, seen)
        self._tell(Kind.REMOVED, real)

    def _kind(self, real: str) -> Kind | None:
        return next((kind for kind, paths in self._paths.items() if real in paths), None)

    def _keep(self, path: str, real: str, kind: Kind, seen: _Seen) -> None:
        if len(self._paths[kind]) < _MOST_KEPT:
            self._paths[kind][real] = None
            self._names_around(path).add(os.path.basename(path))
        elif seen & (_Seen.CREATED | _Seen.GONE):
            # Not known by name, so what is written again and again would count each time.
            self._not_kept += 1

    def _tell(self, kind: Kind, real: str) -> None:
        event = Event(kind, real, self.count)
        for listener in self._listeners:
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - a view that fails must not blind the others
                if len(self.errors) < _MOST_ERRORS:
                    self.errors.append(error)

    # --- folders -------------------------------------------------------------------------------

    def _watch(self, path: str) -> bool:
        from gi.repository import Gio, GLib

        # The folder around all roots is watched too, and not counted.
        if len(self._folders) > self._ceiling:
            self.is_partial = True
            return False
        with self._opened(path) as descriptor:
            if descriptor is None:
                return False
            found = os.fstat(descriptor)
            try:
                monitor = Gio.File.new_for_path(path).monitor_directory(
                    Gio.FileMonitorFlags.WATCH_MOVES, None
                )
            except GLib.Error:
                self.is_partial = True
                return False
        monitor.set_rate_limit(_RATE)
        monitor.connect("changed", self._on_changed)
        self._folders[path] = _Folder(monitor, (found.st_dev, found.st_ino))
        self._names_around(path).add(os.path.basename(path))
        self._is_unchecked = True
        return True

    def _leave(self, path: str) -> None:
        """It is no folder any more, or another one: nothing below it is there either."""
        if path not in self._folders:
            return
        left = [path]
        while left:
            folder_path = left.pop()
            folder = self._folders.get(folder_path)
            if folder is None:
                continue
            # Gio would look for its return every few seconds.
            folder.monitor.cancel()
            for name in list(folder.names):
                inner = f"{folder_path}/{name}"
                real = self._real(inner)
                if real is not None:
                    self._note_removed(inner, real, _Seen.CREATED, is_known=False)
                if inner in self._folders:
                    left.append(inner)
            self._folders.pop(folder_path, None)
        real = self._real(path)
        if real is None or self._kind(real) is None:
            self._names_around(path).discard(os.path.basename(path))

    def _names_around(self, path: str) -> set[str]:
        # A listener may have stopped everything in the midst of this.
        around = self._folders.get(os.path.dirname(path))
        return around.names if around is not None else set()

    def _entries(self, path: str) -> Iterator[str]:
        with self._opened(path) as descriptor:
            if descriptor is None:
                return
            with contextlib.suppress(OSError), os.scandir(descriptor) as entries:
                for entry in entries:
                    inner = f"{path}/{entry.name}"
                    if self._is_wanted(inner):
                        yield inner

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[int | None]:
        """The folder, if no link leads there: the command may put one anywhere, at any time."""
        try:
            descriptor = os.open(path, _FOLDER)
        except OSError as error:
            self.is_partial |= error.errno not in _GONE
            yield None
            return
        try:
            yield descriptor if _place(descriptor) == path else None
        finally:
            os.close(descriptor)

    def _is_wanted(self, path: str) -> bool:
        around, _, name = path.rpartition("/")
        return around != self._base or name in self._roots

    def _real(self, path: str) -> str | None:
        """Where it is in the project; nothing for a root itself, which does not change."""
        name, _, rest = path.removeprefix(f"{self._base}/").partition("/")
        return os.path.join(self._roots[name], rest) if rest and name in self._roots else None

    def _check_watches(self) -> None:
        """Gio says nothing when the kernel refuses a watch because there are too many."""
        if not self._is_unchecked or self.is_partial:
            return
        self._is_unchecked = False
        held = _watches_held()
        if held < len(self._folders):
            self.is_partial = held < sum(map(os.path.lexists, self._folders))


def _place(descriptor: int) -> str | None:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return None


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _watches_held() -> int:
    """By this process, for whatever."""
    held = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:inotify":
                with open(f"/proc/self/fdinfo/{name}", "rb") as lines:
                    held += sum(line.startswith(b"inotify ") for line in lines)
    return held
