# SPDX-License-Identifier: GPL-3.0-or-later
"""Opens folders outside a project to its commands."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .. import N_
from ..database.tables import Project
from ..errors import ProjectError
from ..paths import is_inside
from ..project.projects import AnyPath, ProjectManager
from ..sandbox.plan.host import path_and_parents
from ..sandbox.plan.masks import hidden_paths
from ..sandbox.spec import RunSpec
from .run import load_profile


def open_to_commands(
    manager: ProjectManager, environ: Mapping[str, str], project: Project, folder: AnyPath
) -> None:
    """Let the project's commands change a folder, until it is revoked; raise if that is refused."""
    real = os.path.realpath(folder)
    if real != project.path and is_inside(real, project.path):
        raise ProjectError(
            N_("{folder} is in the project, so commands can change it anyway."), folder=real
        )
    # Now, and not when the next command starts.
    profile = load_profile(manager.paths, RunSpec(real))
    hidden = hidden_paths(profile, manager.paths, environ)
    for name in set(hidden).intersection(path_and_parents(real)):
        raise ProjectError(
            N_("{folder} cannot be opened to commands: they may not see {name}."),
            N_("Choose another folder, or name it under `show` in your profile."),
            folder=real,
            name=name,
        )
    manager.approve_root(project, folder)
