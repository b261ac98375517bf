# SPDX-License-Identifier: GPL-3.0-or-later
"""Linked roots: folders outside the project that its links lead to, and the user can approve."""

from __future__ import annotations

import os

from ..errors import ProjectError
from ..paths import is_inside
from ..project.apply.recorder import linked_roots
from ..sandbox.plan.folders import find_project
from ..sandbox.plan.masks import hidden_paths
from ..sandbox.rootfs.paths import PathMap
from .context import ToolContext


def new_root(context: ToolContext, project: str, working_dir: str) -> str:
    """Return the folder to ask about before a command starts in `working_dir`, or ""."""
    if not working_dir or working_dir == "playground":
        return ""
    path = os.path.normpath(os.path.join(project, working_dir))
    if context.rootfs() is not None:
        path = PathMap.of(context.paths, project).to_host(path) or path
    if not is_inside(path, project) or is_inside(os.path.realpath(path), project):
        return ""
    # Find the link that leaves the project.
    here = project
    for name in path[len(project) + 1 :].split("/"):
        here = f"{here}/{name}"
        real = os.path.realpath(here)
        if not is_inside(real, project):
            return real if _may_be_asked(context, project, real) else ""
    return ""


def _may_be_asked(context: ToolContext, project: str, folder: str) -> bool:
    """Return False for folders that are approved already, not allowed, or contain secrets."""
    from ..project.manager import ProjectManager

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
    return ProjectManager(context.paths).may_be_root(project, folder)


def approve_root(context: ToolContext, project: str, root: str) -> None:
    from ..project.manager import ProjectManager

    manager = ProjectManager(context.paths)
    try:
        manager.approve_root(manager.add_project(project), root)
    finally:
        manager.close()
