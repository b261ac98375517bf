# SPDX-License-Identifier: GPL-3.0-or-later
"""A project's folder: the roots a command may change, and the folders its links lead to."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

from ..paths import is_inside
from .database.models import FoundLink
from .manager import ProjectManager
from .scan import Scan, Scanner, ScanProgress


@dataclass(frozen=True)
class LinkedFolder:
    """A folder outside the project, and the links (from the project) that lead there."""

    path: str
    links: tuple[str, ...]
    can_be_agreed: bool


class Folder:
    def __init__(self, path: str, manager: ProjectManager) -> None:
        self.path = os.path.realpath(path)
        self.manager = manager

    def build_roots(self) -> tuple[str, ...]:
        """The project, then the agreed folders outside it; none lies in another. Costs no walk."""
        roots = [self.path]
        project = self.manager.find_project(self.path)
        for agreed in self.manager.agreed_roots(project) if project else ():
            # Where a link took its place, this is not the folder the person agreed to.
            if os.path.realpath(agreed) != agreed or not os.path.isdir(agreed):
                continue
            if not self.manager.may_be_root(self.path, agreed):
                continue
            # They come in order, an outer one before those in it.
            if not is_inside(agreed, *roots):
                roots.append(agreed)
        return tuple(roots)

    def linked_folders(self) -> list[LinkedFolder]:
        """What the last scan found outside the project and nobody has agreed to."""
        project = self.manager.find_project(self.path)
        if project is None:
            return []
        roots = self.build_roots()
        found: dict[str, list[str]] = {}
        with self.manager.store.errors_told():
            links = FoundLink.select().where(FoundLink.project == project.id)
            for link in links.order_by(FoundLink.target, FoundLink.path):
                if not is_inside(link.target, *roots):
                    found.setdefault(link.target, []).append(link.path)
        return [
            LinkedFolder(target, tuple(paths), self.manager.may_be_root(self.path, target))
            for target, paths in found.items()
        ]

    async def scan(
        self,
        progress: Callable[[ScanProgress], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Scan:
        """Bring the records up to date. `progress` is called where this is awaited."""
        loop = asyncio.get_running_loop()
        abandoned = threading.Event()

        def tell(state: ScanProgress) -> None:
            if progress is not None and not abandoned.is_set():
                loop.call_soon_threadsafe(progress, state)

        def is_stopped() -> bool:
            return abandoned.is_set() or (cancel is not None and cancel.is_set())

        scanner = Scanner(self.manager, self.path, tell, is_stopped)
        try:
            scan = await asyncio.to_thread(scanner.run)
        finally:
            abandoned.set()
        if progress is not None:
            progress(ScanProgress(scan.folders, scan.files, is_done=True))
        return scan
