# SPDX-License-Identifier: GPL-3.0-or-later
"""The project, settings and permissions that the tools of a session work with."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Protocol

from .. import N_
from ..engine.executor import Executor, find_executor
from ..engine.run import load_profile, prepare_rootfs, rootfs_for
from ..i18n import _
from ..paths import Paths
from ..sandbox.plan.folders import find_project
from ..sandbox.profile.profile import DEFAULT_PROFILE, Limits, Profile
from ..sandbox.rootfs.store import Installed
from ..sandbox.spec import Mode, RunSpec
from .base import Stream, ToolError, UserQuestion, Watcher

if TYPE_CHECKING:
    from ..permission.provider import Provider

    # It loads the HTTP client.
    from ..sandbox.rootfs.install import InstallProgress


class QuestionAsker(Protocol):
    """Shows the model's questions to the user. Raises Unanswered if nobody answers."""

    async def ask_user(self, question: UserQuestion) -> str: ...


@dataclass(kw_only=True)
class ToolPreferences:
    """The settings that a user may change during a session."""

    mode: Mode = Mode.AUTO
    profile_name: str = DEFAULT_PROFILE
    ask_every_command: bool = False
    # The user's limits, which replace those of the profile.
    own_limits: Limits = field(default_factory=Limits)
    # Whether the user may allow a host for the whole session.
    session_hosts: bool = False


@dataclass
class ToolContext(ToolPreferences):
    """Its fields may change between two calls; a call that has begun keeps the earlier values."""

    project: str | None
    paths: Paths
    environ: Mapping[str, str]
    permissions: Provider
    # Whether web pages may come from this computer and the local network.
    allow_private: bool = False
    session_id: str = ""
    # Folders outside the project about which the user said no after a command had failed there.
    declined_folders: set[str] = field(default_factory=set)
    # Who passes the model's questions to the user; None if nobody is there.
    questions: QuestionAsker | None = None
    # Whether the model can be shown pictures.
    sees_pictures: bool = False

    def use_preferences(self, preferences: ToolPreferences) -> None:
        for one in fields(ToolPreferences):
            setattr(self, one.name, getattr(preferences, one.name))

    def folder(self) -> str:
        """Return the project's folder with links resolved; raise an error if it is unusable."""
        if not self.project:
            raise ToolError(N_("No active project available for bubblewrap execution"))
        return find_project(self.project, self.paths)

    def profile(self, command: str = "") -> Profile:
        """Return the profile, as it is for a command."""
        return load_profile(self.paths, self.spec(self.project or ""), command=command)

    def spec(self, project: str) -> RunSpec:
        """Return the description of a run with the session's settings."""
        return RunSpec(
            project,
            mode=self.mode,
            profile=self.profile_name,
            limits=self.own_limits,
            session_id=self.session_id,
        )

    def executor(self) -> Executor:
        """Return what runs the project's commands. The first call takes a while."""
        return find_executor(self.paths, self.environ, self.project)

    async def ready_executor(self, project: str, watcher: Watcher) -> Executor:
        """Return what runs the project's commands, after Alpine was installed if they need it."""
        executor = await asyncio.to_thread(self.executor)
        if executor.is_recorded:
            await self._prepare_rootfs(project, watcher)
        return executor

    def rootfs(self) -> Installed | None:
        """Return the root file system of the project's commands; None is the host's own."""
        if not self.project:
            return None
        return rootfs_for(self.paths, self.environ, os.path.realpath(self.project))

    async def _prepare_rootfs(self, project: str, watcher: Watcher) -> None:
        """Install Alpine if the project's first call needs it. The progress is shown as output."""
        line = ""

        def show(progress: InstallProgress) -> None:
            nonlocal line
            step = progress.step
            amount = f" {100 * progress.done // progress.total} %" if progress.total else ""
            now = f"Alpine: {_(step.value)}{amount}"
            if now != line:
                line = now
                watcher.output(Stream.STDERR, f"\r\x1b[K{line}".encode())

        try:
            await prepare_rootfs(self.paths, self.environ, project, show)
        finally:
            if line:
                watcher.output(Stream.STDERR, b"\n")
