# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the folders that programs use as caches, by convention or by a variable."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from ...paths import FolderSet, is_inside
from ...record import Record
from ..profile.profile import FolderTemplate, Profile
from .host import PathResolver, path_and_parents
from .masks import list_names


def needs_base(layers: str, folder: str, mounted: Sequence[str]) -> bool:
    """Return whether layers are inside a folder that is to be below them. The kernel allows that
    only if another overlay is between them."""
    return is_inside(layers, folder) and not is_inside(layers, *mounted)


# Bytes of the path of a missing cache, which becomes one name.
_LONGEST = 255
# Where no program keeps a cache.
_SYSTEM = ("/bin", "/boot", "/etc", "/lib", "/lib64", "/sbin", "/usr")


class FoundCaches(Record):
    """The folders that programs use as caches, with links resolved."""

    existing: tuple[str, ...]
    # Folders that the user does not have, but programs would create.
    missing: tuple[str, ...]


def find_caches(profile: Profile, environment: Mapping[str, str], home: str) -> FoundCaches:
    seen = PathResolver()
    existing, missing = [], []
    templates = profile.caches + profile.caches_if_present
    values = tuple(map(environment.get, _variables(templates)))
    for number, around, name in _expanded(templates, values, home):
        folder, found = seen.resolve(around)
        names = list_names(folder, found) if found else None
        path = f"{folder.rstrip('/')}/{name}"
        if names and name in names.links:
            path = os.path.realpath(path)
        if os.path.isdir(path) if names and name in names.names else False:
            existing.append(path)
        elif number < len(profile.caches) and _could_be_created(path):
            missing.append(path)
    return FoundCaches(tuple(existing), tuple(missing))


def _could_be_created(path: str) -> bool:
    """Return whether nothing is there, nor anything but folders on the way."""
    if os.path.lexists(path):
        return False
    around = os.path.dirname(path)
    while not os.path.lexists(around):
        around = os.path.dirname(around)
    return os.path.isdir(around)


@lru_cache(maxsize=16)
def _variables(templates: tuple[str, ...]) -> tuple[str, ...]:
    found = (FolderTemplate.of(text) for text in templates)
    return tuple(template.variable if template else "" for template in found)


@lru_cache(maxsize=16)
def _expanded(
    templates: tuple[str, ...], values: tuple[str | None, ...], home: str
) -> list[tuple[int, str, str]]:
    """Return the number, folder and name of each template that stands for a folder."""
    made = []
    for number, (text, value) in enumerate(zip(templates, values, strict=True)):
        template = FolderTemplate.of(text)
        path = template.expand(value or "", home) if template else ""
        around, _, name = path.rpartition("/")
        if name:
            made.append((number, around or "/", name))
    return made


@lru_cache(maxsize=16)
def usable_caches(
    found: FoundCaches,
    home: str,
    roots: tuple[str, ...],
    hidden: tuple[str, ...],
    elsewhere: tuple[str, ...],
    aliases: tuple[str, ...],
    mounts: frozenset[str],
) -> FoundCaches:
    """Return the caches that a command may write to, none inside another one.

    They are not in `roots`, which are writable anyway, and neither hidden nor in the folders
    `elsewhere`, which commands do not see. `aliases` are other paths of the home folder, and
    `mounts` the host's mount points.
    """
    # Nor does one have the project in it, or something mounted: a command could put another folder
    # in its place, and the next run would mount the project there. And none shows the home folder
    # or what commands do not see once more, without the masks.
    kept_out = (home, "/", *roots, *elsewhere, *aliases)
    around = set().union(*map(path_and_parents, kept_out))
    around |= {folder for point in mounts for folder in path_and_parents(os.path.dirname(point))}
    in_home, writable, unseen = FolderSet((home,)), FolderSet(roots), FolderSet(hidden)
    not_shown = FolderSet(elsewhere)

    system = FolderSet(_SYSTEM)

    def is_usable(path: str) -> bool:
        if path in around or path in writable or path in unseen:
            return False
        if path in in_home:
            return True
        is_apart = path not in FolderSet(aliases) and path not in system and path.count("/") > 1
        return is_apart and path not in not_shown

    existing = outermost(filter(is_usable, found.existing))
    # No link can be made where another file system is mounted.
    others = FolderSet((*existing, *(point for point in mounts if is_inside(point, home))))
    missing = (
        path
        for path in found.missing
        if path in in_home and path not in others and len(os.fsencode(path)) <= _LONGEST
    )
    return FoundCaches(existing, outermost(filter(is_usable, missing)))


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that are not inside another one."""
    found: list[str] = []
    # A folder is sorted before what is in it.
    for path in sorted(set(paths)):
        if not is_inside(path, *found):
            found.append(path)
    return tuple(found)


def plain_name(path: str) -> str:
    """Return the name of a missing cache in the folder with all of them."""
    return path.strip("/").replace("/", "-")


def rootfs_caches(profile: Profile) -> dict[str, str]:
    """Return the variables that move caches out of a root file system's home folder, and the names
    of their folders."""
    found = filter(None, map(FolderTemplate.of, profile.caches))
    # Not the home folder itself.
    return {t.variable: plain_name(t.default[1:]) for t in found if t.variable and t.default > "~/"}
