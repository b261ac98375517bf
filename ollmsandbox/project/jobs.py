# SPDX-License-Identifier: GPL-3.0-or-later
"""Does one job at a time in a project. A file lists its items before the first step is done.

A program that takes the project's lock begins by finishing the job that a killed program left. A
job decides nothing: each of its items is done, is a conflict, or fails, and then the job is over.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from .. import N_
from ..errors import OllmSandboxError
from ..files.atomic import write_atomically
from ..files.exchange import sync_disk
from ..files.locks import FileLock
from ..paths import Paths, is_missing, make_folder
from .change import MANY, Recorded, Report, State, pack_state, unpack_state
from .reasons import Note, Reason
from .run import OpenRuns, RunFolder, mine_name, read_run, signature_at, take_results
from .swap import OUT, ConflictError, Item, Left, Swapper

_JOB, _DONE, _LOCK, _PLANNING = "job.json", "done.json", "lock", "planning"
_PIECE = 500


class Job(NamedTuple):
    """Everything that is needed to do a job, now or after a kill."""

    project: str
    # The run that the user asked about, or that has just ended.
    run_id: str
    items: tuple[Item, ...] = ()
    # What was decided without touching the project, by run.
    decided: tuple[tuple[str, Recorded], ...] = ()
    # Whether the run is settled with this.
    settles: bool = False
    # Whether it undoes: then no backups are made.
    undoes: bool = False
    # The upper folders that files are moved from, by root.
    uppers: Mapping[str, str] = {}
    # CONFLICT or FAILED, by run and number, for changes that could not be undone or redone and keep
    # their state. Only for the report, so it is not written down.
    failed: Mapping[tuple[str, int], State] = {}


# The changes of runs, by run.
_Known = Mapping[str, Sequence[Recorded]]


class JobResult(NamedTuple):
    job: Job
    # All changes of the job, by run, in their new states.
    done: dict[str, list[Recorded]]
    # What could not be undone or made again: it keeps its state, and the report shows this one.
    failed: dict[tuple[str, int], State]
    is_resumed: bool

    def report(self) -> Report:
        """Return what the user is told: the run's own changes, and those of others."""
        told = {
            run_id: tuple(
                item._replace(state=self.failed[key])
                if (key := (run_id, item.number)) in self.failed
                else item
                for item in items
            )
            for run_id, items in self.done.items()
        }
        changes = told.pop(self.job.run_id, ())
        along = tuple(Report(run_id, items) for run_id, items in told.items())
        return Report(self.job.run_id, changes, along=along)


class MissingRootError(OllmSandboxError):
    """A root is missing, so a run or a job cannot be finished. Nothing is lost."""

    def __init__(self, message: str, remedy: str, /, *, root: str, **fields: object) -> None:
        super().__init__(message, remedy, root=root, **fields)
        self.root = root


class ProjectJobs:
    """Does jobs in one project, while its lock is held."""

    def __init__(self, paths: Paths, project: str, record: Callable[[JobResult], None]) -> None:
        """`record` records what a job has done: in the database, and as backups."""
        self._paths = paths
        self._project = project
        self._record = record
        self._folder = paths.project_data(project)
        # The interrupted jobs that were finished.
        self.finished: list[Report] = []

    @contextlib.contextmanager
    def locked(self) -> Iterator[ProjectJobs]:
        """Hold the lock, after finishing what a killed program left."""
        with project_lock(self._paths, self._project):
            self.finished = self._finish()
            self._sweep()
            yield self

    def bump_generation(self) -> None:
        """Note that the project, or what is pending for it, is about to change."""
        # Not the kernel's own time, which is the same for some milliseconds.
        now = time.time_ns()
        os.utime(_lock_file(self._paths, self._project), ns=(now, now))

    def _finish(self) -> list[Report]:
        file = self._folder / _JOB
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        job, known, is_same_disk = self._unpack(text, file)
        if is_missing(job.project):
            raise MissingRootError(
                N_("{root} is missing, and changes there were not completely made or undone."),
                N_(
                    "Restore the folder and run any command in it. If you cannot restore it, "
                    "delete {file}."
                ),
                root=job.project,
                file=file,
            )
        self.bump_generation()
        return [self._perform(job, known, is_resumed=True, is_same_disk=is_same_disk).report()]

    def do(self, job: Job, known: _Known) -> JobResult:
        """Do a job and record it. `known` are the runs that it has items of. Raise OSError if it
        could not be written down; then nothing was done."""
        self.bump_generation()
        write_atomically(self._folder / _JOB, self._pack(job), durably=True, is_locked=True)
        (self._folder / _PLANNING).unlink(missing_ok=True)
        return self._perform(job, known, is_resumed=False)

    # --- the file ----------------------------------------------------------------------------

    def _pack(self, job: Job) -> str:
        home = os.stat(make_folder(self._paths.runs))
        decided = [[run_id, pack_state(item)] for run_id, item in job.decided]
        facts = {
            "project": job.project, "run_id": job.run_id, "settles": job.settles,
            "undoes": job.undoes, "uppers": job.uppers, "inode": home.st_ino, "decided": decided,
        }  # fmt: skip
        # A few at a time: while JSON is written, no other thread has a turn, nor has a window.
        items = ", ".join(
            json.dumps(job.items[start : start + _PIECE], check_circular=False)[1:-1]
            for start in range(0, len(job.items), _PIECE)
        )
        return f'{{"items": [{items}], {json.dumps(facts)[1:]}'

    def _unpack(self, text: str, file: Path) -> tuple[Job, _Known, bool]:
        """Return the job, the changes of its runs, and whether the runs are where they were: a
        restored backup has other inodes. Set an unreadable file aside and raise."""
        try:
            given = json.loads(text)
            items = tuple(
                Item(*values)._replace(expected=tuple(values[5]) if values[5] else None)
                for values in given["items"]
            )
            runs = {
                given["run_id"],
                *(item.run for item in items),
                *(n for n, _ in given["decided"]),
            }
            known = {run_id: read_run(self._paths, run_id).changes for run_id in runs}
            decided = tuple(
                (run_id, unpack_state(known[run_id][state[0]], state))
                for run_id, state in given["decided"]
            )
            job = Job(
                given["project"], given["run_id"], items, decided,
                given["settles"], given["undoes"], given["uppers"],
            )  # fmt: skip
        except (ValueError, LookupError, TypeError) as error:
            raise _set_aside(file) from error
        # The number of a device may change with a restart.
        return job, known, given["inode"] == os.stat(self._paths.runs).st_ino

    # --- doing it ----------------------------------------------------------------------------

    def _perform(
        self, job: Job, known: _Known, *, is_resumed: bool, is_same_disk: bool = True
    ) -> JobResult:
        if len(job.items) > MANY:
            # What is staged is on disk before it gets its name, so that a power cut leaves no empty
            # file. Up to so many files, each is written by itself, which takes less time.
            sync_disk(self._paths.runs)
        outcomes = _Outcomes(known)
        with contextlib.closing(OpenRuns(self._paths)) as runs:
            if is_same_disk:
                for root in dict.fromkeys(item.root for item in job.items):
                    self._swap_all(job, root, runs, outcomes, is_resumed=is_resumed)
            else:
                for item in job.items:
                    outcomes.note_failure(item, ConflictError(Reason.CHANGED))
            left = _left_in_slots(job.items, runs, outcomes.failed)
        done = outcomes.changes()
        own = done.get(job.run_id, ())
        failed = [item for item in own if (job.run_id, item.number) in outcomes.failed]
        take_results(self._paths, job.run_id, job.uppers, failed)
        for run_id, decided in job.decided:
            done.setdefault(run_id, []).append(decided)
        for run_id, items in done.items():
            items.sort(key=lambda item: item.number)
            is_settled = job.settles and run_id == job.run_id
            facts = {"ended": time.time()} if is_settled else {}
            RunFolder(self._paths, run_id).append(items, **facts)
        result = JobResult(job, done, {**outcomes.failed, **job.failed}, is_resumed)
        self._record(result)
        write_atomically(self._folder / _DONE, json.dumps(left), is_locked=True)
        (self._folder / _JOB).unlink()
        return result

    def _swap_all(
        self, job: Job, root: str, runs: OpenRuns, outcomes: _Outcomes, *, is_resumed: bool
    ) -> None:
        items = [item for item in job.items if item.root == root]
        try:
            swapper = Swapper(
                root,
                job.uppers.get(root, ""),
                runs,
                modes_note(self._paths, self._project, root),
                removed={item.path for item in items if item.does == "rmdir"},
                is_resumed=is_resumed,
                flushes=len(items) <= MANY,
            )
        except OllmSandboxError:
            for item in items:
                outcomes.note_failure(item, FileNotFoundError(errno.ENOENT, root))
            return
        try:
            for item in items:
                if (item.run, item.number) in outcomes.failed:
                    continue
                try:
                    outcomes.note_success(item, swapper.do(item))
                except (ConflictError, OSError) as error:
                    outcomes.note_failure(item, error)
            failed = dict(swapper.close())
        finally:
            swapper.leave()
        for item in items if failed else ():
            if item.path in failed or (item.path == "." and "" in failed):
                outcomes.note_failure(item, failed.get(item.path) or failed[""])

    def _sweep(self) -> None:
        """Remove what the last job took out of the project, and what was staged for one that was
        never begun. Keep what was written to since: a program may have had it open."""
        file = self._folder / _DONE
        left = []
        with contextlib.suppress(FileNotFoundError, ValueError):
            left = json.loads(file.read_text(encoding="utf-8"))
        for run_id, slot, modified, size in left:
            kept = self._paths.runs / run_id / slot
            with contextlib.suppress(FileNotFoundError):
                found = os.lstat(kept)
                if [found.st_mtime_ns, found.st_size] == [modified, size]:
                    kept.unlink()
                else:
                    kept.rename(self._paths.runs / run_id / mine_name(slot.rpartition("/")[2]))
        file.unlink(missing_ok=True)
        for half in self._folder.glob(".*-half"):
            half.unlink(missing_ok=True)  # of a file that was being written
        planning = self._folder / _PLANNING
        with contextlib.suppress(FileNotFoundError):
            for run_id in planning.read_text(encoding="utf-8").split():
                # Nobody needs what is in a run that cannot be read, nor is it in the way.
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError, IndexError):
                    RunFolder(self._paths, run_id).remove_unused()
            planning.unlink()


class _Outcomes:
    """Collects the outcome of each change of a job. A change may take two items."""

    def __init__(self, known: _Known) -> None:
        self._before = known
        self._done: dict[tuple[str, int], Recorded] = {}
        self.failed: dict[tuple[str, int], State] = {}

    def note_success(self, item: Item, left: Left) -> None:
        before = self._before[item.run][item.number]
        done = self._done.get((item.run, item.number))
        replaced, replaced_at = done.before if done else "", 0
        if item.expected is not None:
            inode, modified, size, mode, changed = item.expected
            replaced = f"{inode}:{modified}:{size}:{mode:o}"
            # Another run may take its base for what was replaced, unless that was something else.
            replaced_at = changed if left.signature and not item.made else 0
        self._done[item.run, item.number] = Recorded(
            before.number, before.change, State(item.state), None, before.on, before.base,
            before.is_known, replaced, left.signature, replaced_at, left.changed, item.made,
        )  # fmt: skip

    def note_failure(self, item: Item, error: ConflictError | OSError) -> None:
        """Note that an item was not done: its change is a conflict or has failed, or is what it was
        before if it should have been undone or made again."""
        before = self._before[item.run][item.number]
        failed = State.CONFLICT
        if isinstance(error, ConflictError):
            note = Note(error.reason)
        elif error.errno in (errno.ELOOP, errno.ENOTDIR):
            note = Note(Reason.PARENT_REPLACED)
        else:
            failed = State.FAILED
            is_missing = error.errno == errno.ENOENT
            note = Note(Reason.ROOT_MISSING) if is_missing else Note.of_error(error)
        self.failed[item.run, item.number] = failed
        state = failed if item.otherwise == State.CONFLICT.value else State(item.otherwise)
        self._done[item.run, item.number] = in_conflict(before._replace(state=state), note)

    def changes(self) -> dict[str, list[Recorded]]:
        found: dict[str, list[Recorded]] = {}
        for (run_id, _), item in self._done.items():
            found.setdefault(run_id, []).append(item)
        return found


def in_conflict(item: Recorded, note: Note) -> Recorded:
    """Return the change with a note about what is at its place now."""
    return item._replace(note=replace(note, found=signature_at(item)))


def _left_in_slots(
    items: Iterable[Item], runs: OpenRuns, failed: Container[tuple[str, int]]
) -> list[list[object]]:
    """Return what is left in slots until the next job: run, slot, time, size. That is what came out
    of the project, or was staged and not used. Keep anything else."""
    left: list[list[object]] = []
    for item in items:
        for slot in {item.out, item.slot, f"{item.slot}{OUT}"}:
            found = runs.at(item.run, slot).lstat() if slot.startswith("stage/") else None
            if found is None:
                continue
            is_staged = (found.st_ino, found.st_mtime_ns) == (item.inode, item.modified)
            if (item.run, item.number) in failed and not is_staged:
                runs.at(item.run, slot).rename_to(runs.at(item.run, mine_name(item.number)))
            else:
                left.append([item.run, slot, found.st_mtime_ns, found.st_size])
    return left


def note_planning(paths: Paths, project: str, run_id: str) -> None:
    """Note that files are staged in the folder of a run, in case of a kill before the job."""
    with open(make_folder(paths.project_data(project)) / _PLANNING, "a", encoding="utf-8") as file:
        file.write(f"{run_id}\n")


# --- the lock ------------------------------------------------------------------------------------


def generation(paths: Paths, project: str) -> int:
    """Return a number that differs after each run, apply, undo, redo or discard that changed
    something. Wait for a job that is being done."""
    with FileLock(_lock_file(paths, project), shared=True) as lock:
        return lock.fstat().st_mtime_ns


def _lock_file(paths: Paths, project: str) -> Path:
    return make_folder(paths.project_data(project)) / _LOCK


def project_lock(paths: Paths, project: str) -> FileLock:
    """Lock a project, also for something else than a job, such as to move the project."""
    return FileLock(_lock_file(paths, project))


def modes_note(paths: Paths, project: str, root: str) -> Path:
    """Return the file that has the modes of folders of a root that are accessible for a while."""
    return paths.project_data(project) / f"modes-{zlib.crc32(os.fsencode(root)):08x}"


def job_file(paths: Paths, project: str) -> Path:
    return paths.project_data(project) / _JOB


def unfinished(paths: Paths) -> list[Path]:
    """Return the files of jobs that are under way, or were interrupted."""
    return sorted(paths.projects.glob(f"*/{_JOB}"))


def _set_aside(file: Path) -> OllmSandboxError:
    """Rename the file of a job that cannot be read; return the error that says so."""
    kept = file.with_name(f"unreadable-{time.time_ns():x}.json")
    file.rename(kept)
    return OllmSandboxError(
        N_("The log of the interrupted operation is unreadable."),
        N_("Check for pending changes. The unreadable log is kept in {file}."),
        file=kept,
    )


def project_of_job(file: Path) -> str:
    """Return the project of an unfinished job; "" if it has ended. Raise if it is unreadable."""
    with contextlib.suppress(FileNotFoundError):
        if project := _read_project(file):
            return project
        # Its program may be writing a new one.
        with FileLock(file.with_name(_LOCK)):
            if project := _read_project(file):
                return project
            raise _set_aside(file)
    return ""


def _read_project(file: Path) -> str:
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["project"])
    except (ValueError, KeyError, TypeError):
        return ""
