# SPDX-License-Identifier: GPL-3.0-or-later
"""Install packages with the root file system's own `apk`, and list the programs it offers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ... import N_
from ...errors import RootfsError, Sentence, in_lines
from ...text.ansi import harmless
from ..output import Sink
from .files import read_inside, write_inside
from .sandbox import RootfsSandbox
from .store import PROGRAMS_FILE, Installed

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
# Prints each name with the first line of its version. Programs of busybox do not always say that
# they are busybox.
_ASK = """\
for name in "$@"; do
    place=$(which "$name" 2>/dev/null) || continue
    case $(readlink -f "$place") in
    */busybox) said=busybox ;;
    *) said=$(timeout 5 "$place" --version 2>&1 </dev/null | head -n 1) ;;
    esac
    printf '%s\\t%s\\n' "$name" "$said"
done
"""
_LONGEST = 1500


def missing_packages(folder: Path, wanted: Sequence[str]) -> list[str]:
    """Return the packages that are not in the root file system's list of installed ones."""
    present: set[str] = set()
    for name in ("lib/apk/db/installed", "usr/lib/apk/db/installed"):
        lines = read_inside(folder, name, 16 << 20).splitlines()
        present |= {line[2:].strip() for line in lines if line.startswith("P:")}
    return [name for name in wanted if name not in present]


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


async def program_versions(sandbox: RootfsSandbox, names: Sequence[str]) -> dict[str, str]:
    """Return the first line that each program prints for --version, by name."""
    argv = ["/bin/sh", "-c", _ASK, "sh", *names]
    result = await sandbox.run_own(argv, writable=False, network=False)
    rows = (line.partition("\t") for line in result.stdout.text.splitlines())
    return {name: said.strip() for name, tab, said in rows if tab and name in names}


def save_program_versions(folder: Path, programs: Mapping[str, str]) -> None:
    write_inside(folder, PROGRAMS_FILE, json.dumps(programs))


# What models are told about, here and on the host.
KNOWN_PROGRAMS = (
    *("bash", "python3", "pip", "uv", "pytest", "node", "npm", "pnpm", "yarn", "deno", "bun"),
    *("git", "gcc", "g++", "clang", "make", "cmake", "meson", "ninja", "cargo", "rustc", "go"),
    *("java", "javac", "mvn", "gradle", "kotlinc", "dotnet", "ruby", "bundle", "php", "composer"),
    *("perl", "lua", "ghc", "valac", "zig", "sqlite3", "psql", "jq", "rg", "fd", "curl", "wget"),
    *("patch", "tar", "unzip", "gawk", "find", "grep", "sed", "gdb", "strace", "shellcheck"),
    *("pandoc", "convert", "ffmpeg"),
)
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)+[0-9A-Za-z.+-]{0,20}")
_FOLDERS = ("usr/bin", "bin", "usr/local/bin", "usr/sbin", "sbin")
_LARGEST = 1 << 16


def programs_in(installed: Installed) -> list[str]:
    """Return known programs with their versions, such as "git 2.49.0"."""
    versions = _load_program_versions(installed)
    if versions is None:
        # From ROOTFS_DIR, without a list of versions.
        return [name for name in KNOWN_PROGRAMS if _is_there(installed.folder, name)]
    return [_with_version(name, versions[name]) for name in KNOWN_PROGRAMS if name in versions]


def _load_program_versions(installed: Installed) -> dict[str, str] | None:
    try:
        file = os.open(f"{installed.folder}/{PROGRAMS_FILE}", os.O_RDONLY | os.O_NOFOLLOW)
        with open(file, encoding="utf-8") as opened:
            found = json.loads(opened.read(_LARGEST))
    except (OSError, ValueError):
        return None
    return (
        {str(name): str(said) for name, said in found.items()} if isinstance(found, dict) else None
    )


def _with_version(name: str, said: str) -> str:
    if said == "busybox":
        return f"{name} (busybox)"
    found = _VERSION.search(said)
    return f"{name} {found[0]}" if found else name


def _is_there(folder: str, name: str) -> bool:
    return any(os.path.lexists(f"{folder}/{place}/{name}") for place in _FOLDERS)
