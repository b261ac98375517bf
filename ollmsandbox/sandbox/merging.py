# SPDX-License-Identifier: GPL-3.0-or-later
"""Merge what a run wrote to an overlay into the layer below it, or into the playground.

It is the command's work: no link in it is followed.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from ..files import trees
from ..files.dirfd import (
    FOLDER,
    UnlockedFolder,
    allow_many_descriptors,
    open_folder,
    set_mode,
)
from ..files.whiteouts import OPAQUE, is_opaque

# A folder that is deeper replaces the one below it as a whole.
_DEEPEST = 100
_NO_DEEPER = 1000


def merge_layer(above: int, below: int, *, is_lowest: bool = False, depth: int = 0) -> None:
    """Move everything in a folder of a layer into the one below it.

    If that is the lowest, nothing is below it that could be hidden: deletions are made there.
    Pipes and sockets are dropped, since runs that share the playground could meet at them.
    """
    for name in os.listdir(above):
        found = os.stat(name, dir_fd=above, follow_symlinks=False)
        try:
            there = os.stat(name, dir_fd=below, follow_symlinks=False)
        except FileNotFoundError:
            there = None
        is_folder = stat.S_ISDIR(found.st_mode)
        if is_folder:
            # A command may have left it without permissions.
            set_mode(name, above, found.st_mode | 0o700)
        elif is_lowest and not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
            if there is not None:
                trees.remove(name, below)
            os.unlink(name, dir_fd=above)
            continue
        if there is not None and stat.S_ISDIR(there.st_mode):
            if is_folder and depth < _DEEPEST and not _is_opaque_at(name, above):
                set_mode(name, below, there.st_mode | 0o700)
                with opened(name, above) as inner, opened(name, below) as into:
                    merge_layer(inner, into, is_lowest=is_lowest, depth=depth + 1)
                set_mode(name, below, stat.S_IMODE(found.st_mode))
                os.rmdir(name, dir_fd=above)
                continue
            trees.remove(name, below)
        elif there is not None and is_folder:
            if not is_lowest:
                # It goes on hiding what a deletion or a file there hid in the layers below.
                with opened(name, above) as folder:
                    os.setxattr(folder, OPAQUE, b"y")
            os.unlink(name, dir_fd=below)
        if is_folder and is_lowest:
            with opened(name, above) as folder:
                _remove_special(folder)
        os.rename(name, name, src_dir_fd=above, dst_dir_fd=below)
        if is_folder:
            set_mode(name, below, stat.S_IMODE(found.st_mode))


def _remove_special(top: int) -> None:
    """Remove all but files, links and folders: pipes, sockets, and whiteouts of what is gone. Also
    remove what is deeper than any real folder, where nobody would look for them."""
    levels: list[_Level] = []

    def enter(name: str, dir_fd: int) -> None:
        unlocked: list[UnlockedFolder] = []
        levels.append(_Level(open_folder(name, dir_fd, unlocked, os.W_OK | os.X_OK), [], unlocked))
        descriptor, folders, _unlocked = levels[-1]
        with os.scandir(descriptor) as entries:
            others = [
                e for e in entries if not (e.is_symlink() or e.is_file(follow_symlinks=False))
            ]
        for entry in others:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=descriptor)

    allow_many_descriptors()
    try:
        enter(".", top)
        while levels:
            descriptor, folders, _unlocked = levels[-1]
            if not folders:
                levels.pop().leave()
            elif len(levels) < _NO_DEEPER:
                enter(folders.pop(), descriptor)
            else:
                trees.remove(folders.pop(), descriptor)
    finally:
        while levels:
            levels.pop().leave()


class _Level(NamedTuple):
    descriptor: int
    # Those that are still to be searched.
    folders: list[str]
    unlocked: list[UnlockedFolder]

    def leave(self) -> None:
        os.close(self.descriptor)
        for one in self.unlocked:
            one.restore()


def _is_opaque_at(name: str, dir_fd: int) -> bool:
    with opened(name, dir_fd) as folder:
        return is_opaque(folder)


@contextlib.contextmanager
def opened(name: str, dir_fd: int | None = None) -> Iterator[int]:
    """Open a folder, not through a link, and close it at the end."""
    descriptor = os.open(name, FOLDER, dir_fd=dir_fd)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
