# SPDX-License-Identifier: GPL-3.0-or-later
"""The systems on disk: which one is used, who uses it, and how one goes when nobody does.

Imports little: a command looks here before it starts.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ... import N_
from ...errors import RootfsError
from ...files import trees
from ...files.atomic import write_atomically
from ...files.locks import FileLock
from ...paths import Paths, make_folder
from .files import write_inside

VERSION_FILE = ".alpine-version"
TIER_FILE = ".alpine-tier"
PROGRAMS_FILE = ".alpine-programs.json"
_CURRENT = "current"
_NAME = "alpine-"
_NEW = ".new-"
_GONE = ".gone-"
_LOCK = ".rootfs.lock"
_DOWNLOADS = "downloads"
_PATIENCE = 1.0  # seconds
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True)
class Installed:
    """A system that commands can run in."""

    folder: str
    version: str
    tier: int
    # By somebody else, who named it in ROOTFS_DIR; it is never changed.
    is_given: bool = False

    @property
    def title(self) -> str:
        return f"Alpine {self.version}"

    @property
    def shell(self) -> str:
        return "/bin/bash" if os.path.lexists(f"{self.folder}/bin/bash") else "/bin/sh"

    def hold(self) -> FileLock:
        """As long as a command runs in it, it is not removed; to be released."""
        gone = RootfsError(
            N_("{system} was removed meanwhile."), N_("Try again."), system=self.title
        )
        try:
            # Another program that checks whether a command runs here holds it for a moment.
            lock = FileLock(self.folder, is_folder=True, shared=True, timeout=_PATIENCE)
        except OSError as error:
            raise gone from error
        if not _is_at(lock, self.folder):
            lock.release()
            raise gone
        return lock

    def release(self, lock: FileLock) -> None:
        """One that was replaced meanwhile goes with the last command."""
        lock.release()
        if not self.is_given:
            RootfsStore(Path(self.folder).parent).remove_if_replaced(self)


def is_rootfs_ready(folder: Path, version: str = "", tier: int = 0) -> bool:
    """Whether all of it is there: of this version, if one is named, and with this tier at least.
    Links are not followed: they lead elsewhere inside."""
    wanted = ["bin/sh", VERSION_FILE, *(["usr/bin/python3"] if tier else [])]
    if not all(os.path.lexists(folder / name) for name in wanted):
        return False
    found = _read(folder)
    return found is not None and version in ("", found.version) and found.tier >= tier


def find(paths: Paths, environ: Mapping[str, str]) -> Installed | None:
    """The system that commands would run in."""
    given = environ.get("ROOTFS_DIR", "")
    if given:
        return _given(given)
    return RootfsStore(paths.rootfs).current()


def need(paths: Paths, environ: Mapping[str, str]) -> Installed:
    found = find(paths, environ)
    if found is None:
        raise RootfsError(
            N_("Alpine is not installed, so the command cannot run in it."),
            N_(
                "Install it with `ollmsandbox rootfs install`, or use this machine's own "
                "system: `ollmsandbox run --no-rootfs`, `ollmsandbox rootfs use host`."
            ),
        )
    return found


def _given(given: str) -> Installed:
    folder = os.path.realpath(given)
    if not given.startswith("/") or not is_rootfs_ready(Path(folder)):
        raise RootfsError(
            N_("ROOTFS_DIR is no prepared system: {given}."),
            N_(
                "It has to be the full path of a folder with bin/sh and {version_file}. Name "
                "another, or unset ROOTFS_DIR."
            ),
            given=given,
            version_file=VERSION_FILE,
        )
    found = _read(Path(folder))
    assert found is not None
    return Installed(folder, found.version, found.tier, is_given=True)


class RootfsStore:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.downloads = folder / _DOWNLOADS

    def current(self) -> Installed | None:
        try:
            name = (self.folder / _CURRENT).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            name = ""
        if name.startswith(_NAME) and "/" not in name and is_rootfs_ready(self.folder / name):
            return _read(self.folder / name)
        # Killed after it was put into place, before that was noted.
        return max(self.all(), key=lambda one: version_order(one.version), default=None)

    def all(self) -> list[Installed]:
        try:
            names = sorted(name for name in os.listdir(self.folder) if name.startswith(_NAME))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._closed(error) from error
        found = (_read(self.folder / name) for name in names if is_rootfs_ready(self.folder / name))
        return [one for one in found if one is not None]

    @contextlib.contextmanager
    def building(self, wait: Callable[[], None]) -> Iterator[None]:
        """One builder at a time. `wait` is called while there is another, and may raise."""
        make_folder(self.folder)
        try:
            lock = FileLock(self.folder / _LOCK, on_wait=wait)
        except OSError as error:
            raise self._closed(error) from error
        with lock:
            yield

    def _closed(self, error: OSError) -> RootfsError:
        return RootfsError(
            N_("{folder} cannot be used: {why}."),
            N_("See whether it is yours; it may have been made by root."),
            folder=self.folder,
            why=error.strerror or str(error),
        )

    def new_folder(self) -> Path:
        """To build in. What an earlier builder left is of no use."""
        import tempfile

        self.sweep()
        made = Path(tempfile.mkdtemp(dir=self.folder, prefix=_NEW))
        made.chmod(0o755)
        return made

    def put_in_place(self, built: Path, version: str, tier: int) -> Installed:
        """From here on commands run in it; those that run go on in what they began in."""
        write_inside(built, TIER_FILE, f"{tier}\n")
        write_inside(built, VERSION_FILE, f"{version}\n")
        number, name = 1, f"{_NAME}{version}"
        while os.path.lexists(self.folder / name):
            number += 1
            name = f"{_NAME}{version}-{number}"
        os.rename(built, self.folder / name)
        self.use(name)
        return Installed(str(self.folder / name), version, tier)

    def use(self, name: str) -> None:
        write_atomically(self.folder / _CURRENT, f"{name}\n")

    def sweep(self) -> None:
        """Who builds calls this: whatever is not used any more goes."""
        current = self.current()
        for name in os.listdir(self.folder):
            if name.startswith((_NEW, _GONE)):
                # A program that a killed builder had started may still be dying. Next time, then.
                with contextlib.suppress(OSError):
                    _remove(self.folder, name)
            elif name.startswith(_NAME) and (
                current is None or name != os.path.basename(current.folder)
            ):
                self._remove_if_free(name)

    def remove(self) -> bool:
        """All of it, or nothing and False if a command runs in any of it."""
        with contextlib.ExitStack() as closing:
            held = []
            for one in self.all():
                lock = _lock_alone(Path(one.folder))
                if lock is None:
                    return False
                closing.enter_context(lock)
                held.append(os.path.basename(one.folder))
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.folder / _CURRENT)
            for name in held:
                self._throw_away(name)
        self.forget_downloads()
        self.sweep()
        return True

    def forget_downloads(self) -> None:
        _remove(self.folder, _DOWNLOADS)

    def remove_if_replaced(self, used: Installed) -> None:
        current = self.current()
        if current is not None and current.folder != used.folder:
            self._remove_if_free(os.path.basename(used.folder))

    def _remove_if_free(self, name: str) -> None:
        # If not, it goes with the last command that runs in it.
        lock = _lock_alone(self.folder / name)
        if lock is not None:
            with lock:
                self._throw_away(name)

    def _throw_away(self, name: str) -> None:
        # Who looked for it meanwhile finds that it is another, or gone.
        gone = f"{_GONE}{os.urandom(4).hex()}"
        # Somebody else may have been quicker.
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.folder / name, self.folder / gone)
            _remove(self.folder, gone)


def _lock_alone(folder: Path) -> FileLock | None:
    """Keep commands out; return None if one runs in there, or if the folder is gone."""
    try:
        return FileLock(folder, is_folder=True, timeout=0)
    except (FileNotFoundError, BlockingIOError):
        return None


def _read(folder: Path) -> Installed | None:
    try:
        version = _text(folder / VERSION_FILE)
    except (OSError, ValueError):
        return None
    try:
        tier = int(_text(folder / TIER_FILE))
    except (OSError, ValueError):
        tier = 0
    return Installed(str(folder), version, tier)


def _text(file: Path) -> str:
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, encoding="ascii") as opened:
        return opened.read(100).strip()


def version_order(version: str) -> list[int]:
    """To compare by."""
    return [int(number) for number in re.findall("[0-9]+", version)]


def _is_at(lock: FileLock, folder: str) -> bool:
    try:
        return os.path.samestat(lock.fstat(), os.stat(folder))
    except OSError:
        return False


def _remove(folder: Path, name: str) -> None:
    around = os.open(folder, _FOLDER)
    try:
        # Somebody else may be removing it, too.
        with contextlib.suppress(FileNotFoundError):
            trees.remove(name, around)
    finally:
        os.close(around)
