# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox project`"""

from __future__ import annotations

import argparse
import os

from ...engine.move import move_project
from ...errors import ProjectError
from ...paths import Paths
from ...permission.rule_store import RuleStore
from ...project.database.models import Project
from ...project.manager import ProjectManager
from ...text.ansi import escape_line
from ..streams import complain

_MOVE_HELP = """\
Tell OLLM Sandbox that you have moved or renamed a project's folder. Its history, pending changes,
sessions and saved answers move along. Move the folder itself first, and close the project's
sessions.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    move = actions.add_parser(
        "move", help="record the new place of a folder that you moved", description=_MOVE_HELP
    )
    move.add_argument("old", metavar="OLD", help="where the project's folder was")
    move.add_argument("new", metavar="NEW", help="where it is now")


def project(given: argparse.Namespace) -> int:
    manager = ProjectManager(Paths.from_environ(os.environ))
    rules = RuleStore(manager.paths)
    try:
        moved = move_project(manager, rules, _find(manager, given.old), given.new)
        print(f"The project is now in {escape_line(moved.path)}.")
    finally:
        for notice in (*manager.notices, *rules.take_notices()):
            complain(notice)
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
