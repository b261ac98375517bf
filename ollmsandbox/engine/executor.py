# SPDX-License-Identifier: GPL-3.0-or-later
"""How a project's commands run: in a sandbox, in a Flatpak's inner sandbox, or without one.

    executor = find_executor(paths, environ, project)
    async with executor.prepare(spec) as run:   `run` says what to ask about
        run.approve()                           only for an UnrecordedRun, once the user has agreed
        result = await run.execute(command)

This is decided here and nowhere else: whoever runs commands asks the executor.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto

from ..errors import Sentence
from ..paths import Paths
from ..sandbox.flatpak.portal import PortalError
from ..sandbox.flatpak.runner import InnerRunner, ProjectNotSharedError
from ..sandbox.monitor import FileEvent
from ..sandbox.plan.plan import Plan
from ..sandbox.probe.probe import Capabilities, probe
from ..sandbox.process import Result, Sinks
from ..sandbox.refusals import NETWORK_OFF, misses_network
from ..sandbox.spec import RunSpec
from ..sandbox.unsandboxed.runner import UnsandboxedRunner
from .run import PreparedRun, load_profile, prepare_run

Live = Callable[[FileEvent], None]


class Confinement(Enum):
    """What confines a command whose changes are not recorded."""

    # A Flatpak's inner sandbox.
    INNER = auto()
    # As little as the Flatpak around this program, but without the network.
    OFFLINE = auto()
    NONE = auto()


class UnrecordedRun:
    """A run that changes the project directly. The user has to approve it."""

    plan: Plan | None = None

    def __init__(
        self,
        confinement: Confinement,
        spec: RunSpec,
        paths: Paths,
        environ: Mapping[str, str],
        why: Sentence | None = None,
    ) -> None:
        self.confinement = confinement
        # Why there is no better sandbox, if that depends on the project.
        self.why = why
        self._is_offline = confinement is not Confinement.NONE and not spec.network
        self._is_approved = False
        self._runner: UnsandboxedRunner
        profile = load_profile(paths, spec.profile, spec.limits)
        if confinement is Confinement.NONE:
            self._runner = UnsandboxedRunner(spec, ask=self._ask, profile=profile, environ=environ)
        else:
            is_tight = confinement is Confinement.INNER
            self._runner = InnerRunner(
                spec, ask=self._ask, tight=is_tight, profile=profile, environ=environ
            )

    async def prepare(self) -> None:
        """Start the Flatpak's inner sandbox, if it is to run in one. Raise PortalError if the
        Flatpak portal does not offer that."""
        await self._runner.prepare()

    def approve(self) -> None:
        """Note that the user agrees. Without this, `execute` raises DeniedError."""
        self._is_approved = True

    async def execute(
        self,
        command: str | Sequence[str],
        *,
        sinks: Sinks = Sinks(),  # noqa: B008 - it is frozen
    ) -> Result:
        result = await self._runner.exec(command, sinks=sinks)
        if self._is_offline and misses_network(result):
            return result._replace(refusals=(NETWORK_OFF,))
        return result

    def close(self) -> None:
        self._runner.close()

    async def _ask(self) -> bool:
        return self._is_approved


class Executor:
    """Runs the commands of a project: this one without a sandbox, those below in one."""

    # Whether changes of commands are recorded and can be undone, because there is a sandbox.
    is_recorded = False

    def __init__(self, paths: Paths, environ: Mapping[str, str], found: Capabilities) -> None:
        self.found = found
        self._paths = paths
        self._environ = environ

    @asynccontextmanager
    async def prepare(
        self, spec: RunSpec, live: Live | None = None
    ) -> AsyncIterator[PreparedRun | UnrecordedRun]:
        """Put a run together, without starting the command. `live` hears of changes while it runs,
        if they are recorded."""
        run = await self._prepare(spec)
        try:
            yield run
        finally:
            run.close()

    async def run_script(self, spec: RunSpec, argv: Sequence[str], sinks: Sinks) -> Result:
        """Run a script of this program, which reads or writes a file. Without a sandbox, the user
        has agreed to that."""
        run = UnrecordedRun(Confinement.NONE, spec, self._paths, self._environ)
        run.approve()
        return await run.execute(argv, sinks=sinks)

    async def _prepare(self, spec: RunSpec) -> UnrecordedRun:
        return await self._open(Confinement.NONE, spec)

    async def _open(
        self, confinement: Confinement, spec: RunSpec, why: Sentence | None = None
    ) -> UnrecordedRun:
        run = UnrecordedRun(confinement, spec, self._paths, self._environ, why)
        await run.prepare()
        return run


class SandboxExecutor(Executor):
    """Runs commands in a sandbox, with their changes in an overlay."""

    is_recorded = True

    @asynccontextmanager
    async def prepare(
        self, spec: RunSpec, live: Live | None = None
    ) -> AsyncIterator[PreparedRun | UnrecordedRun]:
        live = live if _loop_has_glib() else None
        run = await asyncio.to_thread(self.prepare_recorded, spec, live)
        await asyncio.to_thread(lambda: run.plan)
        yield run

    def prepare_recorded(self, spec: RunSpec, live: Live | None = None) -> PreparedRun:
        return prepare_run(spec, self._paths, self._environ, live=live)

    async def run_script(self, spec: RunSpec, argv: Sequence[str], sinks: Sinks) -> Result:
        return await self.prepare_recorded(spec).execute(argv, sinks=sinks)


class FlatpakExecutor(Executor):
    """Runs commands in a Flatpak's inner sandbox. Where the portal does not offer that, they run
    without one: offline if possible."""

    async def _prepare(self, spec: RunSpec) -> UnrecordedRun:
        try:
            return await self._open(Confinement.INNER, spec)
        except ProjectNotSharedError as error:
            why = error.message
        except PortalError as error:
            return await self._open(Confinement.NONE, spec, error.message)
        if not spec.network:
            with suppress(PortalError):
                return await self._open(Confinement.OFFLINE, spec, why)
        return await self._open(Confinement.NONE, spec, why)


def find_executor(paths: Paths, environ: Mapping[str, str], project: str | None) -> Executor:
    """Decide how the commands of a project run; without a project, how they would. The first call
    tries out what this computer can do, which takes a while."""
    found = probe(paths, environ, writable=(os.path.realpath(project),) if project else ())
    if found.can_wrap:
        return SandboxExecutor(paths, environ, found)
    if environ.get("FLATPAK_ID"):
        return FlatpakExecutor(paths, environ, found)
    return Executor(paths, environ, found)


def _loop_has_glib() -> bool:
    """Return whether the running loop can watch files."""
    events = sys.modules.get("gi.events")
    return events is not None and isinstance(asyncio.get_running_loop(), events.GLibEventLoop)
