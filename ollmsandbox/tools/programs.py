# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds out which well-known programs a command can use."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..paths import Paths, is_inside
from ..sandbox.plan.folders import EMPTY_FOLDERS
from ..sandbox.plan.masks import hidden_paths
from ..sandbox.profile.profile import Profile
from ..sandbox.rootfs.packages import KNOWN_PROGRAMS, programs_in
from .context import ToolContext


def programs_of(context: ToolContext) -> list[str]:
    """Return the programs in the system that the project's commands run in."""
    rootfs = context.rootfs()
    if rootfs is not None:
        return programs_in(rootfs)
    return find_programs(context.profile(), context.paths, context.environ, context.project)


def find_programs(
    profile: Profile, paths: Paths, environ: Mapping[str, str], project: str | None
) -> list[str]:
    """Return the programs in those folders of PATH that a command can see."""
    unseen = (*EMPTY_FOLDERS, *hidden_paths(profile, paths, environ))
    folders = []
    for folder in profile.environment(environ).get("PATH", os.defpath).split(":"):
        real = os.path.realpath(folder)
        in_project = project is not None and is_inside(real, project)
        in_home = is_inside(real, paths.real_home) and not is_inside(
            real, *unseen[len(EMPTY_FOLDERS) :]
        )
        if folder.startswith("/") and (in_project or in_home or not is_inside(real, *unseen)):
            folders.append(folder)
    return [name for name in KNOWN_PROGRAMS if any(_is_program(f"{f}/{name}") for f in folders)]


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
