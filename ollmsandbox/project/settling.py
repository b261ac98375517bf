# SPDX-License-Identifier: GPL-3.0-or-later
"""From a run's upper folders to the project: applied or held, and finished after a kill."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import N_
from ..errors import OllmSandboxError
from ..paths import Paths, real_path
from ..sandbox.overlay import Overlay, leftovers
from . import backup, kept, pending, records
from .apply import Applier
from .change import Recorded, State
from .changes import scan
from .crossing import put_aside
from .exchange import Step
from .finding import find_changes, numbered, uncrossed, uncrossed_again
from .journal import Job, Journal, Task, project_lock
from .manager import ProjectManager
from .merging import merge
from .models import Project
from .opened import close_left
from .parents import closed_folders, implied_parents
from .recorder import MANY, Mode, Report, nothing
from .resuming import device, only_ours, still_own
from .review import Review

if TYPE_CHECKING:
    from .alongside import Alongside


class Settling:
    """The steps from an upper folder to the project. The project is locked meanwhile."""

    def __init__(self, paths: Paths, step: Step = nothing, *, many: int = MANY) -> None:
        self._paths = paths
        self._step = step
        self._many = many
        self._manager = ProjectManager(paths)
        # The numbers of what is in the database already; and by root, what was kept in the layer.
        self._recorded: set[int] = set()
        self._exchanged: dict[str, dict[int, str]] = {}

    def plan(
        self,
        overlay: Overlay,
        items: Sequence[Recorded],
        mode: Mode,
        command: str,
        started: float,
        *,
        agreed: bool = False,
        past_pending: bool = False,
    ) -> Job:
        """Nothing has happened yet; from here on it will be finished."""
        direct = past_pending or (mode is Mode.AUTO and not any(self._layer_is_used(overlay)))
        sources = {
            root: overlay.upper(name) if direct else self._layer(overlay, root)
            for name, root in overlay.overlay_map.items()
        }
        job = Job(
            task=Task.APPLY if direct else Task.MERGE,
            run_id=overlay.run_id,
            project=overlay.roots[0].path,
            mode=mode.value,
            command=command,
            started=started,
            items=tuple(items),
            sources=sources,
            closed={root: _closed(root, items) for root in sources},
            session_id=overlay.about.get("session_id", ""),
            call_id=overlay.about.get("call_id", ""),
            past_pending=past_pending,
            agreed=agreed,
        )
        overlay.make_durable()
        Journal.of_run(overlay.folder).write(job)
        self._step()
        return job

    def _layer(self, overlay: Overlay, root: str) -> str:
        return pending.layer_for(self._paths.pending(overlay.roots[0].path), root)

    def _layer_is_used(self, overlay: Overlay) -> list[bool]:
        folder = self._paths.pending(overlay.roots[0].path)
        return [
            folder.is_dir() and not pending.is_empty(self._layer(overlay, root.path))
            for root in overlay.roots
        ]

    def run(self, overlay: Overlay, job: Job, *, fresh: bool = False) -> list[Recorded]:
        """Also a second time, after a kill; if it is `fresh`, it is the first."""
        manager = self._manager
        ended_at = None
        try:
            project = records.begin_run(manager, job)
            self._step()
            if not fresh:
                # What comes into the pending layer later is on top.
                ended_at = Journal.of_run(overlay.folder).written_at() / 1e9
            if job.task is Task.MERGE:
                job = self._merge(overlay, job, project, fresh=fresh)
            else:
                for root, source in job.sources.items():
                    if source == _uppers(overlay)[root]:
                        kept.take_back(source, self._paths.versions / job.run_id, root)
                    if os.path.isdir(source):
                        pending.spell_out(source, root)
            done = list(job.items)
            if job.mode == Mode.AUTO.value:
                done = self._apply(overlay, job, project, fresh=fresh)
                rest = [item for item in done if item.number not in self._recorded]
                backup.back_up(manager, project, self._paths.versions / job.run_id, rest)
                self._step()
                self._keep_exchanged(job, done)
            if job.past_pending:
                self._renew_pending(overlay, project, done)
            else:
                done = self._keep_rest(overlay, job, done)
            rest = [item for item in done if item.number not in self._recorded]
            alone = job.sources == _uppers(overlay)
            records.end_run(manager, project, job, rest, alone=alone, ended_at=ended_at)
            manager.store.make_durable()
            self._step()
            return done
        finally:
            manager.close()

    def _merge(self, overlay: Overlay, job: Job, project: Project, *, fresh: bool) -> Job:
        """Everything into the pending layer; what is to be applied is taken from there."""
        versions = self._paths.versions / job.run_id
        journal = Journal.of_run(overlay.folder)
        theirs: set[tuple[str, str]] = set()
        if not fresh:
            since = journal.written_at()
            crossed, theirs = uncrossed_again(self._manager, project, overlay, job, since)
            if theirs:
                job = replace(job, items=tuple(crossed))
                journal.write_again(job)
        for name, root in overlay.overlay_map.items():
            here = [item for item in job.items if item.change.root == root]
            put_aside(overlay.upper(name), here, versions, self._step)
            merge(overlay.upper(name), job.sources[root], root, self._step)
            pending.spell_out(job.sources[root], root)
        items: list[Recorded] = []
        if job.mode == Mode.AUTO.value:
            against_disk = {
                (change.root, change.path): change
                for root, layer in job.sources.items()
                for change in scan(layer, [root], root).changes
            }
            for item in job.items:
                if item.is_aside:
                    items.append(item)
                    continue
                place = (item.change.root, item.change.path)
                change = against_disk.get(place)
                if place in theirs:
                    note = "It was changed in the meantime."
                    item = item._replace(state=State.CONFLICT, note=note)
                elif change is None:
                    # As it is on disk already: only an earlier change was taken back.
                    item = item._replace(state=State.APPLIED)
                else:
                    item = item._replace(change=change)
                items.append(item)
            for root, layer in job.sources.items():
                chosen = [
                    item
                    for item in items
                    if item.change.root == root
                    and item.state is State.PENDING
                    and (job.agreed or not item.is_held)
                ]
                parents = implied_parents(layer, root, chosen)
                free = 1 + max((item.number for item in items), default=0)
                items[:0] = [Recorded(free + n, each) for n, each in enumerate(parents)]
        else:
            items = list(job.items)
        closed = {root: _closed(root, items) for root in job.sources}
        job = replace(job, task=Task.APPLY, items=tuple(items), closed=closed)
        journal.write(job)
        self._step()
        return job

    def _apply(
        self, overlay: Overlay, job: Job, project: Project, *, fresh: bool
    ) -> list[Recorded]:
        done: dict[int, Recorded] = {}
        versions = self._paths.versions / job.run_id
        written = {} if fresh else records.signatures(self._manager, job.run_id)
        since = Journal.of_run(overlay.folder).written_at()

        def waits(item: Recorded) -> bool:
            return bool(item.change.flags) and item.is_held and not job.agreed

        for root, source in job.sources.items():
            chosen = [
                item
                for item in job.items
                if item.change.root == root and item.state is State.PENDING and not waits(item)
            ]
            is_own = source == _uppers(overlay)[root] and not job.past_pending
            if not fresh and not is_own:
                chosen, others = still_own(chosen, source, root)
                done.update((item.number, item) for item in others)
            if not chosen:
                continue
            plain = sum(1 for item in chosen if item.change.is_plain)
            applier = Applier(root, versions, job.run_id, self._step, resumed=not fresh)
            try:
                closed = (job.closed or {}).get(root, {})
                alongside = None
                if fresh and is_own and plain >= self._many:
                    alongside = self._send_clerk(overlay, project, source)
                if alongside:
                    with alongside:
                        applied = applier.apply(
                            chosen,
                            source,
                            closed=closed,
                            fresh=True,
                            is_own=True,
                            alongside=alongside,
                        )
                    if alongside.is_done:
                        self._recorded |= alongside.recorded
                        self._exchanged[root] = applier.exchanged
                    else:
                        kept.put_by_number(source, versions, applier.exchanged)
                else:
                    applied = applier.apply(
                        chosen, source, closed=closed, fresh=fresh, is_own=is_own
                    )
                if not fresh:
                    is_moved = os.stat(root).st_dev == device(source)
                    applied = [only_ours(item, written, since, is_moved) for item in applied]
                done.update((item.number, item) for item in applied)
            finally:
                applier.close()
        return [done.get(item.number, item) for item in job.items]

    def _send_clerk(self, overlay: Overlay, project: Project, layer: str) -> Alongside | None:
        # Here: it is needed for few runs.
        from .alongside import Alongside
        from .clerk import Errand

        errand = Errand(self._paths, project.id, overlay.folder, layer, os.getpid())
        writable = (*overlay.overlay_map.values(), real_path(self._paths.playground))
        alongside = Alongside.send(errand, writable)
        if alongside:
            # It writes back for both, in the end.
            self._manager.store.write_back_later()
        return alongside

    def _keep_exchanged(self, job: Job, done: Sequence[Recorded]) -> None:
        versions = self._paths.versions / job.run_id
        left = {item.change.root for item in done if item.state is not State.APPLIED}
        for root, exchanged in self._exchanged.items():
            if root in left:
                kept.put_by_number(job.sources[root], versions, exchanged)
            elif exchanged:
                kept.put_away(job.sources[root], versions, root, exchanged.values())
            self._step()

    def _keep_rest(self, overlay: Overlay, job: Job, done: Sequence[Recorded]) -> list[Recorded]:
        """What was not applied waits in the pending layer, where the next command sees it."""
        left = {item.change.root for item in done if item.state is not State.APPLIED}
        settled: set[tuple[str, str]] = set()
        for name, root in overlay.overlay_map.items():
            layer = self._layer(overlay, root) if root in left else job.sources[root]
            if root in left and job.sources[root] == overlay.upper(name):
                # First without what was applied: it would hide what comes to be there later.
                pending.prune(overlay.upper(name), root, whole=True)
                merge(overlay.upper(name), layer, root, self._step)
            elif job.sources[root] != overlay.upper(name):
                still = {change.path for change in pending.prune(layer, root).changes}
                # As it is on disk already: only an earlier change was taken back.
                settled |= {
                    (root, item.change.path)
                    for item in done
                    if item.change.root == root and item.change.path not in still
                }
        return [
            item._replace(state=State.APPLIED)
            if item.state is State.PENDING and (item.change.root, item.change.path) in settled
            else item
            for item in done
        ]

    def _renew_pending(self, overlay: Overlay, project: Project, done: Sequence[Recorded]) -> None:
        """What waits for the same files is now against these, which we wrote ourselves."""
        for root in overlay.overlay_map.values():
            layer = self._layer(overlay, root)
            if pending.is_empty(layer):
                continue
            left = {change.path for change in pending.prune(layer, root).changes}
            here = [i for i in done if i.change.root == root and i.state is State.APPLIED]
            records.renew_waiting(self._manager, project, here, left)


def _uppers(overlay: Overlay) -> dict[str, str]:
    return {root: overlay.upper(name) for name, root in overlay.overlay_map.items()}


def _closed(root: str, items: Sequence[Recorded]) -> dict[str, int]:
    return closed_folders(root, [item.change for item in items if item.change.root == root])


def _unreadable(folder: str) -> Report:
    text = N_(
        "It cannot be told which project {folder} belongs to, which holds what a command did."
    )
    what_to_do = N_("Take from it what you need, and remove it.")
    return Report("", errors=(str(OllmSandboxError(text, what_to_do, folder=folder)),))


def recover(paths: Paths, step: Step = nothing) -> list[Report]:
    """What programs that were killed have left: runs are finished, and what a command had written
    by then waits to be looked at."""
    reports: list[Report] = []
    for overlay in leftovers(paths.cache, lambda folder: reports.append(_unreadable(folder))):
        project = overlay.roots[0].path
        try:
            with project_lock(paths, project):
                job = Journal.of_run(overlay.folder).read()
                settling = Settling(paths, step)
                if job is None:
                    for name in overlay.overlay_map:
                        close_left(overlay.upper(name))
                    mode = overlay.about.get("mode", Mode.NEVER.value)
                    if overlay.is_untouched() or mode == Mode.NEVER.value:
                        overlay.cleanup()
                        continue
                    sets = find_changes(overlay)
                    changes = [change for found in sets.values() for change in found.changes]
                    items = numbered(overlay, changes)
                    items = uncrossed(paths, overlay, items, sets)
                    if items:
                        started = os.stat(overlay.folder).st_mtime
                        command = f"{overlay.about.get('command', '')} (interrupted)"
                        job = settling.plan(overlay, items, Mode.REVIEW, command, started)
                if job is not None:
                    reports.append(Report(overlay.run_id, tuple(settling.run(overlay, job))))
                overlay.cleanup()
        except (OllmSandboxError, OSError) as error:
            overlay.release()
            reports.append(Report(overlay.run_id, errors=(str(error),)))
    for journal in Journal.left(paths):
        review = Review(paths, step)
        try:
            reports += review.finish(journal)
        except (OllmSandboxError, OSError) as error:
            reports.append(Report("", errors=(str(error),)))
        finally:
            review.close()
    return reports
