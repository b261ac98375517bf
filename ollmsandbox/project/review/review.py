# SPDX-License-Identifier: GPL-3.0-or-later
"""Applies, discards, undoes and redoes a run's changes for the user."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count

from ... import N_
from ...errors import OllmSandboxError, in_words
from ...files.dirfd import DirEntryAt, OpenTree, opened_folder
from ...paths import Paths, is_inside, make_folder
from ...text.merge import keep_both
from ..apply.applier import Applier
from ..apply.journal import Job, Journal, Task, project_lock
from ..apply.patch import Patch, keep_base
from ..apply.settle import copy_modes_to_layers
from ..apply.swap import NOTHING, Step, signature_of
from ..changes.change import PENDING_STATES, Change, Kind, Recorded, Report, State, Type
from ..changes.mode import no_step
from ..changes.reasons import Note, Reason
from ..changes.scan import type_of
from ..database import backups
from ..database import runs as records
from ..database.models import Project, Run
from ..manager import ProjectManager, is_missing
from ..pending import layer as pending
from ..pending.chain import Chain
from ..pending.related import RelatedChanges
from ..pending.squash import unsquash
from ..recovery.missing import MissingRootError, check_job_roots
from .state import current_changes, is_made
from .versions import Versions

# What a change is after a job.
_TARGETS = {
    Task.TAKE: State.APPLIED,
    Task.REDO: State.APPLIED,
    Task.UNDO: State.UNDONE,
    Task.DISCARD: State.DISCARDED,
}
_ByRun = list[tuple[Run, list[Recorded]]]


class Review:
    """Whole runs, or chosen paths of them. A folder stands for all that is in it."""

    def __init__(self, paths: Paths, step: Step = no_step) -> None:
        self._paths = paths
        self._step = step
        self.manager = ProjectManager(paths)

    def close(self) -> None:
        self.manager.close()

    def apply(
        self,
        run: Run,
        chosen: Sequence[str] = (),
        *,
        only_pending: bool = False,
        alone: bool = False,
        anyway: bool = False,
    ) -> Report:
        """Apply pending and undone changes; of discarded ones and conflicts, only the chosen ones.

        A chosen one takes the place of the user's version if the conflict was reported and the user
        has not edited the file since then, or if the user has said so for what is there now
        (`anyway`).

        Pending changes of earlier runs that these need are applied along with them. Where two
        commands changed the same at the same time, choosing one discards the other. With `alone`,
        no other run's changes are touched.
        """
        with self.locked(run):
            rows = self._rows(run)
            waiting, back = _to_apply(rows, chosen, only_pending=only_pending)
            waiting = [item for item in waiting if chosen or self._can_be_tried(run, item)]
            waiting, gone = split_gone(waiting)
            back, gone_back = split_gone(with_folders(back, rows, undo=False))
            along: _ByRun = []
            others: _ByRun = []
            if not alone:
                along, waiting = self._with_related(run, waiting, needed=True)
                others = self._alternatives(run, waiting) if chosen else []
            jobs: list[Job] = []
            lost: list[Recorded] = []
            made = {place_of(item) for item in back}
            for other, items in along:
                theirs = records.read_changes(self.manager, other)
                job, _ = self._job_to_take(other, items, theirs, made)
                jobs += [job] if job.items else []
                made |= {place_of(item) for item in items}
            # First what may be the folders of the rest.
            if back:
                jobs.append(self._job(Task.REDO, run, back, forced=bool(chosen), anyway=anyway))
            if waiting:
                job, lost = self._job_to_take(
                    run, waiting, rows, made, forced=bool(chosen), anyway=anyway
                )
                jobs += [job] if job.items else []
                records.write_changes(self.manager, run.id, lost)
            report = self._start(jobs, run.id)
            done = {place_of(item) for item in report.changes if item.state is State.APPLIED}
            if {place_of(item) for item in waiting if item.apart_from} <= done:
                drops = [self._job(Task.DISCARD, other, items) for other, items in reversed(others)]
                dropped = self._start(drops, run.id).along
                report = report._replace(along=(*report.along, *dropped))
            return report._replace(changes=(*report.changes, *lost, *gone, *gone_back))

    def discard(self, run: Run, chosen: Sequence[str] = (), *, alone: bool = False) -> Report:
        """Discard pending changes, and those of later runs that need them; with `alone`, no other
        run's."""
        with self.locked(run):
            along, items = self._with_related(run, self._pending(run, chosen), needed=False)
            jobs = [
                self._job(Task.DISCARD, other, theirs)
                for other, theirs in reversed([] if alone else along)
            ]
            jobs += [self._job(Task.DISCARD, run, items)] if items else []
            return self._start(jobs, run.id)

    def also_applied(
        self, run: Run, chosen: Sequence[str] = (), *, only_pending: bool = False
    ) -> list[Report]:
        """Return the changes of other runs that `apply` would apply, too."""
        rows = choose(self._rows(run), chosen)
        waiting, _ = _to_apply(rows, (), only_pending=only_pending)
        along, _ = self._with_related(run, waiting, needed=True)
        return _as_reports(along)

    def also_discarded(self, run: Run, chosen: Sequence[str] = ()) -> list[Report]:
        """Return the changes of other runs that `discard` would discard, too."""
        along, _ = self._with_related(run, self._pending(run, chosen), needed=False)
        return _as_reports(along)

    def apply_all(self, project: Project) -> list[Report]:
        """Apply all pending changes, in the order of the runs."""
        waiting = self.waiting(project)
        done = self._each(lambda run: self.apply(run, only_pending=True), waiting)
        # What could not be applied with its own run was tried again, and reported before.
        return [report._replace(along=()) for report in done]

    def discard_all(self, project: Project) -> list[Report]:
        """Discard all pending changes, the last run's first."""
        return self._each(self.discard, self.waiting(project)[::-1])

    def _each(self, does: Callable[[Run], Report], runs: Sequence[Run]) -> list[Report]:
        """Do the same for some runs. One that waits for a missing folder does not stop the rest."""
        done = []
        for run in runs:
            try:
                report = does(run)
            except MissingRootError as error:
                report = Report(run.id, errors=(in_words(error),))
            if report.changes or report.errors:
                done.append(report)
        return done

    def _can_be_tried(self, run: Run, item: Recorded) -> bool:
        """Return whether a change is no conflict, or one that may be merged by now."""
        if item.apart_from and self._alternatives(run, [item]):
            return False
        base = self._paths.versions / run.id / str(item.number)
        return item.state is not State.CONFLICT or (item.change.is_edit and base.is_file())

    def dropped_for(self, run: Run, chosen: Sequence[str]) -> list[Report]:
        """Return the changes of other runs that `apply` would discard in favour of the chosen."""
        return _as_reports(self._alternatives(run, self._pending(run, chosen) if chosen else []))

    def _pending(self, run: Run, chosen: Sequence[str]) -> list[Recorded]:
        items = choose(records.read_changes(self.manager, run), chosen)
        return [item for item in items if item.state in PENDING_STATES]

    def _alternatives(self, run: Run, items: Sequence[Recorded]) -> _ByRun:
        """Return what is pending of other runs at the places of changes that were made at the same
        time, and what needs it; by run in order."""
        apart = {place_of(item): item.apart_from for item in items if item.apart_from}
        if not apart:
            return []
        rows = records.changes_of_runs(self.manager, self._chain(run).runs)
        chosen = [
            at for at, (run_id, row) in enumerate(rows) if run_id in apart.get(place_of(row), ())
        ]
        related = RelatedChanges(rows).with_dependent(chosen)
        return self._of_others(run, [rows[at] for at in related])

    def _with_related(
        self, run: Run, items: Sequence[Recorded], *, needed: bool
    ) -> tuple[_ByRun, list[Recorded]]:
        """Return what has to be applied along with these changes, because they need it, or
        discarded, because it needs them: by run in order, and the changes of the run itself."""
        rows = records.changes_of_runs(self.manager, self._chain(run).runs)
        related = RelatedChanges(rows)
        own = {item.number: item for item in items}
        chosen = [
            at for at, (run_id, row) in enumerate(rows) if run_id == run.id and row.number in own
        ]
        found = related.with_needed(chosen) if needed else related.with_dependent(chosen)
        also = {row.number: row for run_id, row in map(rows.__getitem__, found) if run_id == run.id}
        own = {**also, **own}
        along = self._of_others(run, [rows[at] for at in found])
        return along, [own[number] for number in sorted(own)]

    def _of_others(self, run: Run, rows: Iterable[tuple[str, Recorded]]) -> _ByRun:
        """Return the changes that are not the run's own, by run."""
        others: dict[str, list[Recorded]] = {}
        for run_id, row in rows:
            if run_id != run.id:
                others.setdefault(run_id, []).append(row)
        return [(self.manager.run(run_id), theirs) for run_id, theirs in others.items()]

    def undo(self, run: Run, chosen: Sequence[str] = (), *, with_later: bool = False) -> Report:
        """Undo applied changes; `with_later`, first what later runs did to the same files."""
        with self.locked(run):
            rows = self._rows(run)
            made = [
                row
                for row in choose(rows, chosen)
                if row.state in PENDING_STATES and is_made(self.manager, run, row)
            ]
            if made:
                # The user has made the change: from here on it is applied.
                job, _ = self._job_to_take(run, made, rows, ())
                self._start([job], run.id)
                rows = self._rows(run)
            items = [item for item in choose(rows, chosen) if item.state is State.APPLIED]
            applied, gone = split_gone(with_folders(items, rows, undo=True))
            jobs = [self._job(Task.UNDO, run, applied, forced=bool(chosen))] if applied else []
            if with_later:
                later = self.later_changes(run, applied)
                jobs[:0] = [self._job(Task.UNDO, other, items) for other, items in later]
            report = self._start(jobs, run.id)
            return report._replace(changes=(*report.changes, *gone))

    def later_changes(self, run: Run, items: Iterable[Recorded]) -> _ByRun:
        """Return what later runs did to the same paths and is applied, the last run first."""
        numbers: dict[str, set[int]] = {}
        for item in items:
            for run_id, number in records.later_runs(self.manager, run, item):
                numbers.setdefault(run_id, set()).add(number)
        runs = [self.manager.run(run_id) for run_id in numbers]
        runs.sort(key=lambda other: other.ended_at or other.started_at, reverse=True)
        return [
            (other, [row for row in self._rows(other) if row.number in numbers[other.id]])
            for other in runs
        ]

    def _rows(self, run: Run) -> list[Recorded]:
        """Return the changes, applied or undone as they are in the project now."""
        rows = records.read_changes(self.manager, run)
        now = current_changes(self.manager, run, rows)
        # The notes are what the user was told when something was tried.
        return [
            row if row.state in PENDING_STATES else row._replace(state=one.state)
            for row, one in zip(rows, now, strict=True)
        ]

    def merge_hunks(self, run: Run, item: Recorded, without: bytes, with_: bytes) -> Recorded:
        """Merge hunks of a change into the file on disk, given as the two versions that they lie
        between. The caller holds the project's lock."""
        versions = make_folder(self._paths.versions / run.id)
        if item.state in PENDING_STATES and item.change.is_edit:
            # A run with many changes has kept none so far.
            keep_base(item, versions, None)
        # Only the names of both are needed.
        patch = Patch(-1, item.number)
        for spot, data in ((patch.without_hunks, without), (patch.with_hunks, with_)):
            (versions / spot.name).unlink(missing_ok=True)
            (versions / spot.name).write_bytes(data)
        [done] = self._start([self._job(Task.HUNKS, run, [item])], run.id).changes
        return done

    def keep_both(self, run: Run, chosen: Sequence[str] = ()) -> Report:
        """End conflicts in text files with both versions: lines that both changed appear twice."""
        done: list[Recorded] = []
        with self.locked(run):
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
                    self._start([self._job(Task.DISCARD, run, [item])], run.id)
                    merged = merged._replace(state=State.APPLIED, after="")
                    records.write_changes(self.manager, run.id, [merged])
                done.append(merged)
        return Report(run.id, tuple(done))

    def waiting(self, project: Project) -> list[Run]:
        """Return the runs with pending changes, the oldest first."""
        order = {run_id: at for at, run_id in enumerate(Chain(self._paths, project.path).runs)}
        found = self.manager.runs(project, limit=-1, only_pending=True)[::-1]
        return sorted(found, key=lambda run: order.get(run.id, -1))

    def finish(self, journal: Journal) -> list[Report]:
        """Finish what was cut off, or raise MissingRootError if one of its folders is missing."""
        job = journal.read()
        if job is None:
            journal.check(self._paths)
            return []
        with project_lock(self._paths, job.project):
            return self._resume(journal)

    def _resume(self, journal: Journal) -> list[Report]:
        # Who had the lock until now may have ended it.
        jobs = journal.read_all()
        for job in jobs:
            check_job_roots(self._paths, job, journal)
        since = journal.written_at() if jobs else 0
        return [self._perform(jobs, journal, jobs[-1].run_id, since)] if jobs else []

    @contextlib.contextmanager
    def locked(self, run: Run) -> Iterator[None]:
        """Lock the project of a run, after finishing what was cut off there."""
        with project_lock(self._paths, run.project.path):
            self._resume(Journal.of_person(self._paths, run.id))
            yield

    def _job(
        self,
        task: Task,
        run: Run,
        items: Sequence[Recorded],
        *,
        forced: bool = False,
        anyway: bool = False,
    ) -> Job:
        return Job(
            task=task,
            run_id=run.id,
            project=run.project.path,
            mode=run.mode,
            command=run.command,
            started=run.started_at,
            items=tuple(items),
            sources={
                root: self._chain(run).layer_of(run.id, root)
                for root in {item.change.root for item in items}
            },
            # The first time it is looked whether somebody changed it; that is told, and then it
            # is up to the user.
            forced=tuple(
                item.change.path
                for item in items
                if forced
                and conflict_was_reported(item)
                and (anyway or not _was_edited_again(item))
            ),
        )

    def _chain(self, run: Run) -> Chain:
        return Chain(self._paths, run.project.path)

    def _job_to_take(
        self,
        run: Run,
        items: Sequence[Recorded],
        rows: list[Recorded],
        made: Collection[tuple[str, str]],
        *,
        forced: bool = False,
        anyway: bool = False,
    ) -> tuple[Job, list[Recorded]]:
        """Return the job that applies pending changes, and those whose version is lost. `rows` are
        all that the run has, `made` are places where something else will be by then."""
        job = self._job(Task.TAKE, run, items, forced=forced, anyway=anyway)
        wanted: list[Recorded] = []
        lost: list[Recorded] = []
        for root, layer in job.sources.items():
            here = [item for item in items if item.change.root == root]
            gone = _lost_in(layer, here)
            lost += [i._replace(state=State.FAILED, note=Note(Reason.LOST)) for i in gone]
            known = [
                _against_disk(item)
                if item.change.path in job.forced and place_of(item) not in made
                else item
                for item in here
                if item not in gone
            ]
            paths = {path for at, path in made if at == root}
            parents = _missing_parents(layer, root, known, rows, paths)
            rows += parents
            wanted += parents
            wanted += known
        return replace(job, items=tuple(wanted)), lost

    def _start(self, jobs: Sequence[Job], run_id: str) -> Report:
        if not jobs:
            return Report(run_id)
        journal = Journal.of_person(self._paths, run_id)
        journal.write(*jobs)
        self._step()
        return self._perform(jobs, journal, run_id)

    def _perform(
        self, jobs: Sequence[Job], journal: Journal, run_id: str, since: int = 0
    ) -> Report:
        """Do the jobs; `since` is when that was decided, if they are resumed after a kill."""
        done: dict[str, list[Recorded]] = {run_id: []}
        for number, job in enumerate(jobs, 1):
            unsquash(self._paths, job.project, job.run_id)
            if since and (written := self._written(job)):
                found = written
            elif job.task is Task.DISCARD:
                found = self._discard(job)
            else:
                found = self._change_project(job, since)
            self._write(job, found)
            copy_modes_to_layers(self.manager, job.project, found)
            self._step()
            if job.task in (Task.TAKE, Task.DISCARD):
                self._clear(job, found)
                self._step()
            done.setdefault(job.run_id, []).extend(found)
            if rest := jobs[number:]:
                journal.write(*rest)
        self.manager.store.make_durable()
        journal.end()
        changes = tuple(done.pop(run_id))
        along = tuple(Report(other, tuple(items)) for other, items in done.items())
        return Report(run_id, changes, along=along)

    def _written(self, job: Job) -> list[Recorded]:
        """Return the changes of a job that was recorded before a kill; nothing if it was not."""
        if job.task not in _TARGETS:
            return []
        rows = records.read_changes(self.manager, self.manager.run(job.run_id))
        numbers = {item.number for item in job.items if item.state is not _TARGETS[job.task]}
        found = [row for row in rows if row.number in numbers]
        return found if any(row.state is _TARGETS[job.task] for row in found) else []

    def _discard(self, job: Job) -> list[Recorded]:
        """Take changes out of their layers: what is below is visible again."""
        chain = Chain(self._paths, job.project)
        with opened_folder(make_folder(self._paths.versions / job.run_id)) as versions:
            for root, layer in job.sources.items():
                here = [item for item in job.items if item.change.root == root]
                # What is in a folder goes before it.
                here.sort(key=lambda item: item.change.path, reverse=True)
                if os.path.isdir(layer):
                    lowers = chain.lowers(job.run_id, root)
                    changes = [(item.number, item.change) for item in here]
                    pending.take_out(layer, lowers, changes, versions)
                    self._step()
        return [item._replace(state=State.DISCARDED, note=None, after="") for item in job.items]

    def _clear(self, job: Job, done: Sequence[Recorded]) -> None:
        """Remove from the run's layers what is no longer pending."""
        chain = Chain(self._paths, job.project)
        rows = records.changes_of_runs(self.manager, [job.run_id])
        for root, layer in job.sources.items():
            needed = {row.change.path for _, row in rows if row.change.root == root}
            # Without a name, the layer is lost.
            if layer and not needed:
                pending.remove_layer(layer)
            elif os.path.isdir(layer):
                settled = (i.change.path for i in done if i.state not in PENDING_STATES)
                pending.drop(layer, set(settled) - needed, needed)
        chain.drop_empty([job.run_id])

    def _change_project(self, job: Job, since: int) -> list[Recorded]:
        done: list[Recorded] = []

        def left_before(item: Recorded) -> set[str]:
            return records.left_before(self.manager, job.run_id, job.started, item.change)

        for root, layer in job.sources.items():
            applier = Applier(
                root,
                self._paths.versions / job.run_id,
                job.run_id,
                self._step,
                source=layer if job.task is Task.TAKE else None,
                since=since,
                forced=job.forced,
                left_before=left_before,
            )
            with contextlib.closing(applier):
                items = [item for item in job.items if item.change.root == root]
                done += applier.perform(job.task, items)
        return done

    def _write(self, job: Job, done: Sequence[Recorded]) -> None:
        backups.touch_versions(self._paths.versions / job.run_id)
        project = self.manager.add_project(job.project)
        if job.task in (Task.TAKE, Task.REDO):
            backups.back_up(self.manager, project, self._paths.versions / job.run_id, done)
        items = {item.number: item for item in job.items}
        if job.task in (Task.UNDO, Task.REDO):
            records.note_deleted(self.manager, project, done)
        rows = [_as_recorded(job.task, items.get(item.number, item), item) for item in done]
        records.write_changes(self.manager, job.run_id, rows)
        if job.task in (Task.UNDO, Task.REDO):
            found = {number: item.before for number, item in items.items()}
            records.pass_on(self.manager, done, found)


def _as_recorded(task: Task, before: Recorded, done: Recorded) -> Recorded:
    """Return how a change is recorded after a job, given as it was before and as it was done."""
    # Where something failed, the change is what it was before; the report says why.
    is_failed = done.state in (State.CONFLICT, State.FAILED)
    if task is Task.HUNKS:
        # A conflict of some hunks is none of the whole file.
        return (before if is_failed else done)._replace(note=before.note)
    if task in (Task.UNDO, Task.REDO) and is_failed:
        return before._replace(note=done.note if done.state is State.CONFLICT else None)
    if task is Task.TAKE and before.apart_from and done.state is State.CONFLICT and done.note:
        # It stays an alternative to another run's, whatever else.
        arguments = {**done.note.arguments, "runs": " ".join(sorted(before.apart_from))}
        return done._replace(note=replace(done.note, arguments=arguments))
    return done


def _as_reports(changes: _ByRun) -> list[Report]:
    return [Report(run.id, tuple(items)) for run, items in changes]


def place_of(item: Recorded) -> tuple[str, str]:
    return item.change.root, item.change.path


def _to_apply(
    rows: Sequence[Recorded], chosen: Sequence[str], *, only_pending: bool
) -> tuple[list[Recorded], list[Recorded]]:
    """Return the pending changes to apply, and those that are applied again."""
    items = choose(rows, chosen)
    waiting = [item for item in items if item.state in PENDING_STATES]
    back = [
        item
        for item in items
        if (item.state is State.UNDONE and not only_pending)
        or (item.state is State.DISCARDED and chosen)
    ]
    return waiting, back


def _against_disk(item: Recorded) -> Recorded:
    """Return what a change becomes that is applied whatever is there: undoing it brings that
    back."""
    change = item.change
    if change.kind is Kind.DELETED or change.type is Type.FOLDER:
        return item
    try:
        found = os.lstat(f"{change.root}/{change.path}")
    except OSError:
        found = None
    was = type_of(found) if found else None
    if was is change.old_type:
        return item
    kind = Kind.REPLACED if was is not change.type else Kind.MODIFIED
    return item._replace(
        change=change._replace(
            kind=kind if found else Kind.ADDED,
            old_type=was,
            old_mode=stat.S_IMODE(found.st_mode) if found else None,
        )
    )


def _lost_in(layer: str, items: Sequence[Recorded]) -> list[Recorded]:
    """Return the changes whose version is not in the layer."""
    lost = []
    tree = OpenTree(layer, missing_ok=True)
    for item in items:
        if item.change.kind is Kind.DELETED or item.change.path == ".":
            continue
        try:
            found = DirEntryAt(*tree.split(item.change.path)).lstat()
        except (FileNotFoundError, NotADirectoryError):
            found = None
        if found is None:
            lost.append(item)
    tree.close()
    return lost


def choose(items: Sequence[Recorded], chosen: Sequence[str]) -> list[Recorded]:
    """Select changes by full path. A folder selects everything in it."""
    if not chosen:
        return list(items)
    found: dict[int, Recorded] = {}
    for path in chosen:
        matching = [
            item for item in items if is_inside(os.path.normpath("/".join(place_of(item))), path)
        ]
        if not matching:
            raise OllmSandboxError(
                N_("The run did not change {path}."),
                N_("`ollmsandbox changes` shows what it changed."),
                path=path,
            )
        found.update((item.number, item) for item in matching)
    return [found[number] for number in sorted(found)]


def with_folders(
    chosen: Sequence[Recorded], rows: Iterable[Recorded], *, undo: bool
) -> list[Recorded]:
    """With the run's own folders around what is to come back, if they are not there: to undo, those
    it deleted; to do it again, those it made."""
    comes, goes = (Kind.DELETED, Kind.ADDED) if undo else (Kind.ADDED, Kind.DELETED)
    states = (State.APPLIED,) if undo else (State.UNDONE, State.DISCARDED)
    folders = {
        (row.change.root, row.change.path): row
        for row in rows
        if row.change.type is Type.FOLDER and row.change.kind is comes and row.state in states
    }
    found = {item.number: item for item in chosen}
    for item in chosen if folders else ():
        root, path = item.change.root, item.change.path
        while item.change.kind is not goes and (path := os.path.dirname(path)):
            row = folders.get((root, path))
            if row is None or row.number in found or os.path.lexists(f"{root}/{path}"):
                break
            found[row.number] = row
    return [found[number] for number in sorted(found)]


def split_gone(items: Iterable[Recorded]) -> tuple[list[Recorded], list[Recorded]]:
    """Split changes into those whose root exists, and the others, which have to be left alone."""
    items = list(items)
    missing = {root for root in {item.change.root for item in items} if is_missing(root)}
    there = [item for item in items if item.change.root not in missing]
    note = Note(Reason.ROOT_MISSING)
    return there, [item._replace(note=note) for item in items if item.change.root in missing]


def conflict_was_reported(item: Recorded) -> bool:
    """Return whether the last attempt found, and reported, a conflict with someone else's edit."""
    # Earlier versions of the program discarded what a later run had replaced.
    if item.state is State.FAILED or item.is_because(Reason.LATER_RUN):
        return False
    if item.is_because(Reason.CONCURRENT):
        return False  # with another run's change
    return item.state is State.CONFLICT or item.note is not None


def _missing_parents(
    layer: str,
    root: str,
    chosen: Sequence[Recorded],
    rows: Sequence[Recorded],
    made: Collection[str],
) -> list[Recorded]:
    """Return the folders that chosen files need and that are not chosen themselves. They are
    numbered as changes of the run with these `rows`; those that are `made` anyway are left out."""
    there = {item.change.path for item in chosen}
    needed: dict[str, int] = {}
    for item in chosen:
        if item.change.kind is Kind.DELETED:
            continue
        # Upwards until one is there: a path may have thousands of parts.
        path = os.path.dirname(item.change.path)
        missing = []
        while path and path not in there and path not in needed:
            if os.path.lexists(f"{root}/{path}"):
                break
            missing.append(path)
            path = os.path.dirname(path)
        for path in reversed(missing):
            with contextlib.suppress(OSError):
                needed[path] = stat.S_IMODE(os.lstat(f"{layer}/{path}").st_mode) & 0o1777
    # A folder that the run made has a number already.
    own = {
        item.change.path: item.number
        for item in rows
        if item.change.root == root and item.state is State.PENDING
    }
    free = count(1 + max(item.number for item in rows))
    return [
        Recorded(
            own[path] if path in own else next(free),
            Change(root, path, Kind.ADDED, Type.FOLDER, mode),
        )
        for path, mode in needed.items()
        if path not in made
    ]


def _was_edited_again(item: Recorded) -> bool:
    """Return whether the file has changed since the conflict was reported. If it is gone, there is
    nothing to lose."""
    known = item.note.found if item.note else ""
    return known != "" and signature_of(item) not in (known, NOTHING)
