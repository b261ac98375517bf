# SPDX-License-Identifier: GPL-3.0-or-later
"""The project, settings and permissions that the tools of a session work with."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from .. import N_
from ..engine.run import (
    Confinement,
    PreparedRun,
    load_profile,
    prepare_rootfs,
    prepare_run,
    prepare_unrecorded_run,
    rootfs_for,
)
from ..errors import OllmSandboxError
from ..i18n import _
from ..paths import Paths, is_inside
from ..permission.request import PermissionRequest, Verdict
from ..project.mode import Mode
from ..sandbox.monitor import FileEvent
from ..sandbox.plan.folders import find_project
from ..sandbox.probe.probe import Capabilities, probe
from ..sandbox.profile.profile import DEFAULT_PROFILE, Limits, Profile
from ..sandbox.rootfs.store import Installed
from ..sandbox.unsandboxed.runner import Ask, UnsandboxedRunner
from .base import Stream, ToolError, UserQuestion, Watcher

if TYPE_CHECKING:
    # It loads the HTTP client.
    from ..sandbox.rootfs.install import InstallProgress


class Permissions(Protocol):
    """Answers a request by a rule, or asks the user."""

    async def decide(self, request: PermissionRequest) -> Verdict: ...


class QuestionAsker(Protocol):
    """Shows the model's questions to the user. Raises Unanswered if nobody answers."""

    async def ask_user(self, question: UserQuestion) -> str: ...


@dataclass(frozen=True)
class ToolPreferences:
    """The settings that a user may change during a session."""

    mode: Mode
    profile_name: str
    ask_every_command: bool
    # The user's limits, which replace those of the profile.
    own_limits: Limits


@dataclass
class ToolContext:
    """Its fields may change between two calls; a call that has begun keeps the earlier values."""

    project: str | None
    paths: Paths
    environ: Mapping[str, str]
    permissions: Permissions
    mode: Mode = Mode.AUTO
    profile_name: str = DEFAULT_PROFILE
    ask_every_command: bool = False
    # The user's limits, which replace those of the profile.
    own_limits: Limits = field(default_factory=Limits)
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
        self.mode = preferences.mode
        self.profile_name = preferences.profile_name
        self.ask_every_command = preferences.ask_every_command
        self.own_limits = preferences.own_limits

    def folder(self) -> str:
        """Return the project's folder with links resolved; raise ToolError if it is unusable."""
        if not self.project:
            raise ToolError(N_("No active project available for bubblewrap execution"))
        try:
            return find_project(self.project, self.paths)
        except OllmSandboxError as error:
            raise ToolError(error.message, error.remedy) from error

    def profile(self, command: str = "") -> Profile:
        """Return the profile, as it is for a command."""
        return load_profile(self.paths, self.profile_name, self.own_limits, command=command)

    def capabilities(self) -> Capabilities:
        """Return what this computer can do. The first call tries it out, which takes a while."""
        writable = (os.path.realpath(self.project),) if self.project else ()
        return probe(self.paths, self.environ, writable=writable)

    def can_wrap(self) -> bool:
        return self.capabilities().can_wrap

    def rootfs(self) -> Installed | None:
        """Return the root file system of the project's commands; None is the host's own."""
        if not self.project:
            return None
        return rootfs_for(self.paths, self.environ, os.path.realpath(self.project))

    async def prepare_rootfs(self, project: str, watcher: Watcher) -> None:
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

    def prepare_run(
        self,
        project: str,
        *,
        command: str = "",
        call_id: str = "",
        mode: Mode | None = None,
        network: bool = False,
        working_dir: str | None = None,
        timeout: float | None = None,
        live: Callable[[FileEvent], None] | None = None,
        capture: int = 1 << 20,
    ) -> PreparedRun:
        """Put a run together with the session's settings. `mode` overrides the session's."""
        return prepare_run(
            project,
            self.paths,
            self.environ,
            command=command,
            network=network,
            working_dir=working_dir,
            mode=self.mode if mode is None else mode,
            profile=self.profile_name,
            limits=self.own_limits,
            timeout=timeout,
            session_id=self.session_id,
            call_id=call_id,
            live=live if live is not None and _loop_has_glib() else None,
            capture=capture,
        )

    def prepare_unrecorded_run(
        self,
        project: str,
        confinement: Confinement,
        ask: Ask,
        *,
        working_dir: str | None = None,
        timeout: float | None = None,
        capture: int = 1 << 20,
    ) -> UnsandboxedRunner:
        """Put a run without records together, with the session's settings."""
        return prepare_unrecorded_run(
            project,
            self.paths,
            self.environ,
            confinement,
            ask=ask,
            working_dir=working_dir,
            profile=self.profile_name,
            limits=self.own_limits,
            timeout=timeout,
            capture=capture,
        )

    def shown(self, path: str) -> str:
        """Return the path with ~ for the user's home folder."""
        home = self.paths.real_home
        if is_inside(path, home):
            return f"~{path[len(home) :]}"
        return path


def _loop_has_glib() -> bool:
    """Return whether the running loop can watch files."""
    events = sys.modules.get("gi.events")
    return events is not None and isinstance(asyncio.get_running_loop(), events.GLibEventLoop)
