# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts the lines that a change adds and removes; sums up what all runs of a turn changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...database.tables import Run
from ...errors import OllmSandboxError
from ...project.change import PENDING_STATES, Recorded, State, Type
from ...project.projects import ProjectManager
from ...project.short_list import count_files, split_ignored
from ...project.state import read_current
from ...project.versions import Version, Versions
from ...text.diff import decode_text, matching_blocks, split_lines

# Bytes. Larger files are only compared when the user opens them.
_LARGEST = 128 << 10


@dataclass(frozen=True)
class LineCount:
    added: int
    removed: int


def count_lines(manager: ProjectManager, run_id: str, item: Recorded) -> LineCount | None:
    """Return the line counts; None if it is not text, or a version was not kept."""
    if item.change.type is not Type.FILE:
        return None
    try:
        run = manager.run(run_id)
    except OllmSandboxError:
        return None  # it is being removed, and so is its row
    return compare_lines(manager, (run, item), (run, item))


def compare_lines(
    manager: ProjectManager, first: tuple[Run, Recorded], last: tuple[Run, Recorded]
) -> LineCount | None:
    """Return the line counts from before the first change of a file to after the last."""
    versions = Versions(manager)
    try:
        old, new = _lines(versions.before(*first)), _lines(versions.after(*last))
    except (OSError, OllmSandboxError):
        return None  # it is being removed, and so is its row
    if old is None or new is None:
        return None
    same = sum(block.size for block in matching_blocks(old, new))
    return LineCount(len(new) - same, len(old) - same)


def _lines(version: Version) -> list[str] | None:
    if version.note or version.size > _LARGEST or version.type not in (None, Type.FILE):
        return None
    text = decode_text(version.read(_LARGEST))
    return None if text is None else split_lines(text)


@dataclass(frozen=True)
class TurnChanges:
    # The runs that changed files, the oldest first.
    runs: tuple[str, ...] = ()
    # Without those that git ignores, which are counted apart.
    files: int = 0
    # None if they are too many to count, or not text.
    lines: LineCount | None = None
    pending: int = 0
    states: frozenset[State] = frozenset()
    ignored: int = 0

    @property
    def is_undone(self) -> bool:
        is_over = self.states <= {State.UNDONE, State.DISCARDED}
        return is_over and State.UNDONE in self.states


def turn_changes(manager: ProjectManager, run_ids: Sequence[str]) -> TurnChanges:
    """Return what these runs changed. Slow: call it from a thread."""
    known = sorted(manager.known_runs(run_ids), key=lambda run: run.started_at)
    # What each file was before the turn, and what it is after it.
    first: dict[tuple[str, str], tuple[Run, Recorded]] = {}
    last: dict[tuple[str, str], tuple[Run, Recorded]] = {}
    found: list[str] = []
    ignored: dict[tuple[str, str], Recorded] = {}
    for run in known:
        items, quiet = split_ignored(read_current(manager, run))
        files = [item for item in items if item.change.type is not Type.FOLDER] or items
        found += [run.id] if files or quiet else []
        ignored |= {(i.change.root, i.change.path): i for i in quiet}
        for item in files:
            place = (item.change.root, item.change.path)
            first.setdefault(place, (run, item))
            last[place] = (run, item)
    states = [item.state for _run, item in last.values()]
    return TurnChanges(
        tuple(found),
        len(last),
        _count(manager, [(first[place], last[place]) for place in last]),
        sum(map(states.count, PENDING_STATES)),
        frozenset(states),
        count_files([item for place, item in ignored.items() if place not in last]),
    )


def _count(
    manager: ProjectManager,
    pairs: Sequence[tuple[tuple[Run, Recorded], tuple[Run, Recorded]]],
) -> LineCount | None:
    # Nobody waits for the lines of more files.
    if len(pairs) > 200:
        return None
    counts = [compare_lines(manager, before, after) for before, after in pairs]
    known = [count for count in counts if count is not None]
    if not known:
        return None
    return LineCount(sum(one.added for one in known), sum(one.removed for one in known))
