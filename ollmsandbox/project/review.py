# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person does with a run's changes afterwards: take them, discard them, undo them."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from .. import N_
from ..paths import Paths, make_folder
from . import backup, pending, records
from .abandoned import GoneError
from .apply import Applier
from .change import ChangeSet, Kind, Recorded, State, Type
from .changes import scan
from .choosing import choose
from .exchange import Step
from .journal import Job, Journal, Task, project_lock
from .layers import FOLDER
from .manager import ProjectManager, is_missing
from .models import Project, Run
from .on_disk import is_there, is_undeleted
from .parents import closed_folders, numbered_parents
from .recorder import Report, nothing
from .resuming import only_ours, still_own

_WAITS = (State.PENDING, State.CONFLICT, State.FAILED)
# Nothing of it is left to be taken.
_SETTLED = (State.APPLIED, State.DISCARDED)


class Review:
    """Whole runs, or chosen paths of them. A folder stands for all that is in it."""

    def __init__(self, paths: Paths, step: Step = nothing) -> None:
        self._paths = paths
        self._step = step
        self.manager = ProjectManager(paths)

    def close(self) -> None:
        self.manager.close()

    def apply(self, run: Run, chosen: Sequence[str] = (), *, only_waiting: bool = False) -> Report:
        """What waits goes into the project, what was undone comes back. Of what was discarded, and
        where somebody else changed the file, only what is named. What a later run changed, too,
        waits for that one: its version is the one there is."""
        done, later = self._apply(run, chosen, only_waiting=only_waiting)
        return Report(run.id, (*done, *later))

    def discard(self, run: Run, chosen: Sequence[str] = ()) -> Report:
        done, later = self._drop(run, chosen)
        return Report(run.id, (*done, *later))

    def apply_all(self, project: Project) -> list[Report]:
        """Everything that waits, each path with the run that it waits for. The oldest first: what
        was in a folder goes before something else takes its place."""
        runs = self.waiting(project)
        done = [(run, self._apply(run, (), only_waiting=True)[0]) for run in runs]
        return [Report(run.id, tuple(items)) for run, items in done if items]

    def discard_all(self, project: Project) -> list[Report]:
        done = [(run, self._drop(run, ())[0]) for run in reversed(self.waiting(project))]
        return [Report(run.id, tuple(items)) for run, items in done if items]

    def _apply(
        self, run: Run, chosen: Sequence[str], *, only_waiting: bool
    ) -> tuple[list[Recorded], list[Recorded]]:
        with project_lock(self._paths, run.project.path):
            rows = records.read_changes(self.manager, run)
            items = choose(rows, chosen)
            waiting = [
                item
                for item in items
                if item.state in (State.PENDING, State.FAILED)
                or (item.state is State.CONFLICT and chosen)
            ]
            aside = [item for item in waiting if item.is_aside]
            back = [
                item
                for item in items
                if (item.state is State.UNDONE and not only_waiting)
                or (item.state is State.DISCARDED and chosen)
                or (item.is_aside and chosen)
            ]
            waiting, later = self._own(run, [item for item in waiting if not item.is_aside])
            jobs = self._jobs_to_give_way(run, aside)
            for root in {item.change.root for item in aside}:
                parents = numbered_parents(
                    self._layer(run, root), root, [i for i in back if i.change.root == root], rows
                )
                rows += parents
                back[:0] = parents
            lost: list[Recorded] = []
            # First what may be the folders of the rest.
            if back:
                jobs.append(self._job(Task.REDO, run, back, forced=bool(chosen)))
            if waiting:
                job, lost = self._job_to_take(run, waiting, back, rows, forced=bool(chosen))
                jobs += [job] if job.items else []
                records.write_changes(self.manager, run.id, lost)
            return [*self._start(jobs), *lost], later

    def _drop(self, run: Run, chosen: Sequence[str]) -> tuple[list[Recorded], list[Recorded]]:
        with project_lock(self._paths, run.project.path):
            items = choose(records.read_changes(self.manager, run), chosen)
            waiting = [item for item in items if item.state in _WAITS]
            aside = [item for item in waiting if item.is_aside]
            own, later = self._own(run, [item for item in waiting if not item.is_aside])
            own += aside
            jobs = [self._job(Task.DISCARD, run, own)] if own else []
            return self._start(jobs), later

    def undo(self, run: Run, chosen: Sequence[str] = ()) -> Report:
        with project_lock(self._paths, run.project.path):
            items = choose(records.read_changes(self.manager, run), chosen)
            applied = [item for item in items if item.state is State.APPLIED]
            if not applied:
                return Report(run.id)
            job = self._job(Task.UNDO, run, applied, forced=bool(chosen))
            return Report(run.id, tuple(self._start([job])))

    def _own(self, run: Run, items: Sequence[Recorded]) -> tuple[list[Recorded], list[Recorded]]:
        """Those that wait for this run, and those whose version in the layer is a later one's."""
        own: list[Recorded] = []
        later: list[Recorded] = []
        owners = {
            root: records.waiting(self.manager, run.project, root)
            for root in {item.change.root for item in items}
        }
        for item in items:
            owner = owners[item.change.root][item.change.path].run_id
            if owner == run.id:
                own.append(item)
            else:
                later.append(item._replace(note=f"A later run changed it, too: {owner}."))
        return own, later

    def _jobs_to_give_way(self, run: Run, aside: Sequence[Recorded]) -> list[Job]:
        """What other runs have in the layer at the places of versions that are chosen instead."""
        found: dict[str, set[tuple[str, str]]] = {}
        for root in {item.change.root for item in aside}:
            waits = records.waiting(self.manager, run.project, root)
            for path in {item.change.path for item in aside if item.change.root == root}:
                if path in waits:
                    found.setdefault(waits[path].run_id, set()).add((root, path))
        jobs = []
        for run_id, places in found.items():
            other = self.manager.run(run_id)
            items = records.read_changes(self.manager, other)
            gone = [
                item
                for item in items
                if (item.change.root, item.change.path) in places and item.state in _WAITS
            ]
            jobs.append(self._job(Task.DISCARD, other, gone))
        return jobs

    def waiting(self, project: Project) -> list[Run]:
        """The runs of which something waits, the oldest first."""
        found = self.manager.runs(project, limit=-1, only_waiting=True)[::-1]
        # As their changes came into the layer.
        return sorted(found, key=lambda run: run.ended_at or run.started_at)

    def finish(self, journal: Journal) -> list[Report]:
        """A job that was cut off."""
        job = journal.read()
        if job is None:
            journal.check(self._paths)
            return []
        if is_missing(job.project):
            raise GoneError(
                N_("{root} is gone, where something was not finished that you had asked for."),
                N_(
                    "Put the folder back and run any command in it. If it cannot come back, remove"
                    " {file}."
                ),
                root=job.project,
                file=self._paths.cache / f"{journal.name}.json",
            )
        with project_lock(self._paths, job.project):
            # Who had the lock until now may have ended it.
            jobs = journal.read_all()
            return (
                [Report(jobs[-1].run_id, tuple(self._perform(jobs, journal, resumed=True)))]
                if jobs
                else []
            )

    def _job(self, task: Task, run: Run, items: Sequence[Recorded], *, forced: bool = False) -> Job:
        return Job(
            task=task,
            run_id=run.id,
            project=run.project.path,
            mode=run.mode,
            command=run.command,
            started=run.started_at,
            items=tuple(items),
            sources={root: self._layer(run, root) for root in {i.change.root for i in items}},
            forced=tuple(item.change.path for item in items) if forced else (),
        )

    def _layer(self, run: Run, root: str) -> str:
        return pending.layer_for(self._paths.pending(run.project.path), root)

    def _job_to_take(
        self,
        run: Run,
        items: Sequence[Recorded],
        back: Sequence[Recorded],
        rows: list[Recorded],
        *,
        forced: bool,
    ) -> tuple[Job, list[Recorded]]:
        """Against the disk as it is now; `back` is what will be there by then, `rows` are all that
        the run has. And what is neither in the layer nor on disk."""
        job = self._job(Task.TAKE, run, items, forced=forced)
        wanted: list[Recorded] = []
        lost: list[Recorded] = []
        closed = {}
        for root, layer in job.sources.items():
            in_layer = ChangeSet() if pending.is_empty(layer) else scan(layer, [root], root)
            found = {change.path: change for change in in_layer.changes}
            idle = set(in_layer.idle)
            waits = records.waiting(self.manager, run.project, root)
            made = {item.change.path for item in back if item.change.root == root}
            here = [item for item in items if item.change.root == root]
            known = [
                item._replace(change=found[item.change.path], began=waits[item.change.path].began)
                for item in here
                if item.change.path in found
            ]
            parents = numbered_parents(layer, root, known, rows, made)
            rows += parents
            wanted += parents
            # In the layer's order: parents come before what is in them.
            order = {path: position for position, path in enumerate(found)}
            wanted += sorted(known, key=lambda item: order[item.change.path])
            for item in here:
                if item.change.path in found:
                    continue
                if is_undeleted(item.change):
                    # What was around it was discarded.
                    wanted.append(item._replace(state=State.DISCARDED, note="", after=""))
                elif item.change.path in idle or is_there(item.change):
                    # Put there by somebody else.
                    wanted.append(item._replace(state=State.APPLIED, note="", after=""))
                else:
                    note = "This version is no longer kept."
                    lost.append(item._replace(state=State.FAILED, note=note))
            closed[root] = closed_folders(root, [item.change for item in known])
        return replace(job, items=tuple(wanted), closed=closed), lost

    def _start(self, jobs: Sequence[Job]) -> list[Recorded]:
        if not jobs:
            return []
        journal = Journal.of_person(self._paths, jobs[-1].run_id)
        journal.write(*jobs)
        self._step()
        return self._perform(jobs, journal, resumed=False)

    def _perform(self, jobs: Sequence[Job], journal: Journal, *, resumed: bool) -> list[Recorded]:
        all_done: list[Recorded] = []
        decided = journal.written_at() if resumed else 0
        for number, job in enumerate(jobs, 1):
            done = (
                self._discard(job)
                if job.task is Task.DISCARD
                else self._change_project(job, resumed=resumed, decided=decided)
            )
            self._write(job, done)
            self._step()
            for layer in job.sources.values():
                if pending.is_empty(layer):
                    pending.remove(layer)
            # Others only give way to it.
            all_done += done if job.run_id == jobs[-1].run_id else ()
            if rest := jobs[number:]:
                journal.write(*rest)
        # Names may be hidden in the layers since.
        pending.note_newest(self._paths.pending(jobs[-1].project), time.time_ns())
        self.manager.store.make_durable()
        journal.end()
        return all_done

    def _change_project(self, job: Job, *, resumed: bool, decided: int) -> list[Recorded]:
        done: list[Recorded] = []
        for root, layer in job.sources.items():
            items = [item for item in job.items if item.change.root == root]
            versions = self._paths.versions / job.run_id
            applier = Applier(
                root, versions, job.run_id, self._step, resumed=resumed, decided=decided
            )
            before = len(done)
            try:
                if job.task is Task.UNDO:
                    done += applier.go(items, job.forced, back=True)
                elif job.task is Task.REDO:
                    done += applier.go(items, job.forced, back=False)
                else:
                    done += [item for item in items if item.state in _SETTLED]
                    items = [item for item in items if item.state not in _SETTLED]
                    if resumed:
                        items, others = still_own(items, layer, root)
                        done += others
                    closed = (job.closed or {}).get(root, {})
                    if items:
                        source = layer
                        if not os.path.isdir(layer):
                            # All was applied before a kill.
                            source = str(make_folder(versions / "nothing"))
                        done += applier.apply(items, source, forced=job.forced, closed=closed)
            finally:
                applier.close()
            if resumed:
                state = State.UNDONE if job.task is Task.UNDO else State.APPLIED
                written = records.signatures(self.manager, job.run_id, state)
                is_moved = os.stat(root).st_dev == os.stat(self._paths.data).st_dev
                done[before:] = [
                    only_ours(item, written, decided, is_moved) for item in done[before:]
                ]
            if job.task is Task.TAKE and not pending.is_empty(layer):
                self._prune(job, root)
        return done

    def _prune(self, job: Job, root: str) -> None:
        project = self.manager.project_for(job.project)
        settle = partial(records.settle_idle, self.manager, project, root)
        pending.prune(job.sources[root], root, settle=settle)

    def _discard(self, job: Job) -> list[Recorded]:
        versions = os.open(make_folder(self._paths.versions / job.run_id), FOLDER)
        try:
            for root, layer in job.sources.items():
                if pending.is_empty(layer):
                    continue
                items = [item for item in job.items if item.change.root == root]
                # What is aside is kept with the versions already.
                backwards = [
                    (item.number, item.change) for item in reversed(items) if not item.is_aside
                ]
                pending.take_out(layer, root, backwards, versions)
                self._step()
                self._prune(job, root)
        finally:
            os.close(versions)
        return [item._replace(state=State.DISCARDED, note="", after="") for item in job.items]

    def _write(self, job: Job, done: Sequence[Recorded]) -> None:
        project = self.manager.project_for(job.project)
        if job.task in (Task.TAKE, Task.REDO):
            backup.back_up(self.manager, project, self._paths.versions / job.run_id, done)
        rows = list(done)
        if job.task in (Task.UNDO, Task.REDO):
            # Where that failed, the change is what it was before; the report says why.
            before = {item.number: item for item in job.items}
            rows = [
                before[item.number]._replace(note=item.note)
                if item.state in (State.CONFLICT, State.FAILED)
                else item
                for item in done
            ]
            self._note_deleted(project.path, done)
        records.write_changes(self.manager, job.run_id, rows)
        if job.task in (Task.UNDO, Task.REDO):
            found = {item.number: item.before for item in job.items}
            records.pass_on(self.manager, done, found)
        if job.task in (Task.TAKE, Task.DISCARD):
            aside = {item.number for item in job.items if item.is_aside}
            settled = [item for item in rows if item.number not in aside]
            records.settle_older(self.manager, project, job.run_id, settled)

    def _note_deleted(self, project: str, done: Sequence[Recorded]) -> None:
        gone: list[str] = []
        there: list[str] = []
        for item in done:
            change = item.change
            if change.type is Type.FOLDER:
                continue
            is_back = item.state is State.UNDONE
            was_removed = change.kind is (Kind.ADDED if is_back else Kind.DELETED)
            (gone if was_removed else there).append(f"{change.root}/{change.path}")
        owner = self.manager.project_for(project)
        self.manager.mark_deleted(owner, gone, deleted=True)
        self.manager.mark_deleted(owner, there, deleted=False)
