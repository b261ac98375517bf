# SPDX-License-Identifier: GPL-3.0-or-later
"""The folders of a run's overlay: an upper folder for each root receives what a command writes.

The program that runs the command holds a lock on the run's folder. A folder whose lock is free was
left by a program that was killed, and contains all that is needed to settle the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from .. import N_
from ..errors import SandboxError
from ..files import trees
from ..files.atomic import flush
from ..files.dirfd import opened_folder
from ..files.locks import FileLock, try_lock
from ..paths import make_folder
from ..record import Record
from .merging import last_change, merge_layer, note_change, strip_rights
from .process import read_stat

_PREFIX = "overlay-"
# Folders that are no longer needed and are being removed.
_DONE = "done-"
_MAP = "map.json"
_PROCESS = "process"
_GONE = "gone"
# In the folder of a run: says that another one was alive at the same time; and copies of its upper
# folders.
_SHARED = "shared"
_COPIED = "copied"
_PLAYGROUND = "playground"
# Held shared while a folder is created and locked, and alone while one without a map is removed.
_CREATING = "overlays.lock"
# Held while a run is merged into the playground.
_PLAYGROUND_LOCK = "playground.lock"
_PLAYGROUND_CHANGED = "playground.changed"
_CLOSE_ENOUGH = 20_000  # nanoseconds
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class Root(Record):
    """A folder that a command may change: the project or a linked folder."""

    path: str
    # The layer above it that shows pending changes of earlier runs; "" if there are none.
    layer: str = ""

    @property
    def lowers(self) -> list[str]:
        """Return what the command sees below its own changes, from the top."""
        return [self.layer, self.path] if self.layer else [self.path]


class Keeper(Protocol):
    """Receives what commands change."""

    # What it needs to know about the run if the program is killed.
    about: Mapping[str, str]

    def roots(self) -> Sequence[Root]:
        """Return the folders the command may change, the project first."""

    def settle(self, overlay: Overlay) -> None:
        """Take the changes out of the upper folders, after all processes have ended."""


def playground_generation(cache: Path) -> int:
    """Return a number that differs after each run that changed the playground, unless that is
    shared."""
    return last_change(cache / _PLAYGROUND_CHANGED)


class Overlay:
    """The folders of one run. `create` creates them on disk."""

    def __init__(
        self,
        cache: Path,
        roots: Sequence[Root],
        run_id: str | None = None,
        about: Mapping[str, str] | None = None,
    ) -> None:
        self.run_id = run_id or f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(4).hex()}"
        self.folder = f"{cache}/{_PREFIX}{self.run_id}"
        self.roots = tuple(roots)
        self.about = dict(about or {})
        self.overlay_map = {f"overlay{n}": root.path for n, root in enumerate(roots, 1)}
        self.project = roots[0].path if roots else ""
        # The playground, if the run has an overlay above it. `merge_playground` empties that.
        self.playground = ""
        # For each root, the time of its file system when the run began. What changed there later
        # was not changed by the command.
        self.began: dict[str, int] = {}
        # The difference between the clock and one that cannot be set.
        self.clock = 0
        # Whether the upper folders were copied, see `copy_shared`.
        self._is_copied = False
        self._lock: FileLock | None = None

    @property
    def upper_folder(self) -> str:
        return f"{self.folder}/upper"

    def upper(self, name: str) -> str:
        return os.path.join(self.folder, _COPIED if self._is_copied else "upper", name)

    @property
    def uppers(self) -> dict[str, str]:
        return {root: self.upper(name) for name, root in self.overlay_map.items()}

    def work(self, name: str) -> str:
        return os.path.join(self.folder, "work", name)

    @property
    def playground_upper(self) -> str:
        # Not with the others, which are watched and settled.
        return f"{self.folder}/{_PLAYGROUND}"

    @property
    def playground_work(self) -> str:
        return self.work(_PLAYGROUND)

    def create(self, *, is_mounted: bool = True) -> None:
        """Create the folders. No command gets at those of an overlay that is not mounted."""
        try:
            # Or else another program's clean-up could remove it before it is locked.
            with FileLock(make_folder(Path(self.folder).parent) / _CREATING, shared=True):
                os.mkdir(self.folder, 0o700)
                # Another program may have it for a moment, to see whether it is locked.
                self._lock = FileLock(self.folder, is_folder=True)
            if is_mounted:
                self._note_others()
            for kind in ("upper", "work"):
                os.mkdir(f"{self.folder}/{kind}")
                for name, root in zip(self.overlay_map, self.roots, strict=True):
                    made = f"{self.folder}/{kind}/{name}"
                    os.mkdir(made)
                    if kind == "upper":
                        # Inside, the project has the mode of the upper folder.
                        _copy_mode(made, os.stat(root.lowers[0]))
            if self.playground:
                os.mkdir(self.playground_work)
                os.mkdir(self.playground_upper)
                _copy_mode(self.playground_upper, os.stat(self.playground))
            self.began = {name: time_at(root) for name, root in self.overlay_map.items()}
            self.clock = clock_offset()
            document = {
                "project": self.project,
                "roots": [list(root) for root in self.roots],
                "began": self.began,
                "clock": self.clock,
                "about": self.about,
                "playground": self.playground,
            }
            self._write(_MAP, json.dumps(document))
        except OSError as error:
            self.cleanup()
            raise SandboxError(
                N_("Cannot create the folder for the command's changes: {why}."),
                N_("Check whether the disk is full."),
                why=error.strerror,
            ) from error

    def _note_others(self) -> None:
        """Note in the folders of all runs that are alive now, and in our own, that they are not
        alone. Of two that begin at once, at least one sees the other's lock."""
        cache = os.path.dirname(self.folder)
        for name in os.listdir(cache):
            folder = f"{cache}/{name}"
            if not name.startswith(_PREFIX) or folder == self.folder:
                continue
            # It may end just now.
            with contextlib.suppress(OSError):
                is_held = os.path.isdir(folder) and try_lock(folder, is_folder=True) is None
                if is_held or _is_alive(folder):
                    self._write(_SHARED, "")
                    os.close(os.open(f"{folder}/{_SHARED}", _NEW, 0o600))

    def copy_shared(self) -> None:
        """If another run was alive at the same time, go on with copies of the upper folders.

        It may have open files or folders of this run, sent through a socket, and so could change
        what the user has looked at. Call it before anybody looks, after all processes have ended.
        """
        if self._is_copied or not os.path.exists(f"{self.folder}/{_SHARED}"):
            return
        from ..files.copying import copy_tree  # rarely needed

        half = f"{self.folder}/{_COPIED}.half"
        if os.path.isdir(half):
            # From before a kill.
            trees.remove_path(half)
        os.mkdir(half, 0o700)
        for name in self.overlay_map:
            copy_tree(self.upper(name), f"{half}/{name}")
        os.rename(half, f"{self.folder}/{_COPIED}")
        self._is_copied = True

    def make_durable(self) -> None:
        """Write the map to disk, so that the run is found after a power cut."""
        for path in (f"{self.folder}/{_MAP}", self.folder):
            flush(path)

    def note_process(self, pid: int) -> None:
        """Write down the run's first process. As long as it lives, a program that finds the folder
        after we were killed leaves it alone."""
        self._write(_PROCESS, f"{pid} {_start_time(pid)}")

    def is_untouched(self) -> bool:
        """Return whether the command wrote nothing."""
        for name, root in zip(self.overlay_map, self.roots, strict=True):
            upper, below = self.upper(name), root.lowers[0]
            # First, because the command may have taken away the right to look into it. A root that
            # was removed has no mode to compare with.
            with contextlib.suppress(FileNotFoundError):
                if os.stat(upper).st_mode != _mode_for(os.stat(below)):
                    return False
            # One entry is enough to know, and there may be very many.
            with os.scandir(upper) as found:
                if next(found, None) is not None:
                    return False
        return True

    def has_playground_changes(self) -> bool:
        """Return whether the command wrote to the playground, after all processes have ended."""
        if not self.playground:
            return False
        # The command may have closed it. Its mode is not kept: all runs use the playground.
        os.chmod(self.playground_upper, 0o700)
        with os.scandir(self.playground_upper) as found:
            return next(found, None) is not None

    def merge_playground(self) -> None:
        """Move what the command wrote there into the playground, after all processes have ended.

        If it fails or is killed on the way, the rest can be merged later.
        """
        if not self.has_playground_changes():
            return
        # The user may have removed it meanwhile.
        make_folder(Path(self.playground))
        with (
            FileLock(f"{os.path.dirname(self.folder)}/{_PLAYGROUND_LOCK}"),
            opened_folder(self.playground_upper) as above,
            opened_folder(self.playground) as below,
        ):
            strip_rights(above)
            merge_layer(above, below, is_lowest=True)
            note_change(f"{os.path.dirname(self.folder)}/{_PLAYGROUND_CHANGED}")

    def cleanup(self) -> None:
        """Remove the folders. What is needed was moved out before."""
        with contextlib.suppress(FileNotFoundError):
            # First, so that no program settles a run that is half removed.
            self.set_aside()
            trees.remove_path(self.folder)
        self.release()

    def set_aside(self) -> None:
        """Mark the folder as one to be removed, by this program or the next."""
        folder = f"{os.path.dirname(self.folder)}/{_DONE}{self.run_id}"
        os.rename(self.folder, folder)
        self.folder = folder

    def release(self) -> None:
        """Unlock the folder and leave it to the next start."""
        if self._lock:
            self._lock.release()
            self._lock = None

    def _write(self, name: str, text: str) -> None:
        # With os.write: creating a file object takes longer than writing.
        descriptor = os.open(f"{self.folder}/{name}", _NEW, 0o600)
        left = text.encode()
        try:
            # A full disk takes a part, and fails at the next write.
            while left:
                left = left[os.write(descriptor, left) :]
        finally:
            os.close(descriptor)

    @classmethod
    def _read(cls, cache: Path, run_id: str, lock: FileLock) -> Overlay:
        with open(f"{cache}/{_PREFIX}{run_id}/{_MAP}", encoding="utf-8") as file:
            document = json.load(file)
        roots = [Root(*root) for root in document["roots"]]
        overlay = cls(cache, roots, run_id, document["about"])
        overlay.project = document["project"]
        overlay.playground = document["playground"]
        overlay.began = {str(name): int(at) for name, at in document["began"].items()}
        overlay.clock = int(document["clock"])
        overlay._lock = lock
        overlay._is_copied = os.path.isdir(f"{overlay.folder}/{_COPIED}")
        return overlay


def leftovers(cache: Path, unreadable: Callable[[str], object]) -> Iterator[Overlay]:
    """Yield and lock the overlays of programs that were killed; the caller settles them.

    Call `unreadable` for a folder with changes but without a readable map, and leave it alone.
    """
    for name in _names(cache):
        folder = f"{cache}/{name}"
        lock = _lock_unused(cache, folder)
        if lock is None:
            continue
        try:
            if name.startswith(_DONE):
                raise FileNotFoundError(folder)
            yield Overlay._read(cache, name.removeprefix(_PREFIX), lock)
        except (OSError, ValueError, KeyError, TypeError):
            if name.startswith(_DONE) or not _has_content(folder):
                # Killed before the map was written and the command started, or while the folder
                # was being removed. What cannot be removed is tried again the next time.
                with contextlib.suppress(OSError):
                    trees.remove_path(folder)
            else:
                unreadable(folder)
            lock.release()


def find_leftovers(cache: Path) -> list[str]:
    """Return the names of the folders that `leftovers` would look at."""
    found = []
    for name in _names(cache):
        lock = _lock_unused(cache, f"{cache}/{name}")
        if lock is not None:
            lock.release()
            found.append(name)
    return found


def _names(cache: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return sorted(name for name in os.listdir(cache) if name.startswith((_PREFIX, _DONE)))
    return []


def _lock_unused(cache: Path, folder: str) -> FileLock | None:
    """Lock a folder whose program and command have ended; return None for others."""
    # It may have been removed, or belong to somebody else.
    with contextlib.suppress(OSError), FileLock(cache / _CREATING):
        lock = try_lock(folder, is_folder=True)
        if lock is not None and not _is_alive(folder):
            return lock
        if lock is not None:
            lock.release()
    return None


def _has_content(folder: str) -> bool:
    """Return whether a command wrote something, or a run was being settled."""
    try:
        if set(os.listdir(folder)) - {_MAP, _PROCESS, _SHARED, _PLAYGROUND, "upper", "work"}:
            return True
        upper = f"{folder}/upper"
        uppers = [f"{upper}/{name}" for name in os.listdir(upper)]
        if os.path.isdir(f"{folder}/{_PLAYGROUND}"):
            uppers.append(f"{folder}/{_PLAYGROUND}")
        return any(map(os.listdir, uppers))
    except FileNotFoundError:
        return False
    except OSError:
        # A command has removed the permissions, so there was one.
        return True


def clock_offset() -> int:
    """Return the difference between the clock and one that cannot be set.

    The two cannot be read at once, and another program may run in between. So they are read until
    little time has passed; the best reading counts.
    """
    best, offset = 1 << 62, 0
    for _ in range(100):
        before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        now = time.time_ns()
        passed = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - before
        if passed < best:
            best, offset = passed, now - before - passed // 2
        if best < _CLOSE_ENOUGH:
            break
    return offset


def _is_alive(folder: str) -> bool:
    try:
        with open(f"{folder}/{_PROCESS}", encoding="ascii") as file:
            pid, started = file.read().split()
    except (OSError, ValueError):
        return False
    return started != _GONE and _start_time(int(pid)) == started


def _start_time(pid: int) -> str:
    """Return when a process started, which together with its id identifies it."""
    try:
        state, *fields = read_stat(pid)
    except (OSError, ValueError):
        return _GONE
    # Dead, but not reaped by its parent yet.
    return _GONE if state in "ZX" else fields[18]


def time_at(folder: str) -> int:
    """Return the time that the file system would give to a change made now."""
    try:
        # A file without a name, so that nothing appears in the folder.
        descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError:
        return time.clock_gettime_ns(getattr(time, "CLOCK_REALTIME_COARSE", time.CLOCK_REALTIME))
    try:
        return os.fstat(descriptor).st_ctime_ns
    finally:
        os.close(descriptor)


def _mode_for(found: os.stat_result) -> int:
    return stat.S_IFDIR | found.st_mode & 0o1777


def _copy_mode(made: str, found: os.stat_result) -> None:
    if os.getuid() == 0:
        os.chown(made, found.st_uid, found.st_gid)
    os.chmod(made, stat.S_IMODE(_mode_for(found)))
