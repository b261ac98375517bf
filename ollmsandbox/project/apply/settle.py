# SPDX-License-Identifier: GPL-3.0-or-later
"""Settles a finished run: from its upper folders to applied, held or pending changes.

`find_changes` and `number_found` list what the run changed, `resolve_concurrent` compares it with
what other runs did to the same files meanwhile, and `Settling` writes the journal, merges, applies
and records. An interrupted run is settled by the same steps after a kill.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from ...files.dirfd import restore_modes
from ...paths import Paths, make_folder, real_path
from ...sandbox.overlay import Overlay, clock_offset, time_at
from ..changes import outside_edits
from ..changes.change import MANY, Change, ChangeSet, Mode, Recorded, State, Type, nothing
from ..changes.outside_edits import OutsideEdits
from ..changes.reasons import Note, Reason
from ..changes.scan import scan
from ..database import backups, runs
from ..database.models import Project
from ..manager import ProjectManager
from ..pending import layer as pending
from ..pending.conflicts import (
    NEVER_SEEN,
    NEW,
    Unseen,
    came_since,
    in_layer,
    made_folders,
    make_way,
    put_aside,
)
from ..pending.conflicts import uncrossed as uncrossed_in
from ..pending.merge import merge
from ..pending.shadowed import keeper
from ..recovery.missing import check_roots
from . import kept_versions
from .applier import Applier, device, only_ours, still_own
from .journal import Job, Journal, Task, Way
from .parents import closed_folders, implied_parents
from .patch import keep_base
from .swap import Step

if TYPE_CHECKING:
    from .record_process import RecordProcess


# A clock that is set back by less is taken for a measuring error.
_JITTER = 1_000_000
_SLACK = 1_000_000_000
# By so much a file system's clock may be behind.
_TICK = runs.APART_NS // 2


def find_changes(overlay: Overlay) -> dict[str, ChangeSet]:
    check_roots(overlay)
    found = {}
    for name, root in zip(overlay.overlay_map, overlay.roots, strict=True):
        # Folders may still be open that were looked into when somebody was killed.
        restore_modes(overlay.upper(name))
        # What waited when the run began may have been applied since.
        waits = root.pending and os.path.isdir(root.pending)
        lowers = [root.pending, root.path] if waits else [root.path]
        found[name] = scan(overlay.upper(name), lowers, root.path)
    return found


def number_found(overlay: Overlay, changes: Sequence[Change]) -> list[Recorded]:
    began = _began(overlay)
    roots = {
        root: OutsideEdits(root, overlay.upper(name), began[root])
        for name, root in overlay.overlay_map.items()
    }
    return outside_edits.number_changes(changes, roots, began)


def resolve_concurrent(
    paths: Paths, overlay: Overlay, items: Sequence[Recorded], sets: Mapping[str, ChangeSet]
) -> tuple[list[Recorded], dict[str, Way]]:
    """Those that another run did not cross, and the others as conflicts; and by root, what is to be
    done for that before they are merged."""
    path = overlay.project
    folder = paths.pending(path)
    if not folder.is_dir():
        return list(items), {}
    layers = {root.path: pending.layer_for(folder, root.path) for root in overlay.roots}
    if all(map(pending.is_empty, layers.values())):
        return list(items), {}
    back, began = _set_back(overlay), _began(overlay)
    found: list[Recorded] = []
    ways: dict[str, Way] = {}
    manager = ProjectManager(paths)
    try:
        project = manager.find_project(path)
        for (name, of_root), root in zip(sets.items(), overlay.roots, strict=True):
            layer = layers[root.path]
            since = overlay.began_below(name) - back if root.pending else NEVER_SEEN
            # Where the clock was set back meanwhile, that cannot be told.
            newest = overlay.newest_below(name) if root.pending and not back else 0
            later = _later(manager, project, root.path, max(since, newest) + _TICK)
            now = time_at(layer) if newest else 0
            came = came_since(layer, since, newest=newest, now=now) | in_layer(layer, later)
            kept, ways[root.path] = uncrossed_in(
                overlay.upper(name),
                layer,
                root.path,
                [item for item in items if item.change.root == root.path],
                Unseen(came, made_folders(layer, root.path, later)),
                (*of_root.idle, *(skipped.path for skipped in of_root.skipped)),
                began[root.path],
            )
            found += kept
    finally:
        manager.close()
    return [item._replace(number=number) for number, item in enumerate(found)], ways


def uncrossed_again(
    manager: ProjectManager, project: Project, overlay: Overlay, job: Job, since: int
) -> tuple[Job, set[tuple[str, str]]]:
    """After a kill, from which time on others may have put something into the layers: the same, or
    the job as it is; and by root and path what is theirs now."""
    items: list[Recorded] = []
    ways: dict[str, Way] = {}
    theirs: set[tuple[str, str]] = set()
    began, is_new = _began(overlay), False
    for name, root in overlay.overlay_map.items():
        layer = job.sources[root]
        # Not by what came since: that may be what we merged ourselves. `since` is no file's time,
        # so another run may have ended a moment later.
        later = _later(manager, project, root, since)
        unseen = Unseen(in_layer(layer, later), made_folders(layer, root, later))
        here = [item for item in job.items if item.change.root == root]
        upper = overlay.upper(name)
        kept, way = uncrossed_in(upper, layer, root, here, unseen, None, began[root])
        covered = {*way.covered, *job.ways.get(root, Way()).covered}
        ways[root] = replace(way, covered=tuple(sorted(covered)))
        items += kept
        theirs |= {(root, path) for path in unseen.places}
        is_new |= bool(unseen)
    if not is_new:
        return job, theirs
    free = count(first_free(manager, overlay, job.items))
    items = [item._replace(number=next(free)) if item.number == NEW else item for item in items]
    return replace(job, items=tuple(items), ways=ways), theirs


def first_free(manager: ProjectManager, overlay: Overlay, items: Sequence[Recorded]) -> int:
    """The number after those of all the run's changes: it may be finished in parts."""
    journal = Journal.of_run(overlay.folder)
    jobs = (*journal.read_all(), *journal.read_put_off())
    known = [item.number for job in jobs for item in job.items]
    known += [item.number for item in items]
    return 1 + max((runs.last_number(manager, overlay.run_id), *known))


def _later(manager: ProjectManager, project: Project | None, root: str, since: int) -> set[str]:
    """Paths of which other runs, which ended since, have put something into the layer."""
    waits = runs.waiting(manager, project, root) if project else {}
    return {path for path, one in waits.items() if one.ended_at * 1e9 > since}


def _began(overlay: Overlay) -> dict[str, int]:
    """By root."""
    back = _set_back(overlay)
    return {path: overlay.began[name] - back for name, path in overlay.overlay_map.items()}


def _set_back(overlay: Overlay) -> int:
    """Return how far the clock was set back since the run began."""
    set_back = overlay.clock - clock_offset()
    return set_back + _SLACK if set_back > _JITTER else 0


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
        self._record_process: RecordProcess | None = None

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
        """Write the journal. Nothing is changed yet, but from here on the job will be finished."""
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
            ends_at=runs.intended_end(self._manager, path) if others_wait else time.time(),
        )
        if direct and mode is Mode.AUTO and _plain(items) >= self._many:
            self._record_process = self._spawn_record_process(overlay)
        try:
            overlay.make_durable()
            Journal.of_run(overlay.folder).write(job)
        except BaseException:
            self._end_record_process()
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
        """Run the job. It can be repeated after a kill; `fresh` if it is the first time."""
        manager = self._manager
        ended_at = None
        try:
            project = runs.begin_run(manager, job)
            self._step()
            if not fresh:
                # What comes into the pending layer later is on top.
                ended_at = _ended_at(overlay, job)
            if job.task is Task.MERGE:
                job = self._merge(overlay, job, project, fresh=fresh)
            else:
                for root, source in job.sources.items():
                    if source == _uppers(overlay)[root]:
                        kept_versions.take_back(source, self._paths.versions / job.run_id, root)
                    if os.path.isdir(source):
                        pending.spell_out(source, root)
            done = list(job.items)
            if job.mode == Mode.AUTO.value:
                done = self._apply(overlay, job, project, fresh=fresh)
                rest = [item for item in done if item.number not in self._recorded]
                if not fresh:
                    backups.forget_unrecorded(manager, project, self._paths.versions / job.run_id)
                backups.back_up(manager, project, self._paths.versions / job.run_id, rest)
                self._step()
                self._keep_exchanged(job, done)
            if job.past_pending:
                self._renew_pending(overlay, project, done)
            else:
                done = self._keep_rest(overlay, job, project, done)
            rest = [item for item in done if item.number not in self._recorded]
            alone = job.sources == _uppers(overlay)
            at = runs.end_run(manager, project, job, rest, alone=alone, ended_at=ended_at)
            pending.note_newest(self._paths.pending(job.project), int(at * 1e9))
            manager.store.make_durable()
            self._step()
            return done
        finally:
            self._end_record_process()
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
        self._keep_bases(job, project, job.items)
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
            waits = {r: runs.waiting(self._manager, project, r) for r in job.sources}
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
                    note = Note(Reason.CHANGED)
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
        written = {} if fresh else runs.signatures(self._manager, job.run_id)
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
                    alongside = self._start_record_process(overlay, project, source)
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
                        kept_versions.put_by_number(source, versions, applier.exchanged)
                else:
                    applied = applier.apply(
                        chosen,
                        source,
                        closed=closed,
                        fresh=fresh,
                        is_own=is_own,
                        find_base=self._find_base,
                    )
                if not fresh:
                    is_moved = os.stat(root).st_dev == device(source)
                    applied = [only_ours(item, written, since, is_moved) for item in applied]
                done.update((item.number, item) for item in applied)
            finally:
                applier.close()
        return [done.get(item.number, item) for item in job.items]

    def _find_base(self, item: Recorded) -> Path | None:
        """Return what the command saw of a file: the version that the first of the runs found that
        have replaced it since. None if somebody else changed it, too."""
        change = item.change
        for found in runs.replaced(self._manager, change.root, change.path):
            if found.changed_before <= item.began < found.changed_after:
                return self._paths.versions / found.run_id / str(found.number)
        return None

    def _start_record_process(
        self, overlay: Overlay, project: Project, layer: str
    ) -> RecordProcess | None:
        # Here: it is needed for few runs.
        from .record_process import RecordJob

        alongside = self._record_process or self._spawn_record_process(overlay)
        self._record_process = None
        if alongside:
            record_job = RecordJob(self._paths, project.id, overlay.folder, layer, os.getpid())
            alongside.start(record_job)
            # It writes back for both, in the end.
            self._manager.store.write_back_later()
        return alongside

    def _spawn_record_process(self, overlay: Overlay) -> RecordProcess | None:
        from .record_process import RecordProcess

        writable = (*overlay.overlay_map.values(), real_path(self._paths.playground))
        return RecordProcess.spawn(writable)

    def _end_record_process(self) -> None:
        """End the process that was spawned and is not needed."""
        if self._record_process:
            self._record_process.wait()
            self._record_process = None

    def _keep_exchanged(self, job: Job, done: Sequence[Recorded]) -> None:
        versions = self._paths.versions / job.run_id
        left = {item.change.root for item in done if item.state is not State.APPLIED}
        for root, exchanged in self._exchanged.items():
            if root in left:
                kept_versions.put_by_number(job.sources[root], versions, exchanged)
            elif exchanged:
                kept_versions.put_away(job.sources[root], versions, root, exchanged.values())
            self._step()

    def _keep_bases(self, job: Job, project: Project, items: Sequence[Recorded]) -> None:
        """Keep what is on disk of each file that is to wait, before somebody edits it there. If an
        earlier run's version waits below, that run has kept it."""
        versions = make_folder(self._paths.versions / job.run_id)
        is_done = versions / "bases"
        if is_done.exists() or len(items) >= MANY:
            return
        waits = {root: runs.waiting(self._manager, project, root) for root in job.sources}
        for item in items:
            if item.change.is_edit:
                below = waits[item.change.root].get(item.change.path)
                earlier = None
                if below is not None:
                    earlier = self._paths.versions / below.run_id / str(below.number)
                keep_base(item, versions, earlier)
        is_done.touch()
        self._step()

    def _keep_rest(
        self, overlay: Overlay, job: Job, project: Project, done: Sequence[Recorded]
    ) -> list[Recorded]:
        """Put what was not applied into the pending layer, where the next command sees it."""
        left = {item.change.root for item in done if item.state is not State.APPLIED}
        settled: set[tuple[str, str]] = set()
        for name, root in overlay.overlay_map.items():
            layer = self._layer(overlay, root) if root in left else job.sources[root]
            if root in left and job.sources[root] == overlay.upper(name):
                self._keep_bases(job, project, [i for i in done if i.state is not State.APPLIED])
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
        """Base pending changes to the same files on what was just applied, by us."""
        for root in overlay.overlay_map.values():
            layer = self._layer(overlay, root)
            if pending.is_empty(layer):
                continue
            left = self._prune(layer, root, project)
            here = [i for i in done if i.change.root == root and i.state is State.APPLIED]
            runs.renew_waiting(self._manager, project, here, left)

    def _prune(
        self, layer: str, root: str, project: Project, own: Collection[str] = ()
    ) -> set[str]:
        """Returns what is left. Where the run has put something of its `own`, that is not what
        waited there."""

        def settle(idle: Sequence[str]) -> None:
            theirs = [path for path in idle if path not in own]
            runs.settle_idle(self._manager, project, root, theirs)

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
