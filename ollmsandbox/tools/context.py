# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tools of a session work with: its project, its rules, who is asked."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from .. import N_
from ..errors import OllmSandboxError
from ..paths import Paths, is_inside
from ..permission.request import PermissionRequest, Verdict
from ..project.changes.change import Mode
from ..project.settings import System, system_of
from ..sandbox.plan.folders import find_project
from ..sandbox.probe.probe import Capabilities, probe
from ..sandbox.profile import file
from ..sandbox.profile.profile import Limits, Profile
from ..sandbox.rootfs.store import Installed, need
from .base import ToolError


class Permissions(Protocol):
    """Decides by a rule, or asks the person."""

    async def decide(self, request: PermissionRequest) -> Verdict: ...


@dataclass
class Workbench:
    """May be changed between two calls; a call that has begun keeps what it was asked with."""

    project: str | None
    paths: Paths
    environ: Mapping[str, str]
    permissions: Permissions
    mode: Mode = Mode.AUTO
    profile_name: str = file.DEFAULT
    ask_every_command: bool = False
    # What the person set instead of the profile's, the time a command may take among it.
    own_limits: Limits = field(default_factory=Limits)
    # Whether web pages may come from this machine and its neighbours.
    allow_private: bool = False
    session_id: str = ""

    def folder(self) -> str:
        """The project, links resolved."""
        if not self.project:
            raise ToolError(N_("No project is open, so there is nothing to work on."))
        try:
            return find_project(self.project, self.paths)
        except OllmSandboxError as error:
            raise ToolError(error.message, error.remedy) from error

    def profile(self) -> Profile:
        found = file.load(self.profile_name, self.paths.profiles, self.paths.cache)
        return found.with_limits(self.own_limits)

    def capabilities(self) -> Capabilities:
        """Found by trying: the first time takes a while."""
        writable = (os.path.realpath(self.project),) if self.project else ()
        return probe(self.paths, self.environ, writable=writable)

    def can_wrap(self) -> bool:
        return self.capabilities().can_wrap

    def rootfs(self) -> Installed | None:
        """The system that the project's commands run in, if it is not the machine's own."""
        if not self.project:
            return None
        system = system_of(self.paths, os.path.realpath(self.project))
        return need(self.paths, self.environ) if system is System.ALPINE else None

    def shown(self, path: str) -> str:
        """As people write it: with ~ for their home."""
        home = self.paths.real_home
        if is_inside(path, home):
            return f"~{path[len(home) :]}"
        return path


def loop_has_glib() -> bool:
    """Whether files can be watched by the loop that runs."""
    events = sys.modules.get("gi.events")
    return events is not None and isinstance(asyncio.get_running_loop(), events.GLibEventLoop)
