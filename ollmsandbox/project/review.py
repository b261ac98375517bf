# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person does with a run's changes afterwards: take them, discard them, undo them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from .. import N_
from ..errors import OllmSandboxError
from ..paths import Paths, make_folder
from . import backup, pending, records
from .apply import Applier
from .change import Change, ChangeSet, Kind, Recorded, State, Type
from .changes import scan
from .exchange import Step
from .journal import Job, Journal, Task, project_lock
from .layers import FOLDER
from .manager import ProjectManager
from .models import Project, Run
from .parents import closed_folders, implied_parents
from .recorder import Report, nothing

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
            items = _choose(records.read_changes(self.manager, run), chosen)
            waiting = [
                item
                for item in items
                if item.state in (State.PENDING, State.FAILED)
                or (item.state is State.CONFLICT and chosen)
            ]
            back = [
                item
                for item in items
                if (item.state is State.UNDONE and not only_waiting)
                or (item.state is State.DISCARDED and chosen)
            ]
            waiting, later = self._own(run, waiting)
            jobs = []
            # First what may be the folders of the rest.
            if back:
                jobs.append(self._job(Task.REDO, run, back, forced=bool(chosen)))
            if waiting:
                jobs.append(self._job_to_take(run, waiting, back, forced=bool(chosen)))
            return self._start(jobs), later

    def _drop(self, run: Run, chosen: Sequence[str]) -> tuple[list[Recorded], list[Recorded]]:
        with project_lock(self._paths, run.project.path):
            items = _choose(records.read_changes(self.manager, run), chosen)
            waiting, later = self._own(run, [item for item in items if item.state in _WAITS])
            jobs = [self._job(Task.DISCARD, run, waiting)] if waiting else []
            return self._start(jobs), later

    def undo(self, run: Run, chosen: Sequence[str] = ()) -> Report:
        with project_lock(self._paths, run.project.path):
            items = _choose(records.read_changes(self.manager, run), chosen)
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
            root: records.waiting(self.manager, root) for root in {i.change.root for i in items}
        }
        for item in items:
            owner = owners[item.change.root][item.change.path].run_id
            if owner == run.id:
                own.append(item)
            else:
                later.append(item._replace(note=f"A later run changed it, too: {owner}."))
        return own, later

    def waiting(self, project: Project) -> list[Run]:
        """The runs of which something waits, the oldest first."""
        states = {state.value for state in _WAITS}
        runs = self.manager.runs(project, limit=-1)
        found = [run for run in reversed(runs) if states & self.manager.count_states(run).keys()]
        # As their changes came into the layer.
        return sorted(found, key=lambda run: run.ended_at or run.started_at)

    def finish(self, journal: Journal) -> list[Report]:
        """A job that was cut off."""
        job = journal.read()
        if job is None:
            journal.end()
            return []
        with project_lock(self._paths, job.project):
            # Who had the lock until now may have ended it.
            jobs = journal.read_all()
            return (
                [Report(jobs[0].run_id, tuple(self._perform(jobs, journal, resumed=True)))]
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
        self, run: Run, items: Sequence[Recorded], back: Sequence[Recorded], *, forced: bool
    ) -> Job:
        """Against the disk as it is now; `back` is what will be there by then."""
        job = self._job(Task.TAKE, run, items, forced=forced)
        number = 1 + max(item.number for item in records.read_changes(self.manager, run))
        wanted: list[Recorded] = []
        closed = {}
        for root, layer in job.sources.items():
            found = {} if pending.is_empty(layer) else _by_path(scan(layer, [root], root))
            waits = records.waiting(self.manager, root)
            made = {item.change.path for item in back if item.change.root == root}
            here = [item for item in items if item.change.root == root]
            known = [
                item._replace(change=found[item.change.path], began=waits[item.change.path].began)
                for item in here
                if item.change.path in found
            ]
            for change in implied_parents(layer, root, known):
                if change.path in made:
                    continue
                wanted.append(Recorded(number, change))
                number += 1
            # In the layer's order: parents come before what is in them.
            order = {path: position for position, path in enumerate(found)}
            wanted += sorted(known, key=lambda item: order[item.change.path])
            # Changed back since, or applied with another run; or what was around it was discarded.
            wanted += [
                item._replace(
                    state=State.DISCARDED if _is_undeleted(item.change) else State.APPLIED,
                    note="",
                    after="",
                )
                for item in here
                if item.change.path not in found
            ]
            closed[root] = closed_folders(root, [item.change for item in known])
        return replace(job, items=tuple(wanted), closed=closed)

    def _start(self, jobs: Sequence[Job]) -> list[Recorded]:
        if not jobs:
            return []
        journal = Journal.of_person(self._paths, jobs[0].run_id)
        journal.write(*jobs)
        self._step()
        return self._perform(jobs, journal, resumed=False)

    def _perform(self, jobs: Sequence[Job], journal: Journal, *, resumed: bool) -> list[Recorded]:
        all_done: list[Recorded] = []
        for number, job in enumerate(jobs, 1):
            done = (
                self._discard(job)
                if job.task is Task.DISCARD
                else self._change_project(job, resumed=resumed)
            )
            self._write(job, done)
            self._step()
            for layer in job.sources.values():
                if pending.is_empty(layer):
                    pending.remove(layer)
            all_done += done
            if rest := jobs[number:]:
                journal.write(*rest)
        journal.end()
        return all_done

    def _change_project(self, job: Job, *, resumed: bool) -> list[Recorded]:
        done: list[Recorded] = []
        for root, layer in job.sources.items():
            items = [item for item in job.items if item.change.root == root]
            versions = self._paths.versions / job.run_id
            applier = Applier(root, versions, job.run_id, self._step, resumed=resumed)
            try:
                if job.task is Task.UNDO:
                    done += applier.go(items, job.forced, back=True)
                elif job.task is Task.REDO:
                    done += applier.go(items, job.forced, back=False)
                else:
                    done += [item for item in items if item.state in _SETTLED]
                    items = [item for item in items if item.state not in _SETTLED]
                    closed = (job.closed or {}).get(root, {})
                    if items:
                        source = layer
                        if not os.path.isdir(layer):
                            # All was applied before a kill.
                            source = str(make_folder(versions / "nothing"))
                        done += applier.apply(items, source, forced=job.forced, closed=closed)
            finally:
                applier.close()
            if job.task is Task.TAKE and not pending.is_empty(layer):
                pending.prune(layer, root)
        return done

    def _discard(self, job: Job) -> list[Recorded]:
        versions = os.open(make_folder(self._paths.versions / job.run_id), FOLDER)
        try:
            for root, layer in job.sources.items():
                if pending.is_empty(layer):
                    continue
                items = [item for item in job.items if item.change.root == root]
                backwards = [(item.number, item.change) for item in reversed(items)]
                pending.take_out(layer, root, backwards, versions)
                self._step()
                pending.prune(layer, root)
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
            records.settle_older(self.manager, job.run_id, rows)

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


def _is_undeleted(change: Change) -> bool:
    return change.kind is Kind.DELETED and os.path.lexists(f"{change.root}/{change.path}")


def _by_path(found: ChangeSet) -> dict[str, Change]:
    return {change.path: change for change in found.changes}


def _choose(items: Sequence[Recorded], chosen: Sequence[str]) -> list[Recorded]:
    """By full path. A folder stands for all that is in it."""
    if not chosen:
        return list(items)
    found: dict[int, Recorded] = {}
    for path in chosen:
        matching = [item for item in items if _is_at(item, path)]
        if not matching:
            raise OllmSandboxError(
                N_("The run did not change {path}."),
                N_("`ollmsandbox changes` shows what it changed."),
                path=path,
            )
        found.update((item.number, item) for item in matching)
    return [found[number] for number in sorted(found)]


def _is_at(item: Recorded, path: str) -> bool:
    full = os.path.normpath(f"{item.change.root}/{item.change.path}")
    return full == path or full.startswith(f"{path.rstrip('/')}/")
