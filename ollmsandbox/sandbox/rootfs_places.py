# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the project's folders are seen in another system, and which folder of the machine a path in
there stands for."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from ..errors import WorkingDirError
from ..paths import Paths
from .host import below, in_any
from .places import EMPTY, may_enter
from .records import record
from .rootfs_environment import PLAYGROUND, WORKSPACE

# So many links may follow each other.
_MOST_LINKS = 40


@record(frozen=True)
class Places:
    project: str
    # Folders outside the project that a person has agreed to. They keep their own paths: the links
    # that lead there hold these.
    linked: tuple[str, ...]
    # Where the playground really is, then its other names on the machine.
    playgrounds: tuple[str, ...]

    @classmethod
    def of(cls, paths: Paths, project: str, linked: Sequence[str] = ()) -> Places:
        named = (str(paths.playground_inside), f"{paths.real_home}/playground")
        return cls(project, tuple(linked), (os.path.realpath(paths.playground), *named))

    def to_inside(self, path: str) -> str | None:
        """None: it is not there. Paths that mean something inside only stay what they are."""
        for folder, shown in (
            (self.project, WORKSPACE),
            *((p, PLAYGROUND) for p in self.playgrounds),
        ):
            if below(path, folder):
                return shown + path[len(folder) :]
        return path if in_any(path, self.linked) else None

    def to_host(self, path: str) -> str | None:
        """None: it belongs to the system in there. A project may itself lie in a folder of that
        name: then its own path counts."""
        if below(path, self.project):
            return path
        for shown, folder in ((WORKSPACE, self.project), (PLAYGROUND, self.playgrounds[0])):
            if below(path, shown):
                return folder + path[len(shown) :]
        return path if in_any(path, self.linked) else None


def find_working_dir_inside(
    given: str | None, places: Places, paths: Paths, rootfs: str, hidden: Sequence[str]
) -> str:
    """Where the command starts, named as on the machine or as inside."""
    if not given:
        return WORKSPACE
    if given == "playground":
        return PLAYGROUND
    if "\0" in given:
        raise WorkingDirError(given)
    whole = given
    if whole == "~" or whole.startswith("~/"):
        whole = f"{paths.home}{whole[1:]}"
    path = os.path.normpath(os.path.join(places.project, whole))
    real = os.path.realpath(places.to_host(path) or path)
    for playground in places.playgrounds[1:]:
        if below(path, playground):
            real = os.path.realpath(places.playgrounds[0] + path[len(playground) :])
    inside = places.to_inside(real)
    if inside is not None:
        if not may_enter(real) or (in_any(real, hidden) and not below(real, places.playgrounds[0])):
            raise WorkingDirError(given)
        return inside
    # A link of the project's may lead there, too.
    found = folder_in(rootfs, path if places.to_host(path) is None else real)
    # These are empty when it starts.
    if found is None or (in_any(found, EMPTY) and found not in EMPTY):
        raise WorkingDirError(given)
    return found


def folder_in(rootfs: str, path: str) -> str | None:
    """The path of a folder of the system, links followed as they lead inside; None if there is
    none."""
    waiting = [part for part in path.split("/") if part][::-1]
    here: list[str] = []
    links = 0
    while waiting:
        part = waiting.pop()
        if part in (".", ".."):
            del here[len(here) - (part == "..") :]
            continue
        whole = "/".join((rootfs, *here, part))
        try:
            mode = os.lstat(whole).st_mode
        except (OSError, ValueError):
            return None
        if stat.S_ISLNK(mode):
            links += 1
            target = os.readlink(whole)
            if links > _MOST_LINKS:
                return None
            if target.startswith("/"):
                here = []
            waiting += [one for one in target.split("/") if one][::-1]
        elif stat.S_ISDIR(mode):
            here.append(part)
        else:
            return None
    return "/" + "/".join(here)
