# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells which folders a command may change, and settles its changes after the run.

Modules that only changes need are loaded when there are some.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..files.atomic import write_atomically
from ..paths import Paths, is_inside, is_missing
from ..sandbox.overlay import Overlay, Root, find_leftovers
from ..sandbox.spec import Mode, RunSpec
from . import DAILY
from .roots import common_git_folder, may_be_root

if TYPE_CHECKING:
    from ..files.locks import FileLock
    from ..sandbox.network.hosts import HostUse
    from .change import Report


class Recorder:
    """Settles one run."""

    def __init__(self, spec: RunSpec, paths: Paths) -> None:
        """`spec.project` is a folder with its links resolved."""
        self._project = spec.project
        self._paths = paths
        self._mode = spec.mode
        self.about: Mapping[str, str] = {
            "mode": spec.mode.value,
            "command": spec.command,
            "session_id": spec.session_id,
            "call_id": spec.call_id,
            "started": repr(time.time()),
        }
        self.report: Report | None = None
        # Keeps the pending layer that the command sees.
        self._layer_lock: FileLock | None = None

    def roots(self, *, is_locked: bool = False) -> list[Root]:
        """Return the folders that the command may change, with the pending layer above each. With
        `is_locked`, the caller holds the project's lock."""
        roots = (self._project, *linked_roots(self._paths, self._project))
        folder = self._paths.project_data(self._project)
        try:
            has_none = (folder / "layer.json").read_bytes().startswith(b'{"runs": [],')
        except FileNotFoundError:
            has_none = not folder.exists()
        if has_none:
            return [Root(root) for root in roots]
        from .layer import PendingLayer

        layer = PendingLayer(self._paths, self._project)
        layers, self._layer_lock = layer.open(roots, is_locked=is_locked)
        return [Root(root, layers.get(root, "")) for root in roots]

    def settle(self, overlay: Overlay) -> None:
        from .settle import settle

        self.report = settle(self._paths, overlay)
        self._layer_lock = None

    def has_begun(self) -> bool:
        """Return whether a job is under way in the project, such as that of this run."""
        return (self._paths.project_data(self._project) / "job.json").exists()

    def is_captured(self, run_id: str) -> bool:
        """Return whether the changes of the run are listed, and not settled yet."""
        return self.report is None and (self._paths.runs / run_id / "changes.jsonl").exists()

    def note_end(self, run_id: str, exit_code: int | None, hosts: Sequence[HostUse]) -> None:
        """Record the exit status of the command, if it is known, and the hosts that it tried to
        reach. A run without changes and hosts is not recorded."""
        is_listed = bool(self.report and self.report.changes) and self._mode is not Mode.NEVER
        if is_listed and (hosts or exit_code is not None):
            from .index import note_end

            note_end(self._paths, run_id, exit_code, hosts)
        elif hosts and not is_listed:
            from .index import add_unchanged_run
            from .run import RunInfo

            info = RunInfo.of(self._project, [self._project], self.about)
            add_unchanged_run(self._paths, run_id, info, exit_code, hosts)


def linked_roots(paths: Paths, project: str) -> tuple[str, ...]:
    """Return the folders outside the project that its commands may change, none inside another:
    those that the user approved, and the repository of a worktree.

    The first are in the database. A file has a copy, so that a command starts without the database.
    """
    file = paths.linked_roots(project)
    roots: list[str] | None = None
    with contextlib.suppress(OSError, ValueError):
        roots = json.loads(file.read_text(encoding="utf-8"))
    if roots is None and paths.database.exists():
        from .projects import ProjectManager

        with contextlib.closing(ProjectManager(paths)) as manager:
            known = manager.find_project(project)
            roots = manager.approved_roots(known) if known else []
        write_atomically(file, json.dumps(roots))
    found: list[str] = []
    # They are sorted, so that parents come first.
    for root in roots or ():
        # If a link took its place, it is not the folder that the user approved.
        is_there = not is_missing(root)
        if is_there and may_be_root(paths, project, root) and not is_inside(root, project, *found):
            found.append(root)
    common = common_git_folder(paths, project)
    if common is not None and not is_inside(common, project, *found):
        found.append(common)
    return tuple(found)


def root_of(paths: Paths, project: str, path: str) -> tuple[str, str] | None:
    """Return the root that a full path is in and the path relative to it ("" is the root itself),
    or None if commands may not change it."""
    for root in (project, *linked_roots(paths, project)):
        if is_inside(path, root):
            return root, path[len(root.rstrip("/")) + 1 :]
    return None


def needs_recovery(paths: Paths) -> bool:
    """Return whether a run was interrupted, the index of runs is lost, or a clean-up is due."""
    if paths.runs.exists() and not paths.database.exists():
        return True
    left = [f"{file.parent.name}.job" for file in paths.projects.glob("*/job.json")]
    left += find_leftovers(paths.cache)
    if left:
        from .missing import MissingRootMarks

        if not all(map(MissingRootMarks(paths).is_still_missing, left)):
            return True
    try:
        age = time.time() - (paths.cache / "cleaned").stat().st_mtime
    except FileNotFoundError:
        return paths.database.exists()
    # A clock that was set back must not put it off for ever.
    return not 0 <= age < DAILY
