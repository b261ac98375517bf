# SPDX-License-Identifier: GPL-3.0-or-later
"""Backups and records of what was applied, made while the rest still is."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from . import backup, records
from .change import Kind, Recorded
from .exchange import Spot
from .layers import FOLDER
from .manager import NOTED_BEFORE, ProjectManager
from .models import Project
from .recorder import MANY
from .records import INSERT
from .tree import Tree

_FILES = f"""
INSERT INTO filerecord (id, project_id, path, is_deleted, last_approved_copy_path, seen_at)
SELECT json_extract(value, '$[9]'), ?1, CAST(?2 || '/' || json_extract(value, '$[1]') AS BLOB),
    json_extract(value, '$[2]') = 'deleted',
    CAST(?3 || '/' || json_extract(value, '$[10]') AS BLOB), ?4
FROM json_each(?5) WHERE true {NOTED_BEFORE}
"""
_CHANGES = f"""
{INSERT}
SELECT ?1, json_extract(value, '$[0]'), CAST(?2 AS BLOB),
    CAST(json_extract(value, '$[1]') AS BLOB), json_extract(value, '$[2]'), 'file',
    json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'), NULL,
    json_extract(value, '$[6]'), 'applied', '', ?3, json_extract(value, '$[7]'),
    json_extract(value, '$[8]')
FROM json_each(?4)
"""

# So many share a transaction; between two, others can write to the database.
AT_ONCE = 500


class Alongside:
    """In a thread of its own. What fails there is raised at the end."""

    def __init__(self, manager: ProjectManager, project: Project, run_id: str, layer: str) -> None:
        """The layer is the one that has the earlier versions."""
        self._manager = manager
        self._project = project
        self._run_id = run_id
        self._layer = layer
        self._waiting: queue.SimpleQueue[Sequence[Recorded]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="records")
        self._error: BaseException | None = None
        self._count = 0
        # The numbers of what needs nothing more.
        self.recorded: set[int] = set()

    def put(self, items: Sequence[Recorded]) -> None:
        if items:
            self._count += len(items)
            self._waiting.put(items)

    def wait(self) -> None:
        """Until all is done, or something has failed."""
        self._waiting.put(())
        self._thread.join()

    def __enter__(self) -> Alongside:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.wait()
        if self._count >= MANY:
            # By a daemon: nobody waits for it, nor is kept from leaving.
            folder = str(self._manager.paths.versions)
            threading.Thread(target=_write_back, args=(folder,), daemon=True).start()
        if kind is None and self._error is not None:
            raise self._error

    def _work(self) -> None:
        store = self._manager.store
        try:
            with contextlib.ExitStack() as opened:
                versions = os.open(self._manager.paths.versions / self._run_id, FOLDER)
                opened.callback(os.close, versions)
                tree = Tree(self._layer)
                opened.callback(tree.leave)
                while items := self._waiting.get():
                    self._record_all(items, tree, versions)
                    self.recorded.update(item.number for item in items)
        except BaseException as error:  # noqa: BLE001 - raised again by who waits for us
            self._error = error
        finally:
            store.close()

    def _record_all(self, items: Sequence[Recorded], tree: Tree, versions: int) -> None:
        last, around = "", tree.folder("")

        def find(item: Recorded) -> Spot:
            nonlocal last, around
            if item.change.kind is Kind.DELETED:
                return Spot(versions, str(item.number))
            folder, _, name = item.change.path.rpartition("/")
            if folder != last:
                last, around = folder, tree.folder(folder)
            return Spot(around, name)

        with self._manager.store.transaction():
            try:
                self._record(items, find)
            except UnicodeEncodeError:
                # A name that is no text: each by itself.
                backup.back_up_found(self._manager, self._project, items, find)
                records.write_changes(self._manager, self._run_id, items)

    def _record(self, items: Sequence[Recorded], find: Callable[[Recorded], Spot]) -> None:
        """As `back_up_found` and `write_changes` would, in two statements: while SQLite works, the
        other thread does, too."""
        manager, project, root = self._manager, self._project, items[0].change.root
        paths = [f"{root}/{item.change.path}" for item in items]
        numbers = manager.numbers_for(project, paths)
        names = backup.link_all(
            manager, zip(map(numbers.__getitem__, paths), items, strict=True), find
        )
        rows = [
            (
                item.number, change.path, change.kind._value_, change.mode, change.old_mode,
                change.old_type._value_ if change.old_type else "",
                " ".join(flag.value for flag in change.flags) if change.flags else "",
                item.before, item.after, numbers[path], name,
            )
            for path, name, item in zip(paths, names, items, strict=True)
            for change in (item.change,)
        ]  # fmt: skip
        text = json.dumps(rows, ensure_ascii=False, check_circular=False)
        around = str(manager.paths.backups)
        connection = manager.store.connection
        connection.execute(_FILES, (project.id, root, around, time.time(), text))
        connection.execute(_CHANGES, (self._run_id, root, items[0].began, text))


def _write_back(folder: str) -> None:
    """Have the disk written to now, as file systems do by themselves when one file is renamed over
    another, and not when they change places: after a power cut a new file could be empty. By
    another program, which does not mind if we are gone."""
    with contextlib.suppress(OSError):  # without it, it takes some seconds longer
        subprocess.run(
            ["sync", "--file-system", folder],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={"PATH": os.defpath},
            cwd="/",
        )
