# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox roots`"""

from __future__ import annotations

import argparse
import os
from contextlib import closing

from ... import loop
from ...database.tables import Project
from ...engine.roots import open_to_commands
from ...errors import OllmSandboxError
from ...paths import Paths, is_inside
from ...project.projects import ProjectManager
from ...project.records.folder import Folder
from ...text.ansi import escape_line
from ..arguments import find_given_project


def roots(given: argparse.Namespace) -> int:
    paths = Paths.from_environ(os.environ)
    with closing(ProjectManager(paths)) as manager:
        project = manager.add_project(find_given_project(given.project or None, paths))
        if given.action == "list":
            if given.folder is not None:
                raise OllmSandboxError(
                    "`roots list` takes no folder.", "Use: ollmsandbox roots list --project DIR"
                )
            return _list(Folder(project.path, manager), manager.approved_roots(project))
        if not given.folder:
            raise OllmSandboxError(
                "No folder was given.", f"Use: ollmsandbox roots {given.action} DIR"
            )
        if given.action == "add":
            open_to_commands(manager, os.environ, project, given.folder)
        else:
            _remove(manager, project, given.folder)
    return 0


def _remove(manager: ProjectManager, project: Project, folder: str) -> None:
    before = manager.approved_roots(project)
    manager.revoke(project, folder)
    if manager.approved_roots(project) == before:
        raise OllmSandboxError(
            f"{escape_line(folder)} was not added.",
            "`ollmsandbox roots list` shows the folders that were.",
        )


def _list(folder: Folder, approved: list[str]) -> int:
    roots = folder.build_roots()
    for root in roots:
        print(escape_line(root))
    for root in approved:
        if not is_inside(root, *roots):
            print(f"{escape_line(root)}  (added, but it is not there now)")
    loop.run(folder.scan())
    for found in folder.linked_folders():
        if found.can_be_approved:
            print(f"{escape_line(found.path)}  (linked, but commands cannot change it)")
    return 0
