# SPDX-License-Identifier: GPL-3.0-or-later
"""One layer of pending changes, in overlayfs's format: how it is made, and what is taken out."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from ...files import trees
from ...files.atomic import write_atomically
from ...files.copying import copy_tree
from ...files.dirfd import (
    DirEntryAt,
    OpenTree,
    UnlockedFolder,
    folders_above,
    modes_file,
    opened_folder,
    restore_modes,
)
from ...files.locks import FileLock
from ...paths import make_folder
from ...sandbox.whiteouts import OPAQUE, is_opaque, is_whiteout
from ..apply.patch import Patch, half_name
from ..apply.swap import copy_whole
from ..changes.change import Change, Kind
from ..changes.overlayfs import (
    Seen,
    find_in_layers,
    folders_in,
    names_in_layers,
)
from ..changes.scan import OpenedFolders, is_too_deep, restore_opened

# A layer that went while a command had it mounted: it is removed after that.
_LEFT = ".left-"


def spell_out(layer: str, lowers: Sequence[str]) -> None:
    """Replace the mark of folders that hide all that is below them by whiteouts for each name: the
    mark would also hide what comes to be there later."""
    marked = []
    hiding: set[str] = set()
    with contextlib.closing(OpenTree(layer, modes_file(layer))) as tree:
        for path in _unlocked_folders(tree):
            around = tree.folder(path)
            if is_opaque(around):
                marked.append(path)
            if is_opaque(around) or (path and os.path.dirname(path) in hiding):
                hiding.add(path)
                _hide(around, _names_below(layer, lowers, path))
        # Last, so that a second time finds all that is not done.
        for path in marked:
            os.removexattr(tree.folder(path), OPAQUE)


def _unlocked_folders(tree: OpenTree, top: str = "") -> Iterator[str]:
    """Yield a folder of a layer and those in it, each of them before what is in it, after making
    it writable for us."""
    waiting = [top]
    while waiting:
        path = waiting.pop()
        if not is_too_deep(path):
            tree.unlock(path)
            yield path
            inner = folders_in(tree.folder(path))
            waiting += (f"{path}/{name}" if path else name for name in inner)


def move_in(upper: str, layer: str) -> None:
    """Make a run's upper folder its layer. A second time it finds what is done."""
    if os.path.isdir(upper) and not os.path.isdir(layer):
        around = make_folder(Path(layer).parent)
        mode = stat.S_IMODE(os.stat(upper).st_mode)
        if mode & 0o700 != 0o700:
            # It has to be writable to be moved.
            write_atomically(modes_file(layer), json.dumps({"": mode}))
            os.chmod(upper, mode | 0o700)
        try:
            os.rename(upper, layer)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy_in(upper, layer, f"{around}/{half_name(layer)}")
    restore_modes(layer)
    if os.path.isdir(upper):
        _remove(upper)


def _copy_in(upper: str, layer: str, half: str) -> None:
    if os.path.isdir(half):
        # From before a kill.
        _remove(half)
    # Copying opens closed folders, which a kill must not leave open.
    tree = OpenTree(upper, modes_file(layer))
    for _path in _unlocked_folders(tree):
        continue
    tree.leave()
    copy_tree(upper, half)
    os.rename(half, layer)


def _remove(folder: str) -> None:
    # It may be as closed as the project.
    with opened_folder(os.path.dirname(folder)) as around:
        trees.remove(os.path.basename(folder), around)


def drop(
    layer: str, paths: Iterable[str], needed: Collection[str] = (), *, whole: bool = False
) -> None:
    """Remove what is settled, and folders that only led there; not what is `needed` still. With
    `whole`, the paths may be folders with something in them."""
    # A folder that is gone from under a command looks to it as if nothing were in there, not even
    # what is below it.
    keeps_folders = _is_used(layer)
    around: set[str] = set()
    with contextlib.closing(OpenTree(layer, modes_file(layer))) as tree:
        for path in sorted(set(paths) - {"."}, reverse=True):
            spot = _spot(tree, path)
            found = spot.lstat() if spot else None
            around.update(folders_above(path))
            if spot is None or found is None:
                continue
            if not stat.S_ISDIR(found.st_mode):
                os.unlink(spot.name, dir_fd=spot.dir_fd)
            elif whole:
                trees.remove(spot.name, spot.dir_fd)
            else:
                around.add(path)
        for path in sorted(around - set(needed), reverse=True) if not keeps_folders else ():
            if (spot := _spot(tree, path)) is not None:
                with contextlib.suppress(OSError):  # something is still in it
                    os.rmdir(spot.name, dir_fd=spot.dir_fd)


def set_folder_mode(layers: Iterable[str], path: str, mode: int) -> None:
    """Set the mode of a folder in all layers that have it; "" is the layer itself."""
    for layer in layers:
        with contextlib.closing(OpenTree(layer, modes_file(layer))) as tree:
            spot = _spot(tree, path) if path else None
            found = spot.lstat() if spot else None
            if not path or (found and stat.S_ISDIR(found.st_mode)):
                tree.set_mode(path, mode)


def files_in(tree: OpenTree, path: str) -> Iterator[str]:
    """Yield the paths of what a layer has in a folder, but for folders and deletions."""
    for folder in _unlocked_folders(tree, path):
        with os.scandir(tree.folder(folder)) as entries:
            found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
        for name, there in found:
            if not stat.S_ISDIR(there.st_mode) and not is_whiteout(there):
                yield f"{folder}/{name}"


def _spot(tree: OpenTree, path: str) -> DirEntryAt | None:
    """Return a place that we may write to; None if there is no folder around it."""
    around = os.path.dirname(path)
    try:
        if os.fstat(tree.folder(around)).st_mode & 0o700 != 0o700:
            tree.unlock(around)
        return DirEntryAt(*tree.split(path))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise


def remove_layer(layer: str) -> None:
    """Remove a layer at once: half removed, it would be another layer. If a command has it mounted,
    it gets another name until that has ended."""
    around, name = os.path.split(layer)
    with contextlib.suppress(FileNotFoundError):
        # A kill left it, while a version was copied into the layer.
        os.unlink(f"{around}/{half_name(layer)}")
    with contextlib.suppress(FileNotFoundError):
        os.rename(layer, f"{around}/{_LEFT}{name}-{os.urandom(4).hex()}")
    remove_left(Path(around))


def remove_left(folder: Path, around: str = "") -> None:
    """Remove the layers that `remove_layer` renamed, unless a command still has them mounted. They
    are in the folder itself, or in those inside it that match the pattern `around`."""
    for left in folder.glob(f"{around}{_LEFT}*"):
        if not _is_used(str(left)):
            _remove(str(left))
            with contextlib.suppress(OSError):  # there is another one
                left.parent.rmdir()
                left.parent.parent.rmdir()


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


def reveal(layer: str, lowers: Sequence[str], path: str) -> None:
    """Take back a deletion: what is below at that path is seen through the layer again.

    If the layer deletes a folder around it, a stand-in replaces that deletion: a folder that hides
    everything in it. The next step then shows the next name of the path.
    """
    restore_opened(layer)
    with contextlib.closing(OpenTree(layer, modes_file(layer))) as tree:
        for inner in (*reversed([*folders_above(path)]), path):
            tree.unlock(os.path.dirname(inner))
            spot = DirEntryAt(*tree.split(inner))
            found = spot.lstat()
            stand_in = _stand_in(layer, inner)
            if found is not None and is_whiteout(found):
                if inner != path:
                    _make_stand_in(layer, lowers, inner)
                spot.unlink()
                found = None
            if found is None:
                # It may have been made before a kill.
                below = _find_below(layer, lowers, inner) if stand_in.is_dir() else None
                if below is None:
                    return
                mode = stat.S_IMODE(below.found.st_mode) & 0o1777
                if mode & 0o700 != 0o700:
                    # It has to be writable to be moved.
                    tree.note_mode(inner, mode)
                stand_in.chmod(mode | 0o700)
                os.rename(stand_in, spot.name, dst_dir_fd=spot.dir_fd)
            elif not stat.S_ISDIR(found.st_mode):
                return


def _make_stand_in(layer: str, lowers: Sequence[str], path: str) -> None:
    """Make a folder that hides everything in it. It is made beside the layer: in the layer, a kill
    would leave one that does not hide everything."""
    folder = _stand_in(layer, path)
    if folder.is_dir():
        # From before a kill.
        _remove(str(folder))
    below = _find_below(layer, lowers, path)
    if below is not None and below.is_folder:
        folder.mkdir(0o700)
        with opened_folder(folder) as inner:
            _hide(inner, _names_below(layer, lowers, path))


def _stand_in(layer: str, path: str) -> Path:
    key = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path(layer).with_name(f".stand-in-{os.path.basename(layer)}-{key}")


def _names_below(layer: str, lowers: Sequence[str], path: str) -> list[str]:
    with contextlib.suppress(PermissionError):
        return names_in_layers(lowers, path)
    with _opened_below(layer, lowers, path):
        return names_in_layers(lowers, path)


def _find_below(layer: str, lowers: Sequence[str], path: str) -> Seen | None:
    with contextlib.suppress(PermissionError):
        return find_in_layers(lowers, path)
    with _opened_below(layer, lowers, os.path.dirname(path)):
        return find_in_layers(lowers, path)


@contextlib.contextmanager
def _opened_below(layer: str, lowers: Sequence[str], path: str) -> Iterator[None]:
    """Open a folder below a layer, and those around it, even if their owner may not read them."""
    folders = OpenedFolders(layer)
    with contextlib.ExitStack() as opened:
        opened.callback(folders.end)
        for lower in lowers:
            around = opened.enter_context(opened_folder(lower))
            for name in path.split("/"):
                unlocked: list[UnlockedFolder] = []
                try:
                    around = folders.open(name, around, unlocked)
                except (FileNotFoundError, NotADirectoryError):
                    break
                opened.callback(os.close, around)
                for folder in unlocked:
                    opened.callback(folder.restore)
        yield


def _hide(around: int, names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(FileExistsError):
            os.mknod(name, stat.S_IFCHR, 0, dir_fd=around)


def take_out(
    layer: str, lowers: Sequence[str], items: Iterable[tuple[int, Change]], versions: int
) -> None:
    """Take changes back out of the layer, what is deepest first. Files are kept with the run's
    versions, by number."""
    with contextlib.closing(OpenTree(layer, modes_file(layer))) as tree:
        for number, change in items:
            if change.kind is Kind.DELETED:
                reveal(layer, lowers, change.path)
                continue
            path = "" if change.path == "." else change.path
            spot = _spot(tree, path) if path else None
            found = spot.lstat() if spot else os.lstat(layer)
            if found is None or is_whiteout(found):
                continue
            if not stat.S_ISDIR(found.st_mode):
                assert spot is not None
                _take_once(spot, Patch(versions, number))
            elif change.kind is Kind.MODIFIED:
                below = find_in_layers(lowers, path)
                if below is not None and below.is_folder:
                    tree.set_mode(path, stat.S_IMODE(below.found.st_mode) & 0o1777)
            elif spot is not None:
                with contextlib.suppress(OSError):  # something in it stays
                    os.rmdir(spot.name, dir_fd=spot.dir_fd)


def _take_once(spot: DirEntryAt, patch: Patch) -> None:
    """Move a file from its layer to the run's versions, unless the run keeps one already: then the
    layer has the same, or what is left of it without discarded hunks."""
    kept = patch.result
    if kept.lstat() is not None:
        os.unlink(spot.name, dir_fd=spot.dir_fd)
        return
    try:
        os.rename(spot.name, kept.name, src_dir_fd=spot.dir_fd, dst_dir_fd=kept.dir_fd)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # A half would be taken for what was kept before a kill.
        copy_whole(spot, kept)
        os.unlink(spot.name, dir_fd=spot.dir_fd)
