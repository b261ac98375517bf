# SPDX-License-Identifier: GPL-3.0-or-later
"""A folder that is worked in by descriptors alone: no link in it can lead the work outside."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .. import N_
from ..errors import ProjectError


def folders_above(path: str) -> Iterator[str]:
    """From the inside out, without the root."""
    while (path := os.path.dirname(path)) not in ("", "/"):
        yield path


class Tree:
    """Folders are opened one name after the other, and the last way is remembered: changes come
    sorted, so the next one is mostly near."""

    def __init__(
        self, root: str, note: Path | None = None, *, top: int = -1, missing_ok: bool = False
    ) -> None:
        """The note is where modes are kept that have to come back, also after a kill. `top` is the
        root if that is open already; it becomes the tree's. If `missing_ok`, one that is gone is as
        one with nothing in it."""
        self.root = root
        with contextlib.suppress(*([FileNotFoundError] if missing_ok else [])):
            top = top if top >= 0 else os.open(root, FOLDER)
        self._top = top
        self._way: list[tuple[str, int]] = []
        self._note = note
        self._noted = read_modes(note) if note else {}
        self._opened = dict(self._noted)

    def folder(self, path: str) -> int:
        """The descriptor of a folder; it stays the tree's. "" is the root."""
        if self._top < 0:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.root)
        parts = path.split("/") if path else []
        common = 0
        for (name, _), part in zip(self._way, parts, strict=False):
            if name != part:
                break
            common += 1
        while len(self._way) > common:
            os.close(self._way.pop()[1])
        for number in range(common, len(parts)):
            name = parts[number]
            if name in ("", ".", ".."):
                raise NotADirectoryError(name)
            around = self._way[-1][1] if self._way else self._top
            try:
                descriptor = os.open(name, FOLDER, dir_fd=around)
            except PermissionError:
                self._unlock(name, around, "/".join(parts[: number + 1]))
                descriptor = os.open(name, FOLDER, dir_fd=around)
            self._way.append((name, descriptor))
        return self._way[-1][1] if self._way else self._top

    def split(self, path: str) -> tuple[int, str]:
        """The folder that something is in, and its name there."""
        around, _, name = path.rpartition("/")
        return self.folder(around), name

    def unlock(self, path: str) -> None:
        """Let us write in a folder; its mode comes back at the end."""
        if not path:
            mode = stat.S_IMODE(os.fstat(self._top).st_mode)
            if mode & 0o700 != 0o700:
                self._remember("", mode)
                os.fchmod(self._top, mode | 0o700)
            return
        around, name = self.split(path)
        self._unlock(name, around, path)

    def set_mode(self, path: str, mode: int) -> None:
        """Of a folder, when all else is done."""
        self._opened[path] = mode

    def note_mode(self, path: str, mode: int) -> None:
        """Of a folder, when all else is done; also after a kill."""
        self._opened.pop(path, None)
        self._noted.pop(path, None)
        self._remember(path, mode)

    def _unlock(self, name: str, around: int, path: str) -> None:
        try:
            found = os.stat(name, dir_fd=around, follow_symlinks=False)
        except PermissionError:
            # A folder may be open to be listed, and closed to whoever looks at what is in it.
            self._unlock_last(os.path.dirname(path))
            found = os.stat(name, dir_fd=around, follow_symlinks=False)
        mode = stat.S_IMODE(found.st_mode)
        if mode & 0o700 != 0o700:
            self._remember(path, mode)
            set_mode(name, around, mode | 0o700)

    def _unlock_last(self, path: str) -> None:
        """The folder that the way has led to."""
        if not path:
            self.unlock("")
            return
        name, descriptor = self._way[-1]
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        self._remember(path, mode)
        around = self._way[-2][1] if len(self._way) > 1 else self._top
        set_mode(name, around, mode | 0o700)

    def _remember(self, path: str, mode: int) -> None:
        self._opened.setdefault(path, mode)
        if self._note and (path not in self._noted or not self._note.exists()):
            self._noted[path] = mode
            # Always the same name: only one works in a tree, and nothing shall be left of it.
            new = _half(self._note)
            new.write_text(json.dumps(self._noted), encoding="utf-8")
            os.rename(new, self._note)

    def close(self) -> list[tuple[str, OSError]]:
        """Give folders the modes that they shall have; returns those that could not get theirs."""
        failed = []
        # The deepest first: the ones around may be closed by theirs.
        for path in sorted(self._opened, key=lambda path: (-path.count("/"), path == "", path)):
            try:
                if path:
                    around, name = self.split(path)
                    found = os.stat(name, dir_fd=around, follow_symlinks=False)
                    if stat.S_ISDIR(found.st_mode):
                        set_mode(name, around, self._opened[path])
                else:
                    os.fchmod(self._top, self._opened[path])
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                failed.append((path, error))
        self.leave()
        if self._note:
            for file in (self._note, _half(self._note)):
                file.unlink(missing_ok=True)
        return failed

    def leave(self) -> None:
        while self._way:
            os.close(self._way.pop()[1])
        if self._top >= 0:
            os.close(self._top)
            self._top = -1


def _half(note: Path) -> Path:
    return note.with_name(f"{note.name}~")


def read_modes(note: Path) -> dict[str, int]:
    # One that a power cut has left empty tells nothing.
    with contextlib.suppress(FileNotFoundError, ValueError):
        return {str(path): int(mode) for path, mode in json.loads(note.read_text()).items()}
    return {}


def modes_of(layer: str) -> Path:
    """Where a layer's note is."""
    return Path(f"{layer}.modes")


def mend(layer: str) -> None:
    """Folders that were open when we were killed."""
    note = modes_of(layer)
    if note.exists() and os.path.isdir(layer):
        Tree(layer, note).close()


FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Spot(NamedTuple):
    """A name in a folder that is held by its descriptor."""

    around: int
    name: str

    def look(self) -> os.stat_result | None:
        try:
            return os.stat(self.name, dir_fd=self.around, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def link_to(self, other: Spot) -> None:
        """A second name, of a link for the link itself; nothing is ever replaced."""
        os.link(
            self.name,
            other.name,
            src_dir_fd=self.around,
            dst_dir_fd=other.around,
            follow_symlinks=False,
        )


@dataclass(frozen=True)
class Opened:
    """A folder that was without permissions, to be so again."""

    name: str
    around: int
    mode: int

    def close_again(self) -> None:
        set_mode(self.name, self.around, self.mode)


def open_folder(name: str, around: int, opened: list[Opened], wanted: int = os.X_OK) -> int:
    """Also one that was left without permissions, if it is the person's: what is in it can only be
    looked at while it has them."""
    try:
        descriptor = os.open(name, FOLDER, dir_fd=around)
        if os.access(".", wanted, dir_fd=descriptor, effective_ids=True):
            return descriptor
        os.close(descriptor)
    except PermissionError:
        pass
    mode = stat.S_IMODE(os.stat(name, dir_fd=around, follow_symlinks=False).st_mode)
    set_mode(name, around, 0o700 | mode)
    opened.append(Opened(name, around, mode))
    return os.open(name, FOLDER, dir_fd=around)


def open_root(root: str) -> int:
    """A folder that was named with all links resolved, and has none on the way to it since."""
    try:
        descriptor = os.open(root, FOLDER)
    except OSError as error:
        raise _is_elsewhere(root) from error
    if os.readlink(f"/proc/self/fd/{descriptor}") != root:
        os.close(descriptor)
        raise _is_elsewhere(root)
    return descriptor


def _is_elsewhere(root: str) -> ProjectError:
    return ProjectError(
        N_("{root} is not the folder that it was: it is gone, or a link leads elsewhere now."),
        N_("Put the folder back and try again."),
        root=root,
    )


def _unlock(name: str, around: int) -> None:
    """A command may have left a folder without permissions."""
    set_mode(name, around, 0o700)


def set_mode(name: str, around: int, mode: int, *, any_kind: bool = False) -> None:
    """Never through a link, which somebody might put there just now; and unless it may be of any
    kind, only a folder's: a file at its name may have another name elsewhere."""
    kind = 0 if any_kind else os.O_DIRECTORY
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=around)
    try:
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        os.chmod(f"/proc/self/fd/{descriptor}", mode)
    finally:
        os.close(descriptor)


def _is_folder(name: str, around: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=around, follow_symlinks=False).st_mode)


def allow_many_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1 << 16
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
