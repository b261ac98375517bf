# SPDX-License-Identifier: GPL-3.0-or-later
"""PlainRunner: no sandbox, where none is possible. Every command asks, each time anew."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gi.repository import Gio, GLib

from ..errors import DeniedError, SandboxError
from ..paths import Paths, make_folder
from . import profile_file
from .host import below
from .launch import SHELL, check_words
from .places import find_project, find_working_dir
from .process import Running, Sinks
from .profile import Profile
from .result import Result, Stop
from .watch import watch

Ask = Callable[[str], Awaitable[bool]]

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
# What still holds a pipe after all was killed is not waited for.
_PATIENCE = 2.0


class PlainRunner:
    """Runs a command as it is. It cannot be made without somebody to ask."""

    def __init__(
        self,
        project: str | os.PathLike[str],
        *,
        ask: Ask,
        working_dir: str | None = None,
        profile: Profile | None = None,
        timeout: float | None = None,
        environ: Mapping[str, str] | None = None,
        capture: int = 1 << 20,
    ) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self._paths = Paths.from_environ(self._environ)
        self.project = find_project(project, self._paths)
        self._ask = ask
        self._working_dir = working_dir
        self._profile = profile or profile_file.load(
            profile_file.DEFAULT, self._paths.profiles, self._paths.cache
        )
        self._limits = self._profile.limits
        if timeout is not None:
            self._limits = replace(self._limits, time=timeout)
        self._capture = capture
        self._running: Running | None = None

    def stop(self) -> None:
        if self._running is not None:
            self._running.stop(Stop.PERSON)

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        sinks: Sinks = Sinks(),  # noqa: B008 - it is frozen
    ) -> Result:
        text = command if isinstance(command, str) else shlex.join(command)
        if not text.strip():
            raise SandboxError("The command is empty.", "Name a command to run.")
        argv = [SHELL, "-c", "--", command] if isinstance(command, str) else list(command)
        check_words(argv)
        folder = self._folder()
        if not await self._ask(f"Run command without a sandbox: {text}?"):
            raise DeniedError("The command was not allowed, and did not run.")
        process = self._start(argv, folder)
        running = Running(
            stdout=_descriptor(process.get_stdout_pipe()),
            stderr=_descriptor(process.get_stderr_pipe()),
            ended=_ended(process),
            kill=lambda: _end(process),
            capture=self._capture,
            sinks=sinks,
        )
        self._running = running
        pid = int(process.get_identifier() or 0)
        if sinks.started is not None:
            sinks.started(pid)
        limits = watch(self._limits, pid, (self.project,))
        try:
            await running.wait(asyncio.ensure_future(limits))
            await running.drain(_PATIENCE)
        finally:
            self._running = None
            await running.close()
        if process.get_if_exited():
            return running.result(process.get_exit_status())
        return running.result(128 + process.get_term_sig())

    def _folder(self) -> str:
        if self._working_dir == "playground":
            return str(make_folder(self._paths.playground))
        inside = f"{self._paths.real_home}/playground"
        found = find_working_dir(self._working_dir, self.project, self._paths, hidden=(), empty=())
        if below(found, inside):
            return f"{self._paths.playground}{found[len(inside) :]}"
        return found

    def _start(self, argv: Sequence[str], folder: str) -> Gio.Subprocess:
        launcher = Gio.SubprocessLauncher.new(
            Gio.SubprocessFlags.STDOUT_PIPE | Gio.SubprocessFlags.STDERR_PIPE
        )
        environment = self._profile.environment(self._environ)
        launcher.set_environ([f"{name}={value}" for name, value in environment.items()])
        launcher.set_cwd(folder)
        try:
            return launcher.spawnv([sys.executable, "-I", "-S", str(_SUPERVISOR), *argv])
        except GLib.Error as error:
            raise SandboxError(f"The command cannot be started: {error.message}.") from error


def _end(process: Gio.Subprocess) -> None:
    """The supervisor ends the whole tree, then itself. A command may have stopped it."""
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)


async def _ended(process: Gio.Subprocess) -> None:
    # Not awaited itself: what PyGObject 3.50 returns cannot be cancelled when the loop ends.
    ended = asyncio.Event()
    process.wait_async(None, lambda *_: ended.set())
    await ended.wait()


def _descriptor(stream: Gio.InputStream | None) -> int:
    assert isinstance(stream, Gio.UnixInputStream)
    return int(stream.get_fd())
