# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of backups, `{id}-{YY-MM-DD}-{basename}`: a backup is found by them, on disk."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_LONGEST = 255
_BACKUP = re.compile(r"(\d+)-(\d\d-\d\d-\d\d)-", re.ASCII)


class Backup(NamedTuple):
    # The id of the file's record.
    number: int
    day: str
    path: str


def backup_name(number: int, path: str, day: str) -> str:
    """Return `{id}-{YY-MM-DD}-{basename}`; a long name keeps its end, with the extension."""
    start = f"{number}-{day}-"
    name = os.fsencode(os.path.basename(path))
    return start + os.fsdecode(name[-(_LONGEST - len(start)) :])


def backups_in(folder: Path) -> Iterator[Backup]:
    """Yield the backups that are on disk."""
    try:
        found = os.scandir(folder)
    except FileNotFoundError:
        return
    with found as entries:
        for entry in entries:
            ours = _BACKUP.match(entry.name)
            if ours is not None and not entry.is_dir(follow_symlinks=False):
                yield Backup(int(ours[1]), ours[2], entry.path)
