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
from .changes import FOLDER, Change, ChangeSet, Kind, is_opaque, is_whiteout, scan
from .exchange import Spot, Step, copy
from .tree import Tree

_OPAQUE = "user.overlay.opaque"


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
    try:
        return not os.listdir(layer)
    except FileNotFoundError:
        return True


def merge(source: str, layer: str, root: str, step: Step) -> None:
    """Move everything of a run's upper folder into the layer, on top of what is there. What is done
    is gone from the source, so doing it again goes on where it stopped."""
    if not os.path.isdir(layer):
        os.makedirs(layer, mode=0o700)
        os.chmod(layer, stat.S_IMODE(os.stat(root).st_mode) & 0o1777)
    given = os.open(source, FOLDER)
    target = os.open(layer, FOLDER)
    try:
        _merge(given, target, step)
        os.chmod(layer, stat.S_IMODE(os.fstat(given).st_mode) & 0o1777)
    finally:
        os.close(given)
        os.close(target)


def _merge(given: int, target: int, step: Step) -> None:
    # Not by recursion: folders may be deeper than Python's calls.
    opened: list[trees.Opened] = []
    levels = [(given, target, iter(os.listdir(given)), "")]
    around = [(given, target)]
    while levels:
        given, target, names, own_name = levels[-1]
        name = next(names, None)
        if name is None:
            levels.pop()
            if levels:
                os.close(given)
                os.close(target)
                around.pop()
                above, above_target = around[-1]
                _leave(own_name, above, above_target, step)
            continue
        new = os.stat(name, dir_fd=given, follow_symlinks=False)
        old = Spot(target, name).look()
        if not _belongs(new):
            os.unlink(name, dir_fd=given)
            continue
        if stat.S_ISDIR(new.st_mode):
            inner = trees.open_folder(name, given, opened)
            if old is not None and stat.S_ISDIR(old.st_mode) and not is_opaque(inner):
                deeper = trees.open_folder(name, target, opened)
                levels.append((inner, deeper, iter(os.listdir(inner)), name))
                around.append((inner, deeper))
                continue
            if old is not None:
                # It must go on hiding what the old one hid.
                with contextlib.suppress(OSError):
                    os.setxattr(inner, _OPAQUE, b"y")
            os.close(inner)
        if old is not None and (stat.S_ISDIR(old.st_mode) or stat.S_ISDIR(new.st_mode)):
            trees.remove(name, target)
            step()
        _move(name, given, target)
        step()


def _leave(name: str, given: int, target: int, step: Step) -> None:
    """All that was in a folder is moved; its mode is the new one's."""
    mode = stat.S_IMODE(os.stat(name, dir_fd=given, follow_symlinks=False).st_mode)
    trees.set_mode(name, target, mode & 0o1777)
    trees.remove(name, given)
    step()


def _belongs(found: os.stat_result) -> bool:
    mode = found.st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode) or is_whiteout(found)


def _move(name: str, given: int, target: int) -> None:
    try:
        os.rename(name, name, src_dir_fd=given, dst_dir_fd=target)
        return
    except PermissionError:
        # A folder's own ".." changes, for which it has to be writable.
        mode = stat.S_IMODE(os.stat(name, dir_fd=given, follow_symlinks=False).st_mode)
        trees.set_mode(name, given, mode | 0o700, any_kind=True)
        os.rename(name, name, src_dir_fd=given, dst_dir_fd=target)
        trees.set_mode(name, target, mode, any_kind=True)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    _copy(name, given, target)
    trees.remove(name, given)


def _copy(name: str, given: int, target: int) -> None:
    """To another file system."""
    found = os.stat(name, dir_fd=given, follow_symlinks=False)
    if is_whiteout(found):
        os.mknod(name, stat.S_IFCHR, 0, dir_fd=target)
    elif not stat.S_ISDIR(found.st_mode):
        copy(Spot(given, name), Spot(target, name))
    else:
        opened: list[trees.Opened] = []
        inner = trees.open_folder(name, given, opened)
        os.mkdir(name, 0o700, dir_fd=target)
        made = os.open(name, FOLDER, dir_fd=target)
        try:
            if is_opaque(inner):
                os.setxattr(made, _OPAQUE, b"y")
            for entry in os.listdir(inner):
                if _belongs(os.stat(entry, dir_fd=inner, follow_symlinks=False)):
                    _copy(entry, inner, made)
            os.fchmod(made, stat.S_IMODE(found.st_mode) & 0o1777)
        finally:
            os.close(inner)
            os.close(made)


def prune(layer: str, root: str, *, whole: bool = False) -> ChangeSet:
    """Remove what changes nothing any more; returns what the layer still changes. A layer that
    changes nothing at all goes itself, unless the `whole` shall stay."""
    found = scan(layer, [root], root)
    needed = {""}
    for change in found.changes:
        path = change.path
        while path and path not in needed:
            needed.add(path)
            path = os.path.dirname(path)
    tree = Tree(layer)
    try:
        for path in (*found.idle, *(skipped.path for skipped in found.skipped)):
            tree.unlock(os.path.dirname(path))
            around, name = tree.split(path)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=around)
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
        with contextlib.suppress(FileNotFoundError):
            trees.remove(name, descriptor)
    finally:
        os.close(descriptor)
    if not any(entry.startswith("overlay") for entry in os.listdir(around)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{around}/map.json")
        with contextlib.suppress(OSError):  # somebody else's file; it harms nobody
            os.rmdir(around)


def reveal(layer: str, root: str, path: str) -> None:
    """Take back a deletion: what is on disk at that path is seen through the layer again."""
    tree = Tree(layer)
    try:
        parts = path.split("/")
        for number, name in enumerate(parts):
            folder = "/".join(parts[:number])
            tree.unlock(folder)
            around = tree.folder(folder)
            if is_opaque(around):
                os.removexattr(around, _OPAQUE)
                _hide_all(around, f"{root}/{folder}", but=name)
            spot = Spot(around, name)
            found = spot.look()
            if found is None:
                return
            if is_whiteout(found):
                os.unlink(name, dir_fd=around)
                if number == len(parts) - 1:
                    return
                on_disk = f"{root}/{'/'.join(parts[: number + 1])}"
                os.mkdir(name, 0o700, dir_fd=around)
                inner = tree.folder("/".join(parts[: number + 1]))
                _hide_all(inner, on_disk, but=parts[number + 1])
                mode = stat.S_IMODE(os.stat(on_disk).st_mode) & 0o1777
                tree.set_mode("/".join(parts[: number + 1]), mode)
            elif not stat.S_ISDIR(found.st_mode):
                return
    finally:
        tree.close()


def _hide_all(around: int, on_disk: str, *, but: str) -> None:
    try:
        names = os.listdir(on_disk)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if name != but:
            with contextlib.suppress(FileExistsError):
                os.mknod(name, stat.S_IFCHR, 0, dir_fd=around)


def take_out(layer: str, root: str, items: Iterable[tuple[int, Change]], versions: int) -> None:
    """Take changes back out of the layer, what is deepest first. Files are kept with the run's
    versions, by number."""
    tree = Tree(layer)
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
