# SPDX-License-Identifier: GPL-3.0-or-later
"""What became of a path that was looked at: noted with the folder around it, and told."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import Flag, auto

from .tally import Kind, Tally
from .watched import Folder


class Seen(Flag):
    """Why it was looked at."""

    CREATED = auto()
    CHANGED = auto()
    GONE = auto()


# By what Gio calls it.
SEEN = {
    "created": Seen.CREATED,
    "changed": Seen.CHANGED,
    "attribute-changed": Seen.CHANGED,
    "deleted": Seen.GONE,
}


class Noticed:
    def __init__(self, folders: Mapping[str, Folder], too_many: Callable[[str], None]) -> None:
        """`too_many` is called with a folder if not all that is in it can be known by name."""
        self.tally = Tally()
        self._folders = folders
        self._too_many = too_many

    def changed(self, path: str, real: str, seen: Seen, *, is_old: bool) -> None:
        before = self.tally.kind(real)
        if before is None:
            now = Kind.UPDATED if is_old or os.path.lexists(real) else Kind.ADDED
            self._keep(path, real, now, seen)
            self.tally.tell(now, real)
        elif before is Kind.REMOVED:
            self.tally.drop(real, before)
            self._keep(path, real, Kind.UPDATED, seen)
            self.tally.tell(Kind.UPDATED, real)
        elif seen & (Seen.CHANGED | Seen.GONE):
            self.tally.tell(Kind.UPDATED, real)

    def removed(self, path: str, real: str, seen: Seen, *, is_known: bool) -> None:
        before = self.tally.kind(real)
        if before is Kind.REMOVED:
            return
        if before is not None:
            self.tally.drop(real, before)
            self.names_around(path).discard(os.path.basename(path))
        elif not is_known:
            return
        if before is not Kind.ADDED:
            self._keep(path, real, Kind.REMOVED, seen)
        self.tally.tell(Kind.REMOVED, real)

    def _keep(self, path: str, real: str, kind: Kind, seen: Seen) -> None:
        if self.tally.keep(real, kind):
            self.names_around(path).add(os.path.basename(path))
            return
        around = os.path.dirname(path)
        folder = self._folders.get(around)
        # Not known by name, so what is written again and again would count each time.
        if folder is None or not seen & (Seen.CREATED | Seen.GONE):
            return
        if folder.recount is not None:
            folder.recount += 1
        else:
            self.count(folder, folder.not_kept + 1)
            # Nor can it be told of one that goes: only to count them all again is exact.
            self._too_many(around)

    def count(self, folder: Folder, not_kept: int) -> None:
        self.tally.not_kept += not_kept - folder.not_kept
        folder.not_kept = not_kept

    def names_around(self, path: str) -> set[str]:
        # A listener may have stopped everything in the midst of this.
        around = self._folders.get(os.path.dirname(path))
        return around.names if around is not None else set()
