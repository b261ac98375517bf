# SPDX-License-Identifier: GPL-3.0-or-later
"""Of changes that no layer has: whether they are on disk, put there by somebody else."""

from __future__ import annotations

import os
import stat

from .change import Change, Kind, Type


def is_undeleted(change: Change) -> bool:
    return change.kind is Kind.DELETED and os.path.lexists(f"{change.root}/{change.path}")


def is_there(change: Change) -> bool:
    """What the run wanted. Of a file's bytes that cannot be told any more."""
    place = f"{change.root}/{change.path}"
    try:
        found = os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        return change.kind is Kind.DELETED
    if change.kind is Kind.DELETED:
        return False
    if change.type is Type.LINK:
        return stat.S_ISLNK(found.st_mode) and os.readlink(place) == change.target
    if change.type is not Type.FOLDER or not stat.S_ISDIR(found.st_mode):
        return False
    return change.mode is None or stat.S_IMODE(found.st_mode) & 0o1777 == change.mode
