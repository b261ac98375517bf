# SPDX-License-Identifier: GPL-3.0-or-later
"""A project as the next command would see it: what waits, on top of what is on disk. No link is
followed: what it leads to has a path of its own."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ...files.dirfd import FOLDER, OpenTree
from ...paths import Paths, is_inside
from ..apply.recorder import linked_roots
from ..pending import layer as pending
from .overlayfs import find, names_in


@dataclass(frozen=True)
class Seen:
    """Something that is there, and the layer that it lies in."""

    layer: str
    path: str
    found: os.stat_result

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.found.st_mode)

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.found.st_mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.found.st_mode)


def root_of(paths: Paths, project: str, path: str) -> tuple[str, str] | None:
    """The root that a full path lies in, and the way from there ("" is the root itself); None if
    commands may not change it."""
    for root in (project, *linked_roots(paths, project)):
        if is_inside(path, root):
            return root, path[len(root.rstrip("/")) + 1 :]
    return None


def layers_of(paths: Paths, project: str, root: str) -> tuple[str, ...]:
    """From the top: what waits, if anything does, and the root itself."""
    folder = paths.pending(project)
    if folder.is_dir():
        layer = pending.layer_of(folder, root)
        if layer and not pending.is_empty(layer):
            return (layer, root)
    return (root,)


def find_in_layers(layers: Sequence[str], path: str) -> Seen | None:
    """None if there is nothing, or if a part of the way is no folder."""
    with _opened(layers, os.path.dirname(path)) as around:
        if path == "":
            return Seen(layers[0], "", os.fstat(next(iter(around.values()))))
        there = {descriptor: layer for layer, descriptor in around.items()}
        found, parts = find(list(there), os.path.basename(path))
        return None if found is None else Seen(there[parts[0]], path, found)


def names_in_layers(layers: Sequence[str], path: str) -> list[str]:
    """What is in a folder; nothing if it is none."""
    with _opened(layers, path) as around:
        folders = list(around.values())
        return [name for name in names_in(folders) if find(folders, name)[0] is not None]


def open_seen(seen: Seen) -> int:
    """A descriptor to read a file. What became a pipe just now does not make us wait."""
    tree = OpenTree(seen.layer)
    try:
        around, name = tree.split(seen.path)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(name, flags, dir_fd=around)
    finally:
        tree.leave()
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "It is no file")
    return descriptor


def read_seen(seen: Seen, most: int = -1) -> bytes:
    """All of it, or the first bytes."""
    with os.fdopen(open_seen(seen), "rb") as file:
        return file.read(most)


def read_link(seen: Seen) -> str:
    """What it leads to; "" if it is none any more."""
    tree = OpenTree(seen.layer)
    try:
        around, name = tree.split(seen.path)
        return os.readlink(name, dir_fd=around)
    except OSError:
        return ""
    finally:
        tree.leave()


@contextmanager
def _opened(layers: Sequence[str], path: str) -> Iterator[dict[str, int]]:
    """The folders that make up one, by layer; none if there is none at that path."""
    around = {layer: os.open(layer, FOLDER) for layer in layers}
    try:
        for name in path.split("/") if path else ():
            there = {descriptor: layer for layer, descriptor in around.items()}
            found, parts = find(list(there), name)
            inner: dict[str, int] = {}
            try:
                if found is not None and stat.S_ISDIR(found.st_mode):
                    for part in parts:
                        inner[there[part]] = os.open(name, FOLDER, dir_fd=part)
            finally:
                for descriptor in there:
                    os.close(descriptor)
                around = inner
        yield around
    finally:
        for descriptor in around.values():
            os.close(descriptor)
