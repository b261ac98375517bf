# SPDX-License-Identifier: GPL-3.0-or-later
"""Remembers the folders of a project, so that the next scan lists only those that have changed."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from ..files.atomic import write_atomically

_VERSION = 2
# Seconds. File systems tell time in ticks, of up to 2 s: something that changed shortly before it
# was read may change again without a later time.
_TOO_FRESH = 2.0


class Stamp(NamedTuple):
    """Tells whether a folder's entries, or a file's content, have changed."""

    device: int
    inode: int
    size: int
    mtime: int
    # Unlike mtime, nobody can set this one.
    ctime: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


# Equal to no stamp: it was too fresh.
UNKNOWN = Stamp(0, 0, 0, 0, 0)


class KnownFolder(NamedTuple):
    """What the last scan found in a folder."""

    stamp: Stamp
    # The stamp of its ignore file, if it has one.
    ignore_file: Stamp | None
    # The subfolders that are not ignored, and all links.
    folders: tuple[str, ...]
    links: tuple[str, ...]


class ScanCache:
    """The folders that a scan found, by their paths in the project; "" is the project itself."""

    def __init__(self, began: float) -> None:
        """`began` is when the scan began, in seconds."""
        self.began = began
        # The stamp of .git/info/exclude.
        self.exclude: Stamp | None = None
        self.folders: dict[str, KnownFolder] = {}

    def settled(self, stamp: Stamp | None) -> Stamp | None:
        """Return the stamp, or UNKNOWN if it may stay the same after a change."""
        if stamp is None or max(stamp.mtime, stamp.ctime) / 1e9 + _TOO_FRESH <= self.began:
            return stamp
        return UNKNOWN

    @classmethod
    def read(cls, file: Path, project_id: int) -> ScanCache:
        """Return what a scan wrote for this project; nothing if that cannot be read.

        A lost database is replaced by one with other ids, which needs all records again.
        """
        cache = cls(0)
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            stored = json.loads(file.read_text(encoding="utf-8"))
            if (stored["version"], stored["project"]) == (_VERSION, project_id):
                exclude = _stamp(stored["exclude"])
                folders = {
                    path: KnownFolder(
                        Stamp(*stamp), _stamp(ignore_file), tuple(folders), tuple(links)
                    )
                    for path, (stamp, ignore_file, folders, links) in stored["folders"].items()
                }
                cache.began, cache.exclude, cache.folders = stored["began"], exclude, folders
        return cache

    def write(self, file: Path, project_id: int) -> None:
        """Write what is found here by `read`. A failure only makes the next scan slower."""
        stored = {
            "version": _VERSION,
            "project": project_id,
            "began": self.began,
            "exclude": self.exclude,
            "folders": self.folders,
        }
        with contextlib.suppress(OSError):
            write_atomically(file, json.dumps(stored, separators=(",", ":")))


def _stamp(stored: list[int] | None) -> Stamp | None:
    return None if stored is None else Stamp(*stored)
