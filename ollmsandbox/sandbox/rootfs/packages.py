# SPDX-License-Identifier: GPL-3.0-or-later
"""Install packages with the root file system's own `apk`, and list the programs it offers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ... import N_
from ...errors import RootfsError, Sentence, in_lines
from ...text.ansi import harmless
from ..output import Sink
from .files import read_inside
from .sandbox import RootfsSandbox
from .store import Installed

_MiB = 1 << 20


@dataclass(frozen=True)
class Tier:
    number: int
    title: str
    packages: tuple[str, ...]
    # Approximately, with all packages.
    size: int


TIER1_PACKAGES = ("bash", "python3", "py3-pip", "coreutils", "grep", "sed")
TIER2_PACKAGES = (
    *("findutils", "curl", "wget", "git", "tar", "unzip", "jq", "gawk", "nodejs", "npm"),
)
# What pip needs to build a package with C code, for which there is no wheel for Alpine's C library.
TIER3_PACKAGES = ("build-base", "python3-dev", "libffi-dev", "linux-headers")
TIERS = (
    Tier(0, "Base", (), 16 * _MiB),
    Tier(1, "Required", TIER1_PACKAGES, 120 * _MiB),
    Tier(2, "Recommended", (*TIER1_PACKAGES, *TIER2_PACKAGES), 320 * _MiB),
    Tier(3, "Compilers", (*TIER1_PACKAGES, *TIER2_PACKAGES, *TIER3_PACKAGES), 640 * _MiB),
)

# Only one user exists inside, so files cannot get other owners. chroot is refused, which an older
# apk needs for scripts: then it runs none, and we do what they do for these packages. The oldest
# apk has no --no-chown, and needs it for few packages.
_ADD = """\
known=$(apk add --help 2>&1)
case $known in *--no-chown*) set -- --no-chown "$@" ;; esac
case $known in *--force-no-chroot*) exec apk add --no-cache --force-no-chroot "$@" ;; esac
apk add --no-cache --no-scripts "$@" || exit
/bin/busybox --install -s || :
"""
_LONGEST = 1500


# Where apk lists what is installed, by its version.
_LISTS = ("lib/apk/db/installed", "usr/lib/apk/db/installed")


def missing_packages(folder: Path, wanted: Sequence[str]) -> list[str]:
    """Return the packages that are not in the root file system's list of installed ones."""
    present = {value for letter, value in _installed(folder) if letter == "P"}
    return [name for name in wanted if name not in present]


def _installed(folder: Path) -> list[tuple[str, str]]:
    """Return the lines of apk's list of what is installed, each a letter and a value: first those
    of a package, then its folders, each with the files in it."""
    lines = (line for name in _LISTS for line in read_inside(folder, name, 16 << 20).splitlines())
    return [(line[:1], line[2:].strip()) for line in lines]


async def install_packages(
    sandbox: RootfsSandbox, packages: Sequence[str], sink: Sink | None = None
) -> None:
    """Run `apk`, which can write to the root file system and reach the network, nothing else."""
    argv = ["/bin/sh", "-c", _ADD, "sh", *packages]
    result = await sandbox.run_own(argv, writable=True, network=True, sink=sink)
    if result.exit_code != 0 or result.stop is not None:
        said = harmless(f"{result.stdout.text}{result.stderr.text}").strip()[-_LONGEST:]
        what = Sentence(N_("The packages could not be installed."))
        raise RootfsError(
            in_lines(what, result.stop.sentence if result.stop else "", said),
            N_(
                "Check your connection, or use another mirror: "
                "ollmsandbox settings rootfs-mirror ADDRESS\n"
                "The base system needs no packages: install it with --tier 0"
            ),
        )


# What models are told about, here and on the host.
KNOWN_PROGRAMS = (
    *("bash", "python3", "pip", "uv", "pytest", "node", "npm", "pnpm", "yarn", "deno", "bun"),
    *("git", "gcc", "g++", "clang", "make", "cmake", "meson", "ninja", "cargo", "rustc", "go"),
    *("java", "javac", "mvn", "gradle", "kotlinc", "dotnet", "ruby", "bundle", "php", "composer"),
    *("perl", "lua", "ghc", "valac", "zig", "sqlite3", "psql", "jq", "rg", "fd", "curl", "wget"),
    *("patch", "tar", "unzip", "gawk", "find", "grep", "sed", "gdb", "strace", "shellcheck"),
    *("pandoc", "convert", "ffmpeg"),
)
_FOLDERS = ("usr/bin", "bin", "usr/local/bin", "usr/sbin", "sbin")


def programs_in(installed: Installed) -> list[str]:
    """Return known programs with the versions of their packages, such as "git 2.49.0"."""
    changed = []
    for name in _LISTS:
        with contextlib.suppress(OSError):  # it has one of them
            changed.append(os.stat(f"{installed.folder}/{name}").st_mtime_ns)
    versions = _versions(installed.folder, tuple(changed))
    found = []
    for name in KNOWN_PROGRAMS:
        places = (f"{installed.folder}/{place}/{name}" for place in _FOLDERS)
        place = next(filter(os.path.lexists, places), None)
        if place is not None:
            target = os.readlink(place) if os.path.islink(place) else ""
            is_busybox = os.path.basename(target) == "busybox"
            shown = "(busybox)" if is_busybox else versions.get(name, "")
            found.append(f"{name} {shown}".strip())
    return found


@lru_cache(maxsize=1)
def _versions(folder: str, _changed: tuple[int, ...]) -> Mapping[str, str]:
    """Return the versions of programs by name. To read the list takes 80 ms where much is
    installed, and models are told about it in each step."""
    found: dict[str, str] = {}
    version = inside = ""
    for letter, value in _installed(Path(folder)):
        if letter == "V":
            version = value.partition("-")[0]
        elif letter == "F":
            inside = value
        elif letter == "R" and inside in _FOLDERS:
            found[value] = version
    return found
