# SPDX-License-Identifier: GPL-3.0-or-later
"""The folders that a run's command may change, and what becomes of its changes.

What is needed only once something has changed is not loaded before.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...files.atomic import write_atomically
from ...paths import Paths, is_inside
from ...sandbox.overlay import Overlay, Root
from ..changes.mode import DAILY, Mode, no_step
from ..roots import common_git_folder, may_be_root

if TYPE_CHECKING:
    from ..changes.change import Report
    from .swap import Step


class Recorder:
    """Settles one run. `step` is called after each thing that is done on disk."""

    def __init__(
        self,
        project: str,
        paths: Paths,
        *,
        mode: Mode = Mode.AUTO,
        command: str = "",
        session_id: str = "",
        call_id: str = "",
        step: Step = no_step,
    ) -> None:
        self._project = project
        self._paths = paths
        self._mode = mode
        self._command = command
        self._step = step
        self._started = time.time()
        self.about: Mapping[str, str] = {
            "mode": mode.value,
            "command": command,
            "session_id": session_id,
            "call_id": call_id,
        }
        self.report: Report | None = None

    def roots(self, *, is_mounted: bool = True) -> list[Root]:
        """Return the folders that the command may change. Those of an overlay that is not mounted
        may have any number of layers."""
        roots = (self._project, *linked_roots(self._paths, self._project))
        if not self._paths.pending(self._project).is_dir():
            return [Root(root) for root in roots]
        from ..pending.chain import Chain

        chain = Chain(self._paths, self._project)
        if is_mounted and chain.runs_that_fit() < len(chain.runs):
            from ..pending.squash import squash_oldest
            from .journal import project_lock

            with project_lock(self._paths, self._project, changes=False):
                squash_oldest(self._paths, self._project)
            chain = Chain(self._paths, self._project)
        is_long = is_mounted and chain.squashed is not None
        return [
            Root(root, chain.layers(root), chain.mounted(root) if is_long else ()) for root in roots
        ]

    async def settle(self, overlay: Overlay) -> None:
        import asyncio  # not for who has no loop

        from .journal import project_lock

        def settle() -> Report:
            with project_lock(self._paths, self._project, changes=False):
                return self.settle_locked(overlay)

        self.report = await asyncio.to_thread(settle)

    def has_begun(self, overlay: Overlay) -> bool:
        """Return whether the run has begun to change the project."""
        from .journal import Journal

        return Journal.of_run(overlay.folder).exists()

    def note_exit(self, exit_code: int) -> None:
        """Record the exit status of the command."""
        if self.report is None or not self.report.changes or self._mode is Mode.NEVER:
            return
        from ..database import runs
        from ..manager import ProjectManager

        with contextlib.closing(ProjectManager(self._paths)) as manager:
            runs.note_exit(manager, self.report.run_id, exit_code)

    def settle_locked(self, overlay: Overlay, *, approved: bool = False) -> Report:
        """Settle the run while the caller holds the project's lock. If the user has `approved`,
        nothing is held."""
        from .settle import Settling

        overlay.leave_below()
        if not overlay.is_untouched():
            overlay.copy_shared()
        settling = Settling(self._paths, self._step)
        return settling.settle(overlay, self._mode, self._command, self._started, approved=approved)


def linked_roots(paths: Paths, project: str) -> tuple[str, ...]:
    """Return the folders outside the project that its commands may change, none inside another:
    those that the user approved, and the repository of a worktree.

    The first are in the database. A file has a copy, so that a command starts without the database.
    """
    approved = _approved_roots(paths, project)
    common = common_git_folder(paths, project)
    is_new = common is not None and not is_inside(common, project, *approved)
    return (*approved, common) if common is not None and is_new else approved


def _approved_roots(paths: Paths, project: str) -> tuple[str, ...]:
    file = paths.linked_roots(project)
    roots: list[str] | None = None
    with contextlib.suppress(OSError, ValueError):
        roots = json.loads(file.read_text(encoding="utf-8"))
    if roots is None:
        if not paths.database.exists():
            return ()
        from ..manager import ProjectManager

        with contextlib.closing(ProjectManager(paths)) as manager:
            known = manager.find_project(project)
            roots = manager.approved_roots(known) if known else []
        write_atomically(file, json.dumps(roots))
    found: list[str] = []
    # They are sorted, so that parents come first.
    for root in roots:
        # If a link took its place, it is not the folder that the user approved.
        is_there = os.path.isdir(root) and os.path.realpath(root) == root
        if is_there and may_be_root(paths, project, root) and not is_inside(root, project, *found):
            found.append(root)
    return tuple(found)


def root_of(paths: Paths, project: str, path: str) -> tuple[str, str] | None:
    """Return the root that a full path is in and the path relative to it ("" is the root itself),
    or None if commands may not change it."""
    for root in (project, *linked_roots(paths, project)):
        if is_inside(path, root):
            return root, path[len(root.rstrip("/")) + 1 :]
    return None


def needs_recovery(paths: Paths) -> bool:
    """Return whether a run was interrupted, changes are unrecorded, or a clean-up is due."""
    if paths.unclaimed.exists() or any((paths.data / "pending").glob("*/map.json")):
        return True
    try:
        names = os.listdir(paths.cache)
    except FileNotFoundError:
        return False
    left = [name for name in names if name.startswith(("overlay-", "done-", "journal-"))]
    if left:
        from ..recovery.missing import was_notified

        if not all(was_notified(paths, name.removesuffix(".json")) for name in left):
            return True
    try:
        age = time.time() - (paths.cache / "cleaned").stat().st_mtime
    except FileNotFoundError:
        return paths.database.exists()
    # A clock that was set back must not put it off for ever.
    return not 0 <= age < DAILY
