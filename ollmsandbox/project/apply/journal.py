# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal: what is about to be done to a project, written to disk before the first step.

After a kill, the next program does the whole job again; steps that are done already stay done.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path

from ... import N_
from ...errors import OllmSandboxError
from ...files.atomic import write_locked
from ...files.locks import FileLock
from ...paths import Paths, make_folder
from ..changes.change import Recorded, pack, unpack

_PREFIX = "journal-"
# What cannot be read any more.
UNREADABLE = "unreadable-"
# Changes.
_PIECE = 500


class Task(Enum):
    # A run is settled: its changes are applied, but for those that become pending.
    SETTLE = "settle"
    # What the user asks for.
    TAKE = "take"
    DISCARD = "discard"
    UNDO = "undo"
    REDO = "redo"
    # Single hunks of a change are merged into the file.
    HUNKS = "hunks"


@dataclass(frozen=True)
class Job:
    """Everything that is needed to do a job, now or after a kill."""

    task: Task
    run_id: str
    project: str
    mode: str
    command: str
    started: float
    items: tuple[Recorded, ...]
    # By root: the layer that the changes are taken from.
    sources: dict[str, str]
    forced: tuple[str, ...] = ()
    # The chat and the tool call that it belongs to.
    session_id: str = ""
    call_id: str = ""
    # The numbers of those that become pending, whatever happens to the others.
    waits: tuple[int, ...] = ()

    def packed(self) -> str:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        del given["items"]
        rest = json.dumps({**given, "task": self.task.value}, check_circular=False)
        # A few at a time: while something is packed no other thread has a turn, nor has a window.
        items = ", ".join(
            json.dumps(
                [pack(item) for item in self.items[start : start + _PIECE]], check_circular=False
            )[1:-1]
            for start in range(0, len(self.items), _PIECE)
        )
        return f'{{"items": [{items}], {rest[1:]}'

    @classmethod
    def unpacked(cls, text: str) -> Job:
        given = json.loads(text)
        given["task"] = Task(given["task"])
        given["items"] = tuple(unpack(*item) for item in given["items"])
        for name in ("forced", "waits"):
            given[name] = tuple(given[name])
        return cls(**given)


def _jobs(content: bytes) -> list[Job]:
    try:
        return [Job.unpacked(line) for line in content.decode().splitlines()]
    except (ValueError, KeyError, TypeError):
        return []


class Journal:
    """One file for each job that is under way."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def name(self) -> str:
        """Of the file, or of the run that it lies with."""
        file = self._file
        return file.stem if file.name.startswith(_PREFIX) else file.parent.name

    @classmethod
    def of_run(cls, overlay_folder: str) -> Journal:
        """Return the journal of a run, which is in its overlay folder."""
        return cls(Path(overlay_folder, "journal.json"))

    @classmethod
    def of_person(cls, paths: Paths, run_id: str) -> Journal:
        return cls(paths.cache / f"{_PREFIX}{run_id}.json")

    @classmethod
    def left(cls, paths: Paths) -> list[Journal]:
        with contextlib.suppress(FileNotFoundError):
            return [cls(file) for file in sorted(paths.cache.glob(f"{_PREFIX}*.json"))]
        return []

    def write(self, *jobs: Job) -> None:
        """One after the other: a line for each."""
        write_locked(self._file, "\n".join(job.packed() for job in jobs), durably=True)

    def read_all(self) -> list[Job]:
        """Return the jobs, or an empty list if there are none or they are unreadable.

        The file is renamed into place, so it is complete unless the disk failed.
        """
        return _jobs(self._content() or b"")

    def _content(self) -> bytes | None:
        try:
            return self._file.read_bytes()
        except FileNotFoundError:
            return None

    def check(self, paths: Paths) -> None:
        """Set an unreadable journal aside and raise, so that it is reported once."""
        found = self._content()
        if found is None or _jobs(found):
            return
        number = 0
        while (kept := paths.cache / f"{UNREADABLE}{self.name}{number or ''}.json").exists():
            number += 1
        try:
            self._file.rename(kept)
        except FileNotFoundError:
            return  # somebody else has told it
        if kept.read_bytes() != found:
            # Somebody has just written another one.
            kept.rename(self._file)
            return
        raise OllmSandboxError(
            N_("The record of what the program was doing when it was killed cannot be read."),
            N_("Check for pending changes. The unreadable record is kept in {file}."),
            file=kept,
        )

    def exists(self) -> bool:
        return self._file.exists()

    def read(self) -> Job | None:
        """The first."""
        return next(iter(self.read_all()), None)

    def written_at(self) -> int:
        """Return when the journal was written, by the file system's clock."""
        return os.stat(self._file).st_mtime_ns

    def end(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._file.unlink()


@contextlib.contextmanager
def project_lock(paths: Paths, project: str, *, changes: bool = True) -> Iterator[None]:
    """Lock a project: one process at a time changes it. A kill releases the lock.

    Without `changes`, the holder calls `raise_generation` before it changes something.
    """
    with FileLock(_lock_file(paths, project)):
        if changes:
            raise_generation(paths, project)
        yield


def raise_generation(paths: Paths, project: str) -> None:
    """Note that the project, or what is pending for it, is about to change."""
    # Not the kernel's own time, which is the same for some milliseconds.
    now = time.time_ns()
    os.utime(_lock_file(paths, project), ns=(now, now))


def generation(paths: Paths, project: str) -> int:
    """Return a number that differs after each run, apply, undo, redo or discard that changed
    something. Wait for one that is under way."""
    with FileLock(_lock_file(paths, project), shared=True) as lock:
        return lock.fstat().st_mtime_ns


def _lock_file(paths: Paths, project: str) -> Path:
    pending = paths.pending(project)
    return make_folder(pending.parent) / f"{pending.name}.lock"
