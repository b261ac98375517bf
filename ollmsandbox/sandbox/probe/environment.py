# SPDX-License-Identifier: GPL-3.0-or-later
"""What is around us: programs, containers, and all that an answer about this machine rests on."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ...paths import Paths, is_inside
from ..plan.host import MountPoint

# Of the answer: an older one is not taken.
_VERSION = 6


def find_program(name: str, environ: Mapping[str, str], writable: Sequence[str]) -> str:
    """The program's full path, "" if there is none.

    Not from relative folders of the PATH, which lead into whatever folder is current; not from
    folders that commands can write, nor by a link that leads there; nor from other projects,
    which were writable when it was their turn.
    """
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, name)
        if not folder.startswith("/") or not os.access(path, os.X_OK) or not os.path.isfile(path):
            continue
        real = os.path.realpath(folder), os.path.realpath(path)
        if not any(is_inside(r, *writable) or _in_a_project(r) for r in real):
            return path
    return ""


def _in_a_project(path: str) -> bool:
    """A checkout, or an environment made for one."""
    if os.getuid() != 0 and not os.access(os.path.dirname(path), os.W_OK):
        return False  # none of this person's commands can have written there
    while path != "/":
        path = os.path.dirname(path)
        if any(
            os.path.lexists(f"{path}/{mark}") for mark in (".git", "pyvenv.cfg", "package.json")
        ):
            return True
    return False


def find_surroundings(environ: Mapping[str, str]) -> str:
    if environ.get("FLATPAK_ID") or os.path.exists("/.flatpak-info"):
        return "flatpak"
    with contextlib.suppress(OSError):
        first = Path("/proc/1/comm").read_text(encoding="utf-8", errors="replace").strip()
        if first == "bwrap":
            return "bubblewrap"
    if os.path.exists("/run/.containerenv") or os.path.exists("/.dockerenv"):
        return "container"
    if environ.get("container"):
        return "container"
    return "host"


def cache_key(
    paths: Paths,
    environ: Mapping[str, str],
    programs: Mapping[str, str],
    mounts: Sequence[MountPoint],
) -> str:
    """Everything the answer rests on."""
    facts: list[object] = [_VERSION, os.getuid(), os.uname().release, find_surroundings(environ)]
    with contextlib.suppress(OSError):
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
    facts += file_stamps(filter(None, programs.values()))
    with contextlib.suppress(OSError):
        home = paths.real_home
        below_home = {mount.path for mount in mounts if is_inside(mount.path, home)}
        facts += [home, os.stat(home).st_dev, *sorted(below_home)]
    facts += [str(base) for base in paths.runtime_candidates]
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def file_stamps(files: Iterable[str]) -> list[object]:
    """A file's change is seen by its time and size."""
    facts: list[object] = []
    for path in files:
        with contextlib.suppress(OSError):
            found = os.stat(path)
            facts += [path, found.st_mtime_ns, found.st_size, found.st_mode]
    return facts
