# SPDX-License-Identifier: GPL-3.0-or-later
"""Run programs on a root file system that is being prepared, sandboxed but without a project."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ... import N_
from ...errors import SandboxError, Sentence, in_lines
from ...loop import in_stoppable_thread
from ...paths import Paths
from ..launch import launch
from ..limits import DiskWatch, watch_limits
from ..output import Sink
from ..plan import mounts
from ..plan.host import Host
from ..plan.mounts import Mount
from ..plan.plan import Plan
from ..probe.probe import Capabilities
from ..process import Result, Running, Sinks, Stop
from ..profile.file import read_profile
from ..profile.profile import DEFAULT_PROFILE, Limits
from ..seccomp import FilterRules
from ..status import BwrapStatus
from .files import RESOLVER
from .paths import PATH, proxy_variables

_MiB = 1 << 20
_TIME = 1800.0
_DISK = 4 << 30
# Where the host's programs and their libraries are.
_PROGRAMS = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store")
_TARGET = "/target"
_TITLE = "Alpine"


@dataclass(frozen=True)
class RootfsSandbox:
    folder: Path
    paths: Paths
    environ: Mapping[str, str]
    found: Capabilities

    async def run_own(
        self, argv: Sequence[str], *, writable: bool, network: bool, sink: Sink | None = None
    ) -> Result:
        """Run a program of the root file system, which is `/` for it."""
        plan = self._own_plan(writable=writable, network=network)
        return await self._run(plan, argv, sink=sink, watched=writable)

    def _own_plan(self, *, writable: bool, network: bool) -> Plan:
        profile = read_profile(DEFAULT_PROFILE, self.paths.profiles, self.paths.cache)
        whole = str(self.folder)
        system: Mount = mounts.RootfsSystem(whole, _TITLE)
        if writable:
            system = mounts.WritableFolder("/", whole, _TITLE)
        made = [system, mounts.DevicesAndProcesses(is_root=os.getuid() == 0)]
        made += [
            mounts.EmptyFolder(name, profile.limits.tmp)
            for name in ("/tmp", "/var/tmp", "/dev/shm")
        ]
        made += [mounts.EmptyFolder("/run", _MiB, writable=False), mounts.SealedFolder("/dev")]
        resolver = Host().resolver
        if network and os.path.isfile(resolver):
            made.append(mounts.ReadOnlyBind(resolver, f"/{RESOLVER}"))
        environment = {"HOME": "/root", "PATH": PATH, "LANG": "C.UTF-8", "TMPDIR": "/tmp"}
        if network:
            environment |= proxy_variables(self.environ)
        return Plan(
            project="",
            working_dir="/",
            network=network,
            mounts=tuple(made),
            environment=environment,
            limits=profile.limits._replace(time=_TIME, disk=_DISK),
            rules=FilterRules(unix_sockets=profile.unix_sockets and not network, netlink=True),
            # A package manager works only for root. Outside, that is the user.
            ids=(0, 0) if writable else None,
        )

    async def run_host(
        self,
        argv: Sequence[str],
        *,
        disk: int = _DISK,
        stdin: int | None = None,
        sink: Sink | None = None,
    ) -> Result:
        """Run a program of the host in the folder. It can read and write nothing else."""
        return await self._run(self._host_plan(disk), argv, stdin=stdin, sink=sink, watched=True)

    def _host_plan(self, disk: int) -> Plan:
        made: list[Mount] = [
            mounts.ReadOnlyBind(name) for name in _PROGRAMS if os.path.exists(name)
        ]
        made += [mounts.DevicesAndProcesses(is_root=os.getuid() == 0), mounts.SealedFolder("/dev")]
        made += [mounts.WritableFolder(_TARGET, str(self.folder), _TITLE), mounts.SealedFolder("/")]
        return Plan(
            project="",
            working_dir=_TARGET,
            network=False,
            mounts=tuple(made),
            environment={"PATH": self.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            limits=Limits(time=_TIME, disk=disk, memory=1 << 30, processes=64),
            rules=FilterRules(unix_sockets=False, netlink=False),
            # Programs rely on root's privileges, which root does not have here.
            ids=(1, 1),
        )

    async def _run(
        self,
        plan: Plan,
        argv: Sequence[str],
        *,
        stdin: int | None = None,
        sink: Sink | None = None,
        watched: bool = False,
    ) -> Result:
        """Start a program and wait for it; kill it when this is cancelled.

        `watched`: the folder must not outgrow the disk limit.
        """
        status = BwrapStatus()
        with contextlib.ExitStack() as closing:
            started = launch(plan, argv, self.found, self.paths, stdin, closing)
            status.listen(started.status)

            def kill() -> None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(started.pidfd, signal.SIGKILL)

            running = Running(
                stdout=started.stdout,
                stderr=started.stderr,
                ended=started.pidfd,
                kill=kill,
                capture=1 << 16,
                sinks=Sinks(sink, sink),
            )
            disk = DiskWatch(plan.limits, [str(self.folder)] if watched else [])

            def work() -> None:
                with running:
                    running.wait(lambda over: watch_limits(plan.limits, started.pid, disk, over))
                    running.drain(seconds=5.0)

            def stop() -> bool:
                running.stop(Stop.PERSON)
                return True

            await in_stoppable_thread("Alpine", work, stop)
            status.read()
        return _result(running, status)


def _result(running: Running, status: BwrapStatus) -> Result:
    result = running.result(125 if status.exit is None else status.exit)
    if status.exit is None and result.stop is None:
        why = status.error or result.stderr.text.strip()
        raise SandboxError(
            in_lines(Sentence(N_("The sandbox could not start.")), why),
            N_("See `ollmsandbox doctor`."),
        )
    return result
