# SPDX-License-Identifier: GPL-3.0-or-later
"""How many lines a change added and removed, found out for the rows that are in sight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import OllmSandboxError
from ..project.changes.change import Recorded, State, Type
from ..project.manager import ProjectManager
from ..project.review.versions import Version, Versions
from ..text.diff import matching_blocks
from .change_items import FileItem
from .change_rows import FileRow
from .diff_model import decode
from .in_sight import scrolled_around
from .tasks import Tasks
from .weakly import weak_reference

# What takes longer to compare is compared when it is opened.
_LARGEST = 128 << 10
_BATCH = 8
_MOST_KNOWN = 5000
# Seconds, in which new rows get their places. A list that is scrolled is not looked at all the
# time.
_PAUSE = 0.1

Key = tuple[str, int, State]


@dataclass(frozen=True)
class LineCount:
    added: int
    removed: int


class LineCounts:
    def __init__(self, manager: ProjectManager, tasks: Tasks) -> None:
        self._manager = manager
        self._tasks = tasks
        self._known: dict[Key, LineCount | None] = {}
        self._wanted: dict[Key, Callable[[], FileRow | None]] = {}
        self._is_working = False
        # Whether there are rows that have no place yet.
        self._is_early = False

    def show(self, row: FileRow) -> None:
        """At once if they are known, else a moment after it came in sight."""
        key = _key(row.item)
        if key in self._known:
            _show(row, self._known[key])
        else:
            self._wanted[key] = weak_reference(row)
            self.look()

    def forget(self, run_id: str, number: int) -> None:
        """A part of it is done with."""
        for state in State:
            self._known.pop((run_id, number, state), None)

    def look(self) -> None:
        """Others may be in sight now."""
        if self._wanted and not self._is_working:
            self._is_working = True
            self._tasks.start(self._work())

    async def _work(self) -> None:
        try:
            self._is_early = True
            while self._is_early:
                await asyncio.sleep(_PAUSE)
                while rows := self._next():
                    await self._count(rows)
        finally:
            self._is_working = False

    async def _count(self, rows: Sequence[FileRow]) -> None:
        items = [row.item for row in rows]
        counts = await asyncio.to_thread(_count_all, self._manager, items)
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        for row, lines in zip(rows, counts, strict=True):
            self._known[_key(row.item)] = lines
            _show(row, lines)

    def _next(self) -> list[FileRow]:
        """Of those in sight: a list has hundreds more, above and below."""
        found: list[FileRow] = []
        self._is_early = False
        for key, reference in tuple(self._wanted.items()):
            row = reference()
            if row is None or row.get_parent() is None:
                del self._wanted[key]
            elif row.get_mapped() and not row.get_height():
                self._is_early = True
            elif _is_in_sight(row):
                del self._wanted[key]
                found.append(row)
                if len(found) == _BATCH:
                    break
        return found


def _is_in_sight(row: FileRow) -> bool:
    around = scrolled_around(row) if row.get_mapped() else None
    place = None if around is None else row.translate_coordinates(around, 0, 0)
    if around is None or place is None:
        return False
    return bool(-row.get_height() < place[1] < around.get_height())


def _key(item: FileItem) -> Key:
    return item.run.id, item.recorded.number, item.recorded.state


def _show(row: FileRow, lines: LineCount | None) -> None:
    if lines is not None:
        row.show_lines(lines.added, lines.removed)


def _count_all(manager: ProjectManager, items: Sequence[FileItem]) -> list[LineCount | None]:
    return [count(manager, item.run.id, item.recorded) for item in items]


def count(manager: ProjectManager, run_id: str, item: Recorded) -> LineCount | None:
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
    return LineCount(len(new) - same, len(old) - same)


def _lines(version: Version) -> list[str] | None:
    if version.note or version.size > _LARGEST or version.type not in (None, Type.FILE):
        return None
    text = decode(version.read(_LARGEST))
    return None if text is None else text.splitlines(keepends=True)
