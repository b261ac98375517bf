# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox project`"""

from __future__ import annotations

import argparse
import os

from ...database.tables import Project
from ...engine.move import move_project
from ...errors import ProjectError
from ...paths import Paths
from ...permission.store import RuleStore
from ...project.projects import ProjectManager
from ...text.ansi import escape_line
from ..streams import print_notices


def project(given: argparse.Namespace) -> int:
    manager = ProjectManager(Paths.from_environ(os.environ))
    rules = RuleStore(manager.paths)
    try:
        moved = move_project(manager, rules, _find(manager, given.old), given.new)
        print(f"The project is now in {escape_line(moved.path)}.")
    finally:
        print_notices(*manager.store.notices, *rules.take_notices())
        manager.close()
    return 0


def _find(manager: ProjectManager, folder: str) -> Project:
    # A link may be in the folder's place, or only in the place of one of its parents.
    for path in (os.path.abspath(folder), os.path.realpath(folder)):
        try:
            return manager.recorded_project(path)
        except ProjectError:
            continue
    raise ProjectError(
        f"{escape_line(folder)} is not a known project.",
        "`ollmsandbox history --all` shows the folders of all projects.",
    )
