# SPDX-License-Identifier: GPL-3.0-or-later
"""How a project's commands run: in a sandbox, in a Flatpak's inner sandbox, or without one.

This is decided here and nowhere else: whoever runs commands asks the executor. The run that it
prepares says what to ask the user about; one without a sandbox needs their approval.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass

from ..errors import Sentence
from ..paths import Paths
from ..sandbox.flatpak.portal import PortalError
from ..sandbox.flatpak.runner import InnerRunner, ProjectNotSharedError
from ..sandbox.monitor import FileEvent
from ..sandbox.network.network import AskHost
from ..sandbox.probe.probe import Capabilities, probe
from ..sandbox.process import Result, Sinks
from ..sandbox.spec import RunSpec
from ..sandbox.unsandboxed.runner import Confinement, UnsandboxedRunner
from .run import PreparedRun, load_profile, prepare_run

# Both are called on the loop.
Live = Callable[[FileEvent], None]
AskUser = Callable[[str, int, str], Awaitable[bool]]
Run = PreparedRun | UnsandboxedRunner


@dataclass(eq=False)
class Executor:
    """Runs the commands of a project: this one without a sandbox, those below in one."""

    # Whether changes of commands are recorded and can be undone, because there is a sandbox.
    is_recorded = False

    _paths: Paths
    _environ: Mapping[str, str]
    found: Capabilities

    @asynccontextmanager
    async def prepare(
        self, spec: RunSpec, live: Live | None = None, ask_user: AskUser | None = None
    ) -> AsyncIterator[Run]:
        """Put a run together, without starting the command. `live` hears of changes while it runs,
        if they are recorded; `ask_user` asks about hosts, if the network is by host."""
        with closing(await self._prepare(spec)) as run:
            yield run

    async def run_script(self, spec: RunSpec, argv: Sequence[str], sinks: Sinks) -> Result:
        """Run a script of this program, which reads or writes a file. Without a sandbox, the user
        has agreed to that."""
        with closing(await self._open(Confinement.NONE, spec)) as run:
            run.approve()
            return await run.exec(argv, sinks=sinks)

    async def _prepare(self, spec: RunSpec) -> UnsandboxedRunner:
        return await self._open(Confinement.NONE, spec)

    async def _open(
        self, confinement: Confinement, spec: RunSpec, why: Sentence | None = None
    ) -> UnsandboxedRunner:
        profile = load_profile(self._paths, spec)
        if confinement is Confinement.NONE:
            run = UnsandboxedRunner(spec, profile=profile, environ=self._environ)
        else:
            run = InnerRunner(spec, confinement, profile=profile, environ=self._environ)
        run.why = why
        await run.prepare()
        return run


class SandboxExecutor(Executor):
    """Runs commands in a sandbox, with their changes in an overlay."""

    is_recorded = True

    @asynccontextmanager
    async def prepare(
        self, spec: RunSpec, live: Live | None = None, ask_user: AskUser | None = None
    ) -> AsyncIterator[Run]:
        events = sys.modules.get("gi.events")
        if events is None or not isinstance(asyncio.get_running_loop(), events.GLibEventLoop):
            live = None  # only a window shows what changes while a command runs
        hear = _LastChange(live).hear if live is not None else None
        ask_host = _host_asker(ask_user) if ask_user is not None else None
        run = await asyncio.to_thread(self.prepare_recorded, spec, hear, ask_host)
        await asyncio.to_thread(lambda: run.plan)
        yield run

    def prepare_recorded(
        self, spec: RunSpec, live: Live | None = None, ask_host: AskHost | None = None
    ) -> PreparedRun:
        return prepare_run(spec, self._paths, self._environ, live=live, ask_host=ask_host)

    async def run_script(self, spec: RunSpec, argv: Sequence[str], sinks: Sinks) -> Result:
        return await self.prepare_recorded(spec).exec(argv, sinks=sinks)


class FlatpakExecutor(Executor):
    """Runs commands in a Flatpak's inner sandbox. Where the portal does not offer that, they run
    without one: offline if possible."""

    async def _prepare(self, spec: RunSpec) -> UnsandboxedRunner:
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


class _LastChange:
    """Has the loop call `live` with the last change that another thread reports. Those before it
    are left out while the loop is busy."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._loop = asyncio.get_running_loop()
        self._last: FileEvent | None = None
        self._is_waiting = False

    def hear(self, event: FileEvent) -> None:
        self._last = event
        if not self._is_waiting:
            self._is_waiting = True
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        # First: what is reported from now on needs another call.
        self._is_waiting = False
        if self._last is not None:
            self._live(self._last)


def _host_asker(ask_user: AskUser) -> AskHost:
    """Return what other threads ask about hosts with, for a coroutine on this loop."""
    loop = asyncio.get_running_loop()

    def begin(
        host: str, port: int, address: str, answered: Callable[[bool], None]
    ) -> Callable[[], object]:
        async def ask() -> None:
            allowed = False
            try:
                allowed = await ask_user(host, port, address)
            except Exception as error:  # noqa: BLE001 - reported
                # Nobody waits for this.
                loop.call_exception_handler({"message": "a question failed", "exception": error})
            finally:
                answered(allowed)

        return asyncio.run_coroutine_threadsafe(ask(), loop).cancel

    return begin


def find_executor(paths: Paths, environ: Mapping[str, str], project: str | None) -> Executor:
    """Decide how the commands of a project run; without a project, how they would. The first call
    tries out what this computer can do, which takes a while."""
    found = probe(paths, environ, writable=(os.path.realpath(project),) if project else ())
    if found.can_wrap:
        return SandboxExecutor(paths, environ, found)
    if environ.get("FLATPAK_ID"):
        return FlatpakExecutor(paths, environ, found)
    return Executor(paths, environ, found)
