# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a command without a sandbox, where none is possible. The user approves each command."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Protocol

from gi.repository import Gio, GLib

from ... import N_
from ...errors import DeniedError, SandboxError, Sentence
from ...loop import in_stoppable_thread
from ...paths import Paths, is_inside, make_folder
from ..launch import check_command, text_shell
from ..limits import DiskWatch, watch_limits
from ..plan.folders import find_project, find_working_dir
from ..process import Result, Running, Sinks, Stop
from ..profile.file import read_profile
from ..profile.profile import Profile
from ..refusals import NETWORK_OFF, misses_network
from ..spec import RunSpec

_SUPERVISOR = Path(__file__).with_name("child.py")
# Seconds to wait for output after the end: a process that survived may hold the pipe.
_DRAIN_TIMEOUT = 2.0


class Process(Protocol):
    """A started command."""

    pid: int
    stdout: int
    stderr: int

    async def ended(self) -> None: ...

    def kill(self) -> None:
        """Kill the command and all its processes."""

    def exit_code(self) -> int: ...


class Confinement(Enum):
    """The kinds of confinement for a command whose changes are not recorded."""

    # A Flatpak's inner sandbox.
    INNER = auto()
    # As little as the Flatpak around this program, but without the network.
    OFFLINE = auto()
    NONE = auto()


class UnsandboxedRunner:
    """Runs a command as it is: `prepare`, then `approve` once the user has agreed, then `exec`."""

    confinement = Confinement.NONE
    # Why there is no better sandbox, if that depends on the project.
    why: Sentence | None = None

    def __init__(
        self,
        spec: RunSpec,
        *,
        profile: Profile | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self._paths = Paths.from_environ(self._environ)
        self._spec = spec
        self.project = find_project(spec.project, self._paths)
        profile = profile or read_profile(spec.profile, self._paths.profiles, self._paths.cache)
        self._profile = profile.with_time(spec.timeout)
        # Where the command starts; "" until it is prepared.
        self._folder = ""
        self._is_approved = False
        self._running: Running | None = None

    async def prepare(self) -> None:
        """Prepare what is needed before the user is asked; raise an error if a command could not
        start. Undo it with `close`."""
        if self._spec.command:
            check_command([self._spec.command])
        self._folder = self._find_folder()

    def approve(self) -> None:
        """Note that the user lets the next command run in what was prepared."""
        self._is_approved = bool(self._folder)

    def stop(self) -> bool:
        """Kill the command; return whether there is one."""
        if (running := self._running) is None:
            return False
        running.stop(Stop.PERSON)
        return True

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        sinks: Sinks = Sinks(),  # noqa: B008 - it is frozen
    ) -> Result:
        if not (command.strip() if isinstance(command, str) else command):
            raise SandboxError(N_("The command is empty."), N_("Enter a command."))
        argv = [text_shell(), "-c", "--", command] if isinstance(command, str) else list(command)
        check_command(argv)
        if not self._is_approved:
            raise DeniedError(N_("The command was denied and did not run."))
        self._is_approved = False
        result = await self._follow(await self._start(argv), sinks)
        is_offline = self.confinement is not Confinement.NONE and not self._spec.network
        if is_offline and misses_network(result):
            return result._replace(refusals=(NETWORK_OFF,))
        return result

    async def _follow(self, process: Process, sinks: Sinks) -> Result:
        # The end is reported on the loop, and the thread below waits for it.
        over = os.eventfd(0, os.EFD_CLOEXEC)
        ending = asyncio.ensure_future(process.ended())
        ending.add_done_callback(lambda _ended: os.eventfd_write(over, 1))
        running = Running(
            stdout=process.stdout,
            stderr=process.stderr,
            ended=over,
            kill=process.kill,
            capture=self._spec.capture,
            sinks=sinks,
        )
        self._running = running
        limits = self._profile.limits
        disk = DiskWatch(limits, shared=[self.project], unlock=False)

        def work() -> None:
            with running:
                if sinks.started is not None:
                    sinks.started(process.pid)
                running.wait(lambda ended: watch_limits(limits, process.pid, disk, ended))
                running.drain(_DRAIN_TIMEOUT)

        try:
            await in_stoppable_thread("command", work, self.stop)
            await ending
        finally:
            self._running = None
            os.close(over)
        return running.result(process.exit_code())

    def _find_folder(self) -> str:
        wanted = self._spec.working_dir
        if wanted == "playground":
            return str(make_folder(self._paths.playground))
        inside = f"{self._paths.real_home}/playground"
        found = find_working_dir(wanted, self.project, self._paths, hidden=(), empty=())
        if is_inside(found, inside):
            return f"{self._paths.playground}{found[len(inside) :]}"
        return found

    def close(self) -> None:
        """Undo `prepare`, whether a command ran or not."""
        self._folder = ""
        self._is_approved = False

    async def _start(self, argv: Sequence[str]) -> Process:
        launcher = Gio.SubprocessLauncher.new(
            Gio.SubprocessFlags.STDOUT_PIPE | Gio.SubprocessFlags.STDERR_PIPE
        )
        environment = self._profile.environment(self._environ)
        launcher.set_environ([f"{name}={value}" for name, value in environment.items()])
        launcher.set_cwd(self._folder)
        try:
            started = launcher.spawnv([sys.executable, "-I", "-S", str(_SUPERVISOR), *argv])
        except GLib.Error as error:
            raise SandboxError(
                N_("The command could not be started: {why}."), why=error.message
            ) from error
        return UnsandboxedProcess(started)


class UnsandboxedProcess:
    def __init__(self, process: Gio.Subprocess) -> None:
        self._process = process
        self.pid = int(process.get_identifier() or 0)
        self.stdout = _descriptor(process.get_stdout_pipe())
        self.stderr = _descriptor(process.get_stderr_pipe())

    async def ended(self) -> None:
        # PyGObject 3.50's awaitable cannot be cancelled when the loop ends, so do not use it.
        ended = asyncio.Event()
        self._process.wait_async(None, lambda *_: ended.set())
        await ended.wait()

    def kill(self) -> None:
        """Have the supervisor kill all processes. SIGCONT: the command may have stopped it."""
        self._process.send_signal(signal.SIGTERM)
        self._process.send_signal(signal.SIGCONT)

    def exit_code(self) -> int:
        if self._process.get_if_exited():
            return self._process.get_exit_status()
        return 128 + self._process.get_term_sig()


def _descriptor(stream: Gio.InputStream | None) -> int:
    assert stream is not None
    # Newer versions of PyGObject have its class in another module, and warn of this one.
    return int(stream.get_property("fd"))
