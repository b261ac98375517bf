# SPDX-License-Identifier: GPL-3.0-or-later
"""Find what a command with the network sees of the home folder."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Mapping, Sequence

from ...files.dirfd import follow_links, link_target
from ...paths import FolderSet, is_inside
from ..profile.profile import FolderTemplate, Profile, matches
from .caches import outermost


class AllowedPaths:
    """Paths in a home folder, none inside another one, and the links that lead to them."""

    def __init__(self, paths: tuple[str, ...], links: Mapping[str, str]) -> None:
        self.paths = paths
        self._links = links
        self._inside = FolderSet(paths)

    def __contains__(self, path: str) -> bool:
        return path in self._inside

    def relative(self, home: str, skipped: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the paths relative to the home folder, without those in the folders `skipped`."""
        return tuple(p[len(home) + 1 :] for p in self.paths if not is_inside(p, *skipped))

    def links_in(self, home: str) -> tuple[tuple[str, str], ...]:
        """Return the links, relative to the home folder, and their targets."""
        found = sorted(self._links.items())
        return tuple((path[len(home) + 1 :], target) for path, target in found if path not in self)


def allowed_paths(
    profile: Profile,
    environment: Mapping[str, str],
    home: str,
    writable: Iterable[str],
    hidden: FolderSet,
) -> AllowedPaths:
    """Return what the profile names in a home folder and exists there.

    Links are followed, but not through the folders `writable`: a command could have made a link
    there that leads to anything else in the home folder.
    """
    templates = (
        *profile.home_with_network,
        *profile.caches,
        *profile.caches_if_present,
        *profile.show,
    )
    stop = FolderSet(writable)
    found: list[str] = []
    links: dict[str, str] = {}
    for template in filter(None, map(FolderTemplate.of, templates)):
        path = template.expand(environment.get(template.variable, ""), home)
        if not is_inside(path, home):
            continue
        passed, real = _follow(path, stop)
        links |= {link: target for link, target in passed.items() if is_inside(link, home)}
        if real and is_inside(real, home) and real != home and real not in hidden:
            found.append(real)
    return AllowedPaths(outermost(found), links)


def unlisted_names(
    profile: Profile, environment: Mapping[str, str], home: str, shown: Sequence[str]
) -> tuple[str, ...]:
    """Return what a command with the network does not see in the caches of all programs together:
    the names that the profile does not list, unless they lead to something it names elsewhere or to
    what is in `shown`."""
    templates = (*profile.home_with_network, *profile.caches, *profile.show)
    found = filter(None, map(FolderTemplate.of, templates))
    wanted = [one.expand(environment.get(one.variable, ""), home) for one in found]
    listed: dict[str, tuple[str, ...]] = {}
    for text, names in profile.names_with_network:
        template = FolderTemplate.of(text)
        assert template is not None
        folder = os.path.realpath(template.expand(environment.get(template.variable, ""), home))
        listed[folder] = listed.get(folder, ()) + names
    hidden = []
    for folder, names in listed.items():
        ways = [*shown, *(path for path in wanted if is_inside(path, folder) and path != folder)]
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                path = f"{folder}/{name}"
                if not matches(name, names) and not any(is_inside(way, path) for way in ways):
                    hidden.append(path)
    return tuple(sorted(hidden))


def _follow(path: str, stop: FolderSet) -> tuple[dict[str, str], str]:
    """Return the links on the way to a path, and where it leads: "" if that does not exist, or if
    the way goes through the folders `stop`."""
    links: dict[str, str] = {}

    def target_of(place: str) -> str | None:
        if place in stop or place in links:
            raise OSError(errno.ELOOP, place)
        target = link_target(place)
        links.update({place: target} if target is not None else {})
        return target

    try:
        return links, follow_links(path, target_of)
    except OSError:
        return links, ""
