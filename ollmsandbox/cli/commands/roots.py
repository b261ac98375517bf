# SPDX-License-Identifier: GPL-3.0-or-later
"""`ollmsandbox roots`"""

from __future__ import annotations

import argparse
import os

from ... import loop
from ...errors import OllmSandboxError, ProjectError
from ...paths import Paths, is_inside
from ...project.database.models import Project
from ...project.folder import Folder
from ...project.manager import ProjectManager
from ...project.opening import check_links
from ...sandbox.plan.folders import find_project
from ...sandbox.plan.host import path_and_parents
from ...sandbox.plan.masks import hidden_paths
from ...sandbox.profile.file import DEFAULT_PROFILE, read_profile
from ...text.ansi import escape_line
from ..arguments import default_project


def roots(given: argparse.Namespace) -> int:
    paths = Paths.from_environ(os.environ)
    manager = ProjectManager(paths)
    try:
        named = given.project or default_project(os.environ)
        check_links(named, paths)
        project = manager.add_project(find_project(named, paths))
        if given.action == "list":
            if given.folder is not None:
                raise OllmSandboxError(
                    "`roots list` takes no folder.", "Use: ollmsandbox roots list --project DIR"
                )
            return _list(Folder(project.path, manager))
        if not given.folder:
            raise OllmSandboxError(
                "No folder was given.", f"Use: ollmsandbox roots {given.action} DIR"
            )
        if given.action == "add":
            _check_outside(given.folder, project.path)
            _check_visible(given.folder, paths)
            manager.approve_root(project, given.folder)
        else:
            _remove(manager, project, given.folder)
    finally:
        manager.close()
    return 0


def _remove(manager: ProjectManager, project: Project, folder: str) -> None:
    before = manager.approved_roots(project)
    manager.revoke(project, folder)
    if manager.approved_roots(project) == before:
        raise OllmSandboxError(
            f"{escape_line(folder)} was not added.",
            "`ollmsandbox roots list` shows the folders that were.",
        )


def _check_visible(folder: str, paths: Paths) -> None:
    """Raise now, and not when the next command starts."""
    profile = read_profile(DEFAULT_PROFILE, paths.profiles, paths.cache)
    real = os.path.realpath(folder)
    for name in set(hidden_paths(profile, paths, os.environ)).intersection(path_and_parents(real)):
        raise ProjectError(
            f"{real} cannot be opened to commands: they may not see {name}.",
            "Choose another folder, or name it under `show` in your profile.",
        )


def _check_outside(folder: str, project: str) -> None:
    real = os.path.realpath(folder)
    if real != project and is_inside(real, project):
        raise OllmSandboxError(
            f"{escape_line(real)} is in the project, so commands can change it anyway."
        )


def _list(folder: Folder) -> int:
    for root in folder.build_roots():
        print(escape_line(root))
    loop.run(folder.scan())
    for found in folder.linked_folders():
        if found.can_be_approved:
            print(f"{escape_line(found.path)}  (linked, but commands cannot change it)")
    return 0
