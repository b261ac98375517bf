# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuses to take a link for a project if a command may have made it.

Commands may write to the folder that is opened. A link in a project could lead anywhere by now.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Mapping

from .. import N_
from ..errors import ProjectError
from ..files.dirfd import follow_links, link_target
from ..paths import Paths, is_inside, real_path


def check_links(folder: str | os.PathLike[str], paths: Paths) -> None:
    """Raise ProjectError if the way to a folder leads through a link inside a known project, or
    anywhere else where commands can write. The database is not opened if there is no link."""
    given = os.fspath(folder)
    if not given.startswith("/"):
        given = f"{current_folder(os.environ)}/{given}"
    links = _links_on_the_way(given)
    if not links:
        return
    places = [real_path(paths.playground), *map(real_path, paths.own), *_known_roots(paths)]
    for link, around in links:
        if is_inside(around, *places):
            raise ProjectError(
                N_("{link} is a link that a command may have made. It leads to {folder}."),
                N_("If you want commands to change that folder, open it by its own path."),
                link=link,
                folder=os.path.realpath(folder),
            )


def check_readable(folder: str) -> None:
    """Raise ProjectError if nobody can list a folder: before it becomes a project."""
    try:
        os.scandir(folder).close()
        # Root can list it all the same, but none of its commands can.
        is_closed = not os.stat(folder).st_mode & (stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
        why = os.strerror(errno.EACCES) if is_closed else ""
    except OSError as error:
        why = error.strerror or str(error)
    if why:
        raise ProjectError(
            N_("{folder} cannot be read: {why}."),
            N_("Change its permissions, or choose another folder."),
            folder=folder,
            why=why,
        )


def current_folder(environ: Mapping[str, str]) -> str:
    """Return the current folder by the path that the user took, with the links in it."""
    current = os.getcwd()
    named = environ.get("PWD", "")
    if not named.startswith("/") or named == current:
        return current
    with contextlib.suppress(OSError, ValueError):
        return named if os.path.samefile(named, current) else current
    return current


def _links_on_the_way(path: str) -> list[tuple[str, str]]:
    """Return each link that is followed, and the folder it is in, with links resolved."""
    found: list[tuple[str, str]] = []

    def target_of(place: str) -> str | None:
        target = link_target(place)
        found.extend([(place, os.path.dirname(place))] if target is not None else [])
        return target

    with contextlib.suppress(OSError, ValueError):  # who opens it reports that
        follow_links(path, target_of)
    return found


def _known_roots(paths: Paths) -> list[str]:
    """Return the projects, and the folders outside them that their commands may change."""
    if not paths.database.exists():
        return []
    from ..database.tables import ApprovedRoot, Project
    from .projects import ProjectManager

    with contextlib.closing(ProjectManager(paths)) as manager, manager.store.translated_errors():
        return [one.path for kind in (Project, ApprovedRoot) for one in kind.select()]
