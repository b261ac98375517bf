# SPDX-License-Identifier: GPL-3.0-or-later
"""Settles a finished run: captures its changes, applies them or keeps them pending, and records
them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from functools import partial

from ..files.dirfd import folders_above
from ..paths import Paths
from ..sandbox.overlay import Overlay
from ..sandbox.spec import Mode
from .backups import back_up, forget_unrecorded, keep_replaced
from .capture import capture, find_changes
from .change import MANY, Recorded, Report, State
from .index import add_run, note_deleted, write_changes
from .jobs import Job, JobResult, ProjectJobs
from .layer import PendingLayer
from .missing import check_roots
from .plan import Planner, Way
from .projects import ProjectManager
from .run import RunFolder, RunInfo, RunStates, is_pending, read_run, take_results
from .swap import UPPER


def settle(
    paths: Paths,
    overlay: Overlay,
    *,
    interrupted: bool = False,
    approved: bool = False,
    is_locked: bool = False,
) -> Report:
    """Settle a run, after all its processes have ended.

    What an `interrupted` command wrote stays pending. If the user has `approved` it, nothing is
    held. With `is_locked`, the caller holds the project's lock and has finished the job
    that a killed program left.
    """
    if not overlay.is_untouched():
        overlay.copy_shared()
    with contextlib.closing(ProjectManager(paths)) as manager:
        jobs = project_jobs(manager, overlay.project)
        with contextlib.nullcontext() if is_locked else jobs.locked():
            return _Settling(manager, overlay, jobs, approved=approved).settle(interrupted)


def project_jobs(manager: ProjectManager, project: str) -> ProjectJobs:
    return ProjectJobs(manager.paths, project, partial(_record, manager))


@contextlib.contextmanager
def opened_jobs(paths: Paths, project: str) -> Iterator[ProjectJobs]:
    """Hold a project's lock, after finishing what was interrupted there."""
    with (
        contextlib.closing(ProjectManager(paths)) as manager,
        project_jobs(manager, project).locked() as jobs,
    ):
        yield jobs


class _Settling:
    def __init__(
        self, manager: ProjectManager, overlay: Overlay, jobs: ProjectJobs, *, approved: bool
    ) -> None:
        self._manager = manager
        self._paths = manager.paths
        self._overlay = overlay
        self._jobs = jobs
        self._approved = approved
        self._mode = Mode(overlay.about.get("mode", Mode.NEVER.value))

    def settle(self, interrupted: bool) -> Report:
        overlay, run = self._overlay, RunFolder(self._paths, self._overlay.run_id)
        states = run.states() if run.is_captured else None
        if states is not None and states.ended is not None:
            return Report(run.id)  # its job was finished, and reported
        check_roots(overlay)
        if states is not None:
            # Killed after that, perhaps while results were moved to the run: now all are.
            take_results(self._paths, run.id, overlay.uppers, states.changes)
            return self._do(run, run.info(), states.changes)
        found = find_changes(self._paths, overlay)
        if not found.items:
            return Report(overlay.run_id, skipped=found.skipped)
        if self._mode is Mode.NEVER:
            dropped = [item._replace(state=State.DISCARDED, note=None) for item in found.items]
            return Report(overlay.run_id, tuple(dropped), found.skipped)
        self._jobs.bump_generation()
        PendingLayer(self._paths, overlay.project).make_file()
        info = self._info(interrupted)
        # From here on, files are moved out of the overlay.
        overlay.make_durable()
        items = capture(self._manager, overlay, info, found)
        return self._do(run, info, items)._replace(skipped=found.skipped)

    def _info(self, interrupted: bool) -> RunInfo:
        overlay = self._overlay
        info = RunInfo.of(overlay.project, overlay.overlay_map.values(), overlay.about)
        info = info._replace(is_approved=self._approved)
        if not interrupted:
            return info
        return info._replace(command=f"{info.command} (interrupted)", mode=Mode.REVIEW.value)

    def _do(self, run: RunFolder, info: RunInfo, items: Sequence[Recorded]) -> Report:
        """Apply the changes that need not wait, in one job, which also records the run."""
        waiting = self._waiting(run, info, items)
        uppers = self._overlay.uppers
        is_far = os.stat(self._overlay.folder).st_dev != os.stat(run.path).st_dev
        if len(items) < MANY or is_far:
            take_results(self._paths, run.id, uppers, items)
            uppers = {}
        if len(waiting) < len(items):
            PendingLayer(self._paths, info.project).release()
        with contextlib.closing(Planner(self._paths, info.project, uppers)) as planner:
            planner.begin(run.id, len(items))
            planned = []
            decided = [(run.id, item) for item in waiting.values()]
            for item in items:
                if item.number not in waiting:
                    plan = planner.plan(run.id, item, Way.APPLY)
                    planned += plan.items
                    decided += [(run.id, plan.decided)] if plan.decided else []
        moved = {item.number for item in planned if item.slot == UPPER}
        rest = [item for item in items if item.number not in moved]
        take_results(self._paths, run.id, uppers, rest)
        job = Job(info.project, run.id, tuple(planned), tuple(decided), settles=True, uppers=uppers)
        return self._jobs.do(job, {run.id: items}).report()

    def _waiting(
        self, run: RunFolder, info: RunInfo, items: Sequence[Recorded]
    ) -> dict[int, Recorded]:
        """Return the changes that the user has to decide about, by number."""
        if info.mode != Mode.AUTO.value:
            return {item.number: item for item in items}
        pending = PendingLayer(self._paths, info.project).changes()
        on_pending = _on_pending(items, [(one, item) for one, item in pending if one != run.id])
        return {
            item.number: item
            for item in items
            if item.state is State.CONFLICT
            or (item.is_held and not info.is_approved)
            or item.number in on_pending
        }


def _on_pending(items: Sequence[Recorded], others: Sequence[tuple[str, Recorded]]) -> set[int]:
    """Return the numbers of changes that need pending changes of other runs: at the same path, in a
    pending folder, or deletions of folders with pending content."""
    if not others:
        return set()
    keys = {(run_id, item.number) for run_id, item in others}
    made = {
        (item.change.root, item.change.path)
        for _, item in others
        if item.change.makes_folder or item.change.ends_folder
    }
    around = {
        (item.change.root, folder)
        for _, item in others
        for folder in folders_above(item.change.path)
    }
    found: set[int] = set()
    ended: set[tuple[str, str]] = set()
    for item in items:
        root, path = item.change.root, item.change.path
        if (
            item.on in keys
            or any((root, folder) in made for folder in folders_above(path))
            or (item.change.ends_folder and (root, path) in around)
        ):
            found.add(item.number)
            ended |= {(root, path)} if item.change.ends_folder else set()
    # A folder that stays keeps its content.
    return found | {
        item.number
        for item in items
        if ended
        and any((item.change.root, one) in ended for one in folders_above(item.change.path))
    }


def _record(manager: ProjectManager, result: JobResult) -> None:
    """Record what a job has done: in the index, as backups, and in the pending layer."""
    job = result.job
    project = manager.record_project(job.project)
    has_pending: dict[str, bool] = {}
    for run_id, items in result.done.items():
        is_new = job.settles and run_id == job.run_id
        # The backups are named by ids that are recorded in the same transaction.
        with manager.store.transaction():
            if is_new:
                run = RunFolder(manager.paths, run_id)
                ended = (run.path / "state.jsonl").stat().st_mtime
                add_run(manager, run_id, run.info(), RunStates(items, ended))
            else:
                write_changes(manager, run_id, items)
            if result.is_resumed:
                forget_unrecorded(manager, project, run_id)
            if job.undoes:
                note_deleted(manager, project, items)
            else:
                back_up(manager, project, run_id, items)
                keep_replaced(manager, run_id, items)
        known = items if is_new else read_run(manager.paths, run_id).changes
        has_pending[run_id] = any(map(is_pending, known))
    manager.store.make_durable()
    PendingLayer(manager.paths, job.project).note(has_pending)
