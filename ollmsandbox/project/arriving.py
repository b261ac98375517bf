# SPDX-License-Identifier: GPL-3.0-or-later
"""What has come into a pending layer while a command ran, which therefore did not see it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from . import pending
from .changes import is_too_deep
from .exchange import Spot
from .layers import folders_in, is_whiteout
from .tree import Tree, folders_above, modes_of

# Of a layer that the command did not have below it, all is new.
NEVER_SEEN = -1


@dataclass(frozen=True)
class Unseen:
    """What the command did not see."""

    # All but folders; and whether it is a deletion.
    places: Mapping[str, bool]
    # New ones: there may be nothing in them.
    folders: Collection[str] = ()

    def __bool__(self) -> bool:
        return bool(self.places or self.folders)


def came_since(layer: str, began: int, *, newest: int, now: int) -> dict[str, bool]:
    """What has come into the layer, but folders; and whether it is a deletion. The `newest` was
    there when it `began`: if the clock was set back before, that is later than `now`."""
    found: dict[str, bool] = {}
    if pending.is_empty(layer):
        return found
    tree = Tree(layer, modes_of(layer))
    try:
        for path, around in folders_of(tree):
            with os.scandir(around) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        continue
                    there = entry.stat(follow_symlinks=False)
                    at = there.st_ctime_ns
                    if at > began and not now < at <= newest:
                        inner = f"{path}/{entry.name}" if path else entry.name
                        found[inner] = is_whiteout(there)
    finally:
        tree.close()
    return found


def in_layer(layer: str, paths: Collection[str]) -> dict[str, bool]:
    """The same of what is at these paths, or around them and no folder. A folder that came as a
    whole has files in it that are older than its coming."""
    found: dict[str, bool] = {}
    if not paths or pending.is_empty(layer):
        return found
    tree = Tree(layer, modes_of(layer))
    try:
        for path in paths:
            for place in (path, *folders_above(path)):
                spot = spot_in(tree, place)
                there = spot.look() if spot else None
                if there is not None:
                    if not stat.S_ISDIR(there.st_mode):
                        found[place] = is_whiteout(there)
                    break
    finally:
        tree.close()
    return found


def made_folders(layer: str, root: str, paths: Collection[str]) -> list[str]:
    """Those of the paths that are folders there, and not on disk."""
    found: list[str] = []
    if not paths or pending.is_empty(layer):
        return found
    tree = Tree(layer, modes_of(layer))
    try:
        for path in paths:
            spot = spot_in(tree, path)
            there = spot.look() if spot else None
            is_folder = there is not None and stat.S_ISDIR(there.st_mode)
            if is_folder and not os.path.lexists(f"{root}/{path}"):
                found.append(path)
    finally:
        tree.close()
    return found


def folders_of(tree: Tree) -> Iterator[tuple[str, int]]:
    """All of a layer's folders, open as long as they are looked at."""
    waiting = [""]
    while waiting:
        path = waiting.pop()
        if is_too_deep(path):
            continue
        around = tree.folder(path)
        if os.fstat(around).st_mode & 0o500 != 0o500:
            tree.unlock(path)
            around = tree.folder(path)
        yield path, around
        around = tree.folder(path)
        waiting += (f"{path}/{name}" if path else name for name in folders_in(around))


def spot_in(tree: Tree, path: str) -> Spot | None:
    """Where we may write. None if there is no folder around it."""
    around = os.path.dirname(path)
    try:
        if os.fstat(tree.folder(around)).st_mode & 0o700 != 0o700:
            tree.unlock(around)
        return Spot(*tree.split(path))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise
