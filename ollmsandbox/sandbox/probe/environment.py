# SPDX-License-Identifier: GPL-3.0-or-later
"""Find programs and the kind of environment (host, container, Flatpak), and the cache's key."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...paths import Paths, is_inside
from ..plan.host import MountPoint

# The version of the cached result's format.
_VERSION = 7


def find_program(name: str, environ: Mapping[str, str], writable: Sequence[str]) -> str:
    """Return a program's full path, or "" if there is none that can be trusted.

    Relative folders in PATH depend on the current folder, so they do not count; nor do folders
    that commands can write to, links into them, and other projects, which were writable once.
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
    """Return whether a path is in a checkout, or in an environment made for one."""
    if os.getuid() != 0 and not os.access(os.path.dirname(path), os.W_OK):
        return False  # no command of this user can have written there
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
    """Return a hash of everything that the result of the probe depends on."""
    facts: list[object] = [_VERSION, os.getuid(), os.uname().release, find_surroundings(environ)]
    with contextlib.suppress(OSError):
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
    for path in filter(None, programs.values()):
        with contextlib.suppress(OSError):
            found = os.stat(path)
            facts += [path, found.st_mtime_ns, found.st_size, found.st_mode]
    with contextlib.suppress(OSError):
        home = paths.real_home
        below_home = {mount.path for mount in mounts if is_inside(mount.path, home)}
        facts += [home, os.stat(home).st_dev, *sorted(below_home)]
    facts += [str(base) for base in paths.runtime_candidates]
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest()[:16]
