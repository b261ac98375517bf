# SPDX-License-Identifier: GPL-3.0-or-later
"""The pending layer of a project: what commands changed and nobody applied yet, kept as overlayfs
would keep it, so that the next command sees it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from .. import trees
from ..paths import write_atomically
from .changes import (
    FOLDER,
    OPAQUE,
    Change,
    ChangeSet,
    Kind,
    is_opaque,
    is_too_deep,
    is_whiteout,
    scan,
)
from .exchange import Spot, copy
from .tree import Tree, mend, modes_of


def layer_for(folder: Path, root: str) -> str:
    """The layer of a root. The project's is the first; a linked folder keeps its number."""
    file = folder / "map.json"
    known: dict[str, str] = {}
    with contextlib.suppress(FileNotFoundError, ValueError):
        known = json.loads(file.read_text(encoding="utf-8"))
    for name, path in known.items():
        if path == root:
            return str(folder / name)
    name = f"overlay{len(known) + 1}"
    write_atomically(file, json.dumps({**known, name: root}))
    return str(folder / name)


def is_empty(layer: str) -> bool:
    """One that changes nothing is removed; one with nothing in it may change the root's mode."""
    return not os.path.isdir(layer)


def spell_out(layer: str, root: str) -> None:
    """Where a folder hides all that is on disk, hide it by names: else it would also hide what is
    applied to that folder later."""
    disk = Tree(root, top=trees.open_root(root))
    tree = Tree(layer, modes_of(layer))
    marked = []
    waiting = [("", False)]
    try:
        while waiting:
            path, hides = waiting.pop()
            if is_too_deep(path):
                continue
            tree.unlock(path)
            around = tree.folder(path)
            names = os.listdir(around)
            if is_opaque(around):
                marked.append(path)
                hides = True
            for name in names:
                if stat.S_ISDIR(os.stat(name, dir_fd=around, follow_symlinks=False).st_mode):
                    waiting.append((f"{path}/{name}" if path else name, hides))
            if hides:
                # There may be none, or something else.
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    _hide(around, os.listdir(disk.folder(path)))
        # Last, so that a second time finds all that is not done.
        for path in marked:
            os.removexattr(tree.folder(path), OPAQUE)
    finally:
        tree.close()
        disk.close()


def prune(layer: str, root: str, *, whole: bool = False) -> ChangeSet:
    """Remove what changes nothing any more; returns what the layer still changes. A layer that
    changes nothing at all goes itself, unless the `whole` shall stay."""
    mend(layer)
    found = scan(layer, [root], root)
    needed = {""}
    for change in found.changes:
        path = change.path
        while path and path not in needed:
            needed.add(path)
            path = os.path.dirname(path)
    tree = Tree(layer, modes_of(layer))
    try:
        for path in (*found.idle, *(skipped.path for skipped in found.skipped)):
            tree.unlock(os.path.dirname(path))
            around, name = tree.split(path)
            with contextlib.suppress(FileNotFoundError):
                trees.remove(name, around)
        _remove_empty(tree, needed)
    finally:
        tree.close()
    if not found.changes and not whole:
        remove(layer)
    return found


def _remove_empty(tree: Tree, needed: set[str]) -> None:
    folders = []
    waiting = [""]
    while waiting:
        path = waiting.pop()
        tree.unlock(path)
        around = tree.folder(path)
        for entry in os.listdir(around):
            if stat.S_ISDIR(os.stat(entry, dir_fd=around, follow_symlinks=False).st_mode):
                inner = f"{path}/{entry}" if path else entry
                folders.append(inner)
                waiting.append(inner)
    for path in reversed(folders):
        if path not in needed:
            tree.unlock(os.path.dirname(path))
            around, name = tree.split(path)
            with contextlib.suppress(OSError):  # something is still in it
                os.rmdir(name, dir_fd=around)


def remove(layer: str) -> None:
    around, name = os.path.split(layer)
    try:
        descriptor = os.open(around, FOLDER)
    except FileNotFoundError:
        return
    try:
        # At once: half removed, it would be another layer.
        gone = f".removed-{name}"
        for _ in range(2):
            with contextlib.suppress(FileNotFoundError):
                trees.remove(gone, descriptor)
            with contextlib.suppress(FileNotFoundError):
                os.rename(name, gone, src_dir_fd=descriptor, dst_dir_fd=descriptor)
    finally:
        os.close(descriptor)
    if not any(entry.startswith("overlay") for entry in os.listdir(around)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{around}/map.json")
        with contextlib.suppress(OSError):  # somebody else's file; it harms nobody
            os.rmdir(around)


def reveal(layer: str, root: str, path: str) -> None:
    """Take back a deletion: what is on disk at that path is seen through the layer again."""
    tree = Tree(layer, modes_of(layer))
    try:
        parts = path.split("/")
        # Whether what is at this level was hidden by something above it.
        was_hidden = False
        for number, name in enumerate(parts):
            folder, inner = "/".join(parts[:number]), "/".join(parts[: number + 1])
            tree.unlock(folder)
            around = tree.folder(folder)
            if is_opaque(around):
                os.removexattr(around, OPAQUE)
                _hide_all(around, f"{root}/{folder}", but=name)
                was_hidden = True
            found = Spot(around, name).look()
            if found is not None and is_whiteout(found):
                os.unlink(name, dir_fd=around)
                found, was_hidden = None, True
            if found is not None and not stat.S_ISDIR(found.st_mode):
                return
            if found is None:
                on_disk = f"{root}/{inner}"
                if number == len(parts) - 1 or not was_hidden or not os.path.isdir(on_disk):
                    return
                # The others in there stay hidden.
                os.mkdir(name, 0o700, dir_fd=around)
                _hide_all(tree.folder(inner), on_disk, but=parts[number + 1])
                tree.set_mode(inner, stat.S_IMODE(os.stat(on_disk).st_mode) & 0o1777)
    finally:
        tree.close()


def _hide_all(around: int, on_disk: str, *, but: str) -> None:
    try:
        names = os.listdir(on_disk)
    except (FileNotFoundError, NotADirectoryError):
        return
    _hide(around, (name for name in names if name != but))


def _hide(around: int, names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(FileExistsError):
            os.mknod(name, stat.S_IFCHR, 0, dir_fd=around)


def take_out(layer: str, root: str, items: Iterable[tuple[int, Change]], versions: int) -> None:
    """Take changes back out of the layer, what is deepest first. Files are kept with the run's
    versions, by number."""
    tree = Tree(layer, modes_of(layer))
    try:
        for number, change in items:
            if change.path == ".":
                tree.set_mode("", stat.S_IMODE(os.stat(root).st_mode) & 0o1777)
                continue
            if change.kind is Kind.DELETED:
                reveal(layer, root, change.path)
                continue
            try:
                tree.unlock(os.path.dirname(change.path))
                spot = Spot(*tree.split(change.path))
            except (FileNotFoundError, NotADirectoryError):
                continue
            found = spot.look()
            if found is None or is_whiteout(found):
                continue
            if not stat.S_ISDIR(found.st_mode):
                _take(spot, Spot(versions, f"new-{number}"))
            elif change.kind is Kind.MODIFIED:
                with contextlib.suppress(FileNotFoundError):
                    on_disk = os.lstat(f"{root}/{change.path}").st_mode
                    tree.set_mode(change.path, stat.S_IMODE(on_disk) & 0o1777)
            else:
                with contextlib.suppress(OSError):  # something in it stays
                    os.rmdir(spot.name, dir_fd=spot.around)
    finally:
        tree.close()


def _take(spot: Spot, kept: Spot) -> None:
    try:
        os.rename(spot.name, kept.name, src_dir_fd=spot.around, dst_dir_fd=kept.around)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy(spot, kept)
        os.unlink(spot.name, dir_fd=spot.around)
