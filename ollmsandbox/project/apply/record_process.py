# SPDX-License-Identifier: GPL-3.0-or-later
"""Backups and records of what was applied, made while the rest still is: by a clerk, which is a
process of its own, since two threads of one Python only take turns. If it fails, who sent it does
its work.

The process that makes backups and records of many changes, while another one still applies them.
The journal has the changes already: it is told only which were applied, and what was found.

It ends with who sent it: what is left is then done by who finds the journal. If it fails, what it
had to do is done by who sent it. All that it writes may be written again.

Backups and records of what was applied, made while the rest still is: by a clerk, which is a
process of its own, since two threads of one Python only take turns. If it fails, who sent it does
its work.
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
class Errand:
    paths: Paths
    project: int
    # The run's folder, which has the journal.
    folder: str
    # What the earlier versions come to be in.
    layer: str
    # Who sends it.
    sender: int


# What it says when all is recorded.
DONE = b"done"


def main() -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        # Meant for all at once, and who sent us leaves in order.
        signal.signal(number, signal.SIG_IGN)
    # There are many things, and none of them goes before the end.
    gc.disable()
    errand: Errand | None = pickle.load(sys.stdin.buffer) or None
    if errand is None or os.getppid() != errand.sender:
        return  # not needed; or who sends us was gone before we could be taken along
    desk = _Desk(errand)
    for told in _orders(sys.stdin.buffer):
        desk.write(told)
    # Nobody waits for the rest, and who sent us may go.
    libc.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), DONE)
        os.close(sys.stdout.fileno())
    if desk.count >= MANY:
        # As file systems do by themselves when one file is renamed over another, and not when they
        # change places: after a power cut a new file could be empty.
        libc.syncfs(os.open(errand.paths.versions, FOLDER))
        desk.tidy()


Told = Sequence[tuple[int, str, str]]


def _orders(line: IO[bytes]) -> Iterator[Told]:
    while told := pickle.load(line):
        yield told


class _Desk:
    def __init__(self, errand: Errand) -> None:
        self.count = 0
        self._manager = ProjectManager(errand.paths)
        self._manager.store.write_back_later()
        self._project = Project(id=errand.project)
        job = Journal.of_run(errand.folder).read()
        assert job is not None
        self._run_id = job.run_id
        self._items = {item.number: item for item in job.items}
        self._versions = os.open(errand.paths.versions / job.run_id, FOLDER)
        self._tree = OpenTree(errand.layer)
        self._last, self._around = "", self._tree.folder("")

    def write(self, told: Told) -> None:
        items = []
        for number, before, after in told:
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
# In bytes, as much as anybody may have: while the clerk gets ready, nobody waits for it.
_PIPE = 1 << 20


class Alongside:
    """A clerk that gets ready, and is at work from `begin()` on as long as it is used."""

    def __init__(self) -> None:
        folders = [str(Path(file).parent) for file in (peewee.__file__, Path(__file__).parents[2])]
        utf_8 = f"utf8={sys.flags.utf8_mode}"
        self._clerk = subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", utf_8, "-c", _MAIN, *folders],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        assert self._clerk.stdin is not None
        with contextlib.suppress(OSError):  # somebody has many pipes; then we wait now and then
            fcntl.fcntl(self._clerk.stdin, fcntl.F_SETPIPE_SZ, _PIPE)
        # The numbers of what needs nothing more, if it is done.
        self.recorded: set[int] = set()
        self.is_done = False
        self._is_waited_for = False

    @classmethod
    def call(cls, writable: Iterable[str]) -> Alongside | None:
        """None if there cannot be one: a program that a command can change is not started."""
        needed = (sys.executable, peewee.__file__, __file__)
        places = [*needed, *map(real_path, needed)]
        if any(is_inside(path, *writable) for path in places):
            return None
        try:
            return cls()
        except OSError:
            # Memory is short, or Python was replaced meanwhile.
            return None

    def begin(self, errand: Errand) -> None:
        """Once the journal is there."""
        self._tell(errand)

    def put(self, items: Sequence[Recorded]) -> None:
        if items:
            self._tell([(item.number, item.before, item.after) for item in items])
            self.recorded.update(item.number for item in items)

    def wait(self) -> None:
        """Until all is done, or it has failed."""
        if self._is_waited_for:
            return
        self._is_waited_for = True
        self._tell([])
        assert self._clerk.stdout is not None
        with self._clerk.stdout as answer:
            self.is_done = answer.read() == DONE
        # It may still write to the disk. Nobody waits for that, nor is kept from leaving.
        threading.Thread(target=_see_off, args=(self._clerk,), daemon=True).start()

    def __enter__(self) -> Alongside:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.wait()

    def _tell(self, words: object) -> None:
        assert self._clerk.stdin is not None
        # One that gave up has not done it all in the end.
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(words, self._clerk.stdin)
            self._clerk.stdin.flush()


def _see_off(clerk: subprocess.Popen[bytes]) -> None:
    assert clerk.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        clerk.stdin.close()
    clerk.wait()
