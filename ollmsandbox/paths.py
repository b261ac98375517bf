# SPDX-License-Identifier: GPL-3.0-or-later
"""Every file and folder the program owns, in one place."""

from __future__ import annotations

import hashlib
import os
import pwd
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from . import N_
from .errors import OllmSandboxError

_NAME = "ollmchat"


@dataclass(frozen=True)
class Paths:
    """The person's home and our folders in it. Nothing is created by asking for a path."""

    home: Path
    data: Path
    cache: Path
    config: Path
    runtime_candidates: tuple[Path, ...]

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Paths:
        home = Path(environ.get("HOME") or home_on_record())
        _check_owner(home)
        # A container that does not know its user sets HOME to /.
        if not home.is_absolute() or home == home.parent:
            raise OllmSandboxError(
                N_("It is not known where your home folder is."), N_("Set HOME to its full path.")
            )

        def xdg(variable: str, default: str) -> Path:
            # The XDG specification: a relative path is invalid and ignored.
            value = environ.get(variable, "")
            return Path(value) if value.startswith("/") else home / default

        runtime = environ.get("XDG_RUNTIME_DIR", "")
        candidates = [Path(runtime)] if runtime.startswith("/") else []
        candidates += [Path("/dev/shm"), Path("/tmp"), Path("/var/tmp")]
        return cls(
            home=home,
            data=xdg("XDG_DATA_HOME", ".local/share") / _NAME,
            cache=xdg("XDG_CACHE_HOME", ".cache") / _NAME,
            config=xdg("XDG_CONFIG_HOME", ".config") / _NAME,
            runtime_candidates=tuple(candidates),
        )

    @cached_property
    def playground(self) -> Path:
        return self.data / "playground"

    @cached_property
    def real_home(self) -> str:
        """The home folder, links resolved."""
        return real_path(self.home)

    @property
    def playground_inside(self) -> Path:
        """Where a command finds the playground."""
        return self.home / "playground"

    @property
    def database(self) -> Path:
        return self.data / "ollmsandbox.db"

    @property
    def unclaimed(self) -> Path:
        """Says that changes may wait that a new database does not know."""
        return self.data / "ollmsandbox.db-new"

    def pending(self, project: str) -> Path:
        """Where changes to a project wait. Named after its path, so that it is found without
        asking the database."""
        return self.data / "pending" / _key(project)

    def linked_roots(self, project: str) -> Path:
        return self.cache / f"roots-{_key(project)}.json"

    def system(self, project: str) -> Path:
        """Says in which system the commands of a project run."""
        return self.data / "systems" / _key(project)

    @property
    def rootfs(self) -> Path:
        """Systems that commands can run in instead of this machine's."""
        return self.data / "rootfs"

    @property
    def versions(self) -> Path:
        """What files were before a run, and what they were after it if that was undone."""
        return self.cache / "temp-files"

    @property
    def backups(self) -> Path:
        return self.cache / "edited"

    @property
    def profiles(self) -> Path:
        return self.config / "profiles"

    @property
    def own(self) -> tuple[Path, ...]:
        """Folders a command must never see."""
        return (self.data, self.cache, self.config)

    @cached_property
    def runtime(self) -> Path:
        """A private folder outside the home folder, made when missing.

        It holds the layers that overlayfs stacks on the home folder; the kernel refuses a layer
        that lies inside another one (ELOOP), so it cannot be below home.
        """
        home = f"{self.real_home.rstrip('/')}/"
        bases = [
            base for base in self.runtime_candidates if not f"{real_path(base)}/".startswith(home)
        ]
        for base in bases:
            folder = base / f"{_NAME}-{os.getuid()}"
            if _make_private(folder):
                return folder
        # Everybody can make that name in a folder for all; nobody knows this one.
        for base in bases:
            folder = base / f"{_NAME}-{os.getuid()}-{self._secret_name()}"
            if _make_private(folder):
                return folder
        raise OllmSandboxError(
            N_("There is no folder for temporary files outside your home folder."),
            N_("Make /dev/shm or /tmp writable, or set XDG_RUNTIME_DIR."),
        )

    def _secret_name(self) -> str:
        import secrets

        file = self.cache / "runtime-name"
        try:
            return file.read_text(encoding="ascii")
        except OSError:
            name = secrets.token_hex(8)
            fresh = make_folder(self.cache) / f"runtime-name-{name}"
            fresh.write_text(name, encoding="ascii")
            fresh.rename(file)
            return name


def _key(project: str) -> str:
    return hashlib.sha256(os.fsencode(project)).hexdigest()[:16]


def _check_owner(home: Path) -> None:
    """Root in somebody's home folder would trust what that person left there."""
    try:
        owner = home.stat().st_uid
    except OSError:
        return  # not there; said where it is needed
    if os.getuid() == 0 != owner:
        raise OllmSandboxError(
            N_("You are root, but HOME is another user's: {home}."),
            N_("Use sudo -H, or set HOME."),
            home=home,
        )


@cache
def home_on_record() -> str:
    """The home folder of the user who runs this, whatever HOME says; "" if there is none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def make_folder(folder: Path) -> Path:
    """Create one of our folders, and its parents, for nobody but the person."""
    try:
        _make_with_parents(folder)
    except OSError as error:
        raise OllmSandboxError(
            N_("{folder} cannot be made: {why}."), folder=folder, why=error.strerror
        ) from error
    return folder


def _make_with_parents(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        # Not by mkdir(parents=True), which leaves the mode of the parents to the umask: one of 0
        # would let everybody replace ~/.local/share.
        _make_with_parents(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def close_to_others(folder: Path) -> None:
    """One that was there before us, made by another program."""
    found = folder.stat()
    if found.st_mode & 0o077 and found.st_uid == os.getuid():
        folder.chmod(stat.S_IMODE(found.st_mode) & 0o700)


def _make_private(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError:
        return False
    # Somebody else may have put a link or a folder of theirs at this name in /tmp.
    found = folder.lstat()
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and stat.S_IMODE(found.st_mode) & 0o077 == 0
    )


def real_path(path: str | os.PathLike[str]) -> str:
    """As os.path.realpath; for what is there, the kernel knows it in a quarter of the time."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return os.path.realpath(path)
    try:
        found = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return os.path.realpath(path)
    finally:
        os.close(descriptor)
    # Else it was removed at this moment, or lies where no path leads to.
    whole = found.startswith("/") and not found.endswith(" (deleted)")
    return found if whole else os.path.realpath(path)


def is_inside(path: str, *folders: str) -> bool:
    """Return whether `path` is one of `folders` or lies in one. Only the names are compared."""
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


class FolderSet:
    """Answers `path in folders` as `is_inside` does, faster for many paths."""

    def __init__(self, folders: Iterable[str]) -> None:
        self._folders = frozenset(folders)
        self._prefixes = tuple(f"{folder.rstrip('/')}/" for folder in self._folders)

    def __contains__(self, path: str) -> bool:
        return path in self._folders or path.startswith(self._prefixes)
