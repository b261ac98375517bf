# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks into layers: what is at a path is what the uppermost layer has there.

Links are not followed: what they lead to has a path of its own.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from ...files.dirfd import FOLDER, OpenTree
from .overlayfs import find_in_open_layers, names_in


@dataclass(frozen=True)
class Seen:
    """A file, link or folder, and the layer that it is in."""

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


def find_in_layers(layers: Sequence[str], path: str) -> Seen | None:
    """Return what is at a path; None if it does not exist, or if a parent is not a folder."""
    with _opened(layers, os.path.dirname(path)) as around:
        if path == "":
            for layer, descriptor in around.items():
                return Seen(layer, "", os.fstat(descriptor))
        there = {descriptor: layer for layer, descriptor in around.items()}
        found, parts = find_in_open_layers(list(there), os.path.basename(path))
        return None if found is None else Seen(there[parts[0]], path, found)


def names_in_layers(layers: Sequence[str], path: str) -> list[str]:
    """Return the names in a folder; none if the path is not a folder."""
    with _opened(layers, path) as around:
        folders = list(around.values())
        return [
            name for name in names_in(folders) if find_in_open_layers(folders, name)[0] is not None
        ]


def open_seen(seen: Seen) -> int:
    """Open a file for reading. Raise OSError if it has become something else, such as a pipe."""
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
    """Return the content of a file, or its first `most` bytes."""
    with os.fdopen(open_seen(seen), "rb") as file:
        return file.read(most)


def read_link(seen: Seen) -> str:
    """Return the target of a link, or "" if it is no longer a link."""
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
    """Open a folder in each layer that has it; yield the descriptors by layer."""
    around: dict[str, int] = {}
    try:
        for layer in layers:
            # The project may be gone, or a link may be in its place.
            with suppress(FileNotFoundError, NotADirectoryError):
                around[layer] = os.open(layer, FOLDER)
        for name in path.split("/") if path else ():
            there = {descriptor: layer for layer, descriptor in around.items()}
            found, parts = find_in_open_layers(list(there), name)
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
