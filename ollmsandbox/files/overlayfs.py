# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads overlayfs layers as the kernel does: whiteouts, opaque folders, and origins.

What is at a path is what the uppermost layer has there. Links are not followed: what they lead to
has a path of its own. `trees.py` recognises a single whiteout.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from .dirfd import FOLDER, OpenTree, open_regular_file
from .trees import is_whiteout

# In that attribute: where the file handle begins, where its type is, and the type of handle that
# begins with the inode's number.
_HANDLE, _HANDLE_TYPE, _INODE = 21, 4, 1
_BLOCK = 1 << 20
_SMALL = 1 << 20


def is_copied_up(path: str) -> bool:
    """Return whether a file of an upper folder is a copy of one of the project's.

    The attribute may be empty: without CAP_DAC_READ_SEARCH, or on a file system without file
    handles, the kernel cannot name the original.
    """
    return _origin(path) is not None


def origin_of(path: str) -> int | None:
    """Return the inode of the project's file that this is a copy of; None if it is unknown."""
    mark = _origin(path) or b""
    if len(mark) < _HANDLE + 4 or mark[_HANDLE_TYPE] != _INODE:
        return None
    return int.from_bytes(mark[_HANDLE : _HANDLE + 4], sys.byteorder)


def _origin(path: str) -> bytes | None:
    with suppress(OSError):
        return os.getxattr(path, "user.overlay.origin", follow_symlinks=False)
    return None


def find_in_open_layers(
    lowers: Sequence[int], name: str
) -> tuple[os.stat_result | None, list[int]]:
    """Return what is visible at a name through the layers, and the layers that it is in: several
    for a folder, one for anything else. None of them has opaque folders."""
    found: os.stat_result | None = None
    parts: list[int] = []
    for lower in lowers:
        try:
            here = os.stat(name, dir_fd=lower, follow_symlinks=False)
        except FileNotFoundError:
            continue
        is_folder = stat.S_ISDIR(here.st_mode)
        if is_whiteout(here) or (found is not None and not is_folder):
            break
        found = found or here
        parts.append(lower)
        if not is_folder:
            break
    return found, parts


def names_in(folders: Sequence[int]) -> list[str]:
    return sorted({name for folder in folders for name in os.listdir(folder)})


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


def read_seen(seen: Seen, most: int = -1) -> bytes:
    """Return the content of a file, or its first `most` bytes. Raise OSError if it has become
    something else, such as a pipe."""
    with _opened_around(seen) as (around, name), open_regular_file(name, around) as file:
        return file.read(most)


def read_merged(layers: Sequence[str], path: str, *, most: int = _SMALL) -> bytes | None:
    """Return the content of a small file as it is visible through the layers, the top one first;
    None if there is none, a link is on the way to it, or it cannot be read."""
    try:
        seen = find_in_layers(layers, path)
        data = read_seen(seen, most + 1) if seen is not None and seen.is_file else None
    except OSError:
        return None
    return data if data is not None and len(data) <= most else None


def read_link(seen: Seen) -> str:
    """Return the target of a link, or "" if it is no longer a link."""
    with suppress(OSError), _opened_around(seen) as (around, name):
        return os.readlink(name, dir_fd=around)
    return ""


@contextmanager
def _opened_around(seen: Seen) -> Iterator[tuple[int, str]]:
    """Open the folder that something is in; yield it with the name."""
    tree = OpenTree(seen.layer)
    try:
        yield tree.split(seen.path)
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


def same_bytes(
    name: str, around: int, other: str, other_around: int, *, most: int | None = None
) -> bool:
    """Return whether two files have the same content; False if one of them cannot be read, or if
    more than `most` bytes would have to be compared."""
    try:
        with open_regular_file(name, around) as one, open_regular_file(other, other_around) as two:
            return _same_bytes(one.fileno(), two.fileno(), most)
    except OSError:
        return False


def _same_bytes(one: int, two: int, most: int | None) -> bool:
    size = os.fstat(one).st_size
    if os.fstat(two).st_size != size:
        return False
    at = compared = 0
    # Holes in both files are not read: a sparse file can be larger than any disk.
    while (at := min(_next_data(one, at, size), _next_data(two, at, size))) < size:
        if most is not None and compared >= most:
            return False
        first, second = os.pread(one, _BLOCK, at), os.pread(two, _BLOCK, at)
        if first != second or not first:
            return False
        at += len(first)
        compared += len(first)
    return True


def _next_data(file: int, at: int, size: int) -> int:
    try:
        return os.lseek(file, at, os.SEEK_DATA)
    except OSError as error:
        # Not every file system supports SEEK_DATA.
        return size if error.errno == errno.ENXIO else at
