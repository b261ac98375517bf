# SPDX-License-Identifier: GPL-3.0-or-later
"""Run one command in one sandbox, and return its result."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from .. import N_
from ..errors import SandboxError, Sentence, in_lines
from ..paths import Paths, close_to_others, keep_own_rights, make_folder
from .caches import give_back_killed_logins
from .launch import SHELL, check_command, launch, text_shell
from .limits import DiskWatch, WitnessPipe, scope_command, watch_limits
from .output import wait_readable
from .overlay import Keeper, Overlay, Root
from .plan.folders import find_project
from .plan.host import Host
from .plan.host_plan import make_host_plan
from .plan.mounts import AgentSettings
from .plan.plan import Plan, PlanInputs
from .plan.projects import other_projects
from .probe.probe import Capabilities, probe
from .process import Result, Running, Sinks, Stop
from .profile.file import read_profile
from .profile.profile import Profile
from .settings_layer import SettingsLayer
from .spec import RunSpec
from .status import BwrapStatus

if TYPE_CHECKING:
    from .monitor import FileEvent, Monitor
    from .network.hosts import HostUse
    from .network.inside import NetworkNamespace
    from .network.network import HostNetwork
    from .network.publish import CommandPorts
    from .rootfs.store import Installed
    from .terminal import CommandTerminal


# A sandbox that has not started after this many seconds never will.
_START_TIMEOUT = 15.0
# Seconds that a process may take to die if it waits for a disk or a device.
_KILL_TIMEOUT = 10.0
# Seconds to wait for the caches at most, and between two attempts.
_CACHES_TIMEOUT = 20.0


class Bubble:
    """A sandbox for a single command: `await Bubble(RunSpec(project)).exec(command)`, or `run` for
    callers without an event loop.

    The keeper receives what the command changes. Without one it is a dry run, which leaves the
    project as it is. `live` is called for changes while the command runs, by another thread.
    """

    def __init__(
        self,
        spec: RunSpec,
        *,
        profile: Profile | None = None,
        environ: Mapping[str, str] | None = None,
        capabilities: Capabilities | None = None,
        keeper: Keeper | None = None,
        live: Callable[[FileEvent], None] | None = None,
        rootfs: Installed | None = None,
        hosts: HostNetwork | None = None,
    ) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self._paths = Paths.from_environ(self._environ)
        if hosts is not None:
            spec = spec._replace(network=True, by_host=True, ssh_agent=hosts.ssh is not None)
        self._spec = spec
        self._hosts = hosts
        self.project = find_project(spec.project, self._paths)
        profile = profile or read_profile(spec.profile, self._paths.profiles, self._paths.cache)
        self._profile = profile.with_time(spec.timeout)
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
        # The root file system it runs in, if that is not the host's.
        self.rootfs = rootfs
        self._running: Running | None = None
        self._ports: CommandPorts | None = None
        # Whether the command has ended and its changes are being settled.
        self.is_settling = False
        self._is_spent = False
        self._stopped = threading.Event()
        self._bwrap_pid = 0
        self._bwrap = self._block = -1
        # Held by a thread that kills or closes the pidfd of the first process.
        self._killing = threading.RLock()
        self._has_own_pids = False
        self._witness: WitnessPipe | None = None
        self._status = BwrapStatus()
        self._settings: list[SettingsLayer] = []
        # What became of an agent's settings, if the user should know.
        self.settings_notices: list[Sentence] = []

    @staticmethod
    def can_wrap(environ: Mapping[str, str] | None = None) -> bool:
        """Return whether commands can be sandboxed here. False in a Flatpak."""
        environ = os.environ if environ is None else environ
        return probe(Paths.from_environ(environ), environ).can_wrap

    @cached_property
    def plan(self) -> Plan:
        """Everything the run is allowed; the permission question is worded from it."""
        keep_own_rights(make_folder(self._paths.playground))
        make_folder(self._paths.cache)
        # Other users could act with the user's rights through files in there.
        close_to_others(self._paths.data)
        inputs = PlanInputs(
            overlay=self.overlay,
            spec=self._spec,
            profile=self._profile,
            paths=self._paths,
            host=self._host,
            method=self._machine.overlay,
            mounts_are_locked=self._machine.namespaces != ("mount", "pid"),
            environ=self._environ,
            can_cache=self._machine.can_cache,
            other_projects=other_projects(self._paths, self.project),
        )
        if self.rootfs is None:
            return make_host_plan(inputs)
        from .rootfs.plan import make_rootfs_plan

        return make_rootfs_plan(inputs, self.rootfs)

    @property
    def run_id(self) -> str:
        return self.overlay.run_id

    @property
    def hosts(self) -> tuple[HostUse, ...]:
        """The hosts that the command has tried to reach."""
        return self._hosts.uses if self._hosts is not None else ()

    @property
    def ports(self) -> CommandPorts:
        """The ports that the command listens on, and those that are published."""
        if self._ports is None:
            from .network.publish import CommandPorts  # few commands need it

            ours = self._hosts.places if self._hosts is not None else list[tuple[str, int]]
            self._ports = CommandPorts(self._find_namespace, ours)
        return self._ports

    def stop(self) -> bool:
        """Kill the command and everything it started, as soon as it has started; return whether
        that can still be done. Any thread may call this."""
        self._stopped.set()
        if (running := self._running) is not None:
            running.stop(Stop.PERSON)
        return not self.is_settling

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        sinks: Sinks = Sinks(),  # noqa: B008 - it is frozen
        stdin: int | None = None,
        terminal: CommandTerminal | None = None,
    ) -> Result:
        """Do what `run` does in another thread, which also calls the sinks. A cancellation stops
        the command, and takes effect when its changes are settled. If they are being settled, it
        takes effect at once, while that goes on."""
        from ..loop import in_stoppable_thread  # not for a command line, which has no loop

        run = partial(self.run, command, sinks=sinks, stdin=stdin, terminal=terminal)
        return await in_stoppable_thread("command", run, self.stop)

    def run(
        self,
        command: str | Sequence[str],
        *,
        sinks: Sinks = Sinks(),  # noqa: B008 - it is frozen
        stdin: int | None = None,
        terminal: CommandTerminal | None = None,
    ) -> Result:
        """Run shell text, or a program with its arguments; return when all its processes are dead
        and its changes are settled.

        The output is captured and also goes to the sinks. Without `stdin` the command reads
        nothing, if not from a terminal.
        """
        argv = _argv(self.complete(command), text_shell(self.rootfs.folder if self.rootfs else ""))
        check_command(argv)
        self.plan  # noqa: B018 - raises before anything is created
        if self._is_spent:
            raise SandboxError(
                N_("This sandbox has already run a command."), N_("Create another one.")
            )
        self._is_spent = True
        if self.rootfs is None:
            return self._run_and_settle(argv, sinks, stdin, terminal)
        lock = self.rootfs.hold()
        try:
            return self._run_and_settle(argv, sinks, stdin, terminal)
        finally:
            self.rootfs.release(lock)

    def complete(self, command: str | Sequence[str]) -> str | Sequence[str]:
        """Return the command as it is run. Subclasses may add to it."""
        return command

    def _run_and_settle(
        self, argv: list[str], sinks: Sinks, stdin: int | None, terminal: CommandTerminal | None
    ) -> Result:
        self.overlay.playground = self.plan.playground
        self.overlay.create()
        try:
            self._open_caches()
            layered = (mount for mount in self.plan.mounts if isinstance(mount, AgentSettings))
            self._settings = [SettingsLayer(mount) for mount in layered]
            if self._settings:
                give_back_killed_logins(self._paths)
            for layer in self._settings:
                layer.fill()
            if self.monitor is not None:
                self.monitor.start()
            return self._run(argv, sinks, stdin, terminal)
        finally:
            # However the command ended: what it wrote until then counts.
            self._end()

    def _end(self) -> None:
        try:
            if self.monitor is not None:
                self.monitor.stop()
        finally:
            self._release_or_settle()

    def _release_or_settle(self) -> None:
        if self._status.first >= 0:
            # A process that could write is still alive. The next start looks again.
            self.overlay.release()
            if self.plan.caches is not None:
                self.plan.caches.release()
        elif not self._remove_untouched():
            self._settle()

    def _open_caches(self) -> None:
        """Open the caches; wait a while if another program is merging or clearing them."""
        give_up = time.monotonic() + _CACHES_TIMEOUT
        while True:
            try:
                return self.plan.open_caches()
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise SandboxError(
                        N_("Another program is changing the caches of this project."),
                        N_("Try again later."),
                    ) from None
            if self._stopped.wait(0.05):
                raise SandboxError(Stop.PERSON.sentence)

    def _remove_untouched(self) -> bool:
        """Remove the overlay if the command wrote nothing; return whether that is so."""
        try:
            if not self._is_untouched():
                return False
        except BaseException:
            self.overlay.release()
            raise
        try:
            self._clean_up()
        except OSError:
            # Nothing in it is needed. The next start tries again.
            self.overlay.release()
        return True

    def _is_untouched(self) -> bool:
        if self._settings or self._has_new_caches() or self.overlay.has_playground_changes():
            return False
        return self.overlay.is_untouched()

    def _settle(self) -> None:
        self.is_settling = True
        try:
            for layer in self._settings:
                self.settings_notices += layer.empty()
            if self.plan.caches is not None and self._has_new_caches():
                self.plan.caches.keep()
            self.overlay.merge_playground()
            if self._keeper is not None and not self.overlay.is_untouched():
                self._keeper.settle(self.overlay)
            self._clean_up()
        except BaseException:
            # Nothing is lost: the next start takes it up again.
            self.overlay.release()
            raise
        finally:
            self.is_settling = False

    def _has_new_caches(self) -> bool:
        return self.plan.caches is not None and self.plan.caches.has_changes()

    def _clean_up(self) -> None:
        if self.plan.caches is not None:
            self.plan.caches.remove()
        self.overlay.cleanup()

    def _run(
        self, argv: list[str], sinks: Sinks, stdin: int | None, terminal: CommandTerminal | None
    ) -> Result:
        with contextlib.ExitStack() as closing:
            closing.callback(self._close_ports)
            if self._spec.publish:
                self.ports.open(self._spec.publish)
            if self._hosts is not None and self._hosts.ssh is not None:
                closing.callback(self._hosts.ssh.close)
                self._hosts.ssh.open(self.overlay.run_id)
            stdout, stderr = self._start(argv, stdin, terminal, closing)
            closing.callback(self._status.close)
            closing.callback(self._end_all)
            running = closing.enter_context(
                Running(
                    stdout=stdout,
                    stderr=stderr,
                    ended=self._bwrap,
                    kill=self._kill,
                    capture=self._spec.capture,
                    sinks=sinks,
                )
            )
            self._running = running
            if self._stopped.is_set():
                running.stop(Stop.PERSON)
            self.overlay.note_process(self._bwrap_pid)
            if self._hosts is not None:
                closing.callback(self._hosts.close)
            own, shared = [self.overlay.folder], [str(self._paths.playground)]
            if self.plan.caches is not None:
                own.append(self.plan.caches.own_folder)
                shared.append(self.plan.caches.plain)
            disk = DiskWatch(self.plan.limits, own, shared)
            self._wait_for_start()
            if self._spec.publish:
                self.ports.serve()
            if sinks.started is not None:
                sinks.started(self._bwrap_pid)
            clock = time.monotonic if terminal is None else terminal.clock
            running.wait(
                lambda over: watch_limits(self.plan.limits, self._bwrap_pid, disk, over, clock)
            )
            self._end_all()
            self._read_oom_kills()
            if self._status.kills and self._status.exit != 0:
                running.note(Stop.MEMORY)
            # Between two checks one call may have filled the disk.
            if not self._is_untouched() and (found := disk.exceeded()) is Stop.DISK:
                running.note(found)
            running.drain()
        return self._result(argv, running, stderr_was_shown=sinks.stderr is not None)

    @cached_property
    def _host(self) -> Host:
        return Host()

    @cached_property
    def _machine(self) -> Capabilities:
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

    def _start(
        self,
        argv: Sequence[str],
        stdin: int | None,
        terminal: CommandTerminal | None,
        closing: contextlib.ExitStack,
    ) -> tuple[int, int]:
        """Start bwrap and return our ends of its standard output and error."""
        found, memory = self._machine, self._profile.limits.memory
        scope: tuple[str, ...] = ()
        if found.systemd_run and memory is not None and self._profile.own_memory_limit:
            scope = scope_command(found.systemd_run, memory, self._environ)
        started = launch(self.plan, argv, found, self._paths, stdin, closing, terminal, scope)
        self._bwrap_pid, self._bwrap = started.pid, started.pidfd
        self._witness, self._block = started.witness, started.block
        self._has_own_pids = started.has_own_pids
        self._status.listen(started.status, hold_first=not started.has_own_pids)
        return started.stdout, started.stderr

    def _wait_for_start(self) -> None:
        """Wait until bwrap has made the sandbox. With the network by host, make the sockets in its
        network namespace before the command starts."""
        try:
            self._status.wait_for_start(self._bwrap, _START_TIMEOUT)
            if not self._status.begun:
                self._kill()
            elif self._hosts is not None and (namespace := self._find_namespace()) is not None:
                self._hosts.make_sockets(namespace)
                self._hosts.serve()
        except BaseException:
            # First: it must not start now.
            self._kill()
            raise
        finally:
            if self._block >= 0:
                os.close(self._block)

    def _find_namespace(self) -> NetworkNamespace | None:
        """Return the network namespace of the command while it runs, if it has one of its own."""
        from .network.inside import NetworkNamespace

        if self._running is None or not self.plan.has_own_network:
            return None
        self._status.read()
        if not self._status.begun:
            return None
        # bwrap is in a PID namespace of its own, and numbers processes as they are there.
        proc = f"/proc/{self._bwrap_pid}/root/proc" if self._has_own_pids else "/proc"
        return NetworkNamespace(f"{proc}/{self._status.child}", self._status.network)

    def _close_ports(self) -> None:
        if self._ports is not None:
            self._ports.close()

    def _read_oom_kills(self) -> None:
        """Learn from the control group whether the kernel killed a process for its memory."""
        if self._witness is not None:
            self._witness.release()
            self._status.read_all(_KILL_TIMEOUT)

    def _kill(self) -> None:
        self._status.read()
        with self._killing:
            # The first process of a namespace takes all others with it.
            for pidfd in (self._status.first, self._bwrap):
                if pidfd >= 0:
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    def _end_all(self) -> None:
        """Kill what the command left running, where bwrap itself is not the first process."""
        self._running = None
        self._status.read()
        if self._status.first < 0:
            return
        self._kill()
        if not wait_readable(self._status.first, seconds=_KILL_TIMEOUT):
            raise SandboxError(
                N_(
                    "A process of the command cannot be ended because it is waiting for a "
                    "disk or device."
                ),
                N_("Its changes will be recovered the next time you start the program."),
            )
        with self._killing:
            os.close(self._status.first)
            self._status.first = -1

    def _result(self, argv: list[str], running: Running, *, stderr_was_shown: bool) -> Result:
        result = running.result(125 if self._status.exit is None else self._status.exit)
        if self._status.exit is None and result.stop is None:
            # bwrap writes its own errors to the command's standard error.
            own = "" if stderr_was_shown else result.stderr.text.strip()
            error = self._status.error or own
            what = (
                N_("The sandbox ended unexpectedly. What the command did until then is kept.")
                if self._status.begun and not error
                else N_("The sandbox could not start, so the command did not run.")
            )
            raise SandboxError(in_lines(Sentence(what), error), N_("See `ollmsandbox doctor`."))
        left = self._status.left_running
        is_silent = not result.stdout.total and not result.stderr.total
        hosts = self.hosts
        if not left and is_silent and not result.exit_code and not hosts:
            return result
        from .refusals import find_refusals  # `run -- true` need not wait for it

        refused = filter(None, (use.refusal for use in hosts))
        refusals = (*find_refusals(self.plan, argv, result), *refused)
        return result._replace(left_running=left, refusals=refusals, hosts=hosts)


def _argv(command: str | Sequence[str], shell: str) -> list[str]:
    if isinstance(command, str):
        return [shell, "-c", "--", command] if command.strip() else []
    # Through a shell, so that a missing program ends with the usual status of 127.
    return [SHELL, "-c", 'exec "$@"', "sh", *command] if command else []
