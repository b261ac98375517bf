# SPDX-License-Identifier: GPL-3.0-or-later
"""Merge what a run wrote to an overlay into the layer below it, or into the playground.

It is the command's work: no link in it is followed.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator

from ..files import trees
from ..files.dirfd import opened_folder, set_mode

# A folder that is deeper replaces the one below it as a whole.
_DEEPEST = 100
_NO_DEEPER = 1000
# Rights that a program lends to whoever starts it, and those that new files in a folder get.
_LENT = stat.S_ISUID | stat.S_ISGID
_FOR_NEW_FILES = "system.posix_acl_default"


def merge_layer(above: int, below: int, *, is_lowest: bool = False, depth: int = 0) -> None:
    """Move everything in a folder of a layer into the one below it.

    If that is the lowest, nothing is below it that could be hidden: deletions are made there.
    Pipes and sockets are dropped, since runs that share the playground could meet at them.
    """
    for name in os.listdir(above):
        found = os.stat(name, dir_fd=above, follow_symlinks=False)
        try:
            there = os.stat(name, dir_fd=below, follow_symlinks=False)
        except FileNotFoundError:
            there = None
        is_folder = stat.S_ISDIR(found.st_mode)
        if is_folder:
            # A command may have left it without permissions.
            set_mode(name, above, found.st_mode | 0o700)
        elif is_lowest and not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
            if there is not None:
                trees.remove(name, below)
            os.unlink(name, dir_fd=above)
            continue
        if there is not None and stat.S_ISDIR(there.st_mode):
            if is_folder and depth < _DEEPEST and not _is_opaque(name, above):
                set_mode(name, below, there.st_mode | 0o700)
                with opened_folder(name, above) as inner, opened_folder(name, below) as into:
                    merge_layer(inner, into, is_lowest=is_lowest, depth=depth + 1)
                set_mode(name, below, stat.S_IMODE(found.st_mode))
                os.rmdir(name, dir_fd=above)
                continue
            trees.remove(name, below)
        elif there is not None and is_folder:
            if not is_lowest:
                # It goes on hiding what a deletion or a file there hid in the layers below.
                with opened_folder(name, above) as folder:
                    os.setxattr(folder, trees.OPAQUE, b"y")
            os.unlink(name, dir_fd=below)
        if is_folder and is_lowest:
            with opened_folder(name, above) as folder:
                _remove_special(folder)
        os.rename(name, name, src_dir_fd=above, dst_dir_fd=below)
        if is_folder:
            set_mode(name, below, stat.S_IMODE(found.st_mode))
    if is_lowest:
        _disarm_hooks(below)


def note_change(file: str) -> None:
    """Give a file a new time, so that `last_change` tells whoever asked before."""
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    # Not the time of the file system, whose clock may stand still for some milliseconds.
    now = time.time_ns()
    os.utime(file, ns=(now, now))


def last_change(file: str | os.PathLike[str]) -> int:
    """Return a number that differs after each change that was noted."""
    try:
        return os.stat(file).st_mtime_ns
    except FileNotFoundError:
        return 0


def strip_rights(top: int) -> None:
    """Take the setuid and setgid bits from everything in a folder of a layer, and rights for files
    that will be made there: the user's would be open to others, whatever the umask is."""
    for folder, entries in _walk(top):
        with contextlib.suppress(OSError):  # it has none, as nearly all
            os.removexattr(folder, _FOR_NEW_FILES)
        for entry in entries:
            mode = entry.stat(follow_symlinks=False).st_mode
            if mode & _LENT and not stat.S_ISLNK(mode):
                set_mode(entry.name, folder, stat.S_IMODE(mode) & ~_LENT, any_kind=True)


def _remove_special(top: int) -> None:
    """Remove all but files, links and folders: pipes, sockets, and whiteouts of what is gone."""
    for folder, entries in _walk(top):
        for entry in entries:
            mode = entry.stat(follow_symlinks=False).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
                os.unlink(entry.name, dir_fd=folder)
        _disarm_hooks(folder)


def _disarm_hooks(folder: int) -> None:
    """Make sure that git runs no hook, if this is a repository: whoever pushes to one, or works
    with it, would run a command's program. Links to hooks are removed."""
    try:
        os.stat("objects", dir_fd=folder, follow_symlinks=False)
        found = os.stat("hooks", dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode):
        os.unlink("hooks", dir_fd=folder)
    if not stat.S_ISDIR(found.st_mode):
        return
    for level in trees.walk("hooks", folder, rights=os.W_OK | os.X_OK):
        for name in os.listdir(level.descriptor):
            mode = os.stat(name, dir_fd=level.descriptor, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                os.unlink(name, dir_fd=level.descriptor)
            elif stat.S_ISREG(mode) and mode & 0o111:
                set_mode(name, level.descriptor, stat.S_IMODE(mode) & ~0o111, any_kind=True)


def _walk(top: int) -> Iterator[tuple[int, list[os.DirEntry[str]]]]:
    """Yield each folder and what is in it. Remove what is deeper than any real folder, where nobody
    would look."""
    for level in trees.walk(".", top, rights=os.W_OK | os.X_OK):
        with os.scandir(level.descriptor) as found:
            entries = list(found)
        yield level.descriptor, entries
        folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        if level.depth < _NO_DEEPER:
            level.folders += folders
        else:
            for name in folders:
                trees.remove(name, level.descriptor)


def _is_opaque(name: str, dir_fd: int) -> bool:
    with opened_folder(name, dir_fd) as folder:
        return trees.is_opaque(folder)
