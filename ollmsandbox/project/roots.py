# SPDX-License-Identifier: GPL-3.0-or-later
"""Which folders outside a project its commands may be given, and the one a git worktree needs.

Every command asks for this, so it loads little and looks at no more than a few names.
"""

from __future__ import annotations

import contextlib
import os
import stat

from ..files.dirfd import open_regular_file
from ..paths import Paths, is_inside

_LARGEST = 8192


def may_be_root(paths: Paths, project: str, folder: str) -> bool:
    """Return whether commands may be given access to a folder; links must be resolved in both.

    They never get a folder that contains the project, the home folder or our own files.
    """
    own = [os.path.realpath(path) for path in paths.own]
    return not (
        any(is_inside(path, folder) for path in (project, paths.real_home, *own))
        or is_inside(folder, *own)
    )


def common_git_folder(paths: Paths, project: str) -> str | None:
    """Return the git folder that a project shares with others if it is a linked worktree.

    The project and the repository have to name each other: a file in a downloaded archive does not
    give commands access to a folder of its choice. A file that a command made is held.
    """
    pointer = _read(f"{project}/.git")
    if pointer is None or not pointer.startswith("gitdir: "):
        return None
    own = _resolved(project, pointer.removeprefix("gitdir: "))
    around, name = os.path.split(own or "")
    common, kind = os.path.split(around)
    if own is None or kind != "worktrees" or not name:
        return None
    back, up = _read(f"{own}/gitdir"), _read(f"{own}/commondir")
    if back is None or _resolved(own, back) != f"{project}/.git":
        return None
    if up is None or _resolved(own, up) != common or not is_git_folder(common):
        return None
    return common if may_be_root(paths, project, common) else None


def has_repository(folder: str) -> bool:
    """Return whether a folder is in a checkout of git."""
    while not os.path.lexists(f"{folder}/.git"):
        if (folder := os.path.dirname(folder)) == "/":
            return False
    return True


def is_git_folder(folder: str) -> bool:
    """Return whether a folder is a repository, without a worktree around it."""
    with contextlib.suppress(OSError):
        modes = [os.lstat(f"{folder}/{name}").st_mode for name in ("HEAD", "objects", "refs")]
        return stat.S_ISREG(modes[0]) and all(map(stat.S_ISDIR, modes[1:]))
    return False


def _resolved(folder: str, path: str) -> str | None:
    """Return the path from a folder; None if a link is on the way."""
    place = os.path.normpath(os.path.join(folder, path))
    return place if os.path.realpath(place) == place else None


def _read(file: str) -> str | None:
    """Return the only line of a file; None if it is a link, or anything else."""
    try:
        with open_regular_file(file) as opened:
            data = opened.read(_LARGEST)
    except OSError:
        return None
    line = data.removesuffix(b"\n")
    is_line = line and len(data) < _LARGEST and not any(byte in line for byte in b"\0\r\n")
    return os.fsdecode(line) if is_line else None
