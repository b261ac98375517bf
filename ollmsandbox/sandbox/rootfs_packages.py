# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages, installed by the system's own `apk` inside the sandbox: it can write to the system that
is being prepared and reach the network, and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .. import N_
from ..errors import RootfsError, Sentence, in_lines
from ..paths import Paths
from . import profile_file
from .host import Host
from .mounts import Kernel, Mount, OtherSystem, ReadOnly, Scratch, Sealed, Writable
from .output import Sink, harmless
from .plan import Plan
from .probe import Capabilities
from .rootfs_environment import PATH, proxies
from .rootfs_inside import RESOLVER, write_inside
from .rootfs_runner import run_in
from .rootfs_store import PROGRAMS_FILE
from .seccomp import Rules

_MiB = 1 << 20


@dataclass(frozen=True)
class Tier:
    number: int
    title: str
    packages: tuple[str, ...]
    # About, once all is installed.
    size: int


TIER1_PACKAGES = ("bash", "python3", "py3-pip", "coreutils", "grep", "sed")
TIER2_PACKAGES = (
    *("findutils", "curl", "wget", "git", "tar", "unzip", "jq", "gawk", "nodejs", "npm"),
)
TIERS = (
    Tier(0, "Base", (), 16 * _MiB),
    Tier(1, "Required", TIER1_PACKAGES, 120 * _MiB),
    Tier(2, "Recommended", (*TIER1_PACKAGES, *TIER2_PACKAGES), 320 * _MiB),
)

# A single user is known inside, so a package cannot give its files to others; and nobody can leave
# the root folder for another, which an older apk wants for every script: there it runs none, and
# what little they do for these packages is done here. The oldest do not know the first option, and
# need it for few packages.
_ADD = """\
known=$(apk add --help 2>&1)
case $known in *--no-chown*) set -- --no-chown "$@" ;; esac
case $known in *--force-no-chroot*) exec apk add --no-cache --force-no-chroot "$@" ;; esac
apk add --no-cache --no-scripts "$@" || exit
/bin/busybox --install -s || :
"""
# The name, then what the program says first of itself. Those of busybox are other than their names
# say, and say so only sometimes.
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
_TIME = 1800.0
_DISK = 4 << 30
_SAID = 1500


@dataclass(frozen=True)
class Inside:
    """What a program of a system needs to be run."""

    folder: Path
    title: str
    paths: Paths
    environ: Mapping[str, str]
    found: Capabilities

    def plan(self, *, writable: bool, network: bool) -> Plan:
        profile = profile_file.load(profile_file.DEFAULT, self.paths.profiles, self.paths.cache)
        whole = str(self.folder)
        system: Mount = OtherSystem(whole, self.title)
        if writable:
            system = Writable("/", whole, self.title)
        mounts = [system, Kernel(is_root=os.getuid() == 0)]
        mounts += [Scratch(name, profile.limits.tmp) for name in ("/tmp", "/var/tmp", "/dev/shm")]
        mounts += [Scratch("/run", _MiB, writable=False), Sealed("/dev")]
        resolver = Host.look().resolver
        if network and os.path.isfile(resolver):
            mounts.append(ReadOnly(resolver, f"/{RESOLVER}"))
        environment = {"HOME": "/root", "PATH": PATH, "LANG": "C.UTF-8", "TMPDIR": "/tmp"}
        if network:
            environment |= proxies(self.environ)
        return Plan(
            project="",
            working_dir="/",
            network=network,
            mounts=tuple(mounts),
            environment=environment,
            limits=replace(profile.limits, time=_TIME, disk=_DISK),
            rules=Rules(unix_sockets=profile.unix_sockets and not network, netlink=True),
            # A package manager works for nobody but root. Outside it is the person.
            ids=(0, 0) if writable else None,
        )


def missing_packages(folder: Path, wanted: Sequence[str]) -> list[str]:
    """By the system's own list of what is installed."""
    there: set[str] = set()
    for name in ("lib/apk/db/installed", "usr/lib/apk/db/installed"):
        with contextlib.suppress(OSError), open(folder / name, encoding="utf-8") as file:
            there |= {line[2:].strip() for line in file if line.startswith("P:")}
    return [name for name in wanted if name not in there]


async def install_packages(
    inside: Inside, packages: Sequence[str], told: Sink | None = None
) -> None:
    plan = inside.plan(writable=True, network=True)
    result = await run_in(
        plan,
        ["/bin/sh", "-c", _ADD, "sh", *packages],
        paths=inside.paths,
        found=inside.found,
        told=told,
        watched=[str(inside.folder)],
    )
    if result.exit_code != 0 or result.stop is not None:
        said = harmless(f"{result.stdout.text}{result.stderr.text}").strip()[-_SAID:]
        what, why = N_("The packages could not be installed."), Sentence("")
        if result.stop:
            what = N_("The packages could not be installed. {why}")
            why = Sentence(result.stop.value)
        raise RootfsError(
            in_lines(Sentence(what, why=why), said),
            N_(
                "See whether this machine is online, or set another mirror: "
                "ollmsandbox settings rootfs-mirror ADDRESS\n"
                "The base alone needs no packages: choose it with --tier 0"
            ),
        )


async def ask_programs(inside: Inside, names: Sequence[str]) -> dict[str, str]:
    """By name, what each program that is there says of its version."""
    plan = inside.plan(writable=False, network=False)
    argv = ["/bin/sh", "-c", _ASK, "sh", *names]
    result = await run_in(plan, argv, paths=inside.paths, found=inside.found)
    rows = (line.partition("\t") for line in result.stdout.text.splitlines())
    return {name: said.strip() for name, tab, said in rows if tab and name in names}


def keep_programs(folder: Path, programs: Mapping[str, str]) -> None:
    write_inside(folder, PROGRAMS_FILE, json.dumps(programs))
