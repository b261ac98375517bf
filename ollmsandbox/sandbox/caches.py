# SPDX-License-Identifier: GPL-3.0-or-later
"""A project's cache layers: what its commands wrote to `~/.cache`, `~/.npm` and the like.

A project's folder in `Paths.caches` has layers with the names 1, 2, ..., each above the one before.
A run mounts them read-only above the user's own caches, below a folder of its own that receives
what it writes. When the run has ended, that folder becomes the newest layer, and is merged into the
one below it unless a command has that one mounted: the kernel does not allow a mounted layer to
change. So there is one layer, and one more for each command that runs at the same time.

Caches that the user does not have are in a folder of their own, below the layers as well. Links
lead to it from where programs expect them.

What is in the layers is the commands' work: no link in it is followed, and nothing in it is run.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from .. import N_
from ..errors import SandboxError
from ..files import trees
from ..files.dirfd import opened_folder
from ..files.locks import FileLock, try_lock
from ..paths import Paths, make_folder, project_key, real_path
from ..record import Record
from .logins import NOTE, give_back_logins
from .merging import last_change, merge_layer, note_change, strip_rights

# Where commands see the folder of caches that the user does not have.
PLAIN_CACHES = "/run/caches"
_LOCK = "lock"
_PROJECT = "project"
_CHANGED = "changed"
_RUN = "live-"
# What is to be removed. It may have been a folder that commands wrote to.
_GONE = "gone-"


class LayerPart(Record):
    """A folder of a layer, with the mode of the user's folder below it."""

    name: str
    mode: int


class CacheLayers:
    """The caches of a project, and the folder in which one run writes."""

    def __init__(
        self, root: str | os.PathLike[str], project: str, run_id: str, plain: str = "plain"
    ) -> None:
        """`plain` is the name of the folder for caches that the user does not have."""
        self._project = project
        self.folder = f"{root}/{project_key(project)}"
        # That folder, and its name in the layers above it.
        self.plain = f"{self.folder}/{plain}"
        self.plain_part = plain
        # The folder that only this run writes to.
        self.own_folder = f"{self.folder}/{_RUN}{run_id}"
        # The layers that the run has mounted, the newest first.
        self.mounted: tuple[str, ...] = ()
        self._locks: list[FileLock] = []

    def upper(self, part: str) -> str:
        return f"{self.own_folder}/upper/{part}"

    def work(self, part: str) -> str:
        return os.path.join(self.own_folder, "work", part)

    def mounted_parts(self, part: str) -> list[str]:
        """Return the folders with this name in the mounted layers, except behind a link."""
        whole = [f"{layer}/{part}" for layer in self.mounted]
        return [folder for folder in whole if real_path(folder) == folder and os.path.isdir(folder)]

    def open(self, parts: Sequence[LayerPart], plain: Sequence[str]) -> None:
        """Create the run's folders and those with the names in `plain`, and keep the layers as they
        are until `release`. Raise BlockingIOError if another program is changing them."""
        try:
            if not os.path.isdir(self.folder):
                make_folder(Path(self.folder))
            with FileLock(f"{self.folder}/{_LOCK}", timeout=0):
                names = self._prepare()
                self._make_run_folder(parts)
                layers = _sorted_layers(self.folder, names)
                for folder in (self.plain, *layers):
                    self._locks.append(FileLock(folder, is_folder=True, shared=True))
            self.mounted = tuple(reversed(layers))
            self._make_plain(plain)
        except BlockingIOError:
            raise
        except OSError as error:
            self.release()
            raise SandboxError(
                N_("Cannot create the folder for caches: {why}."),
                N_("Check whether the disk is full."),
                why=error.strerror,
            ) from error

    def _make_run_folder(self, parts: Sequence[LayerPart]) -> None:
        for folder in (self.own_folder, f"{self.own_folder}/upper", f"{self.own_folder}/work"):
            os.mkdir(folder, 0o700)
        self._locks = [FileLock(self.own_folder, is_folder=True, timeout=0)]
        for part in parts:
            os.makedirs(self.work(part.name), 0o700)
            os.makedirs(self.upper(part.name), 0o700)
            os.chmod(self.upper(part.name), part.mode)

    def _prepare(self) -> list[str]:
        """Note the project and that its caches are used, and return the names in its folder."""
        names = os.listdir(self.folder)
        if _PROJECT not in names:
            Path(self.folder, _PROJECT).write_bytes(os.fsencode(self._project))
        if os.path.basename(self.plain) not in names:
            os.mkdir(self.plain, 0o700)
        # A command may have changed its mode.
        os.chmod(self.plain, 0o700)
        os.utime(self.folder)
        return names

    def _make_plain(self, wanted: Sequence[str]) -> None:
        # By single names: a command may have put a link there, which must not lead out.
        with opened_folder(self.plain) as folder:
            for name in set(wanted).difference(os.listdir(folder)):
                with contextlib.suppress(FileExistsError):  # another run has just made it
                    os.mkdir(name, 0o700, dir_fd=folder)

    def has_changes(self) -> bool:
        """Return whether the command wrote something above the user's own caches."""
        if not self._locks:
            return False
        upper = f"{self.own_folder}/upper"
        try:
            return any(os.listdir(f"{upper}/{part}") for part in os.listdir(upper))
        except PermissionError:
            return True  # the command changed the rights

    def keep(self) -> None:
        """Make what the command wrote the newest layer, after all processes have ended.

        What cannot be kept, because the disk is full for example, is dropped: it is a cache.
        """
        run, *others = self._locks
        self._locks = [run]
        for lock in others:
            lock.release()
        with contextlib.suppress(OSError), FileLock(f"{self.folder}/{_LOCK}"):
            with opened_folder(f"{self.own_folder}/upper") as upper:
                strip_rights(upper)
            layers = _sorted_layers(self.folder, os.listdir(self.folder))
            newest = int(os.path.basename(layers[-1])) if layers else 0
            layers.append(f"{self.folder}/{newest + 1}")
            os.rename(f"{self.own_folder}/upper", layers[-1])
            note_change(f"{self.folder}/{_CHANGED}")
            _merge_free(layers)

    def remove(self) -> None:
        """Remove the run's own folders. What cannot be removed is tried again by the next run."""
        if not self._locks:
            return
        with contextlib.suppress(OSError):
            trees.remove_path(self.own_folder)
            # Of programs that were killed.
            names = os.listdir(self.folder)
            _remove_free(self.folder, [n for n in names if n.startswith((_RUN, _GONE))])
        self.release()

    def release(self) -> None:
        while self._locks:
            self._locks.pop().release()


class ProjectCaches(Record):
    """The caches of a project, as they are on disk."""

    folder: Path
    # Where the project was when they were last used, or "" if that is not known.
    project: str
    used: float

    def measure(self) -> tuple[int, int]:
        """Return the number of files and the bytes on disk."""
        files = size = 0
        for name in self._content():
            found = trees.measure(self.folder / name, unlock=True)
            files, size = files + found[0], size + found[1]
        return files, size

    def clear(self) -> bool:
        """Remove what no running command uses; return whether nothing is left."""
        return _remove_free(self.folder, self._content())

    def _content(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return [
                name for name in os.listdir(self.folder) if name not in (_LOCK, _PROJECT, _CHANGED)
            ]
        return []


def caches_generation(paths: Paths, project: str) -> tuple[int, ...]:
    """Return numbers that differ after each run that changed a project's caches."""
    return tuple(last_change(root / project_key(project) / _CHANGED) for root in paths.caches)


def all_caches(paths: Paths) -> list[ProjectCaches]:
    """Return the caches of all projects, those that were used last first."""
    found = []
    for root in paths.caches:
        with contextlib.suppress(FileNotFoundError):
            for entry in root.iterdir():
                used = entry.lstat()
                if stat.S_ISDIR(used.st_mode):
                    project = ""
                    with contextlib.suppress(OSError):
                        project = os.fsdecode((entry / _PROJECT).read_bytes())
                    found.append(ProjectCaches(entry, project, used.st_mtime))
    return sorted(found, key=lambda caches: caches.used, reverse=True)


def measure_caches(paths: Paths) -> tuple[int, int]:
    """Return the number of files and the bytes on disk of the caches of all projects."""
    sizes = [caches.measure() for caches in all_caches(paths)]
    return sum(files for files, _size in sizes), sum(size for _files, size in sizes)


def clear_caches(paths: Paths) -> bool:
    """Remove the caches of all projects; return False if a running command uses some."""
    in_use = [caches for caches in all_caches(paths) if not caches.clear()]
    return not in_use


def remove_old_caches(paths: Paths, *, unused: float, most: int) -> None:
    """Remove the caches that were not used for so many seconds, and the oldest beyond a size."""
    total = 0
    for caches in all_caches(paths):
        total += caches.measure()[1]
        if time.time() - caches.used > unused or total > most:
            caches.clear()


def remove_caches(paths: Paths, project: str) -> None:
    """Remove the caches of a project that was a temporary folder, with what is noted of them."""
    for root in paths.caches:
        folder = root / project_key(project)
        # What a command still uses is removed as old caches are.
        with contextlib.suppress(OSError):
            if ProjectCaches(folder, "", 0.0).clear():
                trees.remove_path(folder)


def give_back_killed_logins(paths: Paths) -> None:
    """Give back the logins of sessions whose program was killed, before an agent reads them."""
    for root in paths.caches:
        for note in root.glob(f"*/{_RUN}*/*{NOTE}"):
            run = note.parent
            # Another program may be doing it, or the session may run.
            with contextlib.suppress(OSError), FileLock(run.parent / _LOCK, timeout=0):
                if lock := try_lock(run, is_folder=True):
                    with lock:
                        give_back_logins(str(run))


def move_caches(paths: Paths, old: str, new: str) -> None:
    """Give the caches of a project to the folder it was moved to, which has none yet."""
    for root in paths.caches:
        with contextlib.suppress(OSError):
            os.rename(root / project_key(old), root / project_key(new))
            Path(root, project_key(new), _PROJECT).write_bytes(os.fsencode(new))


def _sorted_layers(folder: str, names: Sequence[str]) -> list[str]:
    """Return the layers, oldest first."""
    numbers = sorted(int(name) for name in names if name.isdecimal())
    return [f"{folder}/{number}" for number in numbers]


def _merge_free(layers: list[str]) -> None:
    """Merge the newest layers, as far as no command has them mounted."""
    with contextlib.ExitStack() as locks, contextlib.suppress(BlockingIOError):
        newest = layers.pop()
        locks.enter_context(FileLock(newest, is_folder=True, timeout=0))
        while layers:
            below = layers.pop()
            locks.enter_context(FileLock(below, is_folder=True, timeout=0))
            # What cannot be merged is dropped. Otherwise the layers could become too many to mount.
            with (
                contextlib.suppress(OSError),
                opened_folder(newest) as above,
                opened_folder(below) as into,
            ):
                merge_layer(above, into)
            trees.remove_path(newest)
            newest = below


def _remove_free(folder: str | os.PathLike[str], names: Sequence[str]) -> bool:
    """Remove the folders of a project that nobody uses; return whether none is left."""
    if not names:
        return True
    free: list[tuple[str, FileLock]] = []
    # A command that starts meanwhile must not wait until all is removed, which may take minutes.
    with FileLock(f"{folder}/{_LOCK}"):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(f"{folder}/{name}", 0o700)  # a command may have left it without any rights
                if (lock := try_lock(f"{folder}/{name}", is_folder=True)) is None:
                    continue
                if name.startswith(_RUN) and not give_back_logins(f"{folder}/{name}"):
                    continue
                taken = f"{folder}/{_GONE}{os.urandom(8).hex()}"
                os.rename(f"{folder}/{name}", taken)
                free.append((taken, lock))
        is_all = not any(os.path.lexists(f"{folder}/{name}") for name in names)
    for taken, lock in free:
        with lock:
            trees.remove_path(taken)
    return is_all
