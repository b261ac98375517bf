# SPDX-License-Identifier: GPL-3.0-or-later
"""Bubble: one command, one sandbox, one result.

What is told of a sandbox while it runs: by bwrap, and by who stays in its control group.

Bubble: one command, one sandbox, one result.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from .. import N_
from ..errors import SandboxError, Sentence, in_lines
from ..paths import Paths, close_to_others, make_folder
from .launch import SHELL, Programs, check_words, make_order, open_descriptors
from .limits import KILLS, Hold, scope_for, watch
from .output import readable
from .overlay import Keeper, Overlay, Root
from .plan.folders import find_project
from .plan.host import Host
from .plan.plan import Plan, make_plan
from .probe.probe import Capabilities, probe
from .process import Result, Running, Sinks, Stop
from .profile import file
from .profile.profile import Profile
from .starter.client import shared_starter

if TYPE_CHECKING:
    from .monitor import FileEvent, Monitor
    from .rootfs.store import Installed


class Status:
    """bwrap tells its first process's id, and at the end how the command ended. All of it fits into
    the pipe, so it is read when it is needed."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._has_own_pids = False
        self._said = b""
        self.begun = False
        # A pidfd of the first process, where that is not bwrap itself.
        self.first = -1
        self.exit: int | None = None
        self.error = ""
        # How many processes the kernel ended for the memory limit.
        self.kills = 0

    def listen(self, descriptor: int, *, has_own_pids: bool) -> None:
        self._descriptor = descriptor
        self._has_own_pids = has_own_pids
        os.set_blocking(descriptor, False)

    def read(self) -> bool:
        """Whether more can come."""
        said = b"?"
        with contextlib.suppress(BlockingIOError):
            said = os.read(self._descriptor, 1 << 16)
            self._said += said
        *lines, self._said = self._said.split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                self._note(json.loads(line))
        return bool(said)

    async def read_all(self) -> None:
        while self.read():
            await readable(self._descriptor)

    def _note(self, status: dict[str, object]) -> None:
        code, pid, error = (status.get(key) for key in ("exit-code", "child-pid", "error"))
        if isinstance(error, str):
            self.error = error
        if isinstance(code, int):
            self.exit = code
        if isinstance(kills := status.get(KILLS), int):
            self.kills = kills
        if isinstance(pid, int) and not self.begun:
            self.begun = True
            if not self._has_own_pids:
                self._hold_first(pid, status.get("pid-namespace"))

    def _hold_first(self, pid: int, namespace: object) -> None:
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(pid)
            # The number may be another process's by now, if this one was quick.
            if os.stat(f"/proc/{pid}/ns/pid").st_ino == namespace:
                self.first = pidfd
            else:
                os.close(pidfd)


# A sandbox that has not started by then never will.
_PATIENCE = 15.0
# How long a process may take to die that waits for a disk or a device.
_LAST_BREATH = 10.0
_CAPTURE = 1 << 20


class Bubble:
    """`Bubble(project).exec(command)`: once, then it is spent.

    What the command changes is handed to the keeper. Without one it is a dry run: the project stays
    as it is. Who wants to see changes while they happen (`live`) needs a loop on GLib.
    """

    def __init__(
        self,
        project: str | os.PathLike[str],
        allow_network: bool = False,
        *,
        working_dir: str | None = None,
        profile: Profile | None = None,
        timeout: float | None = None,
        environ: Mapping[str, str] | None = None,
        capabilities: Capabilities | None = None,
        keeper: Keeper | None = None,
        live: Callable[[FileEvent], None] | None = None,
        capture: int = _CAPTURE,
        rootfs: Installed | None = None,
    ) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self._paths = Paths.from_environ(self._environ)
        self.project = find_project(project, self._paths)
        self._allow_network = allow_network
        self._working_dir = working_dir
        self._profile = profile or file.load(file.DEFAULT, self._paths.profiles, self._paths.cache)
        if timeout is not None:
            limits = replace(self._profile.limits, time=timeout)
            self._profile = replace(self._profile, limits=limits)
        self._capabilities = capabilities
        self._keeper = keeper
        roots = keeper.roots() if keeper else [Root(self.project)]
        about = keeper.about if keeper else {}
        self.overlay = Overlay(self._paths.cache, roots, about=about)
        self.monitor: Monitor | None = None
        if live is not None:
            from .monitor import Monitor

            self.monitor = Monitor(self.overlay.overlay_map, self.overlay.upper_folder)
            self.monitor.listen(live)
        self._capture = capture
        # The system it runs in, if that is not the machine's own.
        self._rootfs = rootfs
        self._running: Running | None = None
        # The command is over, and what it changed is being taken care of.
        self.is_settling = False
        self._is_spent = False
        self._bwrap_pid = 0
        self._bwrap = -1
        self._hold: Hold | None = None
        self._status = Status()

    @staticmethod
    def can_wrap(environ: Mapping[str, str] | None = None) -> bool:
        """Whether commands can be sandboxed here. False in a Flatpak."""
        environ = os.environ if environ is None else environ
        return probe(Paths.from_environ(environ), environ).can_wrap

    @cached_property
    def plan(self) -> Plan:
        """What the run is made of; the permission question is worded from it."""
        make_folder(self._paths.playground)
        # What is in there may lend the person's rights to everybody who can reach it.
        close_to_others(self._paths.data)
        make: Callable[..., Plan] = make_plan
        if self._rootfs is not None:
            from .rootfs.plan import make_rootfs_plan

            make = partial(make_rootfs_plan, rootfs=self._rootfs)
        return make(
            overlay=self.overlay,
            working_dir=self._working_dir,
            network=self._allow_network,
            profile=self._profile,
            paths=self._paths,
            host=self._host,
            way=self._found.overlay,
            mounts_are_locked=self._found.namespaces != ("mount", "pid"),
            environ=self._environ,
        )

    def stop(self) -> None:
        """End the command and everything it started."""
        if self._running is not None:
            self._running.stop(Stop.PERSON)

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        sinks: Sinks = Sinks(),  # noqa: B008 - it is frozen
        stdin: int | None = None,
    ) -> Result:
        """Run shell text, or a program with its arguments, and return when all of it is dead.

        What happens to the output besides being captured is up to the sinks. Without `stdin`
        the command reads nothing.
        """
        argv = _argv(command, self._rootfs.shell if self._rootfs else SHELL)
        check_words(argv)
        self.plan  # noqa: B018 - what is wrong with it is said before anything is made
        if self._is_spent:
            raise SandboxError(
                N_("This sandbox has run a command already."), N_("Make another one.")
            )
        self._is_spent = True
        if self._rootfs is None:
            return await self._exec_and_settle(argv, sinks, stdin)
        lock = self._rootfs.hold()
        try:
            return await self._exec_and_settle(argv, sinks, stdin)
        finally:
            releasing = asyncio.to_thread(self._rootfs.release, lock)
            await asyncio.shield(asyncio.ensure_future(releasing))

    async def _exec_and_settle(self, argv: list[str], sinks: Sinks, stdin: int | None) -> Result:
        self.overlay.create()
        try:
            if self.monitor is not None:
                self.monitor.start()
            return await self._exec(argv, sinks, stdin)
        finally:
            if self.monitor is not None:
                self.monitor.stop()
            # However it ended: what was written until then is somebody's work.
            if self._status.first >= 0:
                # Somebody still lives who could write. The next start looks again.
                self.overlay.release()
            elif not self._is_set_aside():
                await asyncio.shield(asyncio.ensure_future(self._settle()))

    def _is_set_aside(self) -> bool:
        try:
            if not self.overlay.is_untouched():
                return False
            self.overlay.set_aside()
        except BaseException:
            self.overlay.release()
            raise
        # Not waited for here, but before the loop ends.
        asyncio.get_running_loop().run_in_executor(None, self._remove)
        return True

    async def _settle(self) -> None:
        self.is_settling = True
        try:
            if self._keeper is not None:
                await self._keeper.settle(self.overlay)
            await asyncio.to_thread(self.overlay.cleanup)
        except BaseException:
            # Nothing is lost: it is taken up again at the next start.
            self.overlay.release()
            raise
        finally:
            self.is_settling = False

    def _remove(self) -> None:
        try:
            self.overlay.cleanup()
        except OSError:
            # Nobody needs it. The next start looks again.
            self.overlay.release()

    async def _exec(self, argv: list[str], sinks: Sinks, stdin: int | None) -> Result:
        async with contextlib.AsyncExitStack() as closing:
            stdout, stderr = self._start(argv, stdin, closing)
            running = Running(
                stdout=stdout,
                stderr=stderr,
                ended=readable(self._bwrap),
                kill=self._kill,
                capture=self._capture,
                sinks=sinks,
            )
            closing.push_async_callback(running.close)
            self._running = running
            self.overlay.note_process(self._bwrap_pid)
            if sinks.started is not None:
                sinks.started(self._bwrap_pid)
            folders = (self.overlay.folder, str(self._paths.playground))
            written = None
            if self.monitor is not None:
                written = asyncio.Event()
                self.monitor.listen(lambda _event: written.set())
            limits = watch(self.plan.limits, self._bwrap_pid, folders, written)
            late = asyncio.get_running_loop().call_later(_PATIENCE, self._give_up)
            try:
                await running.wait(asyncio.ensure_future(limits))
            finally:
                late.cancel()
                await self._all_gone()
                self._running = None
            await self._hear_witness()
            if self._status.kills and self._status.exit != 0:
                running.note(Stop.MEMORY)
            await running.drain()
        return self._result(running, told=sinks.stderr is not None)

    @cached_property
    def _host(self) -> Host:
        return Host.look()

    @cached_property
    def _found(self) -> Capabilities:
        found = self._capabilities or probe(
            self._paths, self._environ, writable=(self.project,), mounts=self._host.mounts
        )
        if not found.can_wrap:
            cause, remedy = found.why_not()
            raise SandboxError(
                N_("Commands cannot be sandboxed here: {cause}"),
                N_("{remedy}\nSee `ollmsandbox doctor`."),
                cause=cause,
                remedy=remedy,
            )
        return found

    def _programs(self) -> Programs:
        found, memory = self._found, self._profile.limits.memory
        scope: tuple[str, ...] = ()
        if found.systemd_run and memory is not None and self._profile.own_memory_limit:
            scope = scope_for(found.systemd_run, memory, self._environ)
        return Programs(found.bwrap, found.namespaces, scope)

    def _start(
        self, argv: Sequence[str], stdin: int | None, closing: contextlib.AsyncExitStack
    ) -> tuple[int, int]:
        """Start bwrap; returns our ends of its output and errors."""
        programs = self._programs()
        order, arguments = make_order(
            self.plan, argv, programs, self._paths.runtime, first_descriptor=3
        )
        ours, theirs = [], []
        with contextlib.ExitStack() as handed_over:
            for _ in range(3):
                reader, writer = os.pipe()
                closing.callback(os.close, reader)
                handed_over.callback(os.close, writer)
                ours.append(reader)
                theirs.append(writer)
            if stdin is None:
                stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                handed_over.callback(os.close, stdin)
            options, filter_ = open_descriptors(self.plan, arguments, self._paths.cache)
            handed_over.callback(os.close, options)
            handed_over.callback(os.close, filter_)
            given = [stdin, theirs[0], theirs[1], options, filter_, theirs[2]]
            if programs.scope:
                self._hold = Hold()
                closing.callback(self._hold.release)
                handed_over.callback(os.close, self._hold.theirs)
                given.insert(-1, self._hold.theirs)
            started = shared_starter().start(order, given)
            closing.callback(os.close, started.pidfd)
            self._bwrap_pid, self._bwrap = started.pid, started.pidfd
            self._status.listen(ours[2], has_own_pids="pid" in order.namespaces)
        return ours[0], ours[1]

    async def _hear_witness(self) -> None:
        """The kernel may have ended something for the memory limit; only its group knows."""
        if self._hold is not None:
            self._hold.release()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_BREATH):
                    await self._status.read_all()

    def _kill(self) -> None:
        self._status.read()
        # The first process of a namespace takes all others with it.
        for pidfd in (self._status.first, self._bwrap):
            if pidfd >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    async def _all_gone(self) -> None:
        """Where bwrap ends with the command, what that left running dies a moment later."""
        self._status.read()
        if self._status.first < 0:
            return
        self._kill()
        try:
            async with asyncio.timeout(_LAST_BREATH):
                await readable(self._status.first)
        except TimeoutError as error:
            raise SandboxError(
                N_("A process of the command does not end: it waits for a disk or a device."),
                N_("What it changed is looked at when the program is started next."),
            ) from error
        os.close(self._status.first)
        self._status.first = -1

    def _give_up(self) -> None:
        self._status.read()
        if not self._status.begun:
            self._kill()

    def _result(self, running: Running, *, told: bool) -> Result:
        result = running.result(125 if self._status.exit is None else self._status.exit)
        if self._status.exit is None and result.stop is None:
            # bwrap's own words went where the command's errors would have gone.
            said = self._status.error or ("" if told else result.stderr.text.strip())
            what = (
                N_("The sandbox broke off; what the command did until then is done.")
                if self._status.begun and not said
                else N_("The sandbox could not be started; the command did not run.")
            )
            raise SandboxError(in_lines(Sentence(what), said), N_("See `ollmsandbox doctor`."))
        return result


def _argv(command: str | Sequence[str], shell: str) -> list[str]:
    if isinstance(command, str):
        return [shell, "-c", "--", command] if command.strip() else []
    # Through the shell, so that a program that is not there ends as people know it: with 127.
    return [shell, "-c", 'exec "$@"', "sh", *command] if command else []
