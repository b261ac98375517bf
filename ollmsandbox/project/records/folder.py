# SPDX-License-Identifier: GPL-3.0-or-later
"""A project's folder: the roots a command may change, and the folders its links lead to."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass
from itertools import islice

from ...database.tables import FoundLink
from ...files.ignore import GENERATED, IgnoredPaths
from ...paths import is_inside
from ..projects import ProjectManager, escape_like
from ..recorder import linked_roots
from ..roots import may_be_root
from .file_records import Scanner


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
        project = self.manager.find_project(self.path)
        if project is None:
            return []
        roots = self.build_roots()
        found: dict[str, list[str]] = {}
        with self.manager.store.translated_errors():
            links = FoundLink.select().where(FoundLink.project == project.id)
            for link in links.order_by(FoundLink.target, FoundLink.path):
                if not is_inside(link.target, *roots):
                    found.setdefault(link.target, []).append(link.path)
        return [
            LinkedFolder(target, tuple(paths), may_be_root(self.manager.paths, self.path, target))
            for target, paths in found.items()
        ]

    async def scan(self) -> None:
        """Update the records in a thread, which stops if this is cancelled."""
        is_over = threading.Event()
        try:
            await asyncio.to_thread(Scanner(self.manager, self.path, is_over.is_set).run)
        finally:
            is_over.set()

    def find_files(self, text: str, most: int = 50) -> list[str]:
        """Return files of the project, as paths in it, whose paths contain a text in any case.

        Those with a name that begins with it come first, then the shorter ones. They are read from
        the records, without what git ignores and what is made from other files: with 100,000 files,
        that takes 0.1 s, so call it in a thread.
        """
        ignored = IgnoredPaths(self.path, GENERATED)
        project = self.manager.find_project(self.path)
        top = os.fsencode(self.path).rstrip(b"/") + b"/"
        plain = escape_like(text)
        with self.manager.store.translated_errors():
            rows = self.manager.store.connection.execute(
                "SELECT inner FROM (SELECT substr(path, :start) AS inner,"
                " CAST(substr(path, :start) AS TEXT) AS shown"
                " FROM filerecord WHERE project_id = :project AND NOT is_deleted"
                " AND path > :first AND path < :last) WHERE shown LIKE :anywhere ESCAPE '!'"
                " ORDER BY shown NOT LIKE :name ESCAPE '!' AND shown NOT LIKE :inside ESCAPE '!',"
                " length(inner), inner LIMIT :looked_at",
                {
                    "project": project.id if project else 0,
                    "start": len(top) + 1,
                    "first": top,
                    "last": top[:-1] + b"0",
                    "anywhere": f"%{plain}%",
                    "name": f"{plain}%",
                    "inside": f"%/{plain}%",
                    # Ignored ones are left out below. To sort all files takes a third longer.
                    "looked_at": most * 100,
                },
            )
            paths = (os.fsdecode(inner) for (inner,) in rows)
            wanted = (path for path in paths if not ignored.covers(path, is_folder=False))
            return list(islice(wanted, most))
