# SPDX-License-Identifier: GPL-3.0-or-later
"""A process that makes backups and records of many changes while this one still applies them.

It is a process because two threads of one Python only take turns: 20,000 replaced files take 1.7 s
this way, and 3.3 s otherwise (build-aux/bench changes). The journal contains the changes:
the process receives only which were applied, and the versions that were found. If it fails, its
caller does the work; if the caller is killed, the process ends, too, and whoever finds the journal
continues. Everything it writes may be written twice.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

import peewee

from ...files.dirfd import FOLDER, DirEntryAt, OpenTree
from ...paths import Paths, is_inside, real_path
from ..changes.change import MANY, Kind, Recorded, State
from ..database import backups, runs
from ..database.models import Project
from ..manager import ProjectManager
from .journal import Journal

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class RecordJob:
    paths: Paths
    project: int
    # The run's folder, which has the journal.
    folder: str
    # The layer that receives the earlier versions.
    layer: str
    # The process id of the caller.
    sender: int


# The answer when everything is recorded.
DONE = b"done"


def main() -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        # Sent to the whole group; the caller ends in order.
        signal.signal(number, signal.SIG_IGN)
    # There are many things, and none of them goes before the end.
    gc.disable()
    job: RecordJob | None = pickle.load(sys.stdin.buffer) or None
    if job is None or os.getppid() != job.sender:
        return  # not needed, or the caller was killed before the prctl
    writer = _RecordWriter(job)
    for applied in _orders(sys.stdin.buffer):
        writer.write(applied)
    # The caller does not wait for the rest, and may exit.
    libc.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), DONE)
        os.close(sys.stdout.fileno())
    if writer.count >= MANY:
        # As file systems do by themselves when one file is renamed over another, and not when they
        # change places: after a power cut a new file could be empty.
        libc.syncfs(os.open(job.paths.versions, FOLDER))
        writer.tidy()


AppliedItems = Sequence[tuple[int, str, str]]


def _orders(line: IO[bytes]) -> Iterator[AppliedItems]:
    while applied := pickle.load(line):
        yield applied


class _RecordWriter:
    def __init__(self, job: RecordJob) -> None:
        self.count = 0
        self._manager = ProjectManager(job.paths)
        self._manager.store.write_back_later()
        self._project = Project(id=job.project)
        planned = Journal.of_run(job.folder).read()
        assert planned is not None
        self._run_id = planned.run_id
        self._items = {item.number: item for item in planned.items}
        self._versions = os.open(job.paths.versions / planned.run_id, FOLDER)
        self._tree = OpenTree(job.layer)
        self._last, self._around = "", self._tree.folder("")

    def write(self, applied: AppliedItems) -> None:
        items = []
        for number, before, after in applied:
            _, change, _, note, began, _, _ = self._items[number]
            items.append(Recorded(number, change, State.APPLIED, note, began, before, after))
        with self._manager.store.transaction():
            backups.back_up_found(self._manager, self._project, items, self._find)
            runs.write_changes(self._manager, self._run_id, items)
        self.count += len(items)

    def tidy(self) -> None:
        self._manager.store.write_back()

    def _find(self, item: Recorded) -> DirEntryAt:
        if item.change.kind is Kind.DELETED and not item.change.inode:
            return DirEntryAt(self._versions, str(item.number))
        folder, _, name = item.change.path.rpartition("/")
        if folder != self._last:
            self._last, self._around = folder, self._tree.folder(folder)
        return DirEntryAt(self._around, name)


# A command may have put modules into any folder that we search: Python's own come first, and only
# what each of the two folders is there for is loaded while it is searched.
_MAIN = """\
import sys
sys.path.append(sys.argv[1])
import peewee
sys.path[-1] = sys.argv[2]
from ollmsandbox.project.apply.record_process import main
main()
"""
# In bytes, as much as anybody may have: while the process starts, its caller need not wait.
_PIPE = 1 << 20


class RecordProcess:
    """Starts the process early, and gives it work from `start()` on."""

    def __init__(self) -> None:
        folders = [str(Path(file).parent) for file in (peewee.__file__, Path(__file__).parents[2])]
        utf_8 = f"utf8={sys.flags.utf8_mode}"
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", utf_8, "-c", _MAIN, *folders],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # somebody has many pipes; then we wait now and then
            fcntl.fcntl(self._process.stdin, fcntl.F_SETPIPE_SZ, _PIPE)
        # The numbers of what needs nothing more, if it is done.
        self.recorded: set[int] = set()
        self.is_done = False
        self._is_waited_for = False

    @classmethod
    def spawn(cls, writable: Iterable[str]) -> RecordProcess | None:
        """Return None if a command can change the program, or if it cannot be started."""
        needed = (sys.executable, peewee.__file__, __file__)
        places = [*needed, *map(real_path, needed)]
        if any(is_inside(path, *writable) for path in places):
            return None
        try:
            return cls()
        except OSError:
            # Memory is short, or Python was replaced meanwhile.
            return None

    def start(self, job: RecordJob) -> None:
        """Begin a job. Its journal must be written already."""
        self._send(job)

    def put(self, items: Sequence[Recorded]) -> None:
        if items:
            self._send([(item.number, item.before, item.after) for item in items])
            self.recorded.update(item.number for item in items)

    def wait(self) -> None:
        """Wait until the process has recorded everything, or has failed."""
        if self._is_waited_for:
            return
        self._is_waited_for = True
        self._send([])
        assert self._process.stdout is not None
        with self._process.stdout as answer:
            self.is_done = answer.read() == DONE
        # It may still write to the disk. Nobody waits for that, nor is kept from leaving.
        threading.Thread(target=_wait_for_exit, args=(self._process,), daemon=True).start()

    def __enter__(self) -> RecordProcess:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.wait()

    def _send(self, words: object) -> None:
        assert self._process.stdin is not None
        # One that gave up has not done it all in the end.
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(words, self._process.stdin)
            self._process.stdin.flush()


def _wait_for_exit(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.wait()
