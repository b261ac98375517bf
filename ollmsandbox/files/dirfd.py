# SPDX-License-Identifier: GPL-3.0-or-later
"""Work in folders by descriptors alone, so that no link in them can lead the work outside."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from .. import N_
from ..errors import ProjectError
from .atomic import write_atomically

# As many as the kernel follows.
_MOST_LINKS = 40
# Flags to open a folder.
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def opened_folder(
    path: str | os.PathLike[str], dir_fd: int | None = None, *, follow_link: bool = False
) -> Iterator[int]:
    """Open a folder for the block. With `follow_link`, it may be a link that the user chose, such
    as the folder for the program's data."""
    flags = FOLDER & ~os.O_NOFOLLOW if follow_link else FOLDER
    descriptor = os.open(path, flags, dir_fd=dir_fd)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class DirEntryAt(NamedTuple):
    """A name in an open folder."""

    dir_fd: int
    name: str

    def lstat(self) -> os.stat_result | None:
        try:
            return os.stat(self.name, dir_fd=self.dir_fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def link_to(self, other: DirEntryAt) -> None:
        """Make a hard link, of a symbolic link to the link itself. Never replaces anything."""
        os.link(
            self.name,
            other.name,
            src_dir_fd=self.dir_fd,
            dst_dir_fd=other.dir_fd,
            follow_symlinks=False,
        )

    def rename_to(self, other: DirEntryAt) -> None:
        """Rename it, in the place of what is there."""
        os.rename(self.name, other.name, src_dir_fd=self.dir_fd, dst_dir_fd=other.dir_fd)

    def unlink(self, *, missing_ok: bool = False) -> None:
        with contextlib.suppress(*([FileNotFoundError] if missing_ok else [])):
            os.unlink(self.name, dir_fd=self.dir_fd)


class OpenTree:
    """A folder and those in it, opened one name after the other.

    The way to the last folder stays open: changes come sorted, so the next one is mostly near.
    Folders without permissions get them while the tree is open.
    """

    def __init__(
        self,
        root: str,
        modes_file: Path | None = None,
        *,
        top: int = -1,
        missing_ok: bool = False,
    ) -> None:
        """Open `root`, or take over `top` if it is open already.

        `modes_file` keeps the modes to be restored, so that no kill loses them, nor a power cut. If
        `missing_ok`, a root that does not exist is like an empty one.
        """
        self.root = root
        with contextlib.suppress(*([FileNotFoundError] if missing_ok else [])):
            top = top if top >= 0 else os.open(root, FOLDER)
        self._top = top
        # The last folder, and the names and descriptors of those on the way to it.
        self._last = ""
        self._way: list[tuple[str, int]] = []
        self._modes_file = modes_file
        self._written_modes = read_modes_file(modes_file) if modes_file else {}
        self._modes = dict(self._written_modes)

    def folder(self, path: str) -> int:
        """Return the descriptor of a folder, which stays the tree's. "" is the root."""
        if self._top < 0:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.root)
        if path == self._last and self._way:
            return self._way[-1][1]
        # Comparing whole paths instead of their parts is quick where a path has thousands of them.
        while self._last and path != self._last and not path.startswith(f"{self._last}/"):
            self._last = self._last.rpartition("/")[0]
            os.close(self._way.pop()[1])
        rest = path[len(self._last) + 1 :] if self._last else path
        for name in rest.split("/") if path != self._last else ():
            if name in ("", ".", ".."):
                raise NotADirectoryError(name)
            dir_fd = self._way[-1][1] if self._way else self._top
            inner = f"{self._last}/{name}" if self._last else name
            try:
                descriptor = os.open(name, FOLDER, dir_fd=dir_fd)
            except PermissionError:
                self._unlock(name, dir_fd, inner)
                descriptor = os.open(name, FOLDER, dir_fd=dir_fd)
            self._way.append((name, descriptor))
            self._last = inner
        return self._way[-1][1] if self._way else self._top

    def split(self, path: str) -> tuple[int, str]:
        """Return the descriptor of the folder that contains `path`, and the name in it."""
        parent, _, name = path.rpartition("/")
        return self.folder(parent), name

    def unlock(self, path: str) -> None:
        """Make a folder writable for us until the tree is closed."""
        if not path:
            mode = stat.S_IMODE(os.fstat(self._top).st_mode)
            if mode & 0o700 != 0o700:
                self._remember(path, mode)
                os.fchmod(self._top, mode | 0o700)
            return
        dir_fd, name = self.split(path)
        self._unlock(name, dir_fd, path)

    def mode_before(self, path: str) -> int | None:
        """Return the mode of a folder that was unlocked; None if it was not."""
        return self._modes.get(path)

    def set_mode(self, path: str, mode: int) -> None:
        """Give a folder this mode when the tree is closed."""
        self._modes[path] = mode

    def _unlock(self, name: str, dir_fd: int, path: str) -> None:
        try:
            found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        except PermissionError:
            # The folder around it may be readable, but not searchable.
            self._unlock_last(os.path.dirname(path))
            found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        mode = stat.S_IMODE(found.st_mode)
        if mode & 0o700 != 0o700:
            self._remember(path, mode)
            set_mode(name, dir_fd, mode | 0o700)

    def _unlock_last(self, path: str) -> None:
        """Unlock the folder that was opened last, which is `path`."""
        if not path:
            self.unlock("")
            return
        name, descriptor = self._way[-1]
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        self._remember(path, mode)
        dir_fd = self._way[-2][1] if len(self._way) > 1 else self._top
        set_mode(name, dir_fd, mode | 0o700)

    def _remember(self, path: str, mode: int) -> None:
        self._modes.setdefault(path, mode)
        file = self._modes_file
        if file and (path not in self._written_modes or not file.exists()):
            self._written_modes[path] = mode
            # A tree has one user.
            write_atomically(file, json.dumps(self._written_modes), durably=True, is_locked=True)

    def close(self) -> list[tuple[str, OSError]]:
        """Restore the modes of folders and close them; return those that cannot be restored."""
        failed = []
        # The deepest first: the ones around them may be closed by their own modes.
        for path in sorted(self._modes, key=lambda path: (-path.count("/"), path == "", path)):
            try:
                if path:
                    dir_fd, name = self.split(path)
                    found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
                    if stat.S_ISDIR(found.st_mode):
                        set_mode(name, dir_fd, self._modes[path])
                else:
                    os.fchmod(self._top, self._modes[path])
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                failed.append((path, error))
        self.leave()
        if self._modes_file:
            self._modes_file.unlink(missing_ok=True)
        return failed

    def leave(self) -> None:
        """Close all folders without restoring modes."""
        self._last = ""
        while self._way:
            os.close(self._way.pop()[1])
        if self._top >= 0:
            os.close(self._top)
            self._top = -1


def read_modes_file(file: Path) -> dict[str, int]:
    # A power cut can leave an empty file.
    with contextlib.suppress(FileNotFoundError, ValueError):
        return {str(path): int(mode) for path, mode in json.loads(file.read_text()).items()}
    return {}


def open_folder(name: str, dir_fd: int | None, wanted: int) -> tuple[int, int | None]:
    """Open a folder, after giving it permissions if it lacks the `wanted` ones. Return its
    descriptor, and the mode to restore if it was changed."""
    try:
        descriptor = os.open(name, FOLDER, dir_fd=dir_fd)
        if not wanted or os.access(".", wanted, dir_fd=descriptor, effective_ids=True):
            return descriptor, None
        os.close(descriptor)
    except PermissionError:
        if not wanted:
            raise
    mode = stat.S_IMODE(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
    set_mode(name, dir_fd, 0o700 | mode)
    return os.open(name, FOLDER, dir_fd=dir_fd), mode


def open_regular_file(
    file: str | os.PathLike[str], dir_fd: int | None = None, *, follow_links: bool = False
) -> BinaryIO:
    """Open a file for reading. Raise OSError for anything else, also for a pipe without a writer,
    and unless `follow_links` for a link."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(file, flags | (0 if follow_links else os.O_NOFOLLOW), dir_fd=dir_fd)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file", os.fspath(file))
    return open(descriptor, "rb")


def open_root(root: str) -> int:
    """Open a folder by a path whose links were resolved, and raise if there is one in it now."""
    try:
        descriptor = os.open(root, FOLDER)
    except OSError as error:
        raise _replaced(root) from error
    if os.readlink(f"/proc/self/fd/{descriptor}") != root:
        os.close(descriptor)
        raise _replaced(root)
    return descriptor


def _replaced(root: str) -> ProjectError:
    return ProjectError(
        N_("{root} was removed, or a link has taken its place."),
        N_("Restore the folder and try again."),
        root=root,
    )


def set_mode(name: str, dir_fd: int | None, mode: int, *, any_kind: bool = False) -> None:
    """Change a mode, never through a link, which another program may put there just now.

    Unless `any_kind`, only a folder's: a file may have another name elsewhere.
    """
    kind = 0 if any_kind else os.O_DIRECTORY
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=dir_fd)
    try:
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        os.chmod(f"/proc/self/fd/{descriptor}", mode)
    finally:
        os.close(descriptor)


def folders_above(path: str) -> Iterator[str]:
    """Yield the folders that contain `path`, innermost first, without the root."""
    while (path := os.path.dirname(path)) not in ("", "/"):
        yield path


def link_target(path: str) -> str | None:
    """Return the target of a link; None for anything else. Raise OSError if there is nothing."""
    try:
        return os.readlink(path)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return None


def follow_links(path: str, target_of: Callable[[str], str | None] = link_target) -> str:
    """Return where an absolute path leads. What `target_of` raises ends the way, as do more links
    than the kernel follows."""
    here: list[str] = []
    rest = path.split("/")[::-1]
    links = 0
    while rest:
        name = rest.pop()
        if name == "..":
            del here[-1:]
        elif name not in ("", "."):
            target = target_of("/".join(("", *here, name)))
            if target is None:
                here.append(name)
                continue
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            here = [] if target.startswith("/") else here
            rest += target.split("/")[::-1]
    return "/" + "/".join(here)


def allow_many_descriptors() -> None:
    """Raise the limit for open files: a descriptor is needed for each level of a deep folder."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1 << 16
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
