# SPDX-License-Identifier: GPL-3.0-or-later
"""Discards pending changes: removes them from the layer, and shows the version below again."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence

from ...files.dirfd import FOLDER
from ...paths import make_folder
from ..apply.journal import Job, Task
from ..apply.swap import Step
from ..changes.change import Kind, Recorded, State
from ..database import runs
from ..database.models import Project
from ..manager import ProjectManager, is_missing
from . import layer as pending
from .shadowed import bring_back


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
        for path, one in runs.waiting(manager, project, root).items()
        if one.is_deletion and path not in left and os.path.lexists(f"{root}/{path}")
    ]
    runs.settle_undeleted(manager, project, root, back)


class Discarding:
    """The project is locked meanwhile."""

    def __init__(self, manager: ProjectManager, step: Step) -> None:
        self._manager = manager
        self._step = step

    def discard(self, job: Job, needed: Collection[str], *, resumed: bool) -> list[Recorded]:
        """A layer that is `needed` stays, also with nothing in it."""
        folder = make_folder(self._manager.paths.versions / job.run_id)
        versions = os.open(folder, FOLDER)
        try:
            for root, layer in job.sources.items():
                if pending.is_empty(layer):
                    continue
                # What is aside is kept with the versions already.
                items = [item for item in _here(job, root) if not item.is_aside]
                if resumed:
                    items = self._on_top(job, root, items)
                backwards = [(item.number, item.change) for item in reversed(items)]
                pending.take_out(layer, root, backwards, versions)
                self._step()
                # Of one that is gone nobody can tell what else changes nothing.
                if not is_missing(root):
                    self.prune(job, root, whole=layer in needed)
        finally:
            os.close(versions)
        return [item._replace(state=State.DISCARDED, note=None, after="") for item in job.items]

    def bring_back(self, job: Job, *, resumed: bool) -> None:
        """The records say already that it waits."""
        for root, layer in job.sources.items():
            items = _here(job, root)
            if resumed:
                items = self._on_top(job, root, items)
            if items:
                bring_back(layer, root, items, self._manager.paths.versions / job.run_id)
            elif not is_missing(root):
                # It was left for these.
                pending.prune(layer, root, settle=self._settle(job, root))
            self._step()

    def _on_top(self, job: Job, root: str, items: Sequence[Recorded]) -> list[Recorded]:
        """Those that wait, with no other run's on top. Of what does not, nothing is in the layer:
        it was taken out before that was written down."""
        project = self._manager.add_project(job.project)
        waits = runs.waiting(self._manager, project, root)
        return [
            item
            for item in items
            if (one := waits.get(item.change.path)) and one.run_id == job.run_id
        ]

    def prune(self, job: Job, root: str, *, whole: bool = False) -> None:
        # With those it is decided later, also for what waits below.
        own = {i.change.path for i in job.items} if job.task is Task.DISCARD else set()
        settle = self._settle(job, root, own)
        found = pending.prune(job.sources[root], root, whole=whole, settle=settle)
        if job.task is not Task.TAKE:
            left = {change.path for change in found.changes}
            project = self._manager.add_project(job.project)
            settle_revealed(self._manager, project, root, left | own)

    def _settle(
        self, job: Job, root: str, but: Collection[str] = ()
    ) -> Callable[[Sequence[str]], None]:
        project = self._manager.add_project(job.project)

        def settle(idle: Sequence[str]) -> None:
            others = [path for path in idle if path not in but]
            runs.settle_idle(self._manager, project, root, others)

        return settle


def _here(job: Job, root: str) -> list[Recorded]:
    return [item for item in job.items if item.change.root == root]
