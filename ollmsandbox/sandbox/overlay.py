# SPDX-License-Identifier: GPL-3.0-or-later
"""Overlay: where a run's changes go while it runs; one upper folder for each folder it writes to.

The folder of a run is locked as long as the run is ours to look after. One whose lock is free was
left by a program that was killed, and holds all that is needed to finish what it had begun.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .. import N_
from ..errors import SandboxError
from ..files import trees
from ..files.atomic import flush, write_atomically
from ..files.locks import FileLock
from ..paths import make_folder

_PREFIX = "overlay-"
# Nothing there is needed, and it is being removed.
_DONE = "done-"
_MAP = "map.json"
_PROCESS = "process"
_GONE = "gone"
_READINGS, _AT_ONCE = 100, 20_000
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


@dataclass(frozen=True)
class Root:
    """A folder that a command may write to."""

    path: str
    # What earlier runs changed there and nobody applied yet, in overlayfs's own format.
    pending: str = ""
    # When the last of that came there. Before now, unless the clock was set back since.
    newest: int = 0


class Keeper(Protocol):
    """Takes care of what commands change."""

    # What it needs to know of the run, should the program be killed.
    about: Mapping[str, str]

    def roots(self) -> Sequence[Root]:
        """What the command may write to, the project first."""

    async def settle(self, overlay: Overlay) -> None:
        """All processes are dead; what is in the upper folders is taken out of them."""


class Overlay:
    """The folders of one run. Nothing is on disk before `create()`."""

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
        # By root: the time its file system showed when the run began. What changed there later was
        # changed by somebody else.
        self.began: dict[str, int] = {}
        # How far the clock was from one that nobody can set.
        self.clock = 0
        self._lock: FileLock | None = None
        # The pending layers that are mounted, locked so that no program removes them meanwhile.
        self._below: list[FileLock] = []

    @property
    def upper_folder(self) -> str:
        return f"{self.folder}/upper"

    def upper(self, name: str) -> str:
        return os.path.join(self.folder, "upper", name)

    def work(self, name: str) -> str:
        return os.path.join(self.folder, "work", name)

    def create(self) -> None:
        try:
            make_folder(Path(self.folder).parent)
            os.mkdir(self.folder, 0o700)
            self._lock = FileLock(self.folder, is_folder=True, timeout=0)
            for kind in ("upper", "work"):
                os.mkdir(f"{self.folder}/{kind}")
                for name, root in zip(self.overlay_map, self.roots, strict=True):
                    made = f"{self.folder}/{kind}/{name}"
                    os.mkdir(made)
                    if kind == "upper":
                        # What is inside shows the upper folder's own mode for the project's.
                        _look_like(made, os.stat(root.pending or root.path))
            self.began = {name: time_at(root) for name, root in self.overlay_map.items()}
            for name, root in zip(self.overlay_map, self.roots, strict=True):
                if root.pending:
                    self.began[_below(name)] = time_at(root.pending)
                    self.began[_newest(name)] = root.newest
                    with contextlib.suppress(PermissionError):  # it is closed, as the project is
                        # Waits: a program that checks whether it is used has it for a moment.
                        self._below.append(FileLock(root.pending, is_folder=True, shared=True))
            self.clock = clock_offset()
            self._write_map()
        except OSError as error:
            self.cleanup()
            raise SandboxError(
                N_("The folder for the command's changes cannot be made: {why}."),
                N_("See whether the disk is full."),
                why=error.strerror,
            ) from error

    def began_below(self, name: str) -> int:
        """The same by the clock of the file system that has what waits there."""
        return self.began.get(_below(name), self.began[name])

    def newest_below(self, name: str) -> int:
        """When the last of that had come, which the command therefore sees."""
        return self.began.get(_newest(name), 0)

    def make_durable(self) -> None:
        """Before anything is moved out of it: after a power cut it has to be found again."""
        for place in (f"{self.folder}/{_MAP}", self.folder):
            flush(place)

    def note_process(self, pid: int) -> None:
        """For who finds the folder after we were killed: as long as that process lives, so may
        others of the run."""
        self._write(_PROCESS, f"{pid} {_start_time(pid)}")

    def is_untouched(self) -> bool:
        """Whether nothing at all was written."""
        for name, root in zip(self.overlay_map, self.roots, strict=True):
            upper, below = self.upper(name), root.path
            if root.pending and os.path.isdir(root.pending):
                below = root.pending
            # One is enough to know: there may be very many.
            with os.scandir(upper) as found:
                if next(found, None) is not None:
                    return False
            # One that is gone has no mode to compare with.
            with contextlib.suppress(FileNotFoundError):
                if os.stat(upper).st_mode != _mode_for(os.stat(below)):
                    return False
        return True

    def cleanup(self) -> None:
        """Remove everything. What is still needed was moved out before."""
        with contextlib.suppress(FileNotFoundError):
            # First: nobody takes up again what is half removed.
            self.set_aside()
            if not self._remove_quickly():
                trees.empty(Path(self.folder))
                os.rmdir(self.folder)
        self.release()

    def set_aside(self) -> None:
        """It only has to be removed, and nobody has to wait for that."""
        folder = f"{os.path.dirname(self.folder)}/{_DONE}{self.run_id}"
        os.rename(self.folder, folder)
        self.folder = folder

    def _remove_quickly(self) -> bool:
        """If nothing was written, there are just the folders that we and the kernel made."""
        try:
            for name in self.overlay_map:
                os.rmdir(self.upper(name))
                kernels = f"{self.work(name)}/work"
                if os.path.lexists(kernels):
                    # Closed even to its owner.
                    os.chmod(kernels, 0o700)
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(f"{kernels}/incompat/volatile/dirty")
                        os.rmdir(f"{kernels}/incompat/volatile")
                        os.rmdir(f"{kernels}/incompat")
                    os.rmdir(kernels)
                os.rmdir(self.work(name))
            for folder in ("upper", "work"):
                os.rmdir(f"{self.folder}/{folder}")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self.folder}/{_PROCESS}")
            os.unlink(f"{self.folder}/{_MAP}")
            os.rmdir(self.folder)
        except OSError:
            return False
        return True

    def leave_below(self) -> None:
        """All processes are dead: others may do with what waits what they like."""
        while self._below:
            self._below.pop().release()

    def release(self) -> None:
        """Leave it as it is, for the next start."""
        self.leave_below()
        if self._lock:
            self._lock.release()
            self._lock = None

    def part(self, roots: Collection[str]) -> Overlay:
        """These of its roots alone. The lock stays where it is."""
        from copy import copy  # few need it

        part = copy(self)
        part._lock = None
        part._below = []
        part.roots = tuple(root for root in self.roots if root.path in roots)
        part.overlay_map = {name: root for name, root in self.overlay_map.items() if root in roots}
        return part

    def keep_only(self, roots: Collection[str], *, anew: bool) -> None:
        """With the others nothing is left to be done. What is left may be a run of its own."""
        if anew:
            self.run_id = f"{self.run_id.rpartition('-')[0]}-{os.urandom(4).hex()}"
        part = self.part(roots)
        self.roots, self.overlay_map = part.roots, part.overlay_map
        write_atomically(Path(self.folder, _MAP), self._described(), durably=True)

    def _write_map(self) -> None:
        self._write(_MAP, self._described())

    def _described(self) -> str:
        document = {
            "run": self.run_id,
            "project": self.project,
            "names": list(self.overlay_map),
            "roots": [[root.path, root.pending] for root in self.roots],
            "began": self.began,
            "clock": self.clock,
            "about": self.about,
        }
        return json.dumps(document)

    def _write(self, name: str, text: str) -> None:
        # Plainly: a file object takes longer to make than this takes to write.
        descriptor = os.open(f"{self.folder}/{name}", _NEW, 0o600)
        left = text.encode()
        try:
            # A disk that is nearly full takes a part, and says at the next one that it is.
            while left:
                left = left[os.write(descriptor, left) :]
        finally:
            os.close(descriptor)

    @classmethod
    def _read(cls, cache: Path, run_id: str, lock: FileLock) -> Overlay:
        with open(f"{cache}/{_PREFIX}{run_id}/{_MAP}", encoding="utf-8") as file:
            document = json.load(file)
        roots = [Root(path, pending) for path, pending in document["roots"]]
        overlay = cls(cache, roots, run_id, document["about"])
        # An earlier version did not write these.
        overlay.run_id = document.get("run", run_id)
        overlay.project = document.get("project", overlay.project)
        names = document.get("names", overlay.overlay_map)
        overlay.overlay_map = {n: root.path for n, root in zip(names, roots, strict=True)}
        overlay.began = {str(name): int(at) for name, at in document["began"].items()}
        overlay.clock = int(document["clock"])
        overlay._lock = lock
        return overlay


def leftovers(cache: Path, unreadable: Callable[[str], object]) -> Iterator[Overlay]:
    """Overlays of programs that were killed, locked for us now; the caller cleans them up. One that
    holds something and does not say what is left alone, and told."""
    try:
        names = [name for name in os.listdir(cache) if name.startswith((_PREFIX, _DONE))]
    except FileNotFoundError:
        return
    for name in sorted(names):
        folder = f"{cache}/{name}"
        try:
            lock = FileLock(folder, is_folder=True, timeout=0)
        except OSError:
            # In use, gone, or none of ours.
            continue
        if _is_alive(folder):
            lock.release()
            continue
        try:
            if name.startswith(_DONE):
                raise FileNotFoundError(folder)
            yield Overlay._read(cache, name.removeprefix(_PREFIX), lock)
        except (OSError, ValueError, KeyError, TypeError):
            if name.startswith(_DONE) or not _holds_something(folder):
                # Killed before the map was whole, when no command had been started; or when
                # nothing was to be done but to remove it, which its owner may just have done. What
                # cannot be removed is tried again the next time.
                with contextlib.suppress(OSError):
                    trees.empty(Path(folder))
                    os.rmdir(folder)
            else:
                unreadable(folder)
            lock.release()


def _holds_something(folder: str) -> bool:
    """What a command wrote, or what was to be done with it."""
    try:
        if set(os.listdir(folder)) - {_MAP, _PROCESS, "upper", "work"}:
            return True
        upper = f"{folder}/upper"
        return any(os.listdir(f"{upper}/{name}") for name in os.listdir(upper))
    except FileNotFoundError:
        return False
    except OSError:
        # A folder that a command has closed: there was a command.
        return True


def clock_offset() -> int:
    """How far the clock is from one that nobody can set.

    Both cannot be read at once. A machine with much to do may let another program run in between,
    so it is read again until little time has passed; the best reading counts.
    """
    best, offset = 1 << 62, 0
    for _ in range(_READINGS):
        before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        now = time.time_ns()
        passed = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - before
        if passed < best:
            best, offset = passed, now - before - passed // 2
        if best < _AT_ONCE:
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
    """A process id is used again; with this it is one process's alone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field is a name, which may hold spaces and brackets.
            state, *fields = file.read().rpartition(b")")[2].decode("ascii").split()
    except (OSError, ValueError):
        return _GONE
    # Dead, and nobody has asked yet how it ended.
    return _GONE if state in "ZX" else fields[18]


def time_at(folder: str) -> int:
    """What the file system would write as the time of a change made now."""
    try:
        # A file without a name: nothing of it is ever seen.
        descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError:
        return time.clock_gettime_ns(getattr(time, "CLOCK_REALTIME_COARSE", time.CLOCK_REALTIME))
    try:
        return os.fstat(descriptor).st_ctime_ns
    finally:
        os.close(descriptor)


def _mode_for(found: os.stat_result) -> int:
    return stat.S_IFDIR | found.st_mode & 0o1777


def _below(name: str) -> str:
    return f"{name}-pending"


def _newest(name: str) -> str:
    return f"{name}-newest"


def _look_like(made: str, found: os.stat_result) -> None:
    if os.getuid() == 0:
        os.chown(made, found.st_uid, found.st_gid)
    os.chmod(made, stat.S_IMODE(_mode_for(found)))
