# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the paths that a profile hides from commands."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from ... import N_
from ...errors import ProfileError
from ...paths import Paths, home_on_record, is_inside, real_path
from ...record import Record
from ..profile.profile import Profile
from .host import PathResolver, path_and_parents

_TICK = 1_000_000_000


def hidden_paths(profile: Profile, paths: Paths, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hidden paths, with links resolved. They need not exist."""
    home = paths.real_home
    seen = PathResolver()
    # HOME may be another folder than the user's home.
    homes = dict.fromkeys((home, real_path(home_on_record() or home)))
    places: list[tuple[str, tuple[str, ...]]] = []
    more: list[str] = []
    moved = ((usual, _named_folder(environ.get(name, ""))) for name, usual in profile.moved_folders)
    moves = [(usual, path) for usual, path in moved if path]
    for base, rest, names, starred in _places(profile.hidden, tuple(homes), tuple(moves)):
        # The folder around a name may be a link, and so may the name itself.
        real, found = seen.resolve(base + rest)
        around = real.rstrip("/")
        places.append((around, names))
        for name in list_names(real, found).links.intersection(names) if found else ():
            more.append(os.path.realpath(f"{around}/{name}"))
        for name in starred:
            for match in _matches(base, f"{rest}/{name}"):
                real = os.path.realpath(os.path.dirname(match))
                more += [f"{real}/{os.path.basename(match)}", os.path.realpath(match)]
    for path in _named_by_variables(profile.mask_variables, environ):
        more.append(os.path.realpath(f"{home}{path[1:]}" if path.startswith("~") else path))
    hidden = _joined(tuple(places), tuple(more))
    for name in set(path_and_parents(home)).intersection(hidden):
        raise ProfileError(
            N_("The profile {profile} hides {name}, which contains your home folder."),
            N_("Hide single folders in it instead."),
            profile=repr(profile.name),
            name=name,
        )
    for own in paths.own:
        more.append(seen.resolve(str(own))[0] if ".." not in own.parts else os.path.realpath(own))
    return _joined(tuple(places), tuple(more))


# There are hundreds of names. Most do not exist, and they are the same for each command: what
# follows from the names alone is kept for the next one.
@lru_cache(maxsize=16)
def _joined(
    places: tuple[tuple[str, tuple[str, ...]], ...], more: tuple[str, ...]
) -> tuple[str, ...]:
    whole = (f"{around}/{name}" for around, names in places for name in names)
    return tuple(dict.fromkeys((*whole, *more)))


@lru_cache(maxsize=64)
def names_inside(paths: tuple[str, ...], folder: str) -> tuple[str, ...]:
    """Return those of the paths that are in a folder, relative to it."""
    start = f"{folder}/"
    return tuple(path[len(start) :] for path in paths if path.startswith(start))


@lru_cache(maxsize=16)
def by_folder(paths: tuple[str, ...], without: str = "") -> Mapping[str, tuple[str, ...]]:
    """Return the names in each folder, but for those in the folder `without`."""
    found: dict[str, list[str]] = {}
    for path in paths:
        # "" stands for the root.
        folder, _, name = path.rpartition("/")
        if not without or not is_inside(folder, without):
            found.setdefault(folder, []).append(name)
    return {folder: tuple(names) for folder, names in found.items()}


@lru_cache(maxsize=16)
def _places(
    masks: tuple[str, ...], homes: tuple[str, ...], moves: tuple[tuple[str, str], ...]
) -> list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    """Return the folders that masks stand for, each as a beginning and the rest, with all names in
    it, and those of them that have to be searched for."""
    made = []
    for given, names in by_folder(masks).items():
        starts = [("", given or "/")]
        if given.startswith("~"):
            starts = [(home, given[1:]) for home in homes]
            starts += [(to, given[len(usual) :]) for usual, to in moves if is_inside(given, usual)]
        for base, rest in starts:
            starred = tuple(name for name in names if "*" in f"{rest}/{name}")
            made.append((base, rest, names, starred))
    return made


def _named_folder(value: str) -> str:
    """Return the folder that a variable's value names, or "" if it names none."""
    if not value.startswith("/") or any(len(os.fsencode(n)) > 255 for n in value.split("/")):
        return ""
    # Paths are compared as text: /home/me/../me/x would not be recognised.
    is_usual = value == os.path.normpath(value) and not value.startswith("//")
    return value if is_usual else os.path.realpath(value)


def _named_by_variables(variables: Iterable[str], environ: Mapping[str, str]) -> Iterator[str]:
    names = {name.upper() for name in variables}
    for name, value in environ.items():
        if name.upper() in names:
            # As it is, and as a list: a path may contain the separator.
            for path in dict.fromkeys((value, *value.split(":"))):
                if path.startswith(("/", "~/")):
                    yield path


class FolderNames(Record):
    """The names in a folder, and those of them that are symbolic links."""

    names: frozenset[str]
    links: frozenset[str]


def list_names(folder: str, found: os.stat_result) -> FolderNames:
    """Return the names in a folder with this status. A listing is kept for the next run."""
    # It is valid while the folder is unchanged, which its time does not show if the change was a
    # moment ago.
    if time.time_ns() - found.st_mtime_ns < _TICK:
        return _names_now(folder)
    return _names_of(folder, (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns))


@lru_cache(maxsize=256)
def _names_of(folder: str, _version: tuple[int, ...]) -> FolderNames:
    return _names_now(folder)


def _names_now(folder: str) -> FolderNames:
    try:
        with os.scandir(folder) as entries:
            found = {entry.name: entry.is_symlink() for entry in entries}
    except OSError:
        found = {}
    return FolderNames(frozenset(found), frozenset(n for n, is_link in found.items() if is_link))


def _matches(base: str, mask: str) -> list[str]:
    # A star in the home folder's own name stands for itself.
    return glob.glob(glob.escape(base) + mask)
