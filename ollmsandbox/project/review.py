# SPDX-License-Identifier: GPL-3.0-or-later
"""Applies, discards, undoes and redoes a run's changes for the user."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence

from .. import N_
from ..database.tables import Project, Run
from ..errors import OllmSandboxError, in_words
from ..files.dirfd import folders_above, open_regular_file
from ..paths import FolderSet, Paths, is_missing
from . import index
from .change import PENDING_STATES, Kind, Recorded, Report, State, Type
from .held.git.needed import needed_by_git
from .jobs import Job, MissingRootError, ProjectJobs
from .layer import PendingLayer
from .plan import Planned, Planner, Way, refused
from .projects import ProjectManager
from .reasons import Note, Reason
from .run import RunFolder, is_part, is_pending, read_run, signature_at
from .settle import project_jobs
from .state import current_changes, is_made
from .swap import Item

# By run and number.
_Changes = dict[tuple[str, int], Recorded]


class Review:
    """Decides about whole runs, or chosen paths of them. A folder stands for all that is in it."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self.manager = ProjectManager(paths)

    def close(self) -> None:
        self.manager.close()

    def locked(self, project: str) -> contextlib.AbstractContextManager[ProjectJobs]:
        """Lock a project, after finishing what was cut off there."""
        return project_jobs(self.manager, project).locked()

    # --- apply and discard -------------------------------------------------------------------

    def apply(
        self,
        run: Run,
        chosen: Sequence[str] = (),
        *,
        only_pending: bool = False,
        anyway: bool = False,
    ) -> Report:
        """Apply pending and undone changes; of discarded ones and conflicts, only the chosen ones.

        A chosen one takes the place of the user's version if the conflict was reported and the user
        has not edited the file since then, or if the user has said so for what is there now
        (`anyway`). Pending changes of other runs that these need are applied along with them.
        """
        with self.locked(run.project.path) as jobs, self._planning(run) as planning:
            items, gone = self._to_apply(planning, chosen, only_pending=only_pending)
            for item in items:
                may_force = bool(chosen) and _may_force(item, anyway=anyway)
                planning.add(run.id, item, Way.APPLY, force=may_force)
            return planning.do(jobs, gone)

    def also_applied(
        self, run: Run, chosen: Sequence[str] = (), *, only_pending: bool = False
    ) -> list[Report]:
        """Return the changes of other runs that `apply` would apply, too."""
        if PendingLayer(self._paths, run.project.path).runs() in ([], [run.id]):
            return []
        with self.locked(run.project.path), self._planning(run) as planning:
            items, _ = self._to_apply(planning, chosen, only_pending=only_pending)
            for item in items:
                planning.add(run.id, item, Way.APPLY)
            planning.drop_items(0)
            return _of_others(run, planning.added)

    def _to_apply(
        self, planning: _Planning, chosen: Sequence[str], *, only_pending: bool
    ) -> tuple[list[Recorded], list[Recorded]]:
        """Return the changes to apply, and those whose root is missing."""
        wanted = []
        for item in choose(planning.rows, chosen):
            if item.state is State.CONFLICT:
                # It may be merged by now, but not with an unknown base.
                is_wanted = bool(chosen) or (item.change.is_edit and item.is_known)
            elif item.state is State.DISCARDED:
                is_wanted = bool(chosen)
            else:
                is_wanted = is_pending(item) or (item.state is State.UNDONE and not only_pending)
            wanted += [item] if is_wanted else []
        return split_gone(wanted)

    def keep_both(self, run: Run, chosen: Sequence[str] = ()) -> Report:
        """End conflicts in text files with both versions: lines that both changed appear twice.
        The report includes the conflicts that cannot end like this."""
        with self.locked(run.project.path) as jobs, self._planning(run) as planning:
            others = []
            for item in choose(index.read_changes(self.manager, run), chosen):
                if item.state is not State.CONFLICT:
                    continue
                if item.change.is_edit:
                    planning.add(run.id, item, Way.BOTH)
                else:
                    others.append(item)
                is_impossible = item in others or (run.id, item.number) in planning.failed
                if is_impossible and full_path(item) in chosen:
                    raise OllmSandboxError(
                        N_(
                            "Both versions of {file} cannot be kept, because only edits of text "
                            "files can be combined."
                        ),
                        N_("Choose one of the versions."),
                        file=full_path(item),
                    )
            return planning.do(jobs, others)

    def merge_part(self, run: Run, item: Recorded, old: bytes, new: bytes) -> Report | None:
        """Merge hunks of a change into the file on disk, given as the two versions that they are
        between. Return None if the change has been decided otherwise, or if it is a conflict."""
        with self.locked(run.project.path) as jobs, self._planning(run) as planning:
            now = planning.rows[item.number]
            if now.state is not item.state:
                return None
            planning.add_part(now, old, new)
            return None if planning.failed else planning.do(jobs)

    def discard(self, run: Run, chosen: Sequence[str] = ()) -> Report:
        """Discard pending changes, and those of later runs that depend on them."""
        with self.locked(run.project.path) as jobs:
            found = self._to_discard(run, chosen)
            decided = tuple((run_id, _dropped(item)) for (run_id, _), item in found.items())
            job = Job(run.project.path, run.id, decided=decided)
            return jobs.do(job, {}).report() if decided else Report(run.id)

    def also_discarded(self, run: Run, chosen: Sequence[str] = ()) -> list[Report]:
        """Return the changes of other runs that `discard` would discard, too."""
        return _of_others(run, self._to_discard(run, chosen))

    def _to_discard(self, run: Run, chosen: Sequence[str]) -> _Changes:
        """Return the chosen changes, and later ones that build on them without lines of their own:
        in a folder that is not made then, or on a file that cannot be merged."""
        rows = choose(index.read_changes(self.manager, run), chosen)
        found = {(run.id, item.number): item for item in rows if is_pending(item)}
        pending = PendingLayer(self._paths, run.project.path).changes()
        left = {(one, *place_of(i)) for one, i in pending if (one, i.number) not in found}
        # What stays in a folder keeps the folder, unless the same run deletes it by itself.
        staying: dict[tuple[str, str], list[str]] = {}
        for item in found.values():
            if item.change.kind in (Kind.DELETED, Kind.REPLACED):
                for folder in folders_above(item.change.path):
                    staying.setdefault((item.change.root, folder), []).append(item.change.path)
        for run_id, item in pending:
            inside = staying.get(place_of(item), ()) if item.change.ends_folder else ()
            is_kept = any((run_id, item.change.root, path) not in left for path in inside)
            if (run_id, item.number) not in found and (is_kept or self._needs_one_of(found, item)):
                found[run_id, item.number] = item
        return found

    def _needs_one_of(self, dropped: _Changes, item: Recorded) -> bool:
        if item.on in dropped and not (
            # Then it can be merged without the one that it builds on.
            item.change.is_edit and dropped[item.on].change.is_edit and self._has_lines(*item.on)
        ):
            return True
        folders = {place_of(other) for other in dropped.values() if other.change.makes_folder}
        return item.change.kind is not Kind.DELETED and any(
            (item.change.root, folder) in folders for folder in folders_above(item.change.path)
        )

    def _has_lines(self, run_id: str, number: int) -> bool:
        """Return whether a command left a text file."""
        try:
            return b"\0" not in RunFolder(self._paths, run_id).whole_result(number).read_bytes()
        except OSError:
            return False

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
        """Decide about several runs. One that waits for a missing folder does not stop the rest."""
        done = []
        for run in runs:
            try:
                report = does(run)
            except MissingRootError as error:
                report = Report(run.id, errors=(in_words(error),))
            if report.changes or report.errors:
                done.append(report)
        return done

    def waiting(self, project: Project) -> list[Run]:
        """Return the runs with pending changes, the oldest first."""
        runs = PendingLayer(self._paths, project.path).runs()
        order = {run_id: n for n, run_id in enumerate(runs)}
        found = self.manager.runs(project, limit=-1, only_pending=True)[::-1]
        return sorted(found, key=lambda run: order.get(run.id, -1))

    # --- undo --------------------------------------------------------------------------------

    def undo(self, run: Run, chosen: Sequence[str] = (), *, with_later: bool = False) -> Report:
        """Undo applied changes; `with_later`, first what later runs did to the same files."""
        with self.locked(run.project.path) as jobs:
            # What the user has made by hand of the pending changes is applied.
            with self._planning(run) as planning:
                for item in choose(planning.rows, chosen):
                    if is_pending(item) and is_made(self.manager, run, item):
                        planning.add(run.id, item, Way.APPLY)
                planning.do(jobs)
            with self._planning(run, undoes=True) as planning:
                items = [i for i in choose(planning.rows, chosen) if i.state is State.APPLIED]
                applied, gone = split_gone(items)
                for other, theirs in self.later_changes(run, applied) if with_later else ():
                    planning.know(other.id)
                    for item in reversed(theirs):
                        planning.add(other.id, item, Way.UNDO)
                for item in reversed(applied):
                    may_force = bool(chosen) and _may_force(item, anyway=False)
                    planning.add(run.id, item, Way.UNDO, force=may_force)
                planning.keep_what_git_needs(run.started_at)
                return planning.do(jobs, gone)

    def later_changes(
        self, run: Run, items: Iterable[Recorded]
    ) -> list[tuple[Run, list[Recorded]]]:
        """Return the applied changes of later runs to the same paths, the last run first."""
        numbers: dict[str, set[int]] = {}
        for item in items:
            for run_id, number in index.later_runs(self.manager, run, item):
                numbers.setdefault(run_id, set()).add(number)
        runs = [self.manager.run(run_id) for run_id in numbers]
        runs.sort(key=lambda other: other.ended_at or other.started_at, reverse=True)
        return [
            (other, [row for row in self._rows(other) if row.number in numbers[other.id]])
            for other in runs
        ]

    def _rows(self, run: Run) -> list[Recorded]:
        """Return the changes in the states that the files in the project show now."""
        rows = index.read_changes(self.manager, run)
        now = current_changes(self.manager, run, rows)
        # The notes are what the user was told when something was tried.
        return [
            row if row.state in PENDING_STATES else row._replace(state=one.state)
            for row, one in zip(rows, now, strict=True)
        ]

    def _planning(self, run: Run, *, undoes: bool = False) -> contextlib.closing[_Planning]:
        rows = self._rows(run)
        return contextlib.closing(_Planning(self._paths, run, rows, undoes=undoes))


class _Planning:
    """Plans one job for the user: chosen changes, and what these need."""

    def __init__(self, paths: Paths, run: Run, rows: Sequence[Recorded], *, undoes: bool) -> None:
        self._paths = paths
        self._project = run.project.path
        self._run_id = run.id
        self._undoes = undoes
        self.rows = rows
        self._known: dict[str, Sequence[Recorded]] = {run.id: rows}
        self._planner = Planner(paths, self._project)
        self._planner.begin(run.id, len(rows))
        if not undoes:
            # Its files are moved, not copied, if nothing else has them.
            PendingLayer(paths, self._project).release()
        self._items: list[Item] = []
        self._decided: list[tuple[str, Recorded]] = []
        self.failed: dict[tuple[str, int], State] = {}
        self.added: _Changes = {}
        self._folders: set[tuple[str, str]] = set()

    def close(self) -> None:
        self._planner.close()

    def know(self, run_id: str) -> None:
        if run_id not in self._known:
            self._known[run_id] = read_run(self._paths, run_id).changes
            self._planner.begin(run_id, len(self._known[run_id]))

    def add(self, run_id: str, item: Recorded, way: Way, *, force: bool = False) -> None:
        """Plan a change, after those that it needs."""
        key = (run_id, item.number)
        if key in self.added:
            return
        self.added[key] = item
        self._need_folders(run_id, item)
        planned = self._planner.plan(run_id, item, way, force=force)
        below = self._below(item) if planned.failed else None
        if below and below[1].state is State.DISCARDED and planned.decided:
            note = planned.decided.note
            reason = Note(Reason.BASE_DISCARDED, {"run": below[0]}, note.found if note else "")
            planned = planned._replace(decided=planned.decided._replace(note=reason))
        elif below and is_pending(below[1]) and item.on not in self.added and not self._undoes:
            # It is not in the project, and the two cannot be merged: both are applied.
            before = dict(self.added), set(self._folders), dict(self.failed), self._decided[:]
            planned_before, items = dict(self._planner.planned), len(self._items)
            self.add(*below, Way.APPLY)
            planned = self._planner.plan(run_id, item, way, force=force)
            if planned.failed:
                self.added, self._folders, self.failed, self._decided = before
                self._planner.planned = planned_before
                self.drop_items(items)
        self._take(key, planned)

    def add_part(self, item: Recorded, old: bytes, new: bytes) -> None:
        planned = self._planner.plan(self._run_id, item, Way.PART, part=(old, new))
        self._take((self._run_id, item.number), planned)

    def _take(self, key: tuple[str, int], planned: Planned) -> None:
        self._items += planned.items
        if planned.decided is not None:
            self._decided.append((key[0], planned.decided))
        if planned.failed is not None:
            self.failed[key] = planned.failed

    def keep_what_git_needs(self, since: float) -> None:
        """Leave what a repository needs of the runs since this time."""
        pending = PendingLayer(self._paths, self._project).changes()
        waiting = (full_path(item) for _, item in pending)
        used = needed_by_git(self._items, self._staged, waiting, since)
        self._items = [item for item in self._items if (item.run, item.number) not in used]
        for run_id, number in used:
            item = self._known[run_id][number]
            self._take((run_id, number), refused(item, State.CONFLICT, Note(Reason.GIT_NEEDS)))

    def _staged(self, item: Item, most: int) -> bytes:
        """Return what is staged for an item; raise ValueError if it is larger than `most`."""
        spot = self._planner.runs.at(item.run, item.slot)
        with open_regular_file(spot.name, spot.dir_fd) as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise ValueError
        return data

    def do(self, jobs: ProjectJobs, gone: Sequence[Recorded] = ()) -> Report:
        """Do what was planned; the report includes the changes that are `gone`."""
        job = Job(
            self._project,
            self._run_id,
            tuple(self._items),
            tuple(self._decided),
            undoes=self._undoes,
            failed=self.failed,
        )
        report = Report(self._run_id)
        if job.items or job.decided:
            # Folders that it made accessible are as they were before the job gives them new modes.
            self._planner.close()
            report = jobs.do(job, self._known).report()
        return report._replace(changes=(*report.changes, *gone))

    def drop_items(self, start: int) -> None:
        """Forget the items from this one on, and remove what was staged for them."""
        for item in self._items[start:]:
            if item.slot.startswith("stage/"):
                self._planner.runs.at(item.run, item.slot).unlink(missing_ok=True)
        del self._items[start:]

    # --- what a change needs -----------------------------------------------------------------

    def _below(self, item: Recorded) -> tuple[str, Recorded] | None:
        """Return the change whose version the command saw, with its run."""
        if item.on is None:
            return None
        run_id, number = item.on
        self.know(run_id)
        return next(((run_id, one) for one in self._known[run_id] if one.number == number), None)

    def _need_folders(self, run_id: str, item: Recorded) -> None:
        """Plan the folders around a change that are not there."""
        change = item.change
        if change.kind is (Kind.ADDED if self._undoes else Kind.DELETED):
            return
        for folder in reversed([*folders_above(change.path)]):
            place = (change.root, folder)
            if place in self._folders:
                continue
            if not self._planner.has_folder(*place):
                maker = self._maker_of(run_id, place)
                if maker is None:
                    return
                self.add(*maker, Way.UNDO if self._undoes else Way.APPLY)
            self._folders.add(place)

    def _maker_of(self, run_id: str, place: tuple[str, str]) -> tuple[str, Recorded] | None:
        """Return the change that makes a folder: of the run itself, or a pending one."""
        for item in self._known[run_id]:
            change = item.change
            is_maker = change.ends_folder if self._undoes else change.makes_folder
            is_free = (item.state is State.APPLIED) is self._undoes
            if is_maker and is_free and place_of(item) == place:
                return run_id, item
        if not self._undoes:
            for other, item in PendingLayer(self._paths, self._project).changes():
                if item.change.makes_folder and place_of(item) == place:
                    self.know(other)
                    return other, item
        return None


def _of_others(run: Run, found: _Changes) -> list[Report]:
    others: dict[str, list[Recorded]] = {}
    for (run_id, _), item in found.items():
        if run_id != run.id:
            others.setdefault(run_id, []).append(item)
    return [Report(run_id, tuple(items)) for run_id, items in others.items()]


def _dropped(item: Recorded) -> Recorded:
    """Return a change as discarded. Hunks of it that are in the project stay: then it is applied,
    in part."""
    if is_part(item):
        return item._replace(state=State.APPLIED, note=None)
    return item._replace(state=State.DISCARDED, note=None, before="", after="", made="")


def place_of(item: Recorded) -> tuple[str, str]:
    return item.change.root, item.change.path


def full_path(item: Recorded) -> str:
    return "/".join(place_of(item))


def choose(items: Sequence[Recorded], chosen: Sequence[str]) -> list[Recorded]:
    """Select changes by full path. A folder selects everything in it."""
    if not chosen:
        return list(items)
    # There may be thousands of both.
    wanted, known = FolderSet(chosen), {""}
    found = []
    for item in items:
        path = os.path.normpath(full_path(item))
        if path in wanted:
            found.append(item)
        while path not in known:
            known.add(path)
            path = path.rpartition("/")[0]
    for path in chosen:
        if path.rstrip("/") not in known:
            raise OllmSandboxError(
                N_("The run did not change {path}."),
                N_("`ollmsandbox changes` shows what it changed."),
                path=path,
            )
    return sorted(found, key=lambda item: item.number)


def split_gone(items: Sequence[Recorded]) -> tuple[list[Recorded], list[Recorded]]:
    """Split changes into those whose root exists, and the others, which have to be left alone."""
    missing = set(filter(is_missing, {item.change.root for item in items}))
    there = [item for item in items if item.change.root not in missing]
    note = Note(Reason.ROOT_MISSING)
    return there, [item._replace(note=note) for item in items if item.change.root in missing]


def _may_force(item: Recorded, *, anyway: bool) -> bool:
    """Return whether the user was told about the conflict, and the file has not changed since."""
    if item.state is State.FAILED or item.note is None or item.change.type is Type.FOLDER:
        return False
    # If it is gone, there is nothing to lose.
    return anyway or item.note.found in ("", signature_at(item)) or signature_at(item) == "-"
