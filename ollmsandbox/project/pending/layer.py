# SPDX-License-Identifier: GPL-3.0-or-later
"""The pending layer of a project: changes that are not applied yet, in overlayfs's format, so that
the next command sees them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ...files import dirfd, trees
from ...files.atomic import write_locked
from ...files.dirfd import FOLDER, DirEntryAt, OpenTree, modes_file, restore_modes
from ...files.locks import FileLock
from ..apply.patch import Patch, half_name, is_same
from ..apply.swap import copy_whole
from ..changes.change import Change, ChangeSet, Kind
from ..changes.overlayfs import OPAQUE, folders_in, is_opaque, is_whiteout
from ..changes.scan import is_too_deep, scan

# By name of a layer: its root.
_MAP = "map.json"
# A layer that went while a command had it mounted: it is removed after that.
_LEFT = ".left-"


def layer_for(folder: Path, root: str) -> str:
    """The layer of a root. The project's is the first; a linked folder keeps its number. Only for
    who holds the project's lock: two at once could give one number to two roots."""
    if layer := layer_of(folder, root):
        return layer
    known, newest = _known(folder), newest_in(folder)
    name = f"overlay{len(known) + 1}"
    write_locked(folder / _MAP, json.dumps({**known, name: root}))
    note_newest(folder, newest)
    return str(folder / name)


def layer_of(folder: Path, root: str) -> str:
    """Return the path of the root's pending layer, or "" if it has none. Needs no lock."""
    names = (name for name, path in _known(folder).items() if path == root)
    return next((str(folder / name) for name in names), "")


def _known(folder: Path) -> dict[str, str]:
    known: dict[str, str] = {}
    with contextlib.suppress(FileNotFoundError, ValueError):
        known = json.loads((folder / _MAP).read_text(encoding="utf-8"))
    return known


def newest_in(folder: Path) -> int:
    """When the last run came into one of the layers: later than now, if the clock was set back
    since. What is not later than this, a command that begins now sees."""
    try:
        return os.stat(folder / _MAP).st_mtime_ns
    except FileNotFoundError:
        return 0


def note_newest(folder: Path, at: int) -> None:
    with contextlib.suppress(FileNotFoundError):  # nothing waits any more
        at = max(at, newest_in(folder))
        os.utime(folder / _MAP, ns=(at, at))


def is_empty(layer: str) -> bool:
    """One that changes nothing is removed; one with nothing in it may change the root's mode."""
    return not os.path.isdir(layer)


def spell_out(layer: str, root: str) -> None:
    """Where a folder hides all that is on disk, hide it by names: else it would also hide what is
    applied to that folder later."""
    disk = OpenTree(root, top=dirfd.open_root(root))
    tree = OpenTree(layer, modes_file(layer))
    marked = []
    waiting = [("", False)]
    try:
        while waiting:
            path, hides = waiting.pop()
            if is_too_deep(path):
                continue
            tree.unlock(path)
            around = tree.folder(path)
            if is_opaque(around):
                marked.append(path)
                hides = True
            for name in folders_in(around):
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


def prune(
    layer: str,
    root: str,
    *,
    whole: bool = False,
    settle: Callable[[Sequence[str]], object] | None = None,
) -> ChangeSet:
    """Remove what changes nothing any more; returns what the layer still changes. A layer that
    changes nothing at all goes itself, unless the `whole` shall stay. Who has what is removed on
    record can `settle` it before."""
    if is_empty(layer) and not whole:
        # It went before a kill, perhaps not wholly.
        remove_layer(layer)
        return ChangeSet()
    restore_modes(layer)
    found = scan(layer, [root], root)
    if settle is not None:
        settle(found.idle)
    needed = {""}
    for change in found.changes:
        path = change.path
        while path and path not in needed:
            needed.add(path)
            path = os.path.dirname(path)
    tree = OpenTree(layer, modes_file(layer))
    try:
        for path in (*found.idle, *(skipped.path for skipped in found.skipped)):
            # What is deleted as a whole has nothing in the layer but its own name.
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                tree.unlock(os.path.dirname(path))
                around, name = tree.split(path)
                trees.remove(name, around)
        # A folder that is gone from under a command looks to it as if nothing were in there, not
        # even what is on disk.
        if not _is_used(layer):
            _remove_empty(tree, needed)
    finally:
        tree.close()
    if not found.changes and not whole:
        remove_layer(layer)
    return found


def _remove_empty(tree: OpenTree, needed: set[str]) -> None:
    folders = []
    waiting = [""]
    while waiting:
        path = waiting.pop()
        tree.unlock(path)
        around = tree.folder(path)
        for name in folders_in(around):
            inner = f"{path}/{name}" if path else name
            folders.append(inner)
            waiting.append(inner)
    for path in reversed(folders):
        if path not in needed:
            tree.unlock(os.path.dirname(path))
            around, name = tree.split(path)
            with contextlib.suppress(OSError):  # something is still in it
                os.rmdir(name, dir_fd=around)


def remove_layer(layer: str) -> None:
    around, name = os.path.split(layer)
    try:
        descriptor = os.open(around, FOLDER)
    except FileNotFoundError:
        return
    try:
        if os.path.isdir(layer) and _is_used(layer):
            left = f"{_LEFT}{name}-{os.urandom(4).hex()}"
            os.rename(name, left, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        for left in os.listdir(descriptor):
            if left.startswith(_LEFT) and not _is_used(f"{around}/{left}"):
                trees.remove(left, descriptor)
        with contextlib.suppress(FileNotFoundError):
            # A kill left it, while a version was copied into the layer.
            os.unlink(half_name(layer), dir_fd=descriptor)
        # At once: half removed, it would be another layer.
        for _ in range(2):
            remove_rest(name, descriptor)
            with contextlib.suppress(FileNotFoundError):
                os.rename(name, _gone(name), src_dir_fd=descriptor, dst_dir_fd=descriptor)
    finally:
        os.close(descriptor)
    if not any(entry.startswith("overlay") for entry in os.listdir(around)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{around}/{_MAP}")
        with contextlib.suppress(OSError):  # somebody else's file; it harms nobody
            os.rmdir(around)


def _is_used(layer: str) -> bool:
    """Return whether a running command has the layer mounted."""
    try:
        FileLock(layer, is_folder=True, timeout=0).release()
    except PermissionError:
        # It is closed, as the project is; a program that has it mounted cannot lock it either.
        return False
    except BlockingIOError:
        return True
    return False


def remove_rest(name: str, around: int) -> None:
    """Remove the rest of a layer whose removal was interrupted."""
    with contextlib.suppress(FileNotFoundError):
        trees.remove(_gone(name), around)


def _gone(name: str) -> str:
    return f".removed-{name}"


def reveal(layer: str, root: str, path: str) -> None:
    """Take back a deletion: what is on disk at that path is seen through the layer again."""
    tree = OpenTree(layer, modes_file(layer))
    try:
        parts = path.split("/")
        for number, name in enumerate(parts):
            folder = "/".join(parts[:number])
            tree.unlock(folder)
            around = tree.folder(folder)
            if is_opaque(around):
                # First, so that a second time finds all that is not done.
                _hide_all(around, f"{root}/{folder}", but="")
                os.removexattr(around, OPAQUE)
            found = DirEntryAt(around, name).lstat()
            if found is None:
                # Of a folder, its stand-in may have been made before a kill.
                _put_in_place(tree, root, "/".join(parts[: number + 1]))
                return
            if is_whiteout(found):
                _make_stand_in(layer, root, parts, number)
                os.unlink(name, dir_fd=around)
                _put_in_place(tree, root, "/".join(parts[: number + 1]))
                return
            if not stat.S_ISDIR(found.st_mode):
                return
    finally:
        tree.close()


def _make_stand_in(layer: str, root: str, parts: list[str], number: int) -> None:
    """For a whiteout that hid a folder: folders that hide all in it but the one path. Beside the
    layer, until it is whole; else a kill would show the others, too."""
    whole = _stand_in(layer, "/".join(parts[: number + 1]))
    half = whole.with_name(f"{whole.name}~")
    around = os.open(whole.parent, FOLDER)
    try:
        for stale in (whole, half):
            if os.path.lexists(stale):
                trees.remove(stale.name, around)
    finally:
        os.close(around)
    modes: list[tuple[str, int]] = []
    made = str(half)
    for at in range(number, len(parts) - 1):
        on_disk = "/".join((root, *parts[: at + 1]))
        if not os.path.isdir(on_disk):
            break
        if modes:
            made = f"{made}/{parts[at]}"
        os.mkdir(made, 0o700)
        modes.append((made, stat.S_IMODE(os.stat(on_disk).st_mode) & 0o1777))
        inner = os.open(made, FOLDER)
        try:
            _hide_all(inner, on_disk, but=parts[at + 1])
        finally:
            os.close(inner)
    # The outermost has to be writable to be moved.
    for position, (folder, mode) in reversed(list(enumerate(modes))):
        os.chmod(folder, mode if position else mode | 0o700)
    if modes:
        os.rename(half, whole)


def _put_in_place(tree: OpenTree, root: str, path: str) -> None:
    stand_in = _stand_in(tree.root, path)
    if not stand_in.is_dir():
        return
    mode = stat.S_IMODE(os.stat(f"{root}/{path}").st_mode) & 0o1777
    around, name = tree.split(path)
    if mode & 0o700 != 0o700:
        tree.note_mode(path, mode)
    os.rename(stand_in, name, dst_dir_fd=around)


def _stand_in(layer: str, path: str) -> Path:
    key = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path(layer).with_name(f".stand-in-{os.path.basename(layer)}-{key}")


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
    tree = OpenTree(layer, modes_file(layer))
    try:
        for number, change in items:
            if change.path == ".":
                with contextlib.suppress(FileNotFoundError):  # the root itself may be gone
                    tree.set_mode("", stat.S_IMODE(os.stat(root).st_mode) & 0o1777)
                continue
            if change.kind is Kind.DELETED:
                reveal(layer, root, change.path)
                continue
            try:
                tree.unlock(os.path.dirname(change.path))
                spot = DirEntryAt(*tree.split(change.path))
            except (FileNotFoundError, NotADirectoryError):
                continue
            found = spot.lstat()
            if found is None or is_whiteout(found):
                continue
            if not stat.S_ISDIR(found.st_mode):
                _take_once(spot, Patch(versions, number))
            elif change.kind is Kind.MODIFIED:
                with contextlib.suppress(FileNotFoundError):
                    on_disk = os.lstat(f"{root}/{change.path}").st_mode
                    tree.set_mode(change.path, stat.S_IMODE(on_disk) & 0o1777)
            else:
                with contextlib.suppress(OSError):  # something in it stays
                    os.rmdir(spot.name, dir_fd=spot.dir_fd)
    finally:
        tree.close()


def _take_once(spot: DirEntryAt, patch: Patch) -> None:
    """What is kept already stays. In the layer there is the same, or what discarded hunks left of
    it; or else that of a later run, which is not on record yet."""
    if patch.result.lstat() is None:
        take(spot, patch.result)
    elif any(is_same(spot, kept) for kept in (patch.result, patch.rest, patch.next_rest)):
        os.unlink(spot.name, dir_fd=spot.dir_fd)


def take(spot: DirEntryAt, kept: DirEntryAt, half: DirEntryAt | None = None) -> None:
    """Out of a layer, to a run's versions; or back, then with a name for a half of it."""
    try:
        os.rename(spot.name, kept.name, src_dir_fd=spot.dir_fd, dst_dir_fd=kept.dir_fd)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # A half would be taken for what was kept before a kill.
        copy_whole(spot, kept, half)
        os.unlink(spot.name, dir_fd=spot.dir_fd)
