# SPDX-License-Identifier: GPL-3.0-or-later
"""A project's folder: the roots a command may change, and the folders its links lead to."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from ...files.ignore import GENERATED, IgnoredPaths
from ...paths import is_inside
from ..projects import ProjectManager
from ..recorder import linked_roots
from ..roots import may_be_root
from .file_records import FoundFiles, found_files, scan_project


@dataclass(frozen=True)
class LinkedFolder:
    """A folder outside the project, and the links (from the project) that lead there."""

    path: str
    links: tuple[str, ...]
    can_be_approved: bool


class Folder:
    def __init__(self, path: str, manager: ProjectManager) -> None:
        self.path = os.path.realpath(path)
        self.manager = manager

    def build_roots(self) -> tuple[str, ...]:
        """Return the folders that commands may change, the project first; none is inside another.

        The others are the approved folders outside the project, and for a worktree of git the
        repository it belongs to.
        """
        return (self.path, *linked_roots(self.manager.paths, self.path))

    def linked_folders(self) -> list[LinkedFolder]:
        """Return the folders outside that links led to in the last scan, if not approved."""
        roots = self.build_roots()
        found: dict[str, list[str]] = {}
        for link, target in self._found.links:
            if not is_inside(target, *roots):
                found.setdefault(target, []).append(link)
        return [
            LinkedFolder(
                target, tuple(sorted(paths)), may_be_root(self.manager.paths, self.path, target)
            )
            for target, paths in sorted(found.items())
        ]

    async def scan(self) -> None:
        """Look through the project in a thread, which stops if this is cancelled."""
        is_over = threading.Event()
        try:
            await asyncio.to_thread(self._scan, is_over.is_set)
        finally:
            is_over.set()

    def _scan(self, is_stopped: Callable[[], bool]) -> None:
        try:
            scan_project(self.manager, self.path, is_stopped)
        finally:
            # Close this thread's connection: the thread may never need it again.
            self.manager.store.close()

    @property
    def _found(self) -> FoundFiles:
        return found_files(self.manager.paths.scan_cache(self.path))

    def find_files(self, text: str, most: int = 50) -> list[str]:
        """Return files of the project, as paths in it, whose paths contain a text in any case.

        Those with a name that begins with it come first, then the shorter ones. They are those of
        the last scan and of runs since, without what git ignores and what is made from other files:
        with 100,000 files, that takes 0.2 s, so call it in a thread.
        """
        project, top = self.manager.find_project(self.path), f"{self.path.rstrip('/')}/"
        known = set(self._found.files)
        for path, is_deleted in self.manager.recorded_files(project) if project else ():
            if path.startswith(top):
                (known.discard if is_deleted else known.add)(path.removeprefix(top))
        wanted, ignored = text.lower(), IgnoredPaths(self.path, GENERATED)
        ranked = [
            (f"/{wanted}" not in f"/{lower}", len(path), path)
            for path in known
            if wanted in (lower := path.lower())
        ]
        found = (path for _, _, path in sorted(ranked))
        return list(islice((p for p in found if not ignored.covers(p, is_folder=False)), most))
