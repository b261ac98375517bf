# SPDX-License-Identifier: GPL-3.0-or-later
"""What a command changes, while it runs: for people to see. Events are missed; decide nothing.

A folder that too much happens in to be told of each thing: it is looked at from time to time.

Which paths are changed, as far as that was noticed, and how many: bounded, whatever happens.

A folder that is watched for changes, and how one is opened that a hostile command makes.

What became of a path that was looked at: noted with the folder around it, and told.

What a command changes, while it runs: for people to see. Events are missed; decide nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gi.repository import Gio
import time
from collections import OrderedDict, deque
from enum import Flag

# Looks in a row at which it was the same.
_QUIET = 3


class Flow(Enum):
    GONE = auto()
    CHANGED = auto()
    UNCHANGED = auto()
    # For so long that it can be watched again.
    QUIET = auto()


class Flood:
    def __init__(self) -> None:
        self._changed = -1
        self._quiet = 0

    def look(self, path: str, *, is_exact: bool) -> Flow:
        """If what is in it is not known by name, only to list it again is exact: then it is never
        watched again."""
        try:
            changed = os.lstat(path).st_mtime_ns
        except OSError:
            return Flow.GONE
        if changed != self._changed:
            self._changed, self._quiet = changed, 0
            return Flow.CHANGED
        self._quiet += is_exact
        return Flow.QUIET if self._quiet >= _QUIET else Flow.UNCHANGED


_MOST_KEPT = 10_000
_MOST_ERRORS = 10


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


class Tally:
    """And who wants to hear of it."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[Event], None]] = []
        self.errors: list[Exception] = []
        self._paths: dict[Kind, dict[str, None]] = {kind: {} for kind in Kind}
        # Those that are too many to be known by name.
        self.not_kept = 0

    def __len__(self) -> int:
        return sum(map(len, self._paths.values())) + self.not_kept

    def paths(self, kind: Kind) -> list[str]:
        return list(self._paths[kind])

    def kind(self, path: str) -> Kind | None:
        return next((kind for kind, paths in self._paths.items() if path in paths), None)

    @property
    def is_full(self) -> bool:
        """Of what is there; deletions aside."""
        return any(len(self._paths[kind]) >= _MOST_KEPT for kind in (Kind.ADDED, Kind.UPDATED))

    def keep(self, path: str, kind: Kind) -> bool:
        """False if there are too many."""
        if len(self._paths[kind]) >= _MOST_KEPT:
            return False
        self._paths[kind][path] = None
        return True

    def drop(self, path: str, kind: Kind) -> None:
        del self._paths[kind][path]

    def tell(self, kind: Kind, path: str) -> None:
        event = Event(kind, path, len(self))
        for listener in self.listeners:
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - a view that fails must not blind the others
                if len(self.errors) < _MOST_ERRORS:
                    self.errors.append(error)


# What is not there any more, or not what it was.
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass
class Folder:
    monitor: Gio.FileMonitor
    identity: tuple[int, int]
    # There before the command, which therefore did not make it.
    old: set[str] = field(default_factory=set)
    # The watched folders and the changed paths directly in it.
    names: set[str] = field(default_factory=set)
    # Of these there are too many; and how many were found so far, while they are counted again.
    not_kept: int = 0
    recount: int | None = None


class Upper:
    """The folder around all roots' upper folders, and where these are in projects."""

    def __init__(self, folder: str, overlay_map: Mapping[str, str]) -> None:
        self.path = os.path.realpath(folder)
        self._roots = dict(overlay_map)

    def is_wanted(self, path: str) -> bool:
        around, _, name = path.rpartition("/")
        return around != self.path or name in self._roots

    def real(self, path: str) -> str | None:
        """Where it is in the project; nothing for a root itself, which does not change."""
        name, _, rest = path.removeprefix(f"{self.path}/").partition("/")
        return os.path.join(self._roots[name], rest) if rest and name in self._roots else None


def open_folder(path: str) -> int | None:
    """If no link leads there: the command may put one anywhere, at any time. Raises what is no sign
    of that."""
    try:
        descriptor = os.open(path, _FOLDER)
    except OSError as error:
        if error.errno not in GONE:
            raise
        return None
    if _place(descriptor) == path:
        return descriptor
    os.close(descriptor)
    return None


def entries(path: str) -> Iterator[os.DirEntry[str]]:
    descriptor = open_folder(path)
    if descriptor is None:
        return
    try:
        with contextlib.suppress(OSError), os.scandir(descriptor) as found:
            yield from found
    finally:
        os.close(descriptor)


def new_monitor(path: str) -> tuple[Gio.FileMonitor, tuple[int, int]] | None:
    """And which folder it is that is watched now."""
    from gi.repository import Gio, GLib

    descriptor = open_folder(path)
    if descriptor is None:
        return None
    try:
        found = os.fstat(descriptor)
        flags = Gio.FileMonitorFlags.WATCH_MOVES
        monitor = Gio.File.new_for_path(path).monitor_directory(flags, None)
    except GLib.Error as error:
        raise OSError(errno.ENOSPC, error.message) from error
    finally:
        os.close(descriptor)
    return monitor, (found.st_dev, found.st_ino)


def is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def watches_held() -> int:
    """By this process, for whatever."""
    held = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:inotify":
                with open(f"/proc/self/fdinfo/{name}", "rb") as lines:
                    held += sum(line.startswith(b"inotify ") for line in lines)
    return held


def _place(descriptor: int) -> str | None:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return None


class Seen(Flag):
    """Why it was looked at."""

    CREATED = auto()
    CHANGED = auto()
    GONE = auto()


# By what Gio calls it.
SEEN = {
    "created": Seen.CREATED,
    "changed": Seen.CHANGED,
    "attribute-changed": Seen.CHANGED,
    "deleted": Seen.GONE,
}


class Noticed:
    def __init__(self, folders: Mapping[str, Folder], too_many: Callable[[str], None]) -> None:
        """`too_many` is called with a folder if not all that is in it can be known by name."""
        self.tally = Tally()
        self._folders = folders
        self._too_many = too_many

    def changed(self, path: str, real: str, seen: Seen, *, is_old: bool) -> None:
        before = self.tally.kind(real)
        if before is None:
            now = Kind.UPDATED if is_old or os.path.lexists(real) else Kind.ADDED
            self._keep(path, real, now, seen)
            self.tally.tell(now, real)
        elif before is Kind.REMOVED:
            self.tally.drop(real, before)
            self._keep(path, real, Kind.UPDATED, seen)
            self.tally.tell(Kind.UPDATED, real)
        elif seen & (Seen.CHANGED | Seen.GONE):
            self.tally.tell(Kind.UPDATED, real)

    def removed(self, path: str, real: str, seen: Seen, *, is_known: bool) -> None:
        before = self.tally.kind(real)
        if before is Kind.REMOVED:
            return
        if before is not None:
            self.tally.drop(real, before)
            self.names_around(path).discard(os.path.basename(path))
        elif not is_known:
            return
        if before is not Kind.ADDED:
            self._keep(path, real, Kind.REMOVED, seen)
        self.tally.tell(Kind.REMOVED, real)

    def _keep(self, path: str, real: str, kind: Kind, seen: Seen) -> None:
        if self.tally.keep(real, kind):
            self.names_around(path).add(os.path.basename(path))
            return
        around = os.path.dirname(path)
        folder = self._folders.get(around)
        # Not known by name, so what is written again and again would count each time.
        if folder is None or not seen & (Seen.CREATED | Seen.GONE):
            return
        if folder.recount is not None:
            folder.recount += 1
        else:
            self.count(folder, folder.not_kept + 1)
            # Nor can it be told of one that goes: only to count them all again is exact.
            self._too_many(around)

    def count(self, folder: Folder, not_kept: int) -> None:
        self.tally.not_kept += not_kept - folder.not_kept
        folder.not_kept = not_kept

    def names_around(self, path: str) -> set[str]:
        # A listener may have stopped everything in the midst of this.
        around = self._folders.get(os.path.dirname(path))
        return around.names if around is not None else set()


__all__ = ["Event", "Kind", "Monitor"]

_RATE = 150  # milliseconds between two reports of one file that is being written
_TICK = 20  # milliseconds
_SLICE = 0.004  # seconds of a tick, so that a window stays alive in a flood
# Events in a tick; more of them, from one folder, would come all at once and take as long.
_MOST_EVENTS = 100
_AGAIN = 200  # milliseconds until a folder that is flooded is looked at again
_PAUSE = 100  # entries of a folder in one step
_LAST_LOOK = 0.02  # seconds of work for what still waits at the end
_MOST_WAITING = 20_000


class Monitor:
    """Watches the upper folders of overlays; needs GLib's main loop."""

    def __init__(self, overlay_map: Mapping[str, str], base_path: str, ceiling: int = 2000) -> None:
        self.is_partial = False
        self._upper = Upper(base_path, overlay_map)
        self._ceiling = ceiling
        self._is_started = self._is_stopped = False
        self._folders: dict[str, Folder] = {}
        self._noticed = Noticed(self._folders, self._give_up_watching)
        self._tally = self._noticed.tally
        self._flooded: dict[str, Flood] = {}
        self._waiting: OrderedDict[str, Seen] = OrderedDict()
        self._unlisted: deque[str] = deque()
        self._listing: Iterator[str] = iter(())
        self._untold = ""
        self._events = 0
        # Of the main loop: what is to be looked at now, and again later.
        self._source = self._later = 0
        self._is_unchecked = False

    @property
    def added(self) -> list[str]:
        return self._tally.paths(Kind.ADDED)

    @property
    def updated(self) -> list[str]:
        return self._tally.paths(Kind.UPDATED)

    @property
    def removed(self) -> list[str]:
        return self._tally.paths(Kind.REMOVED)

    @property
    def count(self) -> int:
        return len(self._tally)

    @property
    def errors(self) -> list[Exception]:
        """Of those who listen."""
        return self._tally.errors

    def listen(self, callback: Callable[[Event], None]) -> None:
        self._tally.listeners.append(callback)

    def start(self) -> None:
        if self._is_started or self._is_stopped:
            return
        self._is_started = True
        waiting = [self._upper.path]
        while waiting:
            path = waiting.pop()
            if self._watch(path):
                names = [entry.name for entry in self._entries(path)]
                self._folders[path].old.update(names)
                waiting += filter(is_folder, (f"{path}/{name}" for name in names))
        self.is_partial |= self._upper.path not in self._folders
        self._check_watches()

    def stop(self) -> None:
        """For good. What was noticed is still looked at, if that takes no time."""
        if self._is_stopped:
            return
        self._is_stopped = True
        # Of its own: on a busy machine no less is looked at.
        end = time.thread_time() + _LAST_LOOK
        self._look_at_flooded()
        while self._step():
            if time.thread_time() > end:
                self.is_partial = True
                break
        for source in filter(None, (self._source, self._later)):
            from gi.repository import GLib

            GLib.source_remove(source)
        self._source = self._later = 0
        for folder in self._folders.values():
            folder.monitor.cancel()
        self._folders.clear()
        self._flooded.clear()
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
        folder: str,
    ) -> None:
        if self._is_stopped:
            return
        # Short, as there may be several for each of thousands of files.
        self._events += 1
        if self._events > _MOST_EVENTS:
            self._give_up_watching(folder)
            return
        what = event.value_nick
        seen = SEEN.get(what)
        if seen is not None:
            self._queue(file.get_path(), seen)
        elif what in ("moved-out", "renamed"):
            self._moved(file.get_path(), other.get_path() if other else None)
        elif what == "moved-in":
            self._moved(other.get_path() if other else None, file.get_path())
        self._wake()

    def _moved(self, source: str | None, target: str | None) -> None:
        self._queue(source, Seen.GONE)
        if source in self._folders:
            # At once: Gio has one watch for a folder under both names, and the end of the old
            # name's would end the new one's.
            self._look(source, self._waiting.pop(source, Seen.GONE))
        self._queue(target, Seen.CREATED | Seen.CHANGED)

    def _queue(self, path: str | None, seen: Seen) -> None:
        if path is None or path == self._upper.path or not self._upper.is_wanted(path):
            return
        before = self._waiting.get(path)
        if before is None and len(self._waiting) >= _MOST_WAITING:
            self.is_partial = True
            return
        if before is not seen:
            self._waiting[path] = seen if before is None else before | seen

    def _wake(self) -> None:
        if not self._source and not self._is_stopped:
            from gi.repository import GLib

            self._source = GLib.timeout_add(_TICK, self._tick)

    def _tick(self) -> bool:
        self._events = 0
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
            if path:
                self._look(path, Seen.CREATED)
            elif self._untold:
                # Not where it is found: who hears of it may stop everything.
                told, self._untold = self._untold, ""
                self._tally.tell(Kind.UPDATED if os.path.lexists(told) else Kind.ADDED, told)
        elif self._unlisted:
            self._listing = self._list(self._unlisted.popleft())
        else:
            return False
        return True

    # --- what is there now ---------------------------------------------------------------------

    def _look(self, path: str, seen: Seen) -> None:
        """Events come late and merged, so they only say where to look."""
        around = self._folders.get(os.path.dirname(path))
        if around is None:
            return
        real = self._upper.real(path)
        is_old = os.path.basename(path) in around.old
        try:
            found = os.lstat(path)
        except OSError as error:
            if error.errno not in GONE:
                self.is_partial = True
                return
            was_folder = path in self._folders
            self._leave(path)
            around.old.discard(os.path.basename(path))
            if real is not None:
                is_known = is_old or (was_folder and os.path.lexists(real))
                self._noticed.removed(path, real, seen, is_known=is_known)
            return
        if stat.S_ISDIR(found.st_mode):
            self._look_at_folder(path, found, seen)
            # A folder that only holds something changed is no change.
            if real is None or (self._tally.kind(real) is None and is_folder(real)):
                return
        else:
            self._leave(path)
        if real is None:
            return
        if stat.S_ISCHR(found.st_mode) and found.st_rdev == 0:
            self._noticed.removed(path, real, seen, is_known=True)
        else:
            self._noticed.changed(path, real, seen, is_old=is_old)

    def _look_at_folder(self, path: str, found: os.stat_result, seen: Seen) -> None:
        folder = self._folders.get(path)
        # An inode's number is soon used again, so it alone does not tell.
        is_same = folder is not None and folder.identity == (found.st_dev, found.st_ino)
        if is_same and Seen.GONE not in seen:
            return
        self._leave(path)
        if self._watch(path):
            self._unlisted.append(path)
            self._wake()

    # --- folders -------------------------------------------------------------------------------

    def _watch(self, path: str) -> bool:
        # The folder around all roots is watched too, and not counted.
        if len(self._folders) > self._ceiling:
            self.is_partial = True
            return False
        made = self._new_monitor(path)
        if made is None:
            return False
        self._folders[path] = Folder(*made)
        self._noticed.names_around(path).add(os.path.basename(path))
        return True

    def _new_monitor(self, path: str) -> tuple[Gio.FileMonitor, tuple[int, int]] | None:
        try:
            made = new_monitor(path)
        except OSError:
            self.is_partial = True
            return None
        if made is not None:
            made[0].set_rate_limit(_RATE)
            made[0].connect("changed", self._on_changed, path)
            self._is_unchecked = True
        return made

    def _entries(self, path: str) -> Iterator[os.DirEntry[str]]:
        try:
            for entry in entries(path):
                if self._upper.is_wanted(f"{path}/{entry.name}"):
                    yield entry
        except OSError:
            self.is_partial = True

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
                real = self._upper.real(inner)
                if real is not None:
                    self._noticed.removed(inner, real, Seen.CREATED, is_known=False)
                if inner in self._folders:
                    left.append(inner)
            self._noticed.count(folder, 0)
            self._folders.pop(folder_path, None)
            self._flooded.pop(folder_path, None)
        real = self._upper.real(path)
        if real is None or self._tally.kind(real) is None:
            self._noticed.names_around(path).discard(os.path.basename(path))

    def _list(self, path: str) -> Iterator[str]:
        """What to look at in a folder; "" is only a pause. What is known already, and still there,
        is passed over, and what there are too many of is counted."""
        folder = self._folders.get(path)
        if folder is None:
            return
        # First what may have another name by now: see `_moved`.
        for name in list(folder.names):
            if f"{path}/{name}" in self._folders:
                yield f"{path}/{name}"
        gone = folder.names | folder.old
        folder.recount = 0
        counted = ""
        for number, entry in enumerate(self._entries(path), 1):
            if not number % _PAUSE:
                yield ""
            gone.discard(entry.name)
            inner = f"{path}/{entry.name}"
            real = self._upper.real(inner)
            if real is not None and (entry.is_file(follow_symlinks=False) or entry.is_symlink()):
                kind = self._tally.kind(real)
                if kind in (Kind.ADDED, Kind.UPDATED):
                    continue
                if kind is None and self._tally.is_full:
                    folder.recount += 1
                    counted = real
                    continue
            yield inner
        for name in gone:
            yield f"{path}/{name}"
        if self._folders.get(path) is not folder:
            # It has gone meanwhile, and is counted no more.
            return
        is_other = folder.recount != folder.not_kept
        self._noticed.count(folder, folder.recount)
        folder.recount = None
        if folder.not_kept:
            self._give_up_watching(path)
        if counted and is_other:
            # One for all of them.
            self._untold = counted
            yield ""

    def _check_watches(self) -> None:
        """Gio says nothing when the kernel refuses a watch because there are too many."""
        if not self._is_unchecked or self.is_partial:
            return
        self._is_unchecked = False
        watched = self._folders.keys() - self._flooded.keys()
        held = watches_held()
        if held < len(watched):
            self.is_partial = held < sum(map(os.path.lexists, watched))

    # --- folders that too much happens in ------------------------------------------------------

    def _give_up_watching(self, path: str) -> None:
        """It is looked at from time to time instead."""
        folder = self._folders.get(path)
        if folder is None or path in self._flooded:
            return
        folder.monitor.cancel()
        self._flooded[path] = Flood()
        if not self._later and not self._is_stopped:
            from gi.repository import GLib

            self._later = GLib.timeout_add(_AGAIN, self._look_again)

    def _look_again(self) -> bool:
        self._look_at_flooded()
        self._wake()
        if not self._flooded:
            self._later = 0
        return bool(self._flooded)

    def _look_at_flooded(self) -> None:
        end = time.monotonic() + _SLICE
        for path in list(self._flooded):
            state = self._flooded[path].look(path, is_exact=not self._folders[path].not_kept)
            if state is Flow.GONE:
                del self._flooded[path]
                self._queue(path, Seen.GONE)
            elif state is Flow.CHANGED and path not in self._unlisted:
                self._unlisted.append(path)
            elif state is Flow.QUIET and time.monotonic() < end:  # else the next time
                self._watch_again(path)

    def _watch_again(self, path: str) -> None:
        folder, made = self._folders[path], self._new_monitor(path)
        if made is None:
            return
        folder.monitor, identity = made
        del self._flooded[path]
        if identity == folder.identity:
            # What happened before it was watched.
            self._unlisted.append(path)
        else:
            self._queue(path, Seen.GONE)
