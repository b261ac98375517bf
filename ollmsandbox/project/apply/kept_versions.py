# SPDX-License-Identifier: GPL-3.0-or-later
"""The versions that a run found. Each lies by its number in the run's folder; those of many at once
stay by their paths in the run's layer, which is put there as a whole."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from ...files import dirfd
from ...files.dirfd import FOLDER, OpenTree, modes_file

_OPEN = os.W_OK | os.X_OK


def layer_in(versions: Path, root: str) -> Path:
    return versions / f"layer-{hashlib.sha256(os.fsencode(root)).hexdigest()[:8]}"


def put_away(layer: str, versions: Path, root: str, kept: Collection[str]) -> None:
    """The layer, with no more than the files that are `kept`, to the run's versions."""
    descriptor = os.open(layer, FOLDER)
    try:
        os.fchmod(descriptor, 0o700)
        _trim(descriptor, frozenset(kept))
    finally:
        os.close(descriptor)
    os.rename(layer, layer_in(versions, root))


def take_back(layer: str, versions: Path, root: str) -> None:
    """After a kill: as if it had not been put away."""
    there = layer_in(versions, root)
    if there.is_dir() and not os.path.lexists(layer):
        os.rename(there, layer)


def put_by_number(layer: str, versions: Path, kept: Mapping[int, str]) -> None:
    """Where something else waits in the layer, each goes to the versions by itself."""
    folder = os.open(versions, FOLDER)
    tree = OpenTree(layer, modes_file(layer))

    def put(number: int, path: str) -> None:
        around, name = tree.split(path)
        try:
            os.rename(name, str(number), src_dir_fd=around, dst_dir_fd=folder)
        except FileNotFoundError:
            # Where it could not go back, the long way may have put it there.
            if not os.path.lexists(versions / str(number)):
                raise

    try:
        for number, path in kept.items():
            try:
                put(number, path)
            except PermissionError:
                # The command closed the folder around it.
                tree.unlock(os.path.dirname(path))
                put(number, path)
    finally:
        os.close(folder)
        tree.close()


class Kept:
    """The versions of a run, to be taken by number."""

    def __init__(self, versions: Path, descriptor: int, root: str) -> None:
        self._versions = descriptor
        self._layer = layer_in(versions, root)
        self._tree = OpenTree(str(self._layer)) if self._layer.is_dir() else None

    def bring(self, number: int, path: str) -> None:
        """To its number, if it still lies by its path. Nobody else wants it there."""
        if self._tree is None:
            return
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            around, name = self._tree.split(path)
            os.rename(name, str(number), src_dir_fd=around, dst_dir_fd=self._versions)

    def close(self) -> None:
        if self._tree is not None:
            self._tree.leave()


def _trim(top: int, kept: frozenset[str]) -> None:
    """What is left are open folders: nobody shall be kept from what is in them."""
    levels = [("", top, _trim_folder("", top, kept))]
    while levels:
        prefix, around, folders = levels[-1]
        if folders:
            name = folders[-1]
            inner = dirfd.open_folder(name, around, [], _OPEN)
            levels.append(
                (f"{prefix}{name}/", inner, _trim_folder(f"{prefix}{name}/", inner, kept))
            )
            continue
        levels.pop()
        if levels:
            os.close(around)
            _, outer, names = levels[-1]
            with contextlib.suppress(OSError):  # there is something in it
                os.rmdir(names[-1], dir_fd=outer)
            names.pop()


def _trim_folder(prefix: str, folder: int, kept: frozenset[str]) -> list[str]:
    folders: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif prefix + entry.name not in kept:
                os.unlink(entry.name, dir_fd=folder)
    return folders
