# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the secrets of other projects, such as `.env`, which a project's commands do not see.

To search the whole home folder would take too long. So these are the projects that commands ran in,
and the folders beside the project.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
from collections.abc import Iterable, Sequence

from ...files.atomic import write_atomically
from ...paths import FolderSet, Paths
from ..profile.profile import Profile
from .masks import list_names


def other_projects(paths: Paths, project: str) -> tuple[str, ...]:
    """Return the projects that commands ran in, without this one, which is added to the list."""
    # A file of its own: a command starts without the database.
    file = paths.data / "projects.json"
    known: list[str] = []
    with contextlib.suppress(OSError, ValueError):  # there is none yet, or it is started anew
        known = json.loads(file.read_text(encoding="utf-8"))
    if project not in known:
        known = [*filter(os.path.isdir, known), project]
        write_atomically(file, json.dumps(known))
    return tuple(path for path in known if path != project)


def secrets_of_others(
    profile: Profile, roots: Sequence[str], home: str, others: Iterable[str]
) -> list[str]:
    """Return the paths to hide in other projects, in the folders beside the first root, and in the
    folders around them. They need not exist."""
    plain = [name for name in profile.masks_in_other_projects if "*" not in name]
    starred = [name for name in profile.masks_in_other_projects if "*" in name]
    if not plain and not starred:
        return []
    around = os.path.dirname(roots[0])
    inside = FolderSet(roots)
    hidden: list[str] = []
    for folder in dict.fromkeys((home, around, *_beside(around), *others)):
        if folder in inside:
            continue
        try:
            found = os.lstat(folder)
        except OSError:
            continue
        names = {*plain}
        for name in list_names(folder, found).names if starred else ():
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in starred):
                names.add(name)
        hidden += (f"{folder}/{name}" for name in names.difference(profile.show_in_other_projects))
    return hidden


def _beside(around: str) -> list[str]:
    try:
        with os.scandir(around) as entries:
            # Not those with a dot: they are no projects, and a home folder has many.
            return [e.path for e in entries if e.name[0] != "." and e.is_dir(follow_symlinks=False)]
    except OSError:
        return []
