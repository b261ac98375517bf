# SPDX-License-Identifier: GPL-3.0-or-later
"""What a system offers: the programs that it said it has when it was prepared.

A program of a system that is being prepared: walled in like every command, with no project.

Packages, installed by the system's own `apk` inside the sandbox: it can write to the system that
is being prepared and reach the network, and nothing else.

What a system offers: the programs that it said it has when it was prepared.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ... import N_
from ...errors import RootfsError, SandboxError, Sentence, in_lines
from ...paths import Paths
from ...text.ansi import harmless
from ..launch import LaunchPrograms, make_order, open_descriptors
from ..limits import watch_limits
from ..output import Sink, readable
from ..plan.host import Host
from ..plan.mounts import (
    DevicesAndProcesses,
    EmptyFolder,
    Mount,
    ReadOnlyBind,
    RootfsSystem,
    SealedFolder,
    WritableFolder,
)
from ..plan.plan import Plan
from ..probe.probe import Capabilities
from ..process import Result, Running, Sinks
from ..profile.file import DEFAULT_PROFILE, read_profile
from ..seccomp import FilterRules
from ..starter.client import shared_starter
from .files import RESOLVER, write_inside
from .paths import PATH, proxies
from .store import PROGRAMS_FILE, Installed

_CAPTURE = 1 << 16


async def run_in(
    plan: Plan,
    argv: Sequence[str],
    *,
    paths: Paths,
    found: Capabilities,
    told: Sink | None = None,
    watched: Sequence[str] = (),
) -> Result:
    """`watched`: folders that may not grow beyond the limit. Cancelled, it is killed."""
    programs = LaunchPrograms(found.bwrap, found.namespaces)
    order, arguments = make_order(plan, argv, programs, paths.runtime, first_descriptor=3)
    async with contextlib.AsyncExitStack() as closing:
        ours, theirs = [], []
        with contextlib.ExitStack() as handed_over:
            for _ in range(3):
                reader, writer = os.pipe()
                closing.callback(os.close, reader)
                handed_over.callback(os.close, writer)
                ours.append(reader)
                theirs.append(writer)
            nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            handed_over.callback(os.close, nothing)
            options, filter_ = open_descriptors(plan, arguments, paths.cache)
            handed_over.callback(os.close, options)
            handed_over.callback(os.close, filter_)
            given = [nothing, theirs[0], theirs[1], options, filter_, theirs[2]]
            started = shared_starter().start(order, given)
            closing.callback(os.close, started.pidfd)

        def kill() -> None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(started.pidfd, signal.SIGKILL)

        running = Running(
            stdout=ours[0],
            stderr=ours[1],
            ended=readable(started.pidfd),
            kill=kill,
            capture=_CAPTURE,
            sinks=Sinks(told, told),
        )
        closing.push_async_callback(running.close)
        limits = watch_limits(plan.limits, started.pid, watched)
        await running.wait(asyncio.ensure_future(limits))
        await running.drain(seconds=5.0)
        os.set_blocking(ours[2], False)
        with contextlib.suppress(BlockingIOError):
            said = os.read(ours[2], 1 << 16)
    return _result(running, said)


def _result(running: Running, said: bytes) -> Result:
    code, problem = None, ""
    for line in said.split(b"\n"):
        with contextlib.suppress(ValueError):
            status = json.loads(line)
            code = status.get("exit-code", code)
            problem = status.get("error", problem)
    result = running.result(125 if code is None else code)
    if code is None and result.stop is None:
        why = problem or result.stderr.text.strip()
        raise SandboxError(
            in_lines(Sentence(N_("The sandbox could not be started.")), why),
            N_("See `ollmsandbox doctor`."),
        )
    return result


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
        profile = read_profile(DEFAULT_PROFILE, self.paths.profiles, self.paths.cache)
        whole = str(self.folder)
        system: Mount = RootfsSystem(whole, self.title)
        if writable:
            system = WritableFolder("/", whole, self.title)
        mounts = [system, DevicesAndProcesses(is_root=os.getuid() == 0)]
        mounts += [
            EmptyFolder(name, profile.limits.tmp) for name in ("/tmp", "/var/tmp", "/dev/shm")
        ]
        mounts += [EmptyFolder("/run", _MiB, writable=False), SealedFolder("/dev")]
        resolver = Host.read().resolver
        if network and os.path.isfile(resolver):
            mounts.append(ReadOnlyBind(resolver, f"/{RESOLVER}"))
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
            rules=FilterRules(unix_sockets=profile.unix_sockets and not network, netlink=True),
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


KNOWN = (
    *("bash", "python3", "pip", "uv", "pytest", "node", "npm", "pnpm", "yarn", "deno", "bun"),
    *("git", "gcc", "g++", "clang", "make", "cmake", "meson", "ninja", "cargo", "rustc", "go"),
    *("java", "javac", "mvn", "gradle", "dotnet", "ruby", "bundle", "php", "composer"),
    *("perl", "lua", "ghc", "zig", "sqlite3", "psql", "jq", "rg", "fd", "curl", "wget"),
    *("patch", "tar", "unzip", "gawk", "find", "grep", "sed", "gdb", "strace", "shellcheck"),
)
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)+[0-9A-Za-z.+-]{0,20}")
_FOLDERS = ("usr/bin", "bin", "usr/local/bin", "usr/sbin", "sbin")
_LARGEST = 1 << 16


def programs_in(installed: Installed) -> list[str]:
    """With their versions where they tell them, as "git 2.49.0"."""
    told = _told(installed)
    if told is None:
        # Somebody else prepared it; it can only be looked at.
        return [name for name in KNOWN if _is_there(installed.folder, name)]
    return [_with_version(name, told[name]) for name in KNOWN if name in told]


def _told(installed: Installed) -> dict[str, str] | None:
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
