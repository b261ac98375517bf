# SPDX-License-Identifier: GPL-3.0-or-later
"""Linked roots: folders outside the project that its links lead to, and the user can approve."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .. import N_
from ..errors import ProjectError
from ..i18n import _, pgettext
from ..paths import is_inside
from ..permission.request import Fact, PermissionRequest
from ..project.recorder import linked_roots
from ..project.roots import may_be_root
from ..sandbox.plan.folders import find_project
from ..sandbox.plan.masks import hidden_paths
from ..sandbox.rootfs.paths import PathMap
from ..text.ansi import escape_line
from . import questions
from .context import ToolContext


@dataclass(frozen=True)
class ClosedFolder:
    """A folder outside the project that a link leads to, and commands cannot change."""

    path: str
    link: str


def closed_working_dir(context: ToolContext, project: str, working_dir: str) -> ClosedFolder | None:
    """Return the folder to ask about before a command starts in `working_dir`."""
    if not working_dir or working_dir == "playground":
        return None
    path = os.path.normpath(os.path.join(project, working_dir))
    if context.rootfs() is not None:
        path = PathMap.of(context.paths, project).to_host(path) or path
    return closed_folder(context, project, path)


def closed_folder(context: ToolContext, project: str, path: str) -> ClosedFolder | None:
    """Return the folder to ask about before something in the folder `path` changes."""
    if not is_inside(path, project) or is_inside(os.path.realpath(path), project):
        return None
    # Find the link that leaves the project.
    here = project
    for name in path[len(project) + 1 :].split("/"):
        here = f"{here}/{name}"
        real = os.path.realpath(here)
        if not is_inside(real, project):
            return ClosedFolder(real, here) if _may_be_asked(context, project, real) else None
    return None


def _may_be_asked(context: ToolContext, project: str, folder: str) -> bool:
    """Return False for folders that are approved already, not allowed, or contain secrets."""
    if is_inside(folder, *linked_roots(context.paths, project)):
        return False
    try:
        find_project(folder, context.paths)
    except ProjectError:
        return False
    hidden = hidden_paths(context.profile(), context.paths, context.environ)
    if is_inside(folder, *hidden):
        return False
    if any(is_inside(name, folder) and os.path.lexists(name) for name in hidden):
        return False
    return may_be_root(context.paths, project, folder)


def root_question(
    context: ToolContext, closed: ClosedFolder, first: str, call_id: str
) -> PermissionRequest:
    """Return the question about a folder; `first` is the command that needs it."""
    return questions.make_request(
        context,
        "agree_root",
        N_("Let this project's commands change a folder outside the project?"),
        closed.path,
        for_project=True,
        facts=[
            # Translators: names a line of the card: "Linked from   ~/src/parser/data"
            Fact(pgettext("permission card", "Linked from"), context.shown(closed.link)),
            Fact(
                # Translators: names a line of the card: "Applies to   All commands of this ..."
                pgettext("permission card", "Applies to"),
                _("All commands of this project, until you remove the folder"),
                is_wording=True,
            ),
            # Translators: names a line of the card: "First command   make test"
            Fact(pgettext("permission card", "First command"), escape_line(first)),
        ],
        call_id=call_id,
    )


def approve_root(context: ToolContext, project: str, root: str) -> None:
    from ..project.projects import ProjectManager

    manager = ProjectManager(context.paths)
    try:
        manager.approve_root(manager.add_project(project), root)
    finally:
        manager.close()
