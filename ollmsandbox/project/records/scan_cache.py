# SPDX-License-Identifier: GPL-3.0-or-later
"""Remembers the folders of a project, so that the next scan lists only those that have changed."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from ...files.atomic import write_atomically

_VERSION = 2
# Seconds. File systems tell time in ticks, of up to 2 s: something that changed shortly before it
# was read may change again without a later time.
_TOO_FRESH = 2.0
# Equal to no stamp: it was too fresh.
_UNKNOWN = "?"


def stamp_of(found: os.stat_result | None) -> str:
    """Return a text that tells whether a folder's entries, or a file's content, have changed."""
    # Unlike the time of the last modification, nobody can set that of the last change.
    return f"{found.st_dev}:{found.st_ino}:{found.st_ctime_ns}" if found else ""


class KnownFolder(NamedTuple):
    """The entries of a folder in the last scan."""

    stamp: str
    # The stamp of its ignore file.
    ignore_file: str
    # The subfolders that are not ignored, and all links.
    folders: list[str]
    links: list[str]


class ScanCache:
    """The folders that a scan found, by their paths in the project; "" is the project itself."""

    def __init__(self, began: float) -> None:
        """`began` is when the scan began, in seconds."""
        self.began = began
        # The stamp of .git/info/exclude.
        self.exclude = ""
        self.folders: dict[str, KnownFolder] = {}

    def settled_stamp(self, found: os.stat_result | None) -> str:
        """Return a stamp; if the last change is so new that another one may look the same, one that
        equals no other."""
        is_fresh = found and max(found.st_mtime, found.st_ctime) + _TOO_FRESH > self.began
        return _UNKNOWN if is_fresh else stamp_of(found)

    @classmethod
    def read(cls, file: Path, project_id: int) -> ScanCache:
        """Return what a scan wrote for this project; nothing if that cannot be read.

        A lost database is replaced by one with other ids, which needs all records again.
        """
        cache = cls(0)
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            stored = json.loads(file.read_text(encoding="utf-8"))
            if (stored["version"], stored["project"]) == (_VERSION, project_id):
                folders = {path: KnownFolder(*known) for path, known in stored["folders"].items()}
                cache.began, cache.exclude = stored["began"], stored["exclude"]
                cache.folders = folders
        return cache

    def write(self, file: Path, project_id: int) -> None:
        """Write the file for `read`. A failure only makes the next scan slower."""
        stored = {
            "version": _VERSION,
            "project": project_id,
            "began": self.began,
            "exclude": self.exclude,
            "folders": self.folders,
        }
        with contextlib.suppress(OSError):
            write_atomically(file, json.dumps(stored, separators=(",", ":")))
