# SPDX-License-Identifier: GPL-3.0-or-later
"""The installed root file systems: which one is current, and removing the others when unused.

Imports little, because every command that starts uses it.
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
from ...files.locks import FileLock, try_lock
from ...paths import Paths, make_folder
from .files import write_inside

VERSION_FILE = ".alpine-version"
TIER_FILE = ".alpine-tier"
_CURRENT = "current"
_NAME = "alpine-"
_NEW = ".new-"
_GONE = ".gone-"
_LOCK = ".rootfs.lock"
_PATIENCE = 1.0  # seconds


@dataclass(frozen=True)
class Installed:
    """A root file system that commands can run in."""

    folder: str
    version: str
    tier: int
    # From ROOTFS_DIR; it is never changed.
    is_given: bool = False

    @property
    def title(self) -> str:
        return f"Alpine {self.version}"

    def hold(self) -> FileLock:
        """Lock it so that it is not removed while a command runs in it."""
        gone = RootfsError(N_("{system} was just removed."), N_("Try again."), system=self.title)
        try:
            # Another program may hold the lock for a moment, to see whether it is in use.
            lock = FileLock(self.folder, is_folder=True, shared=True, timeout=_PATIENCE)
        except OSError as error:
            raise gone from error
        with contextlib.suppress(OSError):
            if os.path.samestat(lock.fstat(), os.stat(self.folder)):
                return lock
        lock.release()
        raise gone

    def release(self, lock: FileLock) -> None:
        """Unlock it, and remove it if a newer version has replaced it."""
        lock.release()
        if not self.is_given:
            RootfsStore(Path(self.folder).parent).remove_if_replaced(self)


def is_rootfs_ready(folder: Path, version: str = "", tier: int = 0) -> bool:
    """Return whether it is complete, of this version (if given), and of this tier at least."""
    wanted = ["bin/sh", VERSION_FILE, *(["usr/bin/python3"] if tier else [])]
    if not all(os.path.lexists(folder / name) for name in wanted):
        return False
    found = _read(folder)
    return found is not None and version in ("", found.version) and found.tier >= tier


def get_rootfs_dir(paths: Paths, environ: Mapping[str, str]) -> Path:
    """Return the folder of the root file system that commands would use, or, if none is installed,
    the one that an installation goes to."""
    found = find_rootfs(paths, environ)
    return paths.rootfs if found is None else Path(found.folder)


def find_rootfs(paths: Paths, environ: Mapping[str, str]) -> Installed | None:
    """Return the root file system that commands would use, or None."""
    given = environ.get("ROOTFS_DIR", "")
    if given:
        return _given(given)
    return RootfsStore(paths.rootfs).current()


def need_rootfs(paths: Paths, environ: Mapping[str, str]) -> Installed:
    found = find_rootfs(paths, environ)
    if found is None:
        raise RootfsError(
            N_("Alpine is not installed."),
            N_(
                "Install it with `ollmsandbox rootfs install`, or use this computer's own system "
                "with `ollmsandbox run --no-rootfs` or `ollmsandbox rootfs use host`."
            ),
        )
    return found


def _given(given: str) -> Installed:
    folder = os.path.realpath(given)
    if not given.startswith("/") or not is_rootfs_ready(Path(folder)):
        raise RootfsError(
            N_("ROOTFS_DIR is not a root file system: {given}."),
            N_(
                "Set it to the absolute path of a folder that contains bin/sh and "
                "{version_file}, or unset it."
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
        self.downloads = folder / "downloads"

    def current(self) -> Installed | None:
        try:
            name = (self.folder / _CURRENT).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            name = ""
        if name.startswith(_NAME) and "/" not in name and is_rootfs_ready(self.folder / name):
            return _read(self.folder / name)
        # A crash after it was put in place, before it became the current one.
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
        """Allow one installation at a time. `wait` is called while another runs, and may raise."""
        make_folder(self.folder)
        try:
            lock = FileLock(self.folder / _LOCK, on_wait=wait)
        except OSError as error:
            raise self._closed(error) from error
        with lock:
            yield

    def _closed(self, error: OSError) -> RootfsError:
        return RootfsError(
            N_("Cannot use {folder}: {why}."),
            N_("Check its owner: root may have created it."),
            folder=self.folder,
            why=error.strerror or str(error),
        )

    def new_folder(self) -> Path:
        """Return a new folder to build in, and remove what earlier installations left."""
        import tempfile

        self.sweep()
        made = Path(tempfile.mkdtemp(dir=self.folder, prefix=_NEW))
        made.chmod(0o755)
        return made

    def put_in_place(self, built: Path, version: str, tier: int) -> Installed:
        """Make it the current one. Running commands stay in theirs."""
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
        """Remove everything that is not used any more. Needs the lock of `building`."""
        current = self.current()
        for name in os.listdir(self.folder):
            if name.startswith((_NEW, _GONE)):
                # A killed installation's program may still be dying: then remove it next time.
                with contextlib.suppress(OSError):
                    trees.remove_path(self.folder / name)
            elif name.startswith(_NAME) and (
                current is None or name != os.path.basename(current.folder)
            ):
                self._remove_if_free(name)

    def remove(self) -> bool:
        """Remove all of them. Return False, and remove none, if a command runs in one."""
        with contextlib.ExitStack() as closing:
            held = []
            for one in self.all():
                lock = try_lock(Path(one.folder), is_folder=True)
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
        with contextlib.suppress(FileNotFoundError):
            trees.remove_path(self.downloads)

    def remove_if_replaced(self, used: Installed) -> None:
        current = self.current()
        if current is not None and current.folder != used.folder:
            self._remove_if_free(os.path.basename(used.folder))

    def _remove_if_free(self, name: str) -> None:
        # If it is in use, the last command removes it.
        lock = try_lock(self.folder / name, is_folder=True)
        if lock is not None:
            with lock:
                self._throw_away(name)

    def _throw_away(self, name: str) -> None:
        # After the rename, `hold` fails instead of using half of it.
        gone = f"{_GONE}{os.urandom(4).hex()}"
        # Another process may have removed it.
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.folder / name, self.folder / gone)
            trees.remove_path(self.folder / gone)


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
    """Return a sort key."""
    return [int(number) for number in re.findall("[0-9]+", version)]
