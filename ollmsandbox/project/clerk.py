# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that makes backups and records of many changes, while another one still applies them.
The journal has the changes already: it is told only which were applied, and what was found.

It ends with who sent it: what is left is then done by who finds the journal. If it fails, what it
had to do is done by who sent it. All that it writes may be written again.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from ..paths import Paths
from . import backup, records
from .change import Kind, Recorded, State
from .exchange import Spot
from .journal import Journal
from .layers import FOLDER
from .manager import ProjectManager
from .models import Project
from .recorder import MANY
from .tree import Tree

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
        self._tree = Tree(errand.layer)
        self._last, self._around = "", self._tree.folder("")

    def write(self, told: Told) -> None:
        items = []
        for number, before, after in told:
            _, change, _, note, began, _, _ = self._items[number]
            items.append(Recorded(number, change, State.APPLIED, note, began, before, after))
        with self._manager.store.transaction():
            backup.back_up_found(self._manager, self._project, items, self._find)
            records.write_changes(self._manager, self._run_id, items)
        self.count += len(items)

    def tidy(self) -> None:
        self._manager.store.write_back()

    def _find(self, item: Recorded) -> Spot:
        if item.change.kind is Kind.DELETED and not item.change.inode:
            return Spot(self._versions, str(item.number))
        folder, _, name = item.change.path.rpartition("/")
        if folder != self._last:
            self._last, self._around = folder, self._tree.folder(folder)
        return Spot(self._around, name)
