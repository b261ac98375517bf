# SPDX-License-Identifier: GPL-3.0-or-later
"""The locations of the program's files and folders, and helpers for paths."""

from __future__ import annotations

import hashlib
import os
import pwd
import stat
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TypeVar

from . import N_
from .errors import OllmSandboxError

# The specification gives these names: "ollmchat" for the folders, and in the cache "edited" for the
# daily backups.
_NAME = "ollmchat"

_Value = TypeVar("_Value")


class Paths:
    """The user's home folder and the program's folders. Asking for a path creates nothing, except
    `runtime`."""

    def __init__(
        self,
        home: Path,
        data: Path,
        cache: Path,
        config: Path,
        runtime_candidates: tuple[Path, ...],
    ) -> None:
        self.home = home
        self.data = data
        self.cache = cache
        self.config = config
        self.runtime_candidates = runtime_candidates

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Paths:
        home = Path(environ.get("HOME") or home_on_record())
        _check_owner(home)
        # A container that does not know its user sets HOME to /.
        if not home.is_absolute() or home == home.parent:
            raise OllmSandboxError(
                N_("Your home folder is unknown."), N_("Set HOME to its full path.")
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
        """The home folder with links resolved."""
        return real_path(self.home)

    @property
    def playground_inside(self) -> Path:
        """The path of the playground inside the sandbox."""
        return self.home / "playground"

    @property
    def database(self) -> Path:
        return self.data / "ollmsandbox.db"

    @property
    def runs(self) -> Path:
        """A folder for each run, with its changes and the versions that undo needs."""
        return self.data / "runs"

    @property
    def projects(self) -> Path:
        return self.data / "projects"

    def shown(self, path: str) -> str:
        """Return the path with ~ for the user's home folder."""
        home = self.real_home
        return f"~{path[len(home) :]}" if is_inside(path, home) else path

    def project_data(self, project: str) -> Path:
        """The folder for the lock, the job and the pending layer of a project, named by a hash of
        its path, so that it is found without the database."""
        return self.projects / project_key(project)

    @property
    def caches(self) -> tuple[Path, Path]:
        """The folders of the cache layers: the usual one, and the one for overlays that bwrap
        mounts, whose layers cannot be inside `~/.cache` because that is below them."""
        return (self.cache / "caches", self.data / "caches")

    def linked_roots(self, project: str) -> Path:
        return self.cache / f"roots-{project_key(project)}.json"

    def scan_cache(self, project: str) -> Path:
        """The file that lists what the last scan found."""
        return self.cache / f"scan-{project_key(project)}.json"

    def system(self, project: str) -> Path:
        """The file that says which system the commands of a project run in."""
        return self.data / "systems" / project_key(project)

    @property
    def rootfs(self) -> Path:
        """The root file systems that commands can run in instead of the host's."""
        return self.data / "rootfs"

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
        """A private folder outside the home folder, created if it is missing.

        It contains the mask layers for the home folder. The kernel refuses a layer that is inside
        another one (ELOOP), so it cannot be in the home folder.
        """
        home = self.real_home
        bases = [base for base in self.runtime_candidates if not is_inside(real_path(base), home)]
        for base in bases:
            folder = base / f"{_NAME}-{os.getuid()}"
            if _make_private(folder):
                return folder
        # Another user may have taken that name in a shared folder; this one cannot be guessed.
        for base in bases:
            folder = base / f"{_NAME}-{os.getuid()}-{self._secret_name()}"
            if _make_private(folder):
                return folder
        raise OllmSandboxError(
            N_("No folder for temporary files outside your home folder is available."),
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


def project_key(project: str) -> str:
    """Return the name of a project's files: a hash of its path."""
    return hashlib.sha256(os.fsencode(project)).hexdigest()[:16]


def _check_owner(home: Path) -> None:
    """Raise if root uses the home folder of another user, whose files it would trust."""
    try:
        owner = home.stat().st_uid
    except OSError:
        return  # missing; reported where it is needed
    if os.getuid() == 0 != owner:
        raise OllmSandboxError(
            N_("You are root, but HOME belongs to another user: {home}."),
            N_("Use sudo -H, or set HOME."),
            home=home,
        )


@cache
def home_on_record() -> str:
    """Return the user's home folder from the password database, or "" if there is none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


MAKE_WRITABLE = N_(
    "Make your home folder writable, or set XDG_DATA_HOME, XDG_CACHE_HOME and XDG_CONFIG_HOME to "
    "folders that are."
)


def make_folder(folder: Path) -> Path:
    """Create one of the program's folders and its parents, accessible only to the user."""
    try:
        _make_with_parents(folder)
    except OSError as error:
        raise OllmSandboxError(
            N_("Cannot create {folder}: {why}."),
            MAKE_WRITABLE,
            folder=folder,
            why=error.strerror,
        ) from error
    return folder


def _make_with_parents(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        # Not with mkdir(parents=True), which leaves the mode of the parents to the umask: with 0,
        # every user could replace ~/.local/share.
        _make_with_parents(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def keep_own_rights(folder: str | os.PathLike[str], rights: int = 0o700) -> None:
    """Give the user back the rights to a folder whose mode a command may have changed."""
    mode, rights = stat.S_IMODE(os.stat(folder).st_mode), rights & 0o700
    if mode & rights != rights:
        os.chmod(folder, mode | rights)


def close_to_others(folder: Path) -> None:
    """Remove other users' permissions from a folder that another program created."""
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
    # Another user may have put a link or a folder at this name in /tmp.
    found = folder.lstat()
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and stat.S_IMODE(found.st_mode) & 0o077 == 0
    )


def real_path(path: str | os.PathLike[str]) -> str:
    """Resolve links as os.path.realpath does, in a quarter of the time for existing paths."""
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
    # Otherwise it was removed at this moment, or has no path here.
    whole = found.startswith("/") and not found.endswith(" (deleted)")
    return found if whole else os.path.realpath(path)


def is_missing(folder: str) -> bool:
    """Return whether a project's folder is missing, or a link is in its place."""
    return not os.path.isdir(folder) or os.path.realpath(folder) != folder


def is_inside(path: str, *folders: str) -> bool:
    """Return whether `path` is one of `folders` or is inside one. Only the names are compared."""
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def near(path: str, folder: str) -> str:
    """Return a path inside a folder relative to it, and any other path as it is. One with `..` may
    lead out of the folder, after a link."""
    if not folder or not is_inside(path, folder) or ".." in path.split("/"):
        return path
    return os.path.relpath(path, folder)


class FolderSet:
    """Answers `path in folders` as `is_inside` does, faster for many paths."""

    def __init__(self, folders: Iterable[str]) -> None:
        self._folders = _stripped(tuple(folders))

    def __contains__(self, path: str) -> bool:
        # The path itself, then each folder around it; "" is the root.
        end = len(path.rstrip("/"))
        while end >= 0:
            if path[:end] in self._folders:
                return True
            end = path.rfind("/", 0, end)
        return False


@lru_cache(maxsize=16)
def _stripped(folders: tuple[str, ...]) -> frozenset[str]:
    return frozenset(folder.rstrip("/") for folder in folders)


class FolderValues(dict[str, _Value]):
    """A value for each folder inside a top folder, by its relative path; the top folder's is "".
    `find` returns a missing value, given the path and the value of the parent folder."""

    def __init__(self, top: _Value, find: Callable[[str, _Value], _Value]) -> None:
        super().__init__({"": top})
        self._find = find

    def __missing__(self, folder: str) -> _Value:
        # Not by recursion: a path may have thousands of parts.
        unknown = [folder]
        while (folder := folder.rpartition("/")[0]) not in self:
            unknown.append(folder)
        value = self[folder]
        for folder in reversed(unknown):
            value = self[folder] = self._find(folder, value)
        return value
