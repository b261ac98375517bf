# SPDX-License-Identifier: GPL-3.0-or-later
"""What is on disk and was hidden by a deletion that waited, and is seen again: then nothing of that
deletion waits any more, also where another run has it on record."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from . import pending, records
from .change import Kind, Recorded, State
from .manager import ProjectManager
from .models import Project


def show_chosen(layer: str, root: str, done: Sequence[Recorded]) -> None:
    """Of two versions this one was chosen: a folder around it that the other run deleted is there
    for the next command, too, with this alone in it. A second time it finds what is done."""
    for item in done:
        if item.state is State.APPLIED and item.change.kind is not Kind.DELETED:
            pending.reveal(layer, root, item.change.path)


def settle_revealed(
    manager: ProjectManager, project: Project, root: str, left: Collection[str]
) -> None:
    """`left` is all that the layer still changes."""
    back = [
        path
        for path, one in records.waiting(manager, project, root).items()
        if one.is_deletion and path not in left and os.path.lexists(f"{root}/{path}")
    ]
    records.settle_undeleted(manager, project, root, back)
