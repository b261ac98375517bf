# SPDX-License-Identifier: GPL-3.0-or-later
"""Count the lines that a change adds and removes."""

from __future__ import annotations

from dataclasses import dataclass

from ...database.tables import Run
from ...errors import OllmSandboxError
from ...project.change import Recorded, Type
from ...project.projects import ProjectManager
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
