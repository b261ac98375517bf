# SPDX-License-Identifier: GPL-3.0-or-later
"""From a run's upper folders to the project: applied or held, and finished after a kill."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..paths import Paths, real_path
from ..sandbox.overlay import Overlay
from . import backup, kept, pending, records
from .apply import Applier
from .change import Recorded, State, Type
from .changes import scan
from .covering import keeper
from .crossing import make_way, put_aside
from .exchange import Step
from .finding import first_free, uncrossed_again
from .journal import Job, Journal, Task, Way
from .manager import ProjectManager
from .merging import merge
from .models import Project
from .parents import closed_folders, implied_parents
from .recorder import MANY, Mode, nothing
from .resuming import device, only_ours, still_own

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
        # Gets ready while the journal is written.
        self._clerk: Alongside | None = None

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
        ways: Mapping[str, Way] | None = None,
    ) -> Job:
        """Nothing has happened yet; from here on it will be finished."""
        others_wait = any(self._layer_is_used(overlay))
        direct = past_pending or (mode is Mode.AUTO and not others_wait)
        sources = {
            root: overlay.upper(name) if direct else self._layer(overlay, root)
            for name, root in overlay.overlay_map.items()
        }
        path = overlay.project
        job = Job(
            task=Task.APPLY if direct else Task.MERGE,
            run_id=overlay.run_id,
            project=path,
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
            ways=dict(ways or {}),
            ends_at=records.intended_end(self._manager, path) if others_wait else time.time(),
        )
        if direct and mode is Mode.AUTO and _plain(items) >= self._many:
            self._clerk = self._call_clerk(overlay)
        try:
            overlay.make_durable()
            Journal.of_run(overlay.folder).write(job)
        except BaseException:
            self._send_away()
            raise
        self._step()
        return job

    def _layer(self, overlay: Overlay, root: str) -> str:
        return pending.layer_for(self._paths.pending(overlay.project), root)

    def _layer_is_used(self, overlay: Overlay) -> list[bool]:
        folder = self._paths.pending(overlay.project)
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
                ended_at = _ended_at(overlay, job)
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
                if not fresh:
                    backup.forget_unrecorded(manager, project, self._paths.versions / job.run_id)
                backup.back_up(manager, project, self._paths.versions / job.run_id, rest)
                self._step()
                self._keep_exchanged(job, done)
            if job.past_pending:
                self._renew_pending(overlay, project, done)
            else:
                done = self._keep_rest(overlay, job, project, done)
            rest = [item for item in done if item.number not in self._recorded]
            alone = job.sources == _uppers(overlay)
            at = records.end_run(manager, project, job, rest, alone=alone, ended_at=ended_at)
            pending.note_newest(self._paths.pending(job.project), int(at * 1e9))
            manager.store.make_durable()
            self._step()
            return done
        finally:
            self._send_away()
            manager.close()

    def _merge(self, overlay: Overlay, job: Job, project: Project, *, fresh: bool) -> Job:
        """Everything into the pending layer; what is to be applied is taken from there."""
        versions = self._paths.versions / job.run_id
        journal = Journal.of_run(overlay.folder)
        theirs: set[tuple[str, str]] = set()
        if not fresh:
            _make_way(overlay, job)
            since = int(_ended_at(overlay, job) * 1e9)
            again, theirs = uncrossed_again(self._manager, project, overlay, job, since)
            if again is not job:
                job = again
                journal.write_again(job)
        _make_way(overlay, job)
        for name, root in overlay.overlay_map.items():
            here = [item for item in job.items if item.change.root == root]
            covered = job.ways.get(root, Way()).covered
            put_aside(overlay.upper(name), here, covered, versions, self._step)
            layer = job.sources[root]
            keep = keeper(self._manager, project, root, layer)
            merge(overlay.upper(name), layer, root, _folders(here), keep, self._step)
            pending.spell_out(layer, root)
        items: list[Recorded] = []
        if job.mode == Mode.AUTO.value:
            against_disk = {
                (change.root, change.path): change
                for root, layer in job.sources.items()
                for change in scan(layer, [root], root).changes
            }
            waits = {r: records.waiting(self._manager, project, r) for r in job.sources}
            for item in job.items:
                if item.is_aside:
                    items.append(item)
                    continue
                if waited := waits[item.change.root].get(item.change.path):
                    # What is taken is on top of that, which knew the file as it was then.
                    item = item._replace(began=min(item.began, waited.began))
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
                if parents:
                    free = 1 + max(item.number for item in items)
                    if not fresh:
                        free = first_free(self._manager, overlay, items)
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
            if not chosen:
                continue
            if not fresh and not is_own:
                # If none is left, folders may still be open that were closed.
                chosen, others = still_own(chosen, source, root)
                done.update((item.number, item) for item in others)
            applier = Applier(root, versions, job.run_id, self._step, resumed=not fresh)
            try:
                closed = (job.closed or {}).get(root, {})
                alongside = None
                if fresh and is_own and _plain(chosen) >= self._many:
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
        from .clerk import Errand

        alongside, self._clerk = self._clerk or self._call_clerk(overlay), None
        if alongside:
            errand = Errand(self._paths, project.id, overlay.folder, layer, os.getpid())
            alongside.begin(errand)
            # It writes back for both, in the end.
            self._manager.store.write_back_later()
        return alongside

    def _call_clerk(self, overlay: Overlay) -> Alongside | None:
        from .alongside import Alongside

        writable = (*overlay.overlay_map.values(), real_path(self._paths.playground))
        return Alongside.call(writable)

    def _send_away(self) -> None:
        """The one that was called, and not needed."""
        if self._clerk:
            self._clerk.wait()
            self._clerk = None

    def _keep_exchanged(self, job: Job, done: Sequence[Recorded]) -> None:
        versions = self._paths.versions / job.run_id
        left = {item.change.root for item in done if item.state is not State.APPLIED}
        for root, exchanged in self._exchanged.items():
            if root in left:
                kept.put_by_number(job.sources[root], versions, exchanged)
            elif exchanged:
                kept.put_away(job.sources[root], versions, root, exchanged.values())
            self._step()

    def _keep_rest(
        self, overlay: Overlay, job: Job, project: Project, done: Sequence[Recorded]
    ) -> list[Recorded]:
        """What was not applied waits in the pending layer, where the next command sees it."""
        left = {item.change.root for item in done if item.state is not State.APPLIED}
        settled: set[tuple[str, str]] = set()
        for name, root in overlay.overlay_map.items():
            layer = self._layer(overlay, root) if root in left else job.sources[root]
            if root in left and job.sources[root] == overlay.upper(name):
                # First without what was applied: it would hide what comes to be there later.
                pending.prune(overlay.upper(name), root, whole=True)
                here = [item for item in done if item.change.root == root]
                keep = keeper(self._manager, project, root, layer)
                merge(overlay.upper(name), layer, root, _folders(here), keep, self._step)
            elif job.sources[root] != overlay.upper(name):
                own = {item.change.path for item in done if item.change.root == root}
                still = self._prune(layer, root, project, own)
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
            left = self._prune(layer, root, project)
            here = [i for i in done if i.change.root == root and i.state is State.APPLIED]
            records.renew_waiting(self._manager, project, here, left)

    def _prune(
        self, layer: str, root: str, project: Project, own: Collection[str] = ()
    ) -> set[str]:
        """Returns what is left. Where the run has put something of its `own`, that is not what
        waited there."""

        def settle(idle: Sequence[str]) -> None:
            theirs = [path for path in idle if path not in own]
            records.settle_idle(self._manager, project, root, theirs)

        return {change.path for change in pending.prune(layer, root, settle=settle).changes}


def _plain(items: Sequence[Recorded]) -> int:
    return sum(1 for item in items if item.change.is_plain)


def _ended_at(overlay: Overlay, job: Job) -> float:
    """Of one that was cut off."""
    return job.ends_at or Journal.of_run(overlay.folder).written_at() / 1e9


def _folders(items: Sequence[Recorded]) -> set[str]:
    return {item.change.path for item in items if item.change.type is Type.FOLDER}


def _uppers(overlay: Overlay) -> dict[str, str]:
    return {root: overlay.upper(name) for name, root in overlay.overlay_map.items()}


def _make_way(overlay: Overlay, job: Job) -> None:
    for root, way in job.ways.items():
        here = [item for item in job.items if item.change.root == root]
        make_way(_uppers(overlay)[root], here, way)


def _closed(root: str, items: Sequence[Recorded]) -> dict[str, int]:
    return closed_folders(root, [item.change for item in items if item.change.root == root])
