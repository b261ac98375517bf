# SPDX-License-Identifier: GPL-3.0-or-later
"""How many lines a change added and removed, found out for the rows that are in sight."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import OllmSandboxError
from ..project.apply import Recorded, State
from ..project.changes import Type
from ..project.manager import ProjectManager
from ..project.versions import Version, Versions
from .change_items import FileItem
from .change_rows import FileRow
from .diff_lines import matching_blocks
from .diff_model import decode
from .tasks import Tasks

# What takes longer to compare is compared when it is opened.
_LARGEST = 128 << 10
_BATCH = 8
_MOST_KNOWN = 5000

Key = tuple[str, int, State]


@dataclass(frozen=True)
class Lines:
    added: int
    removed: int


class LineCounts:
    def __init__(self, manager: ProjectManager, tasks: Tasks) -> None:
        self._manager = manager
        self._tasks = tasks
        self._known: dict[Key, Lines | None] = {}
        self._wanted: dict[Key, weakref.ref[FileRow]] = {}
        self._is_working = False

    def show(self, row: FileRow) -> None:
        """At once if they are known, else a moment later."""
        key = _key(row.item)
        if key in self._known:
            _show(row, self._known[key])
            return
        self._wanted[key] = weakref.ref(row)
        if not self._is_working:
            self._is_working = True
            self._tasks.start(self._work())

    async def _work(self) -> None:
        try:
            while rows := self._next():
                items = [row.item for row in rows]
                counts = await asyncio.to_thread(_count_all, self._manager, items)
                if len(self._known) > _MOST_KNOWN:
                    self._known.clear()
                for row, lines in zip(rows, counts, strict=True):
                    self._known[_key(row.item)] = lines
                    _show(row, lines)
        finally:
            self._is_working = False

    def _next(self) -> list[FileRow]:
        """The newest first: they are where the person has scrolled to."""
        found: list[FileRow] = []
        while self._wanted and len(found) < _BATCH:
            row = self._wanted.popitem()[1]()
            if row is not None and row.get_parent() is not None:
                found.append(row)
        return found


def _key(item: FileItem) -> Key:
    return item.run.id, item.recorded.number, item.recorded.state


def _show(row: FileRow, lines: Lines | None) -> None:
    if lines is not None:
        row.show_lines(lines.added, lines.removed)


def _count_all(manager: ProjectManager, items: Sequence[FileItem]) -> list[Lines | None]:
    return [count(manager, item.run.id, item.recorded) for item in items]


def count(manager: ProjectManager, run_id: str, item: Recorded) -> Lines | None:
    """None where lines say nothing, or where a version is not kept."""
    if item.change.type is not Type.FILE:
        return None
    try:
        row, versions = manager.run(run_id), Versions(manager)
        old, new = (_lines(one(row, item)) for one in (versions.before, versions.after))
    except (OSError, OllmSandboxError):
        return None  # it goes just now; the row soon does, too
    if old is None or new is None:
        return None
    same = sum(block.size for block in matching_blocks(old, new))
    return Lines(len(new) - same, len(old) - same)


def _lines(version: Version) -> list[str] | None:
    if version.note or version.size > _LARGEST or version.type not in (None, Type.FILE):
        return None
    text = decode(version.read(_LARGEST))
    return None if text is None else text.splitlines(keepends=True)
