# SPDX-License-Identifier: GPL-3.0-or-later
"""Linked roots: folders outside the project that its links lead to, and the user can approve."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass

from ..errors import ProjectError
from ..paths import is_inside
from ..project.recorder import linked_roots
from ..project.roots import may_be_root
from ..sandbox.plan.folders import find_project
from ..sandbox.plan.masks import hidden_paths
from ..sandbox.rootfs.paths import PathMap
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


def approve_root(context: ToolContext, project: str, root: str) -> None:
    from ..project.projects import ProjectManager

    with closing(ProjectManager(context.paths)) as manager:
        manager.approve_root(manager.add_project(project), root)
