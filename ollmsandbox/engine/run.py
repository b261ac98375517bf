# SPDX-License-Identifier: GPL-3.0-or-later
"""One sandboxed run, from a front end's request to settled changes.

    finish_interrupted_runs(paths, ...)      at the start, and before each run of a model
    run = prepare_run(spec, paths, ...)      nothing is on disk yet; `run.plan` words the question
    result = run.run(command)                the command runs, and its changes are settled
    run.record_end(result.exit_code)
    run.report                               what became of the changes

Where there may be no sandbox, executor.py chooses what takes its place.

Every front end uses these: none of them puts profile, root file system, recorder and sandbox
together by hand. The database is not imported before a run has changed something: loading it takes
longer than starting a sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..paths import Paths
from ..project import DAILY
from ..project.recorder import Recorder, needs_recovery
from ..sandbox.bubble import Bubble
from ..sandbox.plan.folders import find_project
from ..sandbox.profile.file import read_profile
from ..sandbox.profile.profile import Profile
from ..sandbox.spec import RunSpec
from .agents import agent_command, prepare_agent
from .system import System, system_of

if TYPE_CHECKING:
    from ..project.change import Report
    from ..project.projects import ProjectManager
    from ..project.recover import RecoveryResult
    from ..sandbox.monitor import FileEvent
    from ..sandbox.network.network import AskHost, HostNetwork
    from ..sandbox.network.relay import Service
    from ..sandbox.rootfs.install import InstallProgress
    from ..sandbox.rootfs.store import Installed


def load_profile(paths: Paths, spec: RunSpec, *, command: str = "") -> Profile:
    """Return the profile of a run as it is for a command, with the user's own limits in place of
    the profile's."""
    profile = read_profile(spec.profile, paths.profiles, paths.cache)
    if profile.commands and command:
        from ..permission.shell import UnparsedCommand, read_command_line

        try:
            profile = profile.for_command(read_command_line(command))
        except UnparsedCommand:
            profile = profile.for_command(())
    return profile.with_limits(spec.limits)


def rootfs_for(
    paths: Paths, environ: Mapping[str, str], project: str, *, use: bool | None = None
) -> Installed | None:
    """Return the root file system to run commands in, or None for the host's own programs.

    `use` overrides what is set for the project. Raise if it is needed and not installed.
    """
    if use is None:
        use = system_of(paths, project) is System.ALPINE
    if not use:
        return None
    from ..sandbox.rootfs.store import need_rootfs

    return need_rootfs(paths, environ)


def awaits_rootfs(paths: Paths, environ: Mapping[str, str], project: str) -> bool:
    """Return whether the user has chosen Alpine for the project, and it is not installed."""
    if system_of(paths, os.path.realpath(project)) is System.HOST:
        return False
    from ..sandbox.rootfs.store import find_rootfs

    return find_rootfs(paths, environ) is None


async def prepare_rootfs(
    paths: Paths,
    environ: Mapping[str, str],
    project: str,
    progress: Callable[[InstallProgress], None],
) -> None:
    """Install Alpine if the project's first command needs it. A cancellation stops that, and only
    the download is left."""
    if awaits_rootfs(paths, environ, project):
        from ..sandbox.rootfs.rootfs import Rootfs

        await Rootfs(paths, environ).prepare(progress)


def finish_interrupted_runs(
    paths: Paths, *, clean_up: bool, always: bool = False
) -> RecoveryResult | None:
    """Finish what a crash or a full disk interrupted; return None if there was nothing to do.

    `clean_up` also removes old versions, once a day, and lists pending changes that are missing
    from the records. Front ends do that when they start (the window also daily), not before each
    run. `always` also opens the database if no trace of an interruption is found: it may be
    damaged.
    """
    if not always and not needs_recovery(paths):
        return None
    from ..project.recover import RecoveryResult, finish_leftovers, recover

    if clean_up:
        return recover(paths, [_remove_old_caches])
    reports = finish_leftovers(paths)
    return RecoveryResult(
        tuple(report for report in reports if report.changes),
        errors=tuple(error for report in reports for error in report.errors),
    )


def _remove_old_caches(manager: ProjectManager) -> None:
    from ..project.settings import KEEP_CACHES_DAYS, KEEP_CACHES_MIB
    from ..sandbox.caches import remove_old_caches

    unused, most = KEEP_CACHES_DAYS.read(manager) * DAILY, KEEP_CACHES_MIB.read(manager) << 20
    remove_old_caches(manager.paths, unused=unused, most=most)


def prepare_run(
    spec: RunSpec,
    paths: Paths,
    environ: Mapping[str, str],
    *,
    live: Callable[[FileEvent], None] | None = None,
    ask_host: AskHost | None = None,
    services: Mapping[str, Service] | None = None,
) -> PreparedRun:
    """Put a run together without starting it. `live` hears of changes while the command
    runs. `ask_host` asks the user about hosts that the run does not name. `services` are names that
    exist only in this sandbox."""
    spec = spec._replace(project=find_project(spec.project, paths))
    profile = load_profile(paths, spec, command=spec.command)
    profile, spec = prepare_agent(profile, spec, paths, environ)
    rootfs = rootfs_for(paths, environ, spec.project, use=spec.use_rootfs)
    recorder = Recorder(spec, paths)
    hosts = None
    if spec.by_host:
        from ..sandbox.network.hosts import parse_hosts
        from ..sandbox.network.network import HostNetwork
        from ..sandbox.network.ssh import SshAccess

        rules = parse_hosts(spec.hosts)
        ssh = SshAccess(rules, environ, paths.runtime) if spec.ssh_agent else None
        hosts = HostNetwork(rules, ask_host, services, ssh, environ)
    return PreparedRun(recorder, spec, profile, environ, live, rootfs, hosts)


class PreparedRun(Bubble):
    """A run that can be described, approved and then executed once; its changes are recorded."""

    def __init__(
        self,
        recorder: Recorder,
        spec: RunSpec,
        profile: Profile,
        environ: Mapping[str, str],
        live: Callable[[FileEvent], None] | None,
        rootfs: Installed | None,
        hosts: HostNetwork | None,
    ) -> None:
        super().__init__(
            spec,
            profile=profile,
            environ=environ,
            keeper=recorder,
            live=live,
            rootfs=rootfs,
            hosts=hosts,
        )
        self._recorder = recorder

    @property
    def report(self) -> Report | None:
        """The report on the command's changes; None until they are settled."""
        return self._recorder.report

    def is_outdated(self) -> bool:
        """Return whether other pending changes than in the plan lie above the project now."""
        return list(self.overlay.roots) != self._recorder.roots()

    def complete(self, command: str | Sequence[str]) -> str | Sequence[str]:
        """Return the command as it is run: a whole agent gets words of its own."""
        return agent_command(self._profile.agent, command, self._environ)

    def record_end(self, exit_code: int | None = None) -> None:
        """Add to the history the exit status, if the command was not stopped, and the hosts that it
        tried to reach."""
        self._recorder.note_end(self.run_id, exit_code, self.hosts)

    def has_begun_to_apply(self) -> bool:
        """Return whether the project is being written to: this must not be interrupted."""
        return self._recorder.has_begun()

    def has_unsettled_changes(self) -> bool:
        """Return whether the command wrote something that is still in its overlay."""
        if self._recorder.is_captured(self.run_id):
            return True
        try:
            return not self.overlay.is_untouched()
        except FileNotFoundError:
            return False  # the overlay was removed: it was empty
