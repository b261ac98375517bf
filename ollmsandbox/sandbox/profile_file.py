# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles as files: the built-in ones, and the person's own that add to them."""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from .. import N_
from ..errors import OllmSandboxError, ProfileError
from ..paths import write_atomically
from .profile import Limits, Profile

BUILT_IN = Path(__file__).with_name("profiles")
DEFAULT = "standard"

_READER = os.path.join(os.path.dirname(__file__), "profile_reader.py")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_Version = tuple[str, int, int, int]


def available(user_folder: Path) -> list[str]:
    """The names a person may choose."""
    return sorted({f.stem for folder in (BUILT_IN, user_folder) for f in folder.glob("*.yaml")})


def load(name: str, user_folder: Path, cache: Path | None = None) -> Profile:
    """A built-in profile with what the person's file of that name adds, or one of their own.

    With a cache folder the YAML is only read again when one of the files is another one than
    before: reading it takes as long as starting a sandbox.
    """
    if not _NAME.fullmatch(name):
        raise ProfileError(
            N_("{name} is not a profile name."),
            N_("Use small letters, digits, - and _."),
            name=repr(name),
        )
    # All of the person's: one may stand on another.
    files = [*_files(str(BUILT_IN)), *_files(str(user_folder))]
    if not any(file.endswith(f"/{name}.yaml") for file in files):
        choice = ", ".join(available(user_folder))
        raise ProfileError(
            N_("There is no profile {name}."),
            N_("Choose one of: {choice}."),
            name=repr(name),
            choice=choice,
        )
    memory = os.sysconf("SC_PHYS_PAGES")
    files.append(_READER)
    versions = (("memory", memory, 0, 0), *map(_version, files))
    return _load(name, user_folder, cache, versions)


def _files(folder: str) -> list[str]:
    try:
        return [f"{folder}/{name}" for name in sorted(os.listdir(folder)) if name[-5:] == ".yaml"]
    except OSError:
        return []


def _version(file: str) -> _Version:
    try:
        found = os.stat(file)
    except OSError:
        return (file, 0, 0, 0)
    return (file, found.st_mtime_ns, found.st_size, found.st_ino)


@lru_cache(maxsize=16)
def _load(
    name: str, user_folder: Path, cache: Path | None, versions: tuple[_Version, ...]
) -> Profile:
    kept = cache / f"profile-{name}.json" if cache is not None else None
    if kept is not None:
        try:
            document = json.loads(kept.read_text(encoding="utf-8"))
            if document["versions"] == [list(version) for version in versions]:
                return _from_json(document["profile"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # never kept, or not by this version of the program: it is read anew
    from .profile_reader import read

    profile = read(name, user_folder)
    if kept is not None:
        with contextlib.suppress(OllmSandboxError, OSError):  # then it is read again next time
            write_atomically(kept, json.dumps({"versions": versions, "profile": asdict(profile)}))
    return profile


def _from_json(given: dict[str, object]) -> Profile:
    values = {name: _frozen(value) for name, value in given.items()}
    limits = given["limits"]
    if not isinstance(limits, dict):
        raise TypeError
    values["limits"] = Limits(**limits)
    return Profile(**values)  # type: ignore[arg-type]


def _frozen(value: object) -> object:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
