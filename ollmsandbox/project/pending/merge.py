# SPDX-License-Identifier: GPL-3.0-or-later
"""Merges a run's upper folder into the pending layer."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Callable, Collection
from pathlib import Path

from ...files import dirfd, trees
from ...files.atomic import write_atomically
from ...files.dirfd import FOLDER, DirEntryAt, OpenTree, read_modes_file, restore_modes
from ..apply.swap import Step, copy
from ..changes.overlayfs import OPAQUE, is_opaque, is_whiteout
from .layer import remove_rest

_TO_WRITE = os.W_OK | os.X_OK

# Takes what is at a path, and all that is in it, out of the layer, before something else is there.
Keep = Callable[[str], None]


def merge(
    source: str, layer: str, root: str, changed: Collection[str], keep: Keep, step: Step
) -> None:
    """Move everything of a run's upper folder into the layer, on top of what is there. What is done
    is gone from the source, so doing it again goes on where it stopped. Of folders that are in both
    and not `changed`, the source has the mode that the run found: another one may have come."""
    if not os.path.isdir(layer):
        make_layer(layer, stat.S_IMODE(os.stat(root).st_mode) & 0o1777)
    restore_modes(layer)
    note = Path(f"{source}.merging")
    # What folders are to be in the end that have to be open until then.
    modes = read_modes_file(note)

    def remember(path: str, mode: int) -> None:
        if mode & 0o700 != 0o700 and path not in modes:
            modes[path] = mode & 0o1777
            write_atomically(note, json.dumps(modes))

    given = os.open(source, FOLDER)
    target = os.open(layer, FOLDER)
    try:
        mode = stat.S_IMODE(os.fstat(given if "." in changed else target).st_mode)
        remember("", mode)
        for folder in (given, target):
            os.fchmod(folder, stat.S_IMODE(os.fstat(folder).st_mode) | 0o700)
        _merge(given, target, layer, changed, remember, keep, step)
        os.fchmod(target, mode & 0o1777)
    finally:
        os.close(given)
        os.close(target)
    tree = OpenTree(layer)
    for path, closed in modes.items():
        tree.set_mode(path, closed)
    tree.close()
    note.unlink(missing_ok=True)


def make_layer(layer: str, mode: int) -> None:
    """Create a layer with its mode, or nothing."""
    half = _begin(layer)
    os.chmod(half, mode)
    around = os.open(os.path.dirname(layer), FOLDER)
    try:
        remove_rest(os.path.basename(layer), around)
    finally:
        os.close(around)
    os.rename(half, layer)


def _begin(layer: str) -> str:
    """A folder that is not yet what it shall be, beside the layer. What a kill left of another one
    goes: that may be marked."""
    around, name = os.path.split(layer)
    half = f"{around}/.new-{name}"
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(half)
    os.makedirs(half, mode=0o700)
    return half


def _merge(
    given: int,
    target: int,
    layer: str,
    changed: Collection[str],
    remember: Callable[[str, int], None],
    keep: Keep,
    step: Step,
) -> None:
    # Not by recursion: folders may be deeper than Python's calls.
    levels = [(given, target, iter(os.listdir(given)), "", 0)]
    while levels:
        given, target, names, path, mode = levels[-1]
        name = next(names, None)
        if name is None:
            levels.pop()
            if levels:
                os.close(given)
                os.close(target)
                # All that was in it is moved.
                name = os.path.basename(path)
                dirfd.set_mode(name, levels[-1][1], mode)
                os.rmdir(name, dir_fd=levels[-1][0])
                step()
            continue
        new = os.stat(name, dir_fd=given, follow_symlinks=False)
        old = DirEntryAt(target, name).lstat()
        if not _belongs(new):
            os.unlink(name, dir_fd=given)
            continue
        own = f"{path}/{name}" if path else name
        if not stat.S_ISDIR(new.st_mode):
            if old is not None:
                keep(own)
            if old is not None and stat.S_ISDIR(old.st_mode):
                trees.remove(name, target)
                step()
            _move(name, given, target)
            step()
            continue
        is_in_both = old is not None and stat.S_ISDIR(old.st_mode)
        its = old if old is not None and is_in_both and own not in changed else new
        mode = stat.S_IMODE(its.st_mode) & 0o1777
        remember(own, mode)
        inner = dirfd.open_folder(name, given, [], _TO_WRITE)
        if not is_in_both or is_opaque(inner):
            if old is not None:
                # First: after a kill nobody can tell what it was.
                os.fchmod(inner, mode | 0o700)
                # It must go on hiding what the old one hid.
                with contextlib.suppress(OSError):
                    os.setxattr(inner, OPAQUE, b"y")
                keep(own)
                with contextlib.suppress(FileNotFoundError):  # it is kept
                    trees.remove(name, target)
                step()
            if _is_moved(name, given, target, inner, layer):
                dirfd.set_mode(name, target, mode)
                os.close(inner)
                step()
                continue
        deeper = dirfd.open_folder(name, target, [], _TO_WRITE)
        levels.append((inner, deeper, iter(os.listdir(inner)), own, mode))


def _is_moved(name: str, given: int, target: int, inner: int, layer: str) -> bool:
    """Whether a folder could be moved as a whole. On another file system there is one now that what
    is in it can be moved to."""
    try:
        os.rename(name, name, src_dir_fd=given, dst_dir_fd=target)
        return True
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    half = _begin(layer)
    # Before it is there: who finishes this after a kill takes it as it is.
    os.chmod(half, stat.S_IMODE(os.fstat(inner).st_mode) & 0o1777 | 0o700)
    if is_opaque(inner):
        os.setxattr(half, OPAQUE, b"y")
    os.rename(half, name, dst_dir_fd=target)
    if is_opaque(inner):
        # From here on what is there already is part of it, and stays.
        os.removexattr(inner, OPAQUE)
    return False


def _belongs(found: os.stat_result) -> bool:
    mode = found.st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode) or is_whiteout(found)


def _move(name: str, given: int, target: int) -> None:
    """Anything but a folder."""
    try:
        os.rename(name, name, src_dir_fd=given, dst_dir_fd=target)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    if is_whiteout(os.stat(name, dir_fd=given, follow_symlinks=False)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=target)
        os.mknod(name, stat.S_IFCHR, 0, dir_fd=target)
    else:
        copy(DirEntryAt(given, name), DirEntryAt(target, name))
    os.unlink(name, dir_fd=given)
