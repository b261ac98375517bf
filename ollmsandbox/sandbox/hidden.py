# SPDX-License-Identifier: GPL-3.0-or-later
"""Which names commands do not see, as full paths."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from ..errors import ProfileError
from ..paths import Paths, home_on_record
from .host import below, folders_of, resolve
from .profile import Profile

# Who moved these folders moved the secrets in them, too.
_MOVED = {
    "~/.config": "XDG_CONFIG_HOME",
    "~/.local/share": "XDG_DATA_HOME",
    "~/.cache": "XDG_CACHE_HOME",
    "~/.local/state": "XDG_STATE_HOME",
}
_TICK = 1_000_000_000


def hidden_paths(profile: Profile, paths: Paths, environ: Mapping[str, str]) -> tuple[str, ...]:
    """With links resolved; what is named need not exist."""
    home = paths.real_home
    found: dict[str, None] = {}
    resolved = {"/": "/", home: home}
    # Somebody may run under another HOME than their own.
    homes = dict.fromkeys((home, os.path.realpath(home_on_record() or home)))
    for given, names in profile.hidden_by_folder.items():
        for base, rest in _places(given, homes, environ):
            # The folder around a name may be a link, and so may the name itself.
            around = resolve(base + rest, resolved).rstrip("/")
            found.update((f"{around}/{name}", None) for name in names)
            for name in _links(around or "/").intersection(names):
                found[os.path.realpath(f"{around}/{name}")] = None
            for name in names if "*" in rest else filter(_has_star, names):
                for match in _matches(base, f"{rest}/{name}"):
                    real = os.path.realpath(os.path.dirname(match))
                    found[f"{real}/{os.path.basename(match)}"] = None
                    found[os.path.realpath(match)] = None
    for variable in profile.mask_variables:
        if environ.get(variable, "").startswith("/"):
            found[os.path.realpath(environ[variable])] = None
    for name in found.keys() & set(folders_of(home)):
        raise ProfileError(
            f"The profile {profile.name!r} hides {name}, and with it your home folder.",
            "Hide what is in it instead.",
        )
    for own in paths.own:
        found[os.path.realpath(own)] = None
    return tuple(found)


def _places(
    given: str, homes: Iterable[str], environ: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """The folders a mask's folder stands for: what is put for the beginning, and the rest."""
    if not given.startswith("~"):
        yield "", given or "/"
        return
    for home in homes:
        yield home, given[1:]
    for usual, variable in _MOVED.items():
        moved = environ.get(variable, "")
        if below(given, usual) and moved.startswith("/"):
            yield moved, given[len(usual) :]


def _links(folder: str) -> frozenset[str]:
    try:
        found = os.stat(folder)
    except OSError:
        return frozenset()
    # A listing is good as long as the folder is unchanged; within the clock's tick that cannot be
    # told.
    if time.time_ns() - found.st_mtime_ns < _TICK:
        return _links_now(folder)
    return _links_of(folder, (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns))


@lru_cache(maxsize=256)
def _links_of(folder: str, _version: tuple[int, ...]) -> frozenset[str]:
    return _links_now(folder)


def _links_now(folder: str) -> frozenset[str]:
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries if entry.is_symlink())
    except OSError:
        return frozenset()


def _has_star(name: str) -> bool:
    return "*" in name


def _matches(base: str, mask: str) -> list[str]:
    # A star in the home folder's own name stands for itself.
    return glob.glob(glob.escape(base) + mask)
