# SPDX-License-Identifier: GPL-3.0-or-later
"""Overlay: where a run's changes go while it runs; one upper folder for each folder it writes to.

The folder of a run is locked as long as the run is ours to look after. One whose lock is free was
left by a program that was killed, and holds all that is needed to finish what it had begun.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .. import trees
from ..errors import SandboxError
from ..paths import make_folder

_PREFIX = "overlay-"
_MAP = "map.json"
_PROCESS = "process"


@dataclass(frozen=True)
class Root:
    """A folder that a command may write to."""

    path: str
    # What earlier runs changed there and nobody applied yet, in overlayfs's own format.
    pending: str = ""


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
        # By root: the time its file system showed when the run began. What changed there later was
        # changed by somebody else.
        self.began: dict[str, int] = {}
        # How far the clock was from one that nobody can set.
        self.clock = 0
        self._lock = -1

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
            self._lock = _lock(self.folder)
            for kind in ("upper", "work"):
                os.mkdir(f"{self.folder}/{kind}")
                for name, root in zip(self.overlay_map, self.roots, strict=True):
                    made = f"{self.folder}/{kind}/{name}"
                    os.mkdir(made)
                    if kind == "upper":
                        # What is inside shows the upper folder's own mode for the project's.
                        _look_like(made, os.stat(root.pending or root.path))
            self.began = {name: _time_at(root) for name, root in self.overlay_map.items()}
            self.clock = clock_offset()
            self._write_map()
        except OSError as error:
            self.cleanup()
            raise SandboxError(
                f"The folder for the command's changes cannot be made: {error.strerror}.",
                "See whether the disk is full.",
            ) from error

    def note_process(self, pid: int) -> None:
        """For who finds the folder after we were killed: as long as that process lives, so may
        others of the run."""
        with open(f"{self.folder}/{_PROCESS}", "w", encoding="ascii") as file:
            file.write(f"{pid} {_start_time(pid)}")

    def is_untouched(self) -> bool:
        """Whether nothing at all was written."""
        for name, root in zip(self.overlay_map, self.roots, strict=True):
            upper, below = self.upper(name), root.path
            if root.pending and os.path.isdir(root.pending):
                below = root.pending
            if os.listdir(upper):
                return False
            # One that is gone has no mode to compare with.
            with contextlib.suppress(FileNotFoundError):
                if os.stat(upper).st_mode != _mode_for(os.stat(below)):
                    return False
        return True

    def cleanup(self) -> None:
        """Remove everything. What is still needed was moved out before."""
        with contextlib.suppress(FileNotFoundError):
            # First: without it nobody takes up again what is half removed.
            os.unlink(f"{self.folder}/{_MAP}")
        with contextlib.suppress(FileNotFoundError):
            if not self._remove_quickly():
                trees.empty(Path(self.folder))
                os.rmdir(self.folder)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def release(self) -> None:
        """Leave it as it is, for the next start."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _remove_quickly(self) -> bool:
        """If nothing was written, there are just the folders that we and the kernel made."""
        try:
            for name in self.overlay_map:
                os.rmdir(self.upper(name))
                work = self.work(name)
                for inner in ("work/incompat/volatile", "work/incompat", "work"):
                    with contextlib.suppress(FileNotFoundError):
                        os.rmdir(f"{work}/{inner}")
                os.rmdir(work)
            os.rmdir(f"{self.folder}/upper")
            os.rmdir(f"{self.folder}/work")
            for file in (_PROCESS, _MAP):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self.folder}/{file}")
            os.rmdir(self.folder)
        except OSError:
            return False
        return True

    def _write_map(self) -> None:
        document = {
            "roots": [[root.path, root.pending] for root in self.roots],
            "began": self.began,
            "clock": self.clock,
            "about": self.about,
        }
        with open(f"{self.folder}/{_MAP}", "w", encoding="utf-8") as file:
            json.dump(document, file)

    @classmethod
    def _read(cls, cache: Path, run_id: str, lock: int) -> Overlay:
        with open(f"{cache}/{_PREFIX}{run_id}/{_MAP}", encoding="utf-8") as file:
            document = json.load(file)
        roots = [Root(path, pending) for path, pending in document["roots"]]
        overlay = cls(cache, roots, run_id, document["about"])
        overlay.began = {str(name): int(at) for name, at in document["began"].items()}
        overlay.clock = int(document["clock"])
        overlay._lock = lock
        return overlay


def leftovers(cache: Path) -> Iterator[Overlay]:
    """Overlays of programs that were killed, locked for us now; the caller cleans them up."""
    try:
        names = [entry.name for entry in os.scandir(cache) if entry.name.startswith(_PREFIX)]
    except FileNotFoundError:
        return
    for name in sorted(names):
        folder = f"{cache}/{name}"
        try:
            lock = _lock(folder)
        except OSError:
            # In use, gone, or none of ours.
            continue
        if _is_alive(folder):
            os.close(lock)
            continue
        try:
            yield Overlay._read(cache, name.removeprefix(_PREFIX), lock)
        except (OSError, ValueError, KeyError, TypeError):
            # Killed before the map was whole: no command had been started.
            trees.empty(Path(folder))
            os.rmdir(folder)
            os.close(lock)


def clock_offset() -> int:
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _lock(folder: str) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_alive(folder: str) -> bool:
    try:
        with open(f"{folder}/{_PROCESS}", encoding="ascii") as file:
            pid, started = file.read().split()
        return _start_time(int(pid)) == started
    except (OSError, ValueError):
        return False


def _start_time(pid: int) -> str:
    """A process id is used again; with this it is one process's alone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field is a name, which may hold spaces and brackets.
            return file.read().rpartition(b")")[2].split()[19].decode("ascii")
    except (OSError, IndexError):
        return "gone"


def _time_at(folder: str) -> int:
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


def _look_like(made: str, found: os.stat_result) -> None:
    if os.getuid() == 0:
        os.chown(made, found.st_uid, found.st_gid)
    os.chmod(made, stat.S_IMODE(_mode_for(found)))
