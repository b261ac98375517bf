# SPDX-License-Identifier: GPL-3.0-or-later
"""Applies, discards, undoes and redoes a run's changes for the user."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace

from ... import N_
from ...errors import OllmSandboxError
from ...files.dirfd import FOLDER
from ...paths import Paths, make_folder
from ...text.merge import keep_both
from ..apply.applier import Applier, only_ours, still_own
from ..apply.journal import Job, Journal, Task, asked, parts, project_lock
from ..apply.parents import closed_folders, numbered_parents
from ..apply.patch import Patch
from ..apply.swap import Step
from ..changes.change import PENDING_STATES, ChangeSet, Recorded, Report, State, nothing
from ..changes.reasons import Note, Reason
from ..changes.scan import scan
from ..database import backups
from ..database import runs as records
from ..database.models import Project, Run
from ..manager import ProjectManager, is_missing
from ..pending import layer as pending
from ..pending.discard import Discarding, show_chosen
from ..pending.shadowed import below, place_of, with_notes
from ..recovery.missing import check_job_roots
from .selection import (
    choose,
    conflict_was_reported,
    is_folder_left,
    is_there,
    is_undeleted,
    split_gone,
    to_give_way,
    with_folders,
)
from .state import current_changes
from .versions import Versions

# Nothing of it is left to be taken.
_SETTLED = (State.APPLIED, State.DISCARDED)


class Review:
    """Whole runs, or chosen paths of them. A folder stands for all that is in it."""

    def __init__(self, paths: Paths, step: Step = nothing) -> None:
        self._paths = paths
        self._step = step
        self.manager = ProjectManager(paths)
        self._discarding = Discarding(self.manager, step)

    def close(self) -> None:
        self.manager.close()

    def apply(self, run: Run, chosen: Sequence[str] = (), *, only_pending: bool = False) -> Report:
        """Apply pending and undone changes; of discarded ones and conflicts, only the chosen ones.

        What a later run changed, too, stays pending: only that run's version exists.
        """
        done, later = self._apply(run, chosen, only_pending=only_pending)
        return Report(run.id, (*done, *later))

    def discard(self, run: Run, chosen: Sequence[str] = ()) -> Report:
        done, later = self._drop(run, chosen)
        return Report(run.id, (*done, *later))

    def apply_all(self, project: Project) -> list[Report]:
        """Apply all pending changes, each path with the last run that changed it.

        The oldest run comes first: it empties a folder before another one replaces it.
        """
        runs = self.waiting(project)
        done = [(run, self._apply(run, (), only_pending=True)[0]) for run in runs]
        done = [(run, self._remove_left(run, items)) for run, items in done]
        return [Report(run.id, tuple(items)) for run, items in done if items]

    def _remove_left(self, run: Run, items: list[Recorded]) -> list[Recorded]:
        """Folders that were not empty: what was in them may have waited for a later run."""
        left = {item.number for item in items if is_folder_left(item)}
        if not left:
            return items
        with project_lock(self._paths, run.project.path):
            rows = records.read_changes(self.manager, run)
            still = [row for row in rows if row.number in left and row.state in PENDING_STATES]
            waiting, _ = self._own(run, still)
            job, _ = self._job_to_take(run, waiting, (), rows, forced=False)
            again = {item.number: item for item in self._start([job] if job.items else [])}
        return [again.get(item.number, item) for item in items]

    def discard_all(self, project: Project) -> list[Report]:
        done = [(run, self._drop(run, ())[0]) for run in reversed(self.waiting(project))]
        return [Report(run.id, tuple(items)) for run, items in done if items]

    def _apply(
        self, run: Run, chosen: Sequence[str], *, only_pending: bool
    ) -> tuple[list[Recorded], list[Recorded]]:
        with project_lock(self._paths, run.project.path):
            rows = self._rows(run)
            items = choose(rows, chosen)
            waiting = [
                item
                for item in items
                if item.state in (State.PENDING, State.FAILED)
                # It may be merged by now.
                or (item.state is State.CONFLICT and (chosen or self._has_base(run, item)))
            ]
            back = [
                item
                for item in items
                if (item.state is State.UNDONE and not only_pending)
                or (item.state is State.DISCARDED and chosen)
                or (item.is_aside and chosen)
            ]
            waiting, gone = split_gone(waiting)
            back, gone_back = split_gone(with_folders(back, rows, undo=False))
            gone += [item for item in gone_back if not item.is_aside]
            aside = [item for item in waiting if item.is_aside]
            waiting, later = self._own(run, [item for item in waiting if not item.is_aside])
            given = to_give_way(self.manager, run, aside)
            jobs = [self._job(Task.DISCARD, other, theirs) for other, theirs in given]
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
            return [*self._start(jobs), *lost, *gone], later

    def _has_base(self, run: Run, item: Recorded) -> bool:
        base = self._paths.versions / run.id / str(item.number)
        return item.change.is_edit and not item.is_aside and base.is_file()

    def _drop(self, run: Run, chosen: Sequence[str]) -> tuple[list[Recorded], list[Recorded]]:
        with project_lock(self._paths, run.project.path):
            items = choose(records.read_changes(self.manager, run), chosen)
            waiting = [item for item in items if item.state in PENDING_STATES]
            aside = [item for item in waiting if item.is_aside]
            own, later = self._own(run, [item for item in waiting if not item.is_aside])
            own += aside
            jobs = [self._job(Task.DISCARD, run, own)] if own else []
            # What is aside is not in the layer, nor is anything below it.
            back = below(self.manager, run, [item for item in own if not item.is_aside])
            jobs += [self._job(Task.BRING_BACK, other, theirs) for other, theirs in back]
            return with_notes(self._start(jobs), back), later

    def undo(self, run: Run, chosen: Sequence[str] = ()) -> Report:
        with project_lock(self._paths, run.project.path):
            rows = self._rows(run)
            items = [item for item in choose(rows, chosen) if item.state is State.APPLIED]
            applied, gone = split_gone(with_folders(items, rows, undo=True))
            jobs = [self._job(Task.UNDO, run, applied, forced=bool(chosen))] if applied else []
            return Report(run.id, (*self._start(jobs), *gone))

    def _rows(self, run: Run) -> list[Recorded]:
        """Return the changes, applied or undone as they are in the project now."""
        rows = records.read_changes(self.manager, run)
        now = current_changes(self.manager, run, rows)
        # The notes are what the user was told when something was tried.
        return [row._replace(state=one.state) for row, one in zip(rows, now, strict=True)]

    def merge_hunks(self, run: Run, item: Recorded, without: bytes, with_: bytes) -> Recorded:
        """Merge hunks of a change into the file on disk, given as the two versions that they lie
        between. The caller holds the project's lock."""
        versions = make_folder(self._paths.versions / run.id)
        folder = os.open(versions, FOLDER)
        try:
            patch = Patch(folder, item.number)
            for spot, data in ((patch.without_hunks, without), (patch.with_hunks, with_)):
                (versions / spot.name).unlink(missing_ok=True)
                (versions / spot.name).write_bytes(data)
        finally:
            os.close(folder)
        [done] = self._start([self._job(Task.HUNKS, run, [item])])
        return done

    def keep_both(self, run: Run, chosen: Sequence[str] = ()) -> Report:
        """End conflicts in text files with both versions: lines that both changed appear twice."""
        done: list[Recorded] = []
        with project_lock(self._paths, run.project.path):
            rows = choose(records.read_changes(self.manager, run), chosen)
            for item in rows:
                if item.state is not State.CONFLICT or not item.change.is_edit:
                    continue
                full = f"{item.change.root}/{item.change.path}"
                before, after, current = Versions(self.manager).three_way(run, item)
                both = None if current is None else keep_both(before, after, current)
                if both is None or current is None:
                    raise OllmSandboxError(
                        N_("Both versions of {file} cannot be kept, because it is not text."),
                        N_("Choose one of the versions."),
                        file=full,
                    )
                merged = self.merge_hunks(run, item, current, both)
                if merged.note is None:
                    # It waits no longer: what is in the project has all of it.
                    if not item.is_aside:
                        self._start([self._job(Task.DISCARD, run, [item])])
                    merged = merged._replace(state=State.APPLIED, after="")
                    records.write_changes(self.manager, run.id, [merged])
                done.append(merged)
        return Report(run.id, tuple(done))

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
                later.append(item._replace(note=Note(Reason.LATER_RUN, {"run": owner})))
        return own, later

    def waiting(self, project: Project) -> list[Run]:
        """Return the runs with pending changes, the oldest first."""
        found = self.manager.runs(project, limit=-1, only_pending=True)[::-1]
        # As their changes came into the layer.
        return sorted(found, key=lambda run: run.ended_at or run.started_at)

    def finish(self, journal: Journal) -> list[Report]:
        """What was cut off. If a part is for a folder that is gone, that is left, and can be tried
        once more."""
        job = journal.read()
        if job is None:
            journal.check(self._paths)
            return []
        with project_lock(self._paths, job.project):
            # Who had the lock until now may have ended it.
            jobs = journal.read_rest()
            roots = {root for job in jobs for root in job.sources}
            gone = {root for root in roots if is_missing(root)}
            if gone and gone != roots and not is_missing(job.project):
                journal.put_off(parts(jobs, gone))
                jobs = parts(jobs, roots - gone)
            for part in jobs:
                check_job_roots(self._paths, part)
            if not jobs:
                journal.take_up()
                return []
            done = self._perform(jobs, journal, resumed=True)
            return [Report(asked(jobs).run_id, tuple(done))]

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
            # The first time it is looked whether somebody changed it; that is told, and then it
            # is up to the user.
            forced=tuple(
                item.change.path for item in items if forced and conflict_was_reported(item)
            ),
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
                    wanted.append(item._replace(state=State.DISCARDED, note=None, after=""))
                elif item.change.path in idle or is_there(item.change):
                    # Put there by somebody else.
                    wanted.append(item._replace(state=State.APPLIED, note=None, after=""))
                else:
                    lost.append(item._replace(state=State.FAILED, note=Note(Reason.LOST)))
            closed[root] = closed_folders(root, [item.change for item in known])
        return replace(job, items=tuple(wanted), closed=closed), lost

    def _start(self, jobs: Sequence[Job]) -> list[Recorded]:
        if not jobs:
            return []
        journal = Journal.of_person(self._paths, asked(jobs).run_id)
        # What waits there for a folder that is gone comes later, but for what is decided anew.
        anew = {place_of(item) for job in jobs for item in job.items}
        journal.put_off([one for job in journal.read_all() if (one := job.without(anew)).items])
        journal.write(*jobs)
        self._step()
        return self._perform(jobs, journal, resumed=False)

    def _perform(self, jobs: Sequence[Job], journal: Journal, *, resumed: bool) -> list[Recorded]:
        all_done: list[Recorded] = []
        decided = journal.written_at() if resumed else 0
        for number, job in enumerate(jobs, 1):
            rest = jobs[number:]
            back = [one for one in rest if one.task is Task.BRING_BACK]
            needed = {layer for one in back for layer in one.sources.values()}
            if job.task is Task.DISCARD:
                done = self._discarding.discard(job, needed, resumed=resumed)
            elif job.task is Task.BRING_BACK:
                self._discarding.bring_back(job, resumed=resumed)
                done = []
            else:
                done = self._change_project(job, resumed=resumed, decided=decided)
            self._write(job, done, back)
            self._step()
            for layer in job.sources.values():
                if pending.is_empty(layer) and layer not in needed:
                    pending.remove_layer(layer)
            if job.run_id == asked(jobs).run_id and job.task is not Task.BRING_BACK:
                all_done += done
            if rest:
                journal.write(*rest)
        # Names may be hidden in the layers since.
        pending.note_newest(self._paths.pending(jobs[-1].project), time.time_ns())
        self.manager.store.make_durable()
        if not journal.take_up():
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
                elif job.task is Task.HUNKS:
                    done += applier.merge_hunks(items)
                else:
                    done += [item for item in items if item.state in _SETTLED]
                    items = [item for item in items if item.state not in _SETTLED]
                    if resumed:
                        items, others = still_own(items, layer, root)
                        done += others
                    closed = (job.closed or {}).get(root, {})
                    # After a kill also without any: folders may be open that were closed.
                    if items or resumed:
                        done += applier.apply(items, layer, forced=job.forced, closed=closed)
            finally:
                applier.close()
            if resumed and job.task is not Task.HUNKS:
                state = State.UNDONE if job.task is Task.UNDO else State.APPLIED
                written = records.signatures(self.manager, job.run_id, state)
                is_moved = os.stat(root).st_dev == os.stat(self._paths.data).st_dev
                done[before:] = [
                    only_ours(item, written, decided, is_moved) for item in done[before:]
                ]
            chosen = {item.number for item in items if item.is_aside}
            if chosen and job.task is Task.REDO and not pending.is_empty(layer):
                here = done[before:]
                show_chosen(layer, root, [item for item in here if item.number in chosen])
                self._discarding.prune(job, root)
            if job.task is Task.TAKE and not pending.is_empty(layer):
                self._discarding.prune(job, root)
        return done

    def _write(self, job: Job, done: Sequence[Recorded], back: Sequence[Job]) -> None:
        backups.touch_versions(self._paths.versions / job.run_id)
        project = self.manager.add_project(job.project)
        if job.task in (Task.TAKE, Task.REDO):
            backups.back_up(self.manager, project, self._paths.versions / job.run_id, done)
        rows = list(done)
        if job.task in (Task.UNDO, Task.REDO, Task.HUNKS):
            # Where that failed, the change is what it was before; the report says why.
            before = {item.number: item for item in job.items}
            rows = [
                before[item.number]._replace(
                    note=item.note if item.state is State.CONFLICT else None
                )
                if item.state in (State.CONFLICT, State.FAILED)
                else item
                for item in done
            ]
        if job.task is Task.HUNKS:
            # A conflict of some hunks is none of the whole file.
            rows = [row._replace(note=before[row.number].note) for row in rows]
        if job.task in (Task.UNDO, Task.REDO):
            records.note_deleted(self.manager, project, done)
        records.write_changes(self.manager, job.run_id, rows)
        if job.task in (Task.UNDO, Task.REDO):
            found = {item.number: item.before for item in job.items}
            records.pass_on(self.manager, done, found)
        if job.task in (Task.TAKE, Task.DISCARD):
            aside = {item.number for item in job.items if item.is_aside}
            again = {place_of(item) for one in back for item in one.items}
            settled = [i for i in rows if i.number not in aside and place_of(i) not in again]
            records.settle_older(self.manager, project, job.run_id, settled)
