# SPDX-License-Identifier: GPL-3.0-or-later
"""A folder that is worked in by descriptors alone: no link in it can lead the work outside."""

from __future__ import annotations

import os
import stat

from .. import trees
from .changes import FOLDER


class Tree:
    """Folders are opened one name after the other, and the last way is remembered: changes come
    sorted, so the next one is mostly near."""

    def __init__(self, root: str, top: int = -1) -> None:
        """`top` is the root if that is open already; it becomes the tree's."""
        self.root = root
        self._top = top if top >= 0 else os.open(root, FOLDER)
        self._way: list[tuple[str, int]] = []
        self._opened: dict[str, int] = {}

    def folder(self, path: str) -> int:
        """The descriptor of a folder; it stays the tree's. "" is the root."""
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
            self._opened.setdefault("", mode)
            os.fchmod(self._top, mode | 0o700)
            return
        around, name = self.split(path)
        self._unlock(name, around, path)

    def set_mode(self, path: str, mode: int) -> None:
        """Of a folder, when all else is done."""
        self._opened[path] = mode

    def _unlock(self, name: str, around: int, path: str) -> None:
        mode = stat.S_IMODE(os.stat(name, dir_fd=around, follow_symlinks=False).st_mode)
        trees.set_mode(name, around, mode | 0o700)
        self._opened.setdefault(path, mode)

    def close(self) -> list[tuple[str, OSError]]:
        """Give folders the modes that they shall have; returns those that could not get theirs."""
        failed = []
        # The deepest first: the ones around may be closed by theirs.
        for path in sorted(self._opened, key=lambda path: (-path.count("/"), path == "", path)):
            try:
                if path:
                    around, name = self.split(path)
                    trees.set_mode(name, around, self._opened[path])
                else:
                    os.fchmod(self._top, self._opened[path])
            except FileNotFoundError:
                continue
            except OSError as error:
                failed.append((path, error))
        self.leave()
        return failed

    def leave(self) -> None:
        while self._way:
            os.close(self._way.pop()[1])
        if self._top >= 0:
            os.close(self._top)
            self._top = -1
