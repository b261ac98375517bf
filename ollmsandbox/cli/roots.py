# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox roots`"""

from __future__ import annotations

import argparse
import os

from .. import loop
from ..errors import OllmSandboxError
from ..paths import Paths
from ..project.folder import Folder
from ..project.manager import ProjectManager
from ..sandbox.places import find_project
from .here import default_project
from .words import plain


def roots(given: argparse.Namespace) -> int:
    paths = Paths.from_environ(os.environ)
    manager = ProjectManager(paths)
    try:
        project = manager.project_for(
            find_project(given.project or default_project(os.environ), paths)
        )
        if given.action == "list":
            return _list(Folder(project.path, manager))
        if not given.folder:
            raise OllmSandboxError(
                "No folder is named.", f"Use: ollmsandbox roots {given.action} DIR"
            )
        if given.action == "add":
            manager.agree(project, given.folder)
        else:
            manager.revoke(project, given.folder)
    finally:
        manager.close()
    return 0


def _list(folder: Folder) -> int:
    for root in folder.build_roots():
        print(plain(root))
    loop.run(folder.scan())
    for found in folder.linked_folders():
        if found.can_be_agreed:
            print(f"{plain(found.path)}  (linked, but commands cannot change it)")
    return 0
